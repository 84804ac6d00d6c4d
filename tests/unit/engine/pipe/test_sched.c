/* SPDX-License-Identifier: MIT
 *
 * The built-in schedules and their simulation: against closed forms and, where it is there, against
 * the shared oracle. */
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

#include "pipe/plan.h"
#include "pipe/sched.h"

static struct sched *make(const char *name, size_t ranks, size_t microbatches)
{
    struct sched *sched = NULL;
    struct err err = {0};
    int rc = sched_make(
        &sched, &(struct sched_request){.name = name, .ranks = ranks, .microbatches = microbatches}, &err);
    if (rc < 0)
        fail_msg("%s p=%zu m=%zu: %s", name, ranks, microbatches, err.text);
    return sched;
}

static struct sched_sim simulate(const struct sched *sched, double f, double i, double w)
{
    struct sched_sim sim;
    struct err err = {0};
    if (sched_simulate(&sim, sched, &(struct sched_costs){.each = {f, i, w, 0, 0}}, &err) < 0)
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

struct form {
    const char *name;
    double makespan, span; /* span: of every rank, 0 = as it comes */
    size_t peak;           /* of rank r */
};

static void check_form(const struct form *form, size_t p, size_t m, size_t r, struct sched_cost cost)
{
    struct sched *sched = make(form->name, p, m);
    struct sched_sim sim = simulate(sched, cost.f, cost.i, cost.w);
    double work = (double)(m * sched->stages / p) * (cost.f + cost.i + cost.w);
    assert_near(sim.makespan, form->makespan, form->name);
    assert_near(sim.bubble, 1.0 - work / form->makespan, "bubble");
    assert_near(sim.idle[r], form->makespan - work, "idle");
    assert_int_equal(sim.peak[r], form->peak);
    if (form->span > 0.0)
        assert_near(sim.span[r], form->span, "span");
    sched_sim_done(&sim);
    sched_free(sched);
}

/* Costs are those of a stage; v stages share a rank. */
static void test_closed_forms(void **state)
{
    (void)state;
    const struct sched_cost cost = {1.0, 1.5, 0.25, 0.0, 0.0}, even = {1.0, 1.0, 1.0, 0.0, 0.0},
                            lora = {1.0, 1.0, 0.0, 0.0, 0.0};
    const double t = 2.75;
    for (size_t p = 1; p <= 8; p++)
        for (size_t m = 1; m <= 24; m++)
            for (size_t r = 0; r < p; r++) {
                double n = (double)m, q = (double)p;
                size_t behind = 2 * (p - 1 - r) + 1;
                check_form(&(struct form){"naive", n * q * t, 0, 1}, p, m, r, cost);
                check_form(&(struct form){"gpipe", (n + q - 1) * t, 0, m}, p, m, r, cost);
                check_form(&(struct form){"1f1b", (n + q - 1) * t, 0, at_most(m, p - r)}, p, m, r, cost);
                check_form(&(struct form){"eager-1f1b", (n + q - 1) * t, 0, at_most(m, behind)}, p, m, r,
                           cost);
                if (m >= p)
                    check_form(&(struct form){"looped-bfs", (2 * n + q - 1) * t, 0, 2 * m}, p, m, r, cost);
                if (m < 2 * p - 1)
                    continue;
                check_form(&(struct form){"zb-h1", 3 * n + q - 1, 0, p}, p, m, r, even);
                check_form(&(struct form){"zb-h2", 3 * n + q - 1, 3 * n, 2 * p - 1}, p, m, r, even);
                check_form(&(struct form){"zbv", 6 * n + q - 1, 6 * n, 2 * p}, p, m, r, even);
                check_form(&(struct form){"v-1f1b", 4 * n + (q - 1) * 2, 0, 2 * p}, p, m, r, lora);
            }
}

/* Any number of chunks and any number of microbatches from one per rank on: never a bubble but that
 * of the filling. */
static void test_interleaved(void **state)
{
    (void)state;
    for (size_t p = 1; p <= 8; p++)
        for (size_t v = 1; v <= 4; v++)
            for (size_t m = p; m <= 32; m++) {
                struct sched *sched = NULL;
                struct err err = {0};
                struct sched_request req = {
                    .name = "interleaved-1f1b", .ranks = p, .chunks = v, .microbatches = m};
                if (sched_make(&sched, &req, &err) < 0)
                    fail_msg("%s", err.text);
                struct sched_sim sim = simulate(sched, 1, 1, 0.5);
                assert_near(sim.makespan, 2.5 * (double)(m * v + p - 1), "makespan");
                sched_sim_done(&sim);
                sched_free(sched);
            }
}

/* Published times of p = 4, m = 8 with forward and backward to the input 1 each, W free and a hop
 * of 0.5. */
static void test_hops(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double makespan;
    } cases[] = {{"gpipe", 25}, {"1f1b", 30}, {"eager-1f1b", 25}, {"interleaved-1f1b", 26}, {"v-1f1b", 28}};
    struct sched_link links[8];
    for (size_t i = 0; i < 8; i++)
        links[i] = (struct sched_link){0, 0.5};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sched *sched = make(cases[i].name, 4, 8);
        double share = 4.0 / (double)sched->stages;
        struct sched_costs costs = {.each = {share, share, 0, 0, 0}, .link = links};
        struct sched_sim sim;
        assert_int_equal(sched_simulate(&sim, sched, &costs, NULL), 0);
        assert_near(sim.makespan, cases[i].makespan, cases[i].name);
        sched_sim_done(&sim);
        sched_free(sched);
    }
}

