/* SPDX-License-Identifier: MIT
 *
 * A model is served on one node, and another comes: it is spread over both; if the newcomer cannot
 * hold its part, it is served as before, and that node is tried again once its ringd was started
 * again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/daemon/ringd/job/head_world.h"

/* It is planned for so many nodes, has begun and runs there. */
static void begin(struct head *h, const struct job *job, unsigned ranks)
{
    const struct job_plan plan = small_plan(job->type, ranks);
    assert_int_equal(job->state, JOB_PLANNING);
    say(h, job, 0, "job-planned", small_plan_told(&plan, 5));
    for (unsigned r = 0; r < ranks; r++)
        say(h, job, r, "job-ready", json_pack("{s:[[i,i]]}", "layers", r, r + 1));
    for (unsigned r = 0; r < ranks; r++)
        say(h, job, r, "job-connected", json_object());
    assert_int_equal(job->state, JOB_RUNNING);
}

static const struct job *serve_alone(struct head *h, const char *elastic)
{
    open_coord(h, 0, JOB_QUEUED);
    link_nodes(h, false);
    h->plan_nodes = 1;
    const struct job *job =
        submit_spec(h, JOB_SERVE, json_pack("{s:s s:s s:s}", "model", "/m", "name", "m", "elastic", elastic));
    wait_for(h, job, JOB_PLANNING);
    begin(h, job, 1);
    return job;
}

static void the_other_comes(struct head *h, uint64_t boot)
{
    struct member other = make(1, boot, ++h->seq);
    link_to(&other, 0);
    assert_int_equal(learn(h->members, &other, h->seq), 1);
    h->plan_nodes = RANKS;
    look(h);
}

static void leave(struct head *h, const struct job *job)
{
    say(h, job, 0, "job-left", json_object());
    say(h, job, 0, "job-stopped", json_object());
    wait_for(h, job, JOB_PLANNING);
}

/* The other node comes, and the job leaves for a plan with it. */
static void make_room(struct head *h, const struct job *job)
{
    the_other_comes(h, 1);
    await_leave(h, 1);
    leave(h, job);
}

static void a_model_is_spread_over_a_node_that_comes(void **state)
{
    struct head *h = *state;
    const struct job *job = serve_alone(h, "auto");
    make_room(h, job);
    begin(h, job, RANKS);
    assert_int_equal(h->plans, 2);
}

static void one_that_is_not_elastic_stays(void **state)
{
    struct head *h = *state;
    const struct job *job = serve_alone(h, "off");
    the_other_comes(h, 1);
    assert_int_equal(told(h, 0, "job-leave"), 0);
    assert_int_equal(job->state, JOB_RUNNING);
}

static void a_newcomer_that_lacks_the_model_ends_nothing(void **state)
{
    struct head *h = *state;
    const struct job *job = serve_alone(h, "auto");
    make_room(h, job);
    h->plan_nodes = 1;
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "node n1 has no folder /m"));
    say(h, job, 0, "job-stopped", json_object());
    wait_for(h, job, JOB_PLANNING);
    assert_int_equal(h->plans, 3);
    begin(h, job, 1);
    look(h);
    assert_int_equal(told(h, 0, "job-leave"), 1);
    the_other_comes(h, 2); /* its ringd was started again: somebody may have helped it */
    await_leave(h, 2);
    leave(h, job);
    begin(h, job, RANKS);
}

/* What has held the job before is no newcomer: then it is the job that cannot be. */
static void a_fault_of_those_that_ran_it_ends_the_job(void **state)
{
    struct head *h = *state;
    const struct job *job = serve_alone(h, "auto");
    make_room(h, job);
    begin(h, job, RANKS);
    say(h, job, 1, "job-failed", json_pack("{s:s s:b}", "cause", "the stage process was killed", "lost", 1));
    all_say(h, job, "job-stopped");
    wait_for(h, job, JOB_PLANNING);
    say(h, job, 0, "job-failed", json_pack("{s:s}", "cause", "node n1: /m/config.json is no JSON"));
    assert_int_equal(job->outcome, JOB_FAILED);
}

#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEAD(a_model_is_spread_over_a_node_that_comes),
        WITH_HEAD(one_that_is_not_elastic_stays),
        WITH_HEAD(a_newcomer_that_lacks_the_model_ends_nothing),
        WITH_HEAD(a_fault_of_those_that_ran_it_ends_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
