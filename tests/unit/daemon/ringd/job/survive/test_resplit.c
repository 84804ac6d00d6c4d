/* SPDX-License-Identifier: MIT
 *
 * Which nodes count as slow, and when other layers on them are worth a move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/ringd/job/survive/resplit.h"
#include "tests/lib/small_plan.h"

enum { LAYERS = 12, UNITS = LAYERS + 2, RANKS = 3, MICROBATCHES = 10, MIB = 1 << 20 };
static const double even[UNITS] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, ones[RANKS] = {1, 1, 1};
static const uint64_t ample[RANKS] = {1000 * MIB, 1000 * MIB, 1000 * MIB};

/* Layers of each rank; 10 MiB each. */
static struct job_plan plan_of(size_t a, size_t b, size_t c)
{
    struct job_plan p = small_plan(JOB_TRAIN, RANKS);
    const size_t layers[RANKS] = {a, b, c};
    p.microbatches = MICROBATCHES;
    for (size_t r = 0; r < RANKS; r++) {
        p.first[r + 1] = p.first[r] + layers[r];
        p.bytes[r] = layers[r] * 10 * MIB;
    }
    return p;
}

/* A thousand steps of 1 s are left, a move takes 2 s. */
static struct resplit_request request_of(const struct job_plan *plan, const double *computes)
{
    return (struct resplit_request){.plan = plan,
                                    .unit_cost = even,
                                    .speed = ones,
                                    .slowness = ones,
                                    .available = ample,
                                    .computes = computes,
                                    .step = 1,
                                    .left = 1000,
                                    .restart = 2};
}

static void a_slow_node_is_named_with_what_is_saved(void **state)
{
    (void)state;
    static const struct {
        double computes[RANKS], step;
        int slow; /* −1: none */
        double times;
    } cases[] = {
        {{0.02, 0.02, 0.02}, 1, -1, 0},         {{0.02, 0.042, 0.02}, 1, 1, 2.1},
        {{0.042, 0.02, 0.02}, 1, 0, 2.1},       {{0.02, 0.02, 0.08}, 1, 2, 4},
        {{0.02, 0.03, 0.02}, 0.34, -1, 0}, /* a seventh would be saved, but that may be the model */
        {{0.02, 0.0321, 0.02}, 0.34, 1, 1.605}, {{0.04, 0.04, 0.04}, 1, -1, 0},
        {{0.02, 0.02, 0.005}, 0.26, -1, 0}, /* faster than planned, and never slow */
    };
    const struct job_plan plan = plan_of(4, 4, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct resplit_request req = request_of(&plan, cases[i].computes);
        struct resplit found;
        req.step = cases[i].step;
        if (cases[i].slow < 0) {
            assert_false(resplit_pays(&found, &req));
            continue;
        }
        assert_true(resplit_pays(&found, &req));
        assert_int_equal(found.cause, RESPLIT_SLOWER);
        assert_int_equal(found.rank, cases[i].slow);
        assert_float_equal(found.times, cases[i].times, 1e-9);
        assert_float_equal(found.slowness[cases[i].slow], cases[i].times, 1e-9);
    }
}

/* 4 layers of 5 ms on two nodes, of 10.5 ms on the third: (20 + 42 + 20) + 9 · 42 = 460 ms. With 5,
 * 2 and 5 layers (25 + 21 + 25) + 9 · 25 = 296 ms. The rest of a step stays. */
static void the_forecast_counts_what_is_not_computing(void **state)
{
    (void)state;
    static const double computes[RANKS] = {0.02, 0.042, 0.02};
    const struct job_plan plan = plan_of(4, 4, 4);
    struct resplit_request req = request_of(&plan, computes);
    struct resplit found;
    assert_true(resplit_pays(&found, &req));
    assert_float_equal(found.step, 1 - 0.460 + 0.296, 1e-9);
    req.step = 0.460;
    assert_true(resplit_pays(&found, &req));
    assert_float_equal(found.step, 0.296, 1e-9);
    req.step = 0.230; /* ranks compute at the same time, more than was thought */
    assert_true(resplit_pays(&found, &req));
    assert_float_equal(found.step, 0.148, 1e-9);
    req.step = 2; /* 0.164 s of 2 s are no tenth */
    assert_false(resplit_pays(&found, &req));
}