/* A link carries one message at a time, a stage costs what it costs. */
static void test_links_and_stages(void **state)
{
    (void)state;
    struct sched *sched = make("gpipe", 2, 3);
    const struct sched_link links[4] = {{3, 1}, {9, 9}, {0.5, 0}, {9, 9}};
    const struct sched_cost stages[2] = {{1, 2, 0, 0, 0}, {2, 2, 0, 0, 0}};
    struct sched_costs costs = {.stage = stages, .link = links};
    struct sched_sim sim;
    assert_int_equal(sched_simulate(&sim, sched, &costs, NULL), 0);
    /* sent 1-4, 4-7, 7-10, there at 5, 8, 11; forwards 5-7, 8-10, 11-13; backwards 13-15, 15-17,
     * 17-19 */
    const double wanted[] = {0, 1, 2, 15.5, 17.5, 19.5, 5, 8, 11, 13, 15, 17};
    for (size_t k = 0; k < 12; k++)
        assert_near(sim.start[k], wanted[k], "start");
    sched_sim_done(&sim);
    struct err err;
    const struct sched_link bad[4] = {{-1, 0}};
    costs.link = bad;
    assert_int_equal(sched_simulate(&sim, sched, &costs, &err), -EINVAL);
    sched_free(sched);
}

static void test_placements(void **state)
{
    (void)state;
    const uint32_t loop[] = {0, 1, 2, 0, 1, 2}, there_and_back[] = {0, 1, 2, 2, 1, 0};
    for (uint32_t s = 0; s < 6; s++) {
        assert_int_equal(sched_place(PLACE_LOOP, 3, s), loop[s]);
        assert_int_equal(sched_place(PLACE_V, 3, s), there_and_back[s]);
    }
    assert_int_equal(sched_place(PLACE_V, 3, 7), 1);
    assert_null(sched_info("none"));
    assert_null(sched_info(NULL));
    for (size_t k = 0; sched_names()[k]; k++)
        assert_string_equal(sched_info(sched_names()[k])->name, sched_names()[k]);
}

/* In every stage gradients are added up group after group, in each microbatch after microbatch: all
 * schedules give the same bits. */
