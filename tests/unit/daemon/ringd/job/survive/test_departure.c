/* SPDX-License-Identifier: MIT
 *
 * When a job that runs is to stop after its next step, and go on with another plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/job/survive/departure.h"
#include "daemon/ringd/job/survive/pace.h"
#include "tests/lib/small_plan.h"
#include "tests/unit/daemon/ringd/cluster/members_world.h"

enum { SECOND = 1000000 };

/* It has made 10 of 100 steps in 20 s on the first `nodes` nodes, and took 3 s to start. */
static struct job job_on(unsigned nodes)
{
    struct job job = {.step = 30, .began_step = 20, .steps = 120, .start.connected = 3};
    job.offered.n = nodes;
    for (unsigned i = 0; i < nodes; i++) {
        job.offered.id[i][0] = (uint8_t)(i + 1);
        snprintf(job.offered.name[i], sizeof job.offered.name[i], "n%u", i);
    }
    return job;
}

static bool is_worth(const struct job *job, struct members *m, char *why, size_t size)
{
    struct members_ring ring;
    uint64_t wait_us;
    members_ring(m, NULL, &ring);
    return departure_is_worth(job, &ring, (struct instant){20 * SECOND}, why, size, &wait_us);
}

static void a_drained_node_is_left(void **state)
{
    (void)state;
    char why[200] = "";
    struct members *m = row_of(3, true);
    const struct job job = job_on(3);
    assert_false(departure_is_drained(&job, m, why, sizeof why));
    struct member news = make(1, 1, 10);
    link_to(&news, 0);
    link_to(&news, 2);
    snprintf(news.drained, sizeof news.drained, "a new disk");
    assert_int_equal(learn(m, &news, 10), 1);
    assert_true(departure_is_drained(&job, m, why, sizeof why));
    assert_string_equal(why, "node n1 is drained: a new disk");
    const struct job other = job_on(1);
    assert_false(departure_is_drained(&other, m, why, sizeof why)); /* it has no part in that one */
    snprintf(members_self(m)->drained, sizeof news.drained, "its ringd is being ended");
    assert_true(departure_is_drained(&other, m, why, sizeof why));
    members_free(m);
}

/* 90 steps of 2 s are left: a third node saves 60 s of them, twice its start 6. */
static void a_node_more_is_taken_if_it_pays(void **state)
{
    (void)state;
    char why[200] = "";
    struct members *m = row_of(3, true);
    struct job job = job_on(2);
    assert_true(is_worth(&job, m, why, sizeof why));
    assert_string_equal(why, "node n2 can take part");
    job.steps = 30 + 9; /* 6 s to be saved: just as much */
    assert_true(is_worth(&job, m, why, sizeof why));
    job.steps = 30 + 8;
    assert_false(is_worth(&job, m, why, sizeof why));
    job.steps = 120;
    job.start.connected = 31;
    assert_false(is_worth(&job, m, why, sizeof why));
    job.start.connected = 3;
    job.began_step = 30; /* no step yet: nothing is known */
    assert_false(is_worth(&job, m, why, sizeof why));
    members_free(m);
}

/* Its start took 3 s: it stays for 30 s, and for 60 s once it has moved. */
static void what_serves_moves_once_it_has_run_for_a_while(void **state)
{
    (void)state;
    char why[200] = "";
    struct members *m = row_of(3, true);
    struct members_ring ring;
    uint64_t wait_us;
    struct job job = job_on(2);
    job.type = JOB_SERVE;
    members_ring(m, NULL, &ring);
    assert_false(departure_is_worth(&job, &ring, (struct instant){20 * SECOND}, why, sizeof why, &wait_us));
    assert_int_equal(wait_us, 10 * SECOND);
    assert_true(departure_is_worth(&job, &ring, (struct instant){30 * SECOND}, why, sizeof why, &wait_us));
    assert_int_equal(wait_us, 0);
    assert_string_equal(why, "node n2 can take part");
    job.interruption.count = 1;
    assert_false(departure_is_worth(&job, &ring, (struct instant){30 * SECOND}, why, sizeof why, &wait_us));
    assert_int_equal(wait_us, 30 * SECOND);
    members_free(m);
}

static void who_is_in_the_plan_or_busy_is_no_news(void **state)
{
    (void)state;
    char why[200] = "";
    struct members *m = row_of(3, true);
    struct job job = job_on(3);
    assert_false(is_worth(&job, m, why, sizeof why));
    job = job_on(2);
    struct member news = make(2, 1, 10);
    link_to(&news, 1);
    link_to(&news, 0);
    news.nstages = 1;
    news.stages[0] = (struct member_stage){.job = 4, .class = JOB_CLASS_TRAIN};
    assert_int_equal(learn(m, &news, 10), 1);
    assert_false(is_worth(&job, m, why, sizeof why));
    members_free(m);
}

/* --- a node at another speed ------------------------------------------------------------------ */

