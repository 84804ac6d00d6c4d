/* SPDX-License-Identifier: MIT
 *
 * Forecasts against the formulas of docs/SCHEDULES.md, and against what can be counted by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "daemon/ctl/forecast/forecast.h"

/* Four nodes with two layers each, eight microbatches; F = I = W = 1 s a layer, and messages that
 * take no time. */
static const struct forecast_request plain = {.schedule = "1f1b",
                                              .nodes = 4,
                                              .layers = 8,
                                              .microbatches = 8,
                                              .replicas = 1,
                                              .forward = 1,
                                              .input = 1,
                                              .weights = 1,
                                              .rate = 1e30,
                                              .message = 100,
                                              .kept = 1000,
                                              .params = 800,
                                              .param_bytes = 16,
                                              .grad_bytes = 4};

static struct forecast make(const struct forecast_request *req)
{
    struct forecast f;
    struct err err;
    if (forecast_make(&f, req, &err))
        fail_msg("%s", err.text);
    return f;
}

static void steps_take_what_the_formulas_say(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        size_t chunks;
        double seconds; /* T = 6 s a node and microbatch */
    } known[] = {{"gpipe", 0, 11 * 6},
                 {"1f1b", 0, 11 * 6},
                 {"interleaved-1f1b", 2, 8 * 6 + 3 * 3},
                 {"zb-h1", 0, 8 * 6 + 3 * 2},
                 {"zbv", 0, 8 * 6 + 3 * 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct forecast_request req = plain;
        req.schedule = known[i].schedule;
        req.chunks = known[i].chunks;
        struct forecast f = make(&req);
        assert_float_equal(f.seconds, known[i].seconds, 1e-9);
        assert_float_equal(f.bubble, 1 - 48 / known[i].seconds, 1e-9);
        forecast_done(&f);
    }
}

static void bytes_and_memory_are_counted(void **state)
{
    (void)state;
    struct forecast f = make(&plain);
    assert_float_equal(f.node[0].to_next, 800, 0);
    assert_float_equal(f.node[0].to_prev, 0, 0);
    assert_float_equal(f.node[3].to_next, 0, 0);
    assert_float_equal(f.node[2].to_prev, 800, 0);
    for (size_t r = 0; r < 4; r++) {
        assert_int_equal(f.node[r].layers, 2);
        assert_int_equal(f.node[r].in_flight, 4 - r);
        assert_float_equal(f.node[r].busy, 48, 1e-9);
        /* Two layers of each microbatch in flight, a quarter of the parameters. */
        assert_float_equal(f.node[r].memory, (double)(4 - r) * 2000 + 200 * 16, 1e-9);
    }
    assert_float_equal(forecast_most(&f).memory, 11200, 1e-9);
    forecast_done(&f);

    /* Stages in a loop use the closing cable: the last node hands on to the first. */
    struct forecast_request loop = plain;
    loop.schedule = "interleaved-1f1b";
    f = make(&loop);
    assert_float_equal(f.node[3].to_next, 800, 0);
    assert_float_equal(f.node[0].to_prev, 800, 0);
    assert_float_equal(f.node[1].to_next, 1600, 0);
    forecast_done(&f);
}

static struct forecast make_again(const char *schedule, enum forecast_recompute how)
{
    struct forecast_request req = plain;
    req.schedule = schedule;
    req.recompute = how;
    return make(&req);
}

static void forwards_done_again_cost_time_and_save_memory(void **state)
{
    (void)state;
    struct forecast f = make_again("gpipe", FORECAST_NONE);
    assert_float_equal(f.seconds, 11 * 6, 1e-9);
    assert_float_equal(f.node[0].memory, 8 * 2000 + 3200, 1e-9);
    forecast_done(&f);

    /* Each backward of the last node has an R before it; on the others R hides behind the
     * gradient's way. */
    f = make_again("gpipe", FORECAST_STAGE);
    assert_float_equal(f.seconds, 11 * 2 + 8 * (2 + 4) + 3 * 4, 1e-9);
    assert_float_equal(f.node[0].busy, 48 + 8 * 2, 1e-9);
    assert_float_equal(f.node[0].memory, 8 * 100 + 2000 + 3200,
                       1e-9); /* eight inputs, one layer's activations */
    assert_int_equal(f.node[0].recompute, FORECAST_STAGE);
    assert_int_equal(f.node[0].in_flight, 8);
    forecast_done(&f);

    f = make_again("gpipe", FORECAST_LAYER);
    assert_float_equal(f.seconds, 11 * 8, 1e-9);
    assert_float_equal(f.node[0].memory, 8 * 2 * 100 + 1000 + 3200, 1e-9); /* inputs of both layers */
    forecast_done(&f);

    /* I and W apart: each layer's forward twice; a stage's once, and its buffer is held until W. */
    f = make_again("zb-h1", FORECAST_LAYER);
    assert_float_equal(f.node[0].busy, 8 * (2 + 4 + 4), 1e-9);
    forecast_done(&f);
    f = make_again("zb-h1", FORECAST_STAGE);
    assert_float_equal(f.node[0].busy, 8 * (2 + 2 + 4), 1e-9);
    forecast_done(&f);

    /* The last node of 1f1b goes back at once: nothing is to be done again. */
    f = make_again("1f1b", FORECAST_STAGE);
    assert_float_equal(f.node[3].busy, 48, 1e-9);
    assert_float_equal(f.node[2].busy, 64, 1e-9);
    forecast_done(&f);
}

