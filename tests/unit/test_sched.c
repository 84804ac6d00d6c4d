/* SPDX-License-Identifier: MIT
 *
 * The built-in schedules and their simulation: against closed forms and, where it is there, against the
 * shared oracle. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipe/sched.h"

static struct sched *make(const char *name, size_t ranks, size_t microbatches)
{
    struct sched *sched = NULL;
    struct err err = {0};
    int rc = sched_make(&sched, name, ranks, microbatches, &err);
    if (rc < 0)
        fail_msg("%s p=%zu m=%zu: %s", name, ranks, microbatches, err.text);
    return sched;
}

static struct sched_sim simulate(const struct sched *sched, double f, double i, double w)
{
    struct sched_sim sim;
    struct err err = {0};
    if (sched_simulate(&sim, sched, (struct sched_costs){f, i, w}, &err) < 0)
        fail_msg("%s", err.text);
    return sim;
}

static void assert_near(double got, double wanted, const char *what)
{
    if (fabs(got - wanted) > 1e-5 * fmax(1.0, fabs(wanted)))
        fail_msg("%s: %.9g, expected %.9g", what, got, wanted);
}

static char *order_text(const struct sched_list *list)
{
    char *text = calloc(list->n + 1, 24), *end = text;
    assert_non_null(text);
    for (size_t k = 0; k < list->n; k++) {
        char name[24];
        end += sprintf(end, "%s%s", k ? " " : "", sched_task_name(name, sizeof name, &list->tasks[k]));
    }
    return text;
}

static void assert_order(const struct sched *sched, size_t rank, const char *wanted)
{
    char *text = order_text(&sched->rank[rank]);
    assert_string_equal(text, wanted);
    free(text);
}

static void test_orders_by_hand(void **state)
{
    (void)state;
    struct sched *sched = make("naive", 2, 2);
    assert_order(sched, 0, "0F0 0B0 0F1 0B1");
    assert_order(sched, 1, "1F0 1B0 1F1 1B1");
    sched_free(sched);
    sched = make("gpipe", 2, 3);
    assert_order(sched, 1, "1F0 1F1 1F2 1B0 1B1 1B2");
    sched_free(sched);
    sched = make("1f1b", 3, 4);
    assert_order(sched, 0, "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
    assert_order(sched, 1, "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3");
    assert_order(sched, 2, "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
    sched_free(sched);
    sched = make("1f1b", 4, 2); /* fewer microbatches than the warm-up would take */
    assert_order(sched, 0, "0F0 0F1 0B0 0B1");
    sched_free(sched);
}

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void test_closed_forms(void **state)
{
    (void)state;
    const double f = 1.0, i = 1.5, w = 0.25, t = f + i + w;
    for (size_t p = 1; p <= 8; p++)
        for (size_t m = 1; m <= 24; m++)
            for (size_t k = 0; sched_names()[k]; k++) {
                const char *name = sched_names()[k];
                bool naive = strcmp(name, "naive") == 0, gpipe = strcmp(name, "gpipe") == 0;
                struct sched *sched = make(name, p, m);
                struct sched_sim sim = simulate(sched, f, i, w);
                double makespan = (double)(naive ? m * p : m + p - 1) * t;
                assert_near(sim.makespan, makespan, "makespan");
                assert_near(sim.bubble, 1.0 - (double)m * t / makespan, "bubble");
                for (size_t r = 0; r < p; r++) {
                    assert_near(sim.idle[r], makespan - (double)m * t, "idle");
                    assert_int_equal(sim.peak[r], naive ? 1 : gpipe ? m : at_most(m, p - r));
                }
                sched_sim_done(&sim);
                sched_free(sched);
            }
}

static void test_start_times(void **state)
{
    (void)state;
    struct sched *sched = make("1f1b", 2, 2);
    struct sched_sim sim = simulate(sched, 1, 1, 1);
    /* 0F0 0F1 0B0 0B1, then 1F0 1B0 1F1 1B1 */
    const double wanted[] = {0, 1, 4, 7, 1, 2, 4, 5};
    for (size_t k = 0; k < 8; k++)
        assert_near(sim.start[k], wanted[k], "start");
    sched_sim_done(&sim);
    sched_free(sched);
}

/* Halves of a backward, mixed with whole ones on another rank: W delays nobody else. */
static void test_split_backward(void **state)
{
    (void)state;
    struct sched_task first[] = {{OP_F, 0, 0}, {OP_F, 0, 1}, {OP_I, 0, 0},
                                 {OP_W, 0, 0}, {OP_I, 0, 1}, {OP_W, 0, 1}};
    struct sched_task second[] = {{OP_F, 1, 0}, {OP_I, 1, 0}, {OP_F, 1, 1}, {OP_B, 1, 1}, {OP_W, 1, 0}};
    struct sched_list lists[] = {{first, 6}, {second, 5}};
    uint32_t placement[] = {0, 1};
    struct sched sched = {2, 2, 2, placement, lists};
    struct sched_sim sim = simulate(&sched, 1, 1, 1);
    assert_near(sim.makespan, 8, "makespan");
    assert_near(sim.span[0], 8, "span 0");
    assert_near(sim.span[1], 6, "span 1");
    assert_int_equal(sim.peak[0], 2);
    assert_int_equal(sim.peak[1], 2);
    sched_sim_done(&sim);
}

