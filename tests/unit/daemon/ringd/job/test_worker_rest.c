/* SPDX-License-Identifier: MIT
 *
 * A stage process between two attempts at its job: it is asked to rest, gets the next attempt, and
 * ends when another job comes or nobody needs it. What a stage says is said for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/ringd/log.h"
#include "tests/lib/small_plan.h"
#include "tests/unit/daemon/ringd/job/no_stage.h"
#include "tests/unit/daemon/ringd/job/worker_world.h"

enum { JOB = 7, OTHER = 8 };
static const uint8_t self[16] = {1};

struct test {
    struct alone alone; /* first: `told` gets it */
    struct worker *worker;
    unsigned stopped, failed;
    bool lost, kept; /* as the last job-failed says */
};

static void on_told(struct alone *a, const char *kind, const json_t *body)
{
    struct test *t = (struct test *)a;
    t->stopped += !strcmp(kind, "job-stopped");
    t->failed += !strcmp(kind, "job-failed");
    t->lost = json_is_true(json_object_get(body, "lost"));
    t->kept = json_is_true(json_object_get(body, "kept"));
    if (!strcmp(kind, "job-stopped") || !strcmp(kind, "job-failed"))
        event_base_loopbreak(a->base);
}

static int set_up(void **state)
{
    struct test *t = calloc(1, sizeof *t);
    struct err err;
    *state = t;
    log_set_level("error");
    the_stages = 0;
    if (!alone_open(&t->alone, &err))
        return -1;
    t->alone.told = on_told;
    t->worker = alone_worker(&t->alone);
    return 0;
}

static int tear_down(void **state)
{
    struct test *t = *state;
    worker_free(t->worker);
    alone_close(&t->alone);
    free(t);
    return 0;
}

static void says(const char *kind, json_t *event)
{
    assert_non_null(the_stage.ops);
    the_stage.ops->event(the_stage.owner, kind, event);
    json_decref(event);
}

static void is_told(const char *what)
{
    assert_string_equal(the_stage.last, what);
}

/* The node is its own head, and the only rank. */
static void begin(struct test *t, uint64_t job, int attempt)
{
    const struct job_plan plan = small_plan(JOB_TRAIN, 1);
    const struct origin origin = {.head = {1}, .job = job};
    worker_plan(t->worker, job, (uint32_t)attempt, &origin, JOB_TRAIN, json_object(), json_array(), NULL);
    is_told("plan");
    json_t *body =
        json_pack("{s:I, s:i, s:i, s:o, s:[s]}", "job", (json_int_t)job, "attempt", attempt, "rank", 0,
                  "plan", job_plan_encode(&plan), "nodes", "01000000000000000000000000000000");
    worker_take_open(t->worker, self, body);
    is_told("open");
    json_decref(body);
}

static void run(struct test *t, uint64_t job, int attempt)
{
    json_t *body = json_object();
    begin(t, job, attempt);
    says("ready", json_object());
    worker_take_connect(t->worker);
    worker_take_run(t->worker, body);
    is_told("run");
    json_decref(body);
}

static void stop(struct test *t, bool keep)
{
    json_t *body = json_pack("{s:b}", "keep", keep);
    worker_take_stop(t->worker, body);
    json_decref(body);
}

static void rests(struct test *t)
{
    stop(t, true);
    is_told("rest");
    assert_false(worker_is_idle(t->worker));
    says("resting", json_object());
    event_base_dispatch(t->alone.base);
    assert_true(worker_is_idle(t->worker));
    assert_non_null(the_stage.ops);
}

static void the_next_attempt_has_the_same_process(void **state)
{
    struct test *t = *state;
    run(t, JOB, 0);
    rests(t);
    run(t, JOB, 1);
    assert_int_equal(the_stages, 1);
    rests(t);
    begin(t, JOB, 2);
    rests(t); /* it had not come so far as to run */
    assert_int_equal(the_stages, 1);
    assert_int_equal(t->stopped, 3);
    assert_int_equal(t->failed, 0);
}