static void nodes_short_of_memory_do_forwards_again(void **state)
{
    (void)state;
    struct forecast_request req = plain;
    req.recompute = FORECAST_AUTO;
    struct forecast f = make(&req); /* nothing said of a node's memory: nobody is short */
    assert_float_equal(f.seconds, 11 * 6, 1e-9);
    forecast_done(&f);

    req.node_memory = 10000; /* the first holds 11200, the second 9200 */
    f = make(&req);
    assert_int_equal(f.node[0].recompute, FORECAST_STAGE);
    assert_float_equal(f.node[0].memory, 4 * 100 + 2000 + 3200, 1e-9);
    assert_float_equal(f.node[0].busy, 64, 1e-9);
    assert_int_equal(f.node[1].recompute, FORECAST_NONE);
    assert_float_equal(f.node[1].memory, 9200, 1e-9);
    assert_float_equal(f.node[1].busy, 48, 1e-9);
    forecast_done(&f);
}

static void slow_links_cost_time(void **state)
{
    (void)state;
    struct forecast_request slow = plain;
    slow.nodes = 2;
    slow.layers = 2;
    slow.microbatches = 1;
    slow.rate = 50;
    slow.latency = 0.5;
    struct forecast f = make(&slow); /* F, message, F, B, message, B */
    assert_float_equal(f.seconds, 1 + 2.5 + 1 + 2 + 2.5 + 2, 1e-9);
    forecast_done(&f);
}

static void replicas_add_up_their_gradients(void **state)
{
    (void)state;
    struct forecast_request many = plain;
    many.replicas = 4;
    many.message = 0;
    many.rate = 100;
    many.overlap = FORECAST_BEHIND;
    struct forecast f = make(&many); /* 200 parameters of 4 bytes: three quarters of them, twice */
    assert_float_equal(f.reducing, 2 * 600 / 100.0, 1e-9);
    assert_float_equal(f.seconds, 66 + 12, 1e-9);
    assert_float_equal(f.bubble, 1 - 48 / 78.0, 1e-9);
    forecast_done(&f);

    /* The first node's last backward takes 4 s: half of its gradients leave 2 s before the end. */
    many.overlap = FORECAST_BY_UNIT;
    f = make(&many);
    assert_float_equal(f.reducing, 10, 1e-9);
    forecast_done(&f);

    /* Two chunks a node: what the upper one has to send, it sends while the lower one computes. */
    many.schedule = "interleaved-1f1b";
    many.overlap = FORECAST_BY_STAGE;
    f = make(&many);
    assert_float_equal(f.reducing, 6, 1e-9);
    forecast_done(&f);
}

/* Two layers on two nodes that share them: half of 1 s each for F, I and W, and what they gather.
 * A message takes 0.25 s and 100 bytes a second. */
static const struct forecast_request shared = {.schedule = "1f1b",
                                               .nodes = 1,
                                               .layers = 2,
                                               .microbatches = 1,
                                               .replicas = 1,
                                               .slices = 2,
                                               .gathered = 650,
                                               .gathered_back = 1050,
                                               .gathered_weights = 450,
                                               .forward = 1,
                                               .input = 1,
                                               .weights = 1,
                                               .rate = 100,
                                               .latency = 0.25,
                                               .message = 100,
                                               .kept = 1000,
                                               .params = 800,
                                               .param_bytes = 16,
                                               .grad_bytes = 4};