static void test_refusals(void **state)
{
    (void)state;
    struct sched *sched = NULL;
    struct err err = {0};
    assert_int_equal(sched_make(&sched, "gpype", 2, 2, &err), -EINVAL);
    assert_string_equal(err.text, "there is no schedule \"gpype\": choose one of naive, gpipe, 1f1b");
    assert_int_equal(sched_make(&sched, NULL, 2, 2, &err), -EINVAL);
    assert_int_equal(sched_make(&sched, "naive", 0, 2, &err), -EINVAL);
    assert_int_equal(sched_make(&sched, "naive", 2, 0, &err), -EINVAL);
    assert_int_equal(sched_make(&sched, "naive", SIZE_MAX, 2, &err), -EINVAL);
    assert_int_equal(sched_make(&sched, "naive", 2, SIZE_MAX, &err), -EINVAL);
    assert_non_null(strstr(err.text, "1 to 131072 microbatches"));
    assert_int_equal(sched_make(&sched, "naive", 2, 2, NULL) < 0, 0);
    struct sched_sim sim = {0};
    assert_int_equal(sched_simulate(&sim, sched, (struct sched_costs){1, -1, 0}, &err), -EINVAL);
    assert_int_equal(sched_simulate(&sim, sched, (struct sched_costs){NAN, 1, 0}, &err), -EINVAL);
    assert_null(sim.span);
    sched_free(sched);
    sched_free(NULL);
    sched_sim_done(NULL);
}

static void test_free_of_cost(void **state)
{
    (void)state;
    struct sched *sched = make("gpipe", 3, 2);
    struct sched_sim sim = simulate(sched, 0, 0, 0);
    assert_near(sim.makespan, 0, "makespan");
    assert_near(sim.bubble, 0, "bubble");
    sched_sim_done(&sim);
    sched_free(sched);
}

/* --- oracle ----------------------------------------------------------------------------------- */

static void check_case(const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "schedule"));
    size_t p = (size_t)json_integer_value(json_object_get(object, "p"));
    size_t m = (size_t)json_integer_value(json_object_get(object, "m"));
    struct sched *sched = make(name, p, m);
    struct sched_sim sim = simulate(sched, json_number_value(json_object_get(object, "tF")),
                                    json_number_value(json_object_get(object, "tI")),
                                    json_number_value(json_object_get(object, "tW")));
    assert_near(sim.makespan, json_number_value(json_object_get(object, "makespan")), "makespan");
    assert_near(sim.bubble, json_number_value(json_object_get(object, "bubble")), "bubble");
    for (size_t r = 0; r < p; r++) {
        assert_near(sim.span[r], json_number_value(json_array_get(json_object_get(object, "span"), r)),
                    "span");
        assert_near(sim.idle[r], json_number_value(json_array_get(json_object_get(object, "idle"), r)),
                    "idle");
        assert_int_equal(sim.peak[r],
                         json_integer_value(json_array_get(json_object_get(object, "peak_chunks"), r)));
        assert_int_equal(sched->rank_of_stage[r],
                         json_integer_value(json_array_get(json_object_get(object, "stage_rank"), r)));
        char key[24];
        snprintf(key, sizeof key, "%zu", r);
        const char *order = json_string_value(json_object_get(json_object_get(object, "order"), key));
        if (order) /* the oracle gives figures alone for its larger cases */
            assert_order(sched, r, order);
    }
    sched_sim_done(&sim);
    sched_free(sched);
}

static void test_oracle(void **state)
{
    (void)state;
    const char *shared = getenv("RINGD_SHARED");
    char path[4096];
    snprintf(path, sizeof path, "%s/schedules/sched_oracle.json", shared ? shared : "../shared/data");
    json_error_t error;
    json_t *cases = json_load_file(path, 0, &error);
    if (!cases) {
        print_message("skipped: no %s (set RINGD_SHARED)\n", path);
        skip();
    }
    size_t checked = 0, index;
    const json_t *object;
    json_array_foreach(cases, index, object)
    {
        const char *name = json_string_value(json_object_get(object, "schedule"));
        for (size_t k = 0; sched_names()[k]; k++)
            if (strcmp(name, sched_names()[k]) == 0) {
                check_case(object);
                checked++;
            }
    }
    json_decref(cases);
    print_message("%zu oracle cases\n", checked);
    assert_true(checked >= 90);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders_by_hand), cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_start_times),    cmocka_unit_test(test_split_backward),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_free_of_cost),
        cmocka_unit_test(test_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