enum { LAYERS = 8, EACH = LAYERS / 2 };

/* A job of two nodes with four layers each, that began to run at 0 and took 3 s to start. */
static struct job uneven_job(struct placed_plan *p)
{
    struct job job = job_on(2);
    struct err err;
    *p = (struct placed_plan){.shared = small_plan(JOB_TRAIN, 2), .nodes = job.offered};
    p->shared.first[1] = EACH;
    p->shared.first[2] = LAYERS;
    p->shared.microbatches = 10;
    json_t *units = json_array(), *planned = json_pack("{s:o s:[i,i]}", "units", units, "speeds", 1, 1);
    for (int u = 0; u < LAYERS + 2; u++)
        json_array_append_new(units, json_integer(u > 0 && u <= LAYERS));
    assert_int_equal(pace_new(&p->pace, planned, &p->shared, &err), 0);
    json_decref(planned);
    job.plan = p;
    job.steps = 100000;
    return job;
}

/* A microbatch computes for 10 ms, and on the second rank `times` as long; for as many spans as
 * there are. */
static void compute(const struct job *job, double times)
{
    static json_int_t us[2], microbatches; /* of the whole test: sums do not shrink */
    for (int i = 0; i < 1 + PACE_SPANS; i++) {
        microbatches += 100;
        for (size_t r = 0; r < 2; r++) {
            us[r] += (json_int_t)(1000000 * (r ? times : 1));
            json_t *made = json_pack("[I,I,I]", microbatches, us[r], us[r] + 100000000);
            assert_int_equal(pace_hear(job->plan->pace, r, made), 0);
            json_decref(made);
        }
    }
}

static bool is_uneven(struct job *job, unsigned second)
{
    char why[300] = "";
    struct resplit found;
    const bool is =
        departure_is_uneven(job, (struct instant){(uint64_t)second * SECOND}, &found, why, sizeof why);
    assert_true(is == (*why != 0));
    return is;
}

static void a_slow_node_gives_layers_away(void **state)
{
    (void)state;
    char why[300];
    struct placed_plan p;
    struct resplit found;
    struct job job = uneven_job(&p);
    assert_false(is_uneven(&job, 40)); /* nothing was said */
    compute(&job, 1);
    assert_false(is_uneven(&job, 40));
    compute(&job, 3);
    assert_false(is_uneven(&job, 40)); /* since now */
    assert_true(departure_is_uneven(&job, (struct instant){60 * SECOND}, &found, why, sizeof why));
    assert_non_null(strstr(why, "node n1 takes 3.0 times as long as planned; with other layers on each node, "
                                "a step takes about "));
    slow_nodes_learn(&job.slow, &p.nodes, found.slowness);
    json_t *told = json_pack("[{},{}]");
    slow_nodes_tell(&job.slow, &p.nodes, told);
    assert_float_equal(json_number_value(json_object_get(json_array_get(told, 0), "slowness")), 1, 1e-9);
    assert_float_equal(json_number_value(json_object_get(json_array_get(told, 1), "slowness")), 3, 1e-9);
    json_decref(told);
    pace_free(p.pace);
}

/* A third of a step is to be saved: in 9 s as much as the start of 3 s. */
static void being_slow_must_last(void **state)
{
    (void)state;
    struct placed_plan p;
    struct job job = uneven_job(&p);
    compute(&job, 3);
    assert_false(is_uneven(&job, 40));
    assert_false(is_uneven(&job, 43));
    compute(&job, 1);
    assert_false(is_uneven(&job, 46)); /* it has recovered: what was lost is forgotten */
    compute(&job, 3);
    assert_false(is_uneven(&job, 49));
    assert_false(is_uneven(&job, 52));
    assert_true(is_uneven(&job, 69));
    pace_free(p.pace);
}

/* Ten times the start of 3 s, twice that after a move. */
static void moves_become_rarer(void **state)
{
    (void)state;
    struct placed_plan p;
    struct job job = uneven_job(&p);
    compute(&job, 3);
    assert_false(is_uneven(&job, 1));
    assert_false(is_uneven(&job, 29));
    assert_true(is_uneven(&job, 30));
    job.slow.moves = 1;
    assert_false(is_uneven(&job, 59));
    assert_true(is_uneven(&job, 60));
    job.slow.moves = 1000;
    assert_false(is_uneven(&job, 1919));
    assert_true(is_uneven(&job, 1920));
    pace_free(p.pace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drained_node_is_left),
        cmocka_unit_test(a_node_more_is_taken_if_it_pays),
        cmocka_unit_test(what_serves_moves_once_it_has_run_for_a_while),
        cmocka_unit_test(who_is_in_the_plan_or_busy_is_no_news),
        cmocka_unit_test(a_slow_node_gives_layers_away),
        cmocka_unit_test(being_slow_must_last),
        cmocka_unit_test(moves_become_rarer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