static void nodes_that_share_a_stage_gather(void **state)
{
    (void)state;
    const double forward = 0.5 + 4 * 0.25 + 325 / 100.0, input = 0.5 + 7 * 0.25 + 525 / 100.0,
                 weights = 0.5 + 2 * 0.25 + 225 / 100.0,
                 update = 7 * 0.25 + 400 * 4 / 2 / 100.0; /* half of 400 gradients of a layer */
    struct forecast f = make(&shared);
    assert_float_equal(f.updating, 2 * update, 1e-9);
    assert_float_equal(f.seconds, 2 * (forward + input + weights + update), 1e-9);
    assert_float_equal(f.node[0].busy, f.seconds, 1e-9);
    assert_float_equal(f.bubble, 0, 1e-9);
    assert_float_equal(f.node[0].gathering, f.seconds - 2 * 1.5, 1e-9);
    assert_float_equal(f.node[0].gathered, 2 * (325 + 525 + 225) + 1600, 1e-9);
    /* Of what a layer keeps, its input whole; and all of the weights. */
    assert_float_equal(f.node[0].memory, 2 * (100 + 900 / 2.0) + 800 * 16, 1e-9);
    forecast_done(&f);

    /* An adapter: each node does all of W, and the update gathers nothing. */
    struct forecast_request req = shared;
    req.adapters = 1;
    f = make(&req);
    assert_float_equal(f.seconds, 2 * (forward + input + weights + 0.5), 1e-9);
    assert_float_equal(f.node[0].gathered, 2 * (325 + 525 + 225), 1e-9);
    forecast_done(&f);

    /* Of other matrices than outputs and down projections, W gathers nothing either. */
    req.gathered_weights = 0;
    f = make(&req);
    assert_float_equal(f.seconds, 2 * (forward + input + 1), 1e-9);
    assert_float_equal(f.node[0].gathered, 2 * (325 + 525), 1e-9);
    forecast_done(&f);

    /* A forward that is done again gathers again. */
    req.recompute = FORECAST_LAYER;
    f = make(&req);
    assert_float_equal(f.seconds, 2 * (2 * forward + input + 1), 1e-9);
    assert_float_equal(f.node[0].gathered, 2 * (2 * 325 + 525), 1e-9);
    forecast_done(&f);
}

static void nodes_that_share_stages_divide_the_work(void **state)
{
    (void)state;
    struct forecast_request req = plain;
    req.slices = 2;
    struct forecast f = make(&req);
    assert_float_equal(f.seconds, 66 / 2.0, 1e-9);
    assert_float_equal(f.node[0].to_next, 800, 0); /* each hands on whole rows */
    forecast_done(&f);

    /* Two stages of a layer: (m + p - 1) F, m (R + B), (p - 1) B. */
    req.nodes = req.layers = req.microbatches = 2;
    req.schedule = "gpipe";
    req.recompute = FORECAST_STAGE;
    f = make(&req);
    assert_float_equal(f.seconds, 3 * 0.5 + 2 * (0.5 + 1) + 1, 1e-9);
    forecast_done(&f);

    /* Replicas add up as much: each node has all gradients. */
    req = shared;
    req.replicas = 2;
    req.overlap = FORECAST_BEHIND;
    f = make(&req);
    assert_float_equal(f.reducing, 800 * 4 / 100.0 + 2 * 0.25, 1e-9);
    forecast_done(&f);
}

static void a_thousand_nodes_are_none_too_many(void **state)
{
    (void)state;
    struct forecast_request large = plain;
    large.nodes = large.layers = 1024;
    large.microbatches = 64;
    struct forecast f = make(&large);
    assert_float_equal(f.seconds, (1024 + 63) * 3, 1e-6);
    forecast_done(&f);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct forecast f;
    struct err err;
    struct forecast_request wrong = plain;
    wrong.schedule = "dance";
    assert_int_equal(forecast_make(&f, &wrong, &err), -EINVAL);
    assert_non_null(strstr(err.text, "there is no schedule \"dance\""));
    wrong = plain;
    wrong.chunks = 2;
    assert_int_equal(forecast_make(&f, &wrong, &err), -EINVAL);
    wrong = plain;
    wrong.rate = 0;
    assert_int_equal(forecast_make(&f, &wrong, &err), -EINVAL);
    wrong = plain;
    wrong.nodes = 1025;
    assert_int_equal(forecast_make(&f, &wrong, &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_take_what_the_formulas_say),
        cmocka_unit_test(bytes_and_memory_are_counted),
        cmocka_unit_test(forwards_done_again_cost_time_and_save_memory),
        cmocka_unit_test(nodes_short_of_memory_do_forwards_again),
        cmocka_unit_test(slow_links_cost_time),
        cmocka_unit_test(replicas_add_up_their_gradients),
        cmocka_unit_test(nodes_that_share_a_stage_gather),
        cmocka_unit_test(nodes_that_share_stages_divide_the_work),
        cmocka_unit_test(a_thousand_nodes_are_none_too_many),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
