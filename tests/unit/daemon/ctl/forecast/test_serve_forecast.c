/* SPDX-License-Identifier: MIT
 *
 * Serving on paper, against what can be counted by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "daemon/ctl/forecast/serve_forecast.h"

enum { NODES = 4 };

/* A row takes as long as two: 1 s on each node, and messages take no time. */
static const struct serve_stage second = {.rows = {2, {1, 64}, {1, 1}}};

struct world {
    struct serve_stage stage[NODES];
    struct serve_ring ring;
};

static void make_world(struct world *w, size_t nodes, size_t streams)
{
    for (size_t i = 0; i < NODES; i++)
        w->stage[i] = second;
    w->ring = (struct serve_ring){.limits = {nodes, 32, 128},
                                  .stage = w->stage,
                                  .row_bytes = 100,
                                  .streams = streams,
                                  .prompt = 8,
                                  .tokens = 40};
}

static struct serve_forecast run(const struct serve_ring *ring)
{
    struct serve_forecast f;
    struct err err;
    if (serve_forecast_make(&f, ring, &err))
        fail_msg("%s", err.text);
    return f;
}

static void a_pipeline_without_latency_serves_a_stream_more_for_each_node(void **state)
{
    (void)state;
    struct world w;
    make_world(&w, NODES, 1);
    struct serve_forecast one = run(&w.ring);
    assert_float_equal(one.tokens_per_second, 1.0 / NODES, 1e-9);
    assert_float_equal(one.gap, NODES, 1e-9);
    assert_float_equal(one.first, NODES, 1e-9);
    assert_float_equal(one.busy[0], 1.0 / NODES, 1e-9);
    make_world(&w, NODES, NODES);
    struct serve_forecast many = run(&w.ring);
    /* The time that is looked at begins and ends with a token: some of the first are not in it. */
    assert_float_equal(many.tokens_per_second, NODES * one.tokens_per_second, 0.03);
    assert_float_equal(many.gap, NODES, 1e-9);
    assert_true(many.busy[0] > 0.9 && many.busy[NODES - 1] > 0.9);
    serve_forecast_done(&one);
    serve_forecast_done(&many);
}

/* With more streams than nodes, each microbatch holds its share of them. */
static void streams_share_microbatches(void **state)
{
    (void)state;
    struct world w;
    make_world(&w, 1, 8);
    struct serve_forecast f = run(&w.ring);
    assert_float_equal(f.tokens_per_second, 8, 1e-9);
    serve_forecast_done(&f);
    make_world(&w, NODES, 8);
    f = run(&w.ring);
    assert_float_equal(f.tokens_per_second, 2, 0.1);
    serve_forecast_done(&f);
}

static void a_slow_cable_shows(void **state)
{
    (void)state;
    struct world w;
    make_world(&w, NODES, NODES);
    struct serve_forecast fast = run(&w.ring);
    w.stage[1].hop_byte = 3.0 / 100; /* a row takes 3 s */
    struct serve_forecast slow = run(&w.ring);
    assert_true(slow.tokens_per_second < 0.6 * fast.tokens_per_second);
    assert_true(slow.cable[1] > 0.5 && slow.cable[0] == 0 && slow.busy[2] < 0.6);
    w.stage[1].hop_byte = 0;
    w.stage[1].hop = 2; /* one that only waits carries nothing */
    struct serve_forecast late = run(&w.ring);
    assert_float_equal(late.gap, NODES + 2, 1e-9);
    assert_float_equal(late.cable[1], 0, 0);
    serve_forecast_done(&fast);
    serve_forecast_done(&slow);
    serve_forecast_done(&late);
}

