/* SPDX-License-Identifier: MIT
 *
 * When a job that runs is to stop after its next step, and go on elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/job/survive/departure.h"
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
    members_ring(m, NULL, &ring);
    return departure_is_worth(job, &ring, (struct instant){20 * SECOND}, why, size);
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
    news.job = 4;
    assert_int_equal(learn(m, &news, 10), 1);
    assert_false(is_worth(&job, m, why, sizeof why));
    members_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drained_node_is_left),
        cmocka_unit_test(a_node_more_is_taken_if_it_pays),
        cmocka_unit_test(who_is_in_the_plan_or_busy_is_no_news),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