static bool adds_up_in_groups(const struct sched *sched, const struct sched_groups *g)
{
    const size_t from = plan_group_first(g->first, g->m, g->groups),
                 own = plan_group_first(g->end, g->m, g->groups) - from;
    for (size_t r = 0; r < sched->ranks; r++)
        for (uint32_t stage = 0; stage < sched->stages; stage++) {
            size_t next = SIZE_MAX, left = 0, seen = 0;
            for (size_t k = 0; k < sched->rank[r].n; k++) {
                const struct sched_task *t = &sched->rank[r].tasks[k];
                if (t->stage != stage || (t->op != OP_B && t->op != OP_W))
                    continue;
                const size_t mb = from + t->mb % own, group = plan_group(mb, g->m, g->groups),
                             low = plan_group_first(group, g->m, g->groups);
                if (left ? t->mb != next : mb != low)
                    return false;
                left = (left ? left : plan_group_first(group + 1, g->m, g->groups) - low) - 1;
                next = t->mb + 1;
                seen++;
            }
            if (left || (sched->rank_of_stage[stage] == r && seen != sched->microbatches))
                return false;
        }
    return true;
}

static bool is_in_order(const char *name, size_t ranks, size_t m)
{
    struct sched *sched = make(name, ranks, m);
    const struct sched_groups all = {.m = m, .groups = 1, .end = 1};
    const bool is = adds_up_in_groups(sched, &all);
    sched_free(sched);
    return is;
}

static void check_groups(const char *name, size_t ranks, const struct sched_groups *g, size_t steps)
{
    const size_t own =
        plan_group_first(g->end, g->m, g->groups) - plan_group_first(g->first, g->m, g->groups);
    const struct sched_request req = {
        .name = name, .ranks = ranks, .microbatches = steps * own, .groups = *g};
    struct sched *sched = NULL;
    struct sched_sim sim, plain;
    struct err err;
    assert_int_equal(sched_make(&sched, &req, &err), 0);
    if (!adds_up_in_groups(sched, g))
        fail_msg("%s on %zu: groups %zu to %zu of %zu, %zu microbatches, %zu steps", name, ranks, g->first,
                 g->end, g->groups, g->m, steps);
    assert_true(
        plan_keeps_groups(sched, g->groups, g->m, plan_group_first(g->first, g->m, g->groups), steps));
    struct sched *without = make(name, ranks, steps * own);
    sim = simulate(sched, 1, 1, 1);
    plain = simulate(without, 1, 1, 1);
    assert_near(sim.makespan, plain.makespan, "makespan");
    for (size_t r = 0; r < ranks; r++)
        assert_int_equal(sim.peak[r], plain.peak[r]);
    sched_sim_done(&sim);
    sched_sim_done(&plain);
    sched_free(sched);
    sched_free(without);
}