static void a_long_prompt_is_read_in_pieces(void **state)
{
    (void)state;
    struct world w;
    make_world(&w, 1, 1);
    w.ring.prompt = 1024; /* 8 pieces of 128 rows */
    struct serve_forecast f = run(&w.ring);
    assert_float_equal(f.first, 8, 1e-9);
    w.stage[0].position = 1.0 / 128; /* pieces have 0, 128, … 896 positions before them */
    struct serve_forecast far = run(&w.ring);
    assert_float_equal(far.first, 8 + 128 * (0 + 1 + 2 + 3 + 4 + 5 + 6 + 7), 1e-6);
    serve_forecast_done(&f);
    serve_forecast_done(&far);
}

/* Two layers on two nodes that share them: half of the work, eight gatherings of 0.01 s and half of
 * 200 bytes a layer and row, one more of 0.01 s and half of 400 bytes for a token. */
static void nodes_that_share_a_stage_gather(void **state)
{
    (void)state;
    struct world w;
    make_world(&w, 1, 1);
    w.stage[0].layers = 2;
    w.stage[0].choices = (struct rows_line){2, {1, 2}, {0.3, 0.4}};
    w.stage[0].position = 1;
    serve_ring_share(&w.ring, &(struct serve_sharing){.slices = 1, .once = 1, .byte = 1});
    assert_float_equal(w.stage[0].gather, 0, 0);
    assert_float_equal(w.stage[0].position, 1, 0);
    const struct serve_sharing two = {
        .slices = 2, .layer_bytes = 200, .score_bytes = 400, .once = 0.01, .byte = 0.001};
    serve_ring_share(&w.ring, &two);
    assert_float_equal(w.stage[0].position, 0.5, 1e-12);
    w.stage[0].position = 0;
    struct serve_forecast f = run(&w.ring);
    const double behind = 0.15 + 0.01 + 0.2;
    assert_float_equal(f.gap, 0.5 + 0.08 + 0.2 + behind, 1e-9);
    assert_float_equal(f.first, 0.5 + 0.08 + 8 * 0.2 + behind, 1e-9);
    serve_forecast_done(&f);

    /* Two streams in one microbatch: one gathering of both tokens' scores. */
    w.ring.streams = 2;
    f = run(&w.ring);
    assert_float_equal(f.gap, 0.5 + 0.08 + 2 * 0.2 + 0.2 + 0.01 + 2 * 0.2, 1e-9);
    serve_forecast_done(&f);
}

static void the_same_comes_out_again(void **state)
{
    (void)state;
    struct world w;
    make_world(&w, 3, 17);
    w.stage[1].hop = 0.1;
    w.stage[2].rows.seconds[1] = 1.7;
    struct serve_forecast a = run(&w.ring), b = run(&w.ring);
    assert_memory_equal(&a.tokens_per_second, &b.tokens_per_second, sizeof a.tokens_per_second);
    assert_memory_equal(&a.gap_p99, &b.gap_p99, sizeof a.gap_p99);
    assert_memory_equal(a.busy, b.busy, 3 * sizeof *a.busy);
    serve_forecast_done(&a);
    serve_forecast_done(&b);
}

static void what_takes_no_time_is_refused(void **state)
{
    (void)state;
    struct world w;
    struct serve_forecast f;
    struct err err;
    make_world(&w, 1, 1);
    w.stage[0].rows = (struct rows_line){0};
    assert_int_not_equal(serve_forecast_make(&f, &w.ring, &err), 0);
    assert_non_null(strstr(err.text, "take time"));
    make_world(&w, 1, SERVE_STREAMS_MOST + 1);
    assert_int_not_equal(serve_forecast_make(&f, &w.ring, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipeline_without_latency_serves_a_stream_more_for_each_node),
        cmocka_unit_test(streams_share_microbatches),
        cmocka_unit_test(a_slow_cable_shows),
        cmocka_unit_test(a_long_prompt_is_read_in_pieces),
        cmocka_unit_test(nodes_that_share_a_stage_gather),
        cmocka_unit_test(the_same_comes_out_again),
        cmocka_unit_test(what_takes_no_time_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
