/* SPDX-License-Identifier: MIT
 *
 * A job that serves with --keep-alive lets its nodes go while nobody asks, and begins again with
 * the next request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/daemon/ringd/job/head_world.h"

static void run(struct head *h, const struct job *job)
{
    assert_int_equal(job->state, JOB_PLANNING);
    say_planned(h, job);
    say_ready(h, job);
    all_say(h, job, "job-connected");
    assert_int_equal(job->state, JOB_RUNNING);
}

static const struct job *serve(struct head *h, unsigned keep_alive)
{
    open_coord(h, 0, JOB_QUEUED);
    const struct job *job = submit_spec(
        h, JOB_SERVE, json_pack("{s:s s:s s:i}", "model", "/m", "name", "m", "keep_alive", keep_alive));
    run(h, job);
    return job;
}

static void leave(struct head *h, const struct job *job)
{
    say(h, job, 0, "job-left", json_object());
    all_say(h, job, "job-stopped");
}

static void it_rests_until_somebody_asks(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h, 1);
    await_leave(h, 1);
    leave(h, job);
    assert_int_equal(job->state, JOB_PAUSED);
    assert_non_null(strstr(job->error, "nobody has asked for 1 s"));
    coord_asked(h->coord, job->id, true);
    run(h, job);
    event_base_loop(h->base, EVLOOP_NONBLOCK); /* it does not rest while somebody waits */
    assert_int_equal(told(h, 0, "job-leave"), 1);
    coord_asked(h->coord, job->id, false);
    await_leave(h, 2);
}

/* Its stages are already ending. */
static void a_request_that_comes_as_it_leaves_is_served(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h, 1);
    await_leave(h, 1);
    coord_asked(h->coord, job->id, true);
    leave(h, job);
    run(h, job);
}

/* The daemon was started again while it rested: who asks first does not know yet what it serves. */
static void it_can_be_woken_before_a_request(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h, 1);
    await_leave(h, 1);
    leave(h, job);
    coord_wake(h->coord, job->id);
    run(h, job);
    coord_wake(h->coord, job->id);
    assert_int_equal(job->state, JOB_RUNNING);
}

static void without_keep_alive_it_stays(void **state)
{
    struct head *h = *state;
    const struct job *job = serve(h, 0);
    coord_asked(h->coord, job->id, true);
    coord_asked(h->coord, job->id, false);
    event_base_loop(h->base, EVLOOP_NONBLOCK);
    assert_int_equal(told(h, 0, "job-leave"), 0);
    assert_int_equal(job->state, JOB_RUNNING);
}

#define WITH_HEAD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_HEAD(it_rests_until_somebody_asks),
        WITH_HEAD(a_request_that_comes_as_it_leaves_is_served),
        WITH_HEAD(it_can_be_woken_before_a_request),
        WITH_HEAD(without_keep_alive_it_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
