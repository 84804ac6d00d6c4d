/* SPDX-License-Identifier: MIT
 *
 * What a node answers when another asks what units of a model cost: of a tiny model on disk, of one
 * it has not, and of questions that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/stage/plan/stage_units.h"
#include "tests/lib/tiny.h"

enum { LAYERS = 3, UNITS = LAYERS + 2 };

struct world {
    struct temp_dir model, cache;
    struct config config;
    struct job_plan plan;
    struct unit_list list;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct err err;
    assert_non_null(w);
    w->model = temp_dir_new();
    w->cache = temp_dir_new();
    setenv("CACHE_DIRECTORY", w->cache.path, 1);
    w->config = tiny_write(w->model.path, &(struct tiny_spec){.layers = LAYERS, .dtype = DTYPE_F32});
    w->plan = (struct job_plan){.type = JOB_TRAIN,
                                .ranks = 2,
                                .microbatches = 4,
                                .round_steps = 1,
                                .training = true,
                                .tokens = 8,
                                .seqs = 2,
                                .positions = 8,
                                .vocab = w->config.vocab,
                                .dim = w->config.dim,
                                .tune = {.kind = TUNE_FULL, .end_layer = LAYERS}};
    snprintf(w->plan.model, sizeof w->plan.model, "%s", w->model.path);
    assert_int_equal(config_fingerprint(w->plan.fingerprint, w->plan.model, &err), 0);
    w->list.n = UNITS;
    for (size_t u = 0; u < UNITS; u++)
        w->list.at[u] =
            (struct unit_want){.unit = u, .tokens = 8, .seqs = 2, .trained = u > 1, .needed = true};
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    temp_dir_free(&w->model);
    temp_dir_free(&w->cache);
    free(w);
    return 0;
}

/* Asks as a head does and reads as a head does; how many were told. */
static size_t ask(const struct world *w, bool may_time, struct sched_cost costs[UNITS], bool have[UNITS],
                  char why[300])
{
    json_t *question = units_encode(&w->list, &w->plan), *answer = units_answer(question, 1, may_time);
    size_t n = 0;
    units_decode_answer(costs, have, UNITS, answer);
    for (size_t i = 0; i < UNITS; i++)
        n += have[i];
    snprintf(why, 300, "%s", json_string_value(json_object_get(answer, "why")));
    json_decref(question);
    json_decref(answer);
    return n;
}

static void test_timed_and_kept(void **state)
{
    const struct world *w = *state;
    struct sched_cost costs[UNITS], again[UNITS];
    bool have[UNITS];
    char why[300];
    assert_int_equal(ask(w, false, costs, have, why), 0); /* a job runs, and nothing is known yet */
    assert_non_null(strstr(why, "not timed before"));
    assert_int_equal(ask(w, true, costs, have, why), UNITS);
    assert_string_equal(why, "");
    for (size_t u = 0; u < UNITS; u++) {
        assert_true(costs[u].f > 0);
        assert_int_equal(costs[u].u > 0, u > 1); /* norm and optimizer, of what is trained */
        if (u + 1 < UNITS)                       /* the head has done that with its loss */
            assert_int_equal(costs[u].w > 0, u > 1);
    }
    assert_int_equal(ask(w, false, again, have, why), UNITS);
    for (size_t u = 0; u < UNITS; u++)
        assert_true(again[u].f == costs[u].f && again[u].w == costs[u].w && again[u].u == costs[u].u);
}

static void test_a_generation(void **state)
{
    struct world *w = *state;
    struct sched_cost costs[UNITS];
    bool have[UNITS];
    char why[300];
    w->plan.type = JOB_GENERATE;
    w->plan.training = false;
    w->plan.kv = true;
    w->plan.seqs = 1;
    w->plan.tune = (struct tune){.end_layer = LAYERS};
    for (size_t u = 0; u < UNITS; u++)
        w->list.at[u] = (struct unit_want){.unit = u, .tokens = 1, .seqs = 1, .at = u, .needed = true};
    assert_int_equal(ask(w, true, costs, have, why), UNITS);
    for (size_t u = 0; u < UNITS; u++)
        assert_true(costs[u].f > 0 && costs[u].i == 0 && costs[u].w == 0);
    w->list.at[0].at = 8; /* behind the last position */
    assert_int_equal(ask(w, true, costs, have, why), 0);
    assert_non_null(strstr(why, "same ringd"));
}

static void test_another_model(void **state)
{
    struct world *w = *state;
    struct sched_cost costs[UNITS];
    bool have[UNITS];
    char why[300];
    w->plan.fingerprint[0] ^= 1;
    assert_int_equal(ask(w, true, costs, have, why), 0);
    assert_non_null(strstr(why, "differs from the head's"));
    snprintf(w->plan.model, sizeof w->plan.model, "%s/none", w->model.path);
    assert_int_equal(ask(w, true, costs, have, why), 0);
    assert_true(*why);
}

static void test_questions_that_are_none(void **state)
{
    struct world *w = *state;
    struct sched_cost costs[UNITS];
    bool have[UNITS];
    char why[300];
    static const struct unit_want wrong[] = {{UNITS, 8, 2, 0, false, true},
                                             {1, 0, 1, 0, false, true},
                                             {1, 8, 9, 0, false, true},
                                             {1, 2 << 20, 1, 0, false, true}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        w->list.at[2] = wrong[i];
        assert_int_equal(ask(w, true, costs, have, why), 0);
        assert_non_null(strstr(why, "same ringd"));
    }
    json_t *answer = units_answer(NULL, 1, true);
    assert_int_equal(json_array_size(json_object_get(answer, "costs")), 0);
    json_decref(answer);
    answer = json_pack("{s:[[f,f,f,f,f],n,[f,f,f,f,f],[i,s]]}", "costs", 1.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0,
                       0.0, 0.0, 0.0, 1, "x");
    assert_int_equal(units_decode_answer(costs, have, 4, answer), 0);
    assert_true(have[0] && !have[1] && !have[2] && !have[3]);
    assert_int_not_equal(units_decode_answer(costs, have, 3, answer), 0);
    assert_false(have[0]);
    json_decref(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_timed_and_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_generation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_model, setup, teardown),
        cmocka_unit_test_setup_teardown(test_questions_that_are_none, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