static void test_all_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; sched_names()[k]; k++) {
        const char *name = sched_names()[k];
        bool always = true;
        for (size_t ranks = 1; ranks <= 5; ranks++)
            for (size_t m = 1; m <= 9; m++) {
                always = always && is_in_order(name, ranks, m);
                for (size_t groups = 1; groups <= m; groups++)
                    for (size_t first = 0; first < groups; first++)
                        check_groups(
                            name, ranks,
                            &(struct sched_groups){m, groups, first, first ? groups : (groups + 1) / 2},
                            1 + (m + groups) % 2);
            }
        if (always != sched_info(name)->in_order)
            fail_msg("%s: in order %d", name, always);
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
    struct sched_list lists[] = {{first, 6, NULL}, {second, 5, NULL}};
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
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "gpype", .ranks = 2, .microbatches = 2}, &err),
        -EINVAL);
    assert_string_equal(err.text, "there is no schedule \"gpype\": choose one of naive, gpipe, 1f1b, "
                                  "eager-1f1b, interleaved-1f1b, looped-bfs, zb-h1, zb-h2, zbv, v-1f1b");
    assert_int_equal(sched_make(&sched, &(struct sched_request){.ranks = 2, .microbatches = 2}, &err),
                     -EINVAL);
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "naive", .ranks = 0, .microbatches = 2}, &err),
        -EINVAL);
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "naive", .ranks = 2, .microbatches = 0}, &err),
        -EINVAL);
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "naive", .ranks = SIZE_MAX, .microbatches = 2},
                   &err),
        -EINVAL);
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "naive", .ranks = 2, .microbatches = SIZE_MAX},
                   &err),
        -EINVAL);
    assert_non_null(strstr(err.text, "1 to 2097152 microbatches"));
    assert_int_equal(
        sched_make(&sched,
                   &(struct sched_request){.name = "gpipe", .ranks = 2, .chunks = 2, .microbatches = 2},
                   &err),
        -EINVAL);
    assert_string_equal(err.text,
                        "gpipe has 1 stage on each rank, not 2; interleaved-1f1b and looped-bfs take "
                        "1 to 16");
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "zbv", .ranks = 2, .chunks = 1, .microbatches = 2},
                   &err),
        -EINVAL);
    assert_int_equal(
        sched_make(&sched,
                   &(struct sched_request){.name = "looped-bfs", .ranks = 2, .chunks = 17, .microbatches = 2},
                   &err),
        -EINVAL);
    assert_string_equal(err.text, "looped-bfs has 1 to 16 stages on each rank, not 17");
    assert_int_equal(
        sched_make(&sched,
                   &(struct sched_request){
                       .name = "looped-bfs", .ranks = 2, .chunks = 2, .microbatches = SCHED_MAX_CELLS / 2},
                   &err),
        -EINVAL);
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "naive", .ranks = 2, .microbatches = 2}, NULL) < 0,
        0);
    struct sched_sim sim = {0};
    assert_int_equal(sched_simulate(&sim, sched, &(struct sched_costs){.each = {1, -1, 0, 0, 0}}, &err),
                     -EINVAL);
    assert_int_equal(sched_simulate(&sim, sched, &(struct sched_costs){.each = {NAN, 1, 0, 0, 0}}, &err),
                     -EINVAL);
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

/* How the oracle spells the names. */
static const char *name_of(const char *name)
{
    static const char *const spelt[][2] = {{"eager1f1b", "eager-1f1b"},
                                           {"interleaved2", "interleaved-1f1b"},
                                           {"loopedbfs2", "looped-bfs"},
                                           {"v1f1b", "v-1f1b"}};
    for (size_t k = 0; k < sizeof spelt / sizeof *spelt; k++)
        if (strcmp(name, spelt[k][0]) == 0)
            return spelt[k][1];
    return name;
}

static double number_at(const json_t *object, const char *key, size_t at)
{
    return json_number_value(json_array_get(json_object_get(object, key), at));
}

static void check_rank(const json_t *object, const struct sched *sched, const struct sched_sim *sim, size_t r)
{
    assert_near(sim->span[r], number_at(object, "span", r), "span");
    assert_near(sim->idle[r], number_at(object, "idle", r), "idle");
    assert_near((double)sim->peak[r], number_at(object, "peak_chunks", r), "peak");
    char key[24];
    snprintf(key, sizeof key, "%zu", r);
    const char *order = json_string_value(json_object_get(json_object_get(object, "order"), key));
    assert_non_null(order);
    assert_order(sched, r, order);
}

static void check_case(const json_t *object)
{
    const char *name = name_of(json_string_value(json_object_get(object, "schedule")));
    size_t p = (size_t)json_integer_value(json_object_get(object, "p"));
    size_t m = (size_t)json_integer_value(json_object_get(object, "m"));
    struct sched *sched = make(name, p, m);
    struct sched_sim sim = simulate(sched, json_number_value(json_object_get(object, "tF")),
                                    json_number_value(json_object_get(object, "tI")),
                                    json_number_value(json_object_get(object, "tW")));
    assert_near(sim.makespan, json_number_value(json_object_get(object, "makespan")), "makespan");
    assert_near(sim.bubble, json_number_value(json_object_get(object, "bubble")), "bubble");
    assert_int_equal(sched->stages, json_array_size(json_object_get(object, "stage_rank")));
    for (size_t s = 0; s < sched->stages; s++)
        assert_near((double)sched->rank_of_stage[s], number_at(object, "stage_rank", s), "placement");
    for (size_t r = 0; r < p; r++)
        check_rank(object, sched, &sim, r);
    sched_sim_done(&sim);
    sched_free(sched);
}