/* 0.164 s are saved in a step: four times a move of 2 s in 49 steps. */
static void enough_must_be_left(void **state)
{
    (void)state;
    static const double computes[RANKS] = {0.02, 0.042, 0.02};
    const struct job_plan plan = plan_of(4, 4, 4);
    struct resplit_request req = request_of(&plan, computes);
    struct resplit found;
    req.left = 48;
    assert_false(resplit_pays(&found, &req));
    req.left = 49;
    assert_true(resplit_pays(&found, &req));
    req.restart = 100;
    assert_false(resplit_pays(&found, &req));
}

/* It was slow when this was planned. */
static void what_was_learned_is_not_learned_twice(void **state)
{
    (void)state;
    static const double speed[RANKS] = {1, 1 / 2.1, 1}, slowness[RANKS] = {1, 2.1, 1};
    static const double still[RANKS] = {0.025, 0.021, 0.025}, again[RANKS] = {0.025, 0.01, 0.025},
                        more[RANKS] = {0.025, 0.084, 0.025};
    const struct job_plan plan = plan_of(5, 2, 5);
    struct resplit_request req = request_of(&plan, still);
    struct resplit found;
    req.speed = speed;
    req.slowness = slowness;
    req.step = 0.3;
    assert_false(resplit_pays(&found, &req));
    req.computes = again;
    assert_true(resplit_pays(&found, &req));
    assert_int_equal(found.cause, RESPLIT_FASTER);
    assert_int_equal(found.rank, 1);
    assert_float_equal(found.times, 2.1, 1e-9);
    assert_float_equal(found.slowness[1], 1, 1e-9);
    req.computes = more;
    req.step = 0.89;
    assert_true(resplit_pays(&found, &req));
    assert_int_equal(found.cause, RESPLIT_SLOWER);
    assert_float_equal(found.times, 4, 1e-9);
    assert_float_equal(found.slowness[1], 8.4, 1e-9);
}

/* Nothing is measured there: after a while it is taken as fast as it once was. */
static void a_node_without_a_layer_is_tried_again(void **state)
{
    (void)state;
    static const double speed[RANKS] = {1, 1.0 / 20, 1}, slowness[RANKS] = {1, 20, 1};
    static const double computes[RANKS] = {0.03, 0.0001, 0.03};
    const struct job_plan plan = plan_of(6, 0, 6);
    struct resplit_request req = request_of(&plan, computes);
    struct resplit found;
    req.speed = speed;
    req.slowness = slowness;
    req.step = 0.33;
    assert_false(resplit_pays(&found, &req));
    req.is_tried = true;
    assert_true(resplit_pays(&found, &req));
    assert_int_equal(found.cause, RESPLIT_TRIED);
    assert_int_equal(found.rank, 1);
    assert_float_equal(found.slowness[1], 1, 1e-9);
}

/* The others have room for no layer more. */
static void layers_move_only_where_there_is_room(void **state)
{
    (void)state;
    static const double computes[RANKS] = {0.02, 0.042, 0.02};
    static const uint64_t scarce[RANKS] = {45 * MIB, 1000 * MIB, 45 * MIB}, none[RANKS] = {0};
    const struct job_plan plan = plan_of(4, 4, 4);
    struct resplit_request req = request_of(&plan, computes);
    struct resplit found;
    req.available = scarce;
    assert_false(resplit_pays(&found, &req));
    req.available = none; /* nobody said */
    assert_true(resplit_pays(&found, &req));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_node_is_named_with_what_is_saved),
        cmocka_unit_test(the_forecast_counts_what_is_not_computing),
        cmocka_unit_test(enough_must_be_left),
        cmocka_unit_test(what_was_learned_is_not_learned_twice),
        cmocka_unit_test(a_node_without_a_layer_is_tried_again),
        cmocka_unit_test(layers_move_only_where_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