static void open_again(struct test *t, uint64_t submitted)
{
    struct job_plan plan = small_plan(JOB_TRAIN, 1);
    plan.submitted = submitted;
    json_t *body = json_pack("{s:i, s:i, s:i, s:o, s:[s]}", "job", JOB, "attempt", 1, "rank", 0, "plan",
                             job_plan_encode(&plan), "nodes", "01000000000000000000000000000000");
    worker_take_open(t->worker, self, body);
    json_decref(body);
}

/* A head that loses its power may not know any more that it has given the number. */
static void a_number_that_comes_again_is_another_job(void **state)
{
    struct test *t = *state;
    open_again(t, 1);
    stop(t, false);
    the_stage.ops->ended(the_stage.owner, "");
    event_base_dispatch(t->alone.base);
    assert_true(worker_is_idle(t->worker));
    open_again(t, 1); /* it had ended */
    assert_true(worker_is_idle(t->worker));
    assert_int_equal(the_stages, 1);
    open_again(t, 2);
    assert_false(worker_is_idle(t->worker));
    assert_int_equal(the_stages, 2);
}

static void another_job_has_another(void **state)
{
    struct test *t = *state;
    run(t, JOB, 0);
    rests(t);
    run(t, OTHER, 0);
    assert_int_equal(the_stages, 2);
}

static void it_ends_with_its_job(void **state)
{
    struct test *t = *state;
    json_t *body = json_pack("{s:i, s:i, s:i}", "job", JOB, "attempt", 0, "rank", 0);
    run(t, JOB, 0);
    rests(t);
    worker_stop_again(t->worker, body);
    assert_null(the_stage.ops);
    json_decref(body);
}

/* Cancelled while it lets go. */
static void it_ends_if_the_job_does_meanwhile(void **state)
{
    struct test *t = *state;
    run(t, JOB, 0);
    stop(t, true);
    is_told("rest");
    stop(t, false);
    assert_true(the_stage.is_ending);
    says("resting", json_object()); /* too late */
    the_stage.ops->ended(the_stage.owner, "");
    event_base_dispatch(t->alone.base);
    assert_null(the_stage.ops);
    assert_true(worker_is_idle(t->worker));
}

/* Also if the next attempt comes in the same turn of the loop: a node that has stood still hears
 * of both at once. */
static void one_that_ends_is_not_asked_again(void **state)
{
    struct test *t = *state;
    run(t, JOB, 0);
    rests(t);
    the_stage.ops->ended(the_stage.owner, "was killed by SIGKILL");
    assert_null(the_stage.ops);
    run(t, JOB, 1);
    assert_int_equal(the_stages, 2);
    assert_int_equal(t->failed, 0);
}

/* A stage that has left after a step is asked, too. */
static void one_that_has_left_rests(void **state)
{
    struct test *t = *state;
    run(t, JOB, 0);
    says("left", json_object());
    is_told("rest");
    says("resting", json_object());
    event_base_dispatch(t->alone.base);
    run(t, JOB, 1);
    assert_int_equal(the_stages, 1);
}

/* What an old process cannot do, a new one may. */
static void its_failure_is_not_the_jobs(void **state)
{
    struct test *t = *state;
    run(t, JOB, 0);
    rests(t);
    begin(t, JOB, 1);
    says("failed", json_pack("{s:s, s:b}", "error", "x cannot be opened", "kept", 1));
    event_base_dispatch(t->alone.base);
    assert_int_equal(t->failed, 1);
    assert_true(t->lost && t->kept);
}

#define WITH(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(the_next_attempt_has_the_same_process),
        WITH(another_job_has_another),
        WITH(a_number_that_comes_again_is_another_job),
        WITH(it_ends_with_its_job),
        WITH(it_ends_if_the_job_does_meanwhile),
        WITH(one_that_ends_is_not_asked_again),
        WITH(one_that_has_left_rests),
        WITH(its_failure_is_not_the_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