static void test_oracle(void **state)
{
    (void)state;
    json_error_t error;
    json_t *cases = json_load_file("tests/data/schedules/sched_oracle.json", 0, &error);
    assert_non_null(cases);
    size_t checked = 0, index;
    const json_t *object;
    json_array_foreach (cases, index, object) {
        check_case(object);
        checked++;
    }
    json_decref(cases);
    print_message("%zu oracle cases\n", checked);
    assert_true(checked >= 300);
}

/* What options offer is what there is, in the same order. */
static void test_choices(void **state)
{
    (void)state;
    char all[256] = "";
    for (size_t i = 0; sched_names()[i]; i++) {
        const size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", i ? "|" : "", sched_names()[i]);
    }
    assert_string_equal(all, SCHED_CHOICES);
}

/* One rank, two microbatches of F = 1 and B = 2: the last backward is from 4 to 6. Then a second
 * stage on the same rank, whose last backward came before. */
static void gradients_leave_while_the_last_backward_runs(void **state)
{
    (void)state;
    struct sched *sched = NULL;
    struct sched_sim sim;
    struct err err;
    const struct sched_costs costs = {.each = {1, 1, 1, 0, 0}};
    double from[2] = {0}, until[2] = {0};
    assert_int_equal(
        sched_make(&sched, &(struct sched_request){.name = "1f1b", .ranks = 1, .microbatches = 2}, &err), 0);
    assert_int_equal(sched_simulate(&sim, sched, &costs, &err), 0);
    sched_last_backwards(from, until, sched, &sim);
    sched_sim_done(&sim);
    assert_float_equal(from[0], 4, 0);
    assert_float_equal(until[0], 6, 0);
    assert_float_equal(sched_sums_end(sched, &(struct sched_sum){3, 1}, from, until), 9, 1e-9);
    assert_float_equal(sched_sums_end(sched, &(struct sched_sum){3, 4}, from, until), 7.5, 1e-9);
    assert_float_equal(sched_sums_end(sched, &(struct sched_sum){1, 4}, from, until), 6.25, 1e-9);
    assert_float_equal(sched_sums_end(sched, &(struct sched_sum){0, 4}, from, until), 6, 1e-9);
    assert_float_equal(sched_sums_end(sched, &(struct sched_sum){0, 0}, from, until), 0, 1e-9);
    sched_free(sched);

    uint32_t same[2] = {0, 0};
    const struct sched both = {.ranks = 1, .stages = 2, .rank_of_stage = same};
    from[1] = 1, until[1] = 3;
    const struct sched_sum sums[2] = {{2, 1}, {4, 1}};
    assert_float_equal(sched_sums_end(&both, sums, from, until), 9, 1e-9);
    until[1] = 6; /* of two that end together the higher one goes first */
    assert_float_equal(sched_sums_end(&both, (struct sched_sum[2]){{1, 2}, {1, 1}}, from, until), 8, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices),      cmocka_unit_test(test_orders_by_hand),
        cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_hops),         cmocka_unit_test(test_links_and_stages),
        cmocka_unit_test(test_placements),   cmocka_unit_test(test_all_give_the_same_bits),
        cmocka_unit_test(test_start_times),  cmocka_unit_test(test_split_backward),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_free_of_cost),
        cmocka_unit_test(test_oracle),       cmocka_unit_test(gradients_leave_while_the_last_backward_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
