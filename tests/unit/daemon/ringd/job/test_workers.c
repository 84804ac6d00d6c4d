/* SPDX-License-Identifier: MIT
 *
 * All workers of a node that is its own head: several jobs hold it at once, each hears its own
 * words, and what does not fit beside them is refused. Stages are scripts that wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ringd/job/workers_impl.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"
#include "tests/lib/small_plan.h"
#include "tests/unit/daemon/ringd/job/stage_script.h"
#include "tests/unit/daemon/ringd/job/worker_world.h"

enum { TRAINS = 7, ASKS = 8, GUARD_MS = 60000 };
static const uint8_t self[16] = {1}, other[16] = {2};
static const char self_hex[] = "01000000000000000000000000000000";

struct test {
    struct alone alone; /* first: `told` gets it */
    struct workers *workers;
    struct timer *guard;
    char folder[32], script[64], cause[300];
    bool is_busy;
    uint64_t stopped, failed; /* the job that was, last */
};

static void on_told(struct alone *a, const char *kind, const json_t *body)
{
    struct test *t = (struct test *)a;
    const uint64_t job = (uint64_t)json_integer_value(json_object_get(body, "job"));
    const char *cause = json_string_value(json_object_get(body, "cause"));
    if (!strcmp(kind, "job-stopped")) {
        t->stopped = job;
    } else if (!strcmp(kind, "job-failed")) {
        t->failed = job;
        t->is_busy = json_is_true(json_object_get(body, "busy"));
        snprintf(t->cause, sizeof t->cause, "%s", cause ? cause : "");
    } else {
        return;
    }
    event_base_loopbreak(a->base);
}

static void on_guard(void *owner)
{
    (void)owner;
    fail_msg("what was waited for does not come");
}

static int set_up(void **state)
{
    struct test *t = calloc(1, sizeof *t);
    struct err err;
    *state = t;
    log_set_level("error");
    strcpy(t->folder, "/tmp/ringd-workers-XXXXXX");
    if (!mkdtemp(t->folder) || !alone_open(&t->alone, &err))
        return -1;
    snprintf(t->script, sizeof t->script, "%s/stage", t->folder);
    stage_script_write(t->script, "exec sleep 1000");
    t->alone.told = on_told;
    t->workers = alone_workers(&t->alone);
    t->guard = timer_new(t->alone.base, on_guard, t);
    timer_set_ms(t->guard, GUARD_MS);
    return opts_set(t->alone.opts, "stage-binary", t->script, &err);
}

static int tear_down(void **state)
{
    struct test *t = *state;
    workers_free(t->workers);
    timer_free(t->guard);
    alone_close(&t->alone);
    unlink(t->script);
    rmdir(t->folder);
    free(t);
    return 0;
}

static void plan(struct test *t, uint64_t job, enum job_type type)
{
    const struct origin origin = {.head = {1}, .job = job};
    workers_plan(t->workers, job, 0, &origin, type, json_object(), json_array(), NULL);
}

/* As that plan says. */
static void open_plan(struct test *t, const uint8_t head[16], uint64_t job, const struct job_plan *p)
{
    json_t *body = json_pack("{s:I, s:i, s:i, s:o, s:[s]}", "job", (json_int_t)job, "attempt", 0, "rank", 0,
                             "plan", job_plan_encode(p), "nodes", self_hex);
    workers_take_open(t->workers, head, body);
    json_decref(body);
}

/* Of that head, for this node alone. */
static void open(struct test *t, const uint8_t head[16], uint64_t job, enum job_type type)
{
    const struct job_plan p = small_plan(type, 1);
    open_plan(t, head, job, &p);
}

static struct worker *works_on(struct test *t, const uint8_t head[16], uint64_t job)
{
    json_t *body = json_pack("{s:I s:i}", "job", (json_int_t)job, "attempt", 0);
    struct worker *w = workers_of_head(t->workers, head, body);
    json_decref(body);
    return w;
}

static void stop(struct test *t, uint64_t job)
{
    json_t *body = json_pack("{s:s}", "cause", "a test");
    worker_take_stop(works_on(t, self, job), body);
    json_decref(body);
    event_base_dispatch(t->alone.base);
    assert_int_equal(t->stopped, job);
}

/* The node's own head hears of it from the loop. */
static void is_refused(struct test *t, uint64_t job, const char *cause)
{
    event_base_dispatch(t->alone.base);
    assert_int_equal(t->failed, job);
    assert_true(t->is_busy);
    assert_string_equal(t->cause, cause);
}

static void jobs_hold_the_node_side_by_side(void **state)
{
    struct test *t = *state;
    struct member me = {.nstages = 0};
    plan(t, TRAINS, JOB_TRAIN);
    plan(t, ASKS, JOB_GENERATE);
    open(t, other, TRAINS, JOB_GENERATE); /* another head's number */
    workers_describe(t->workers, &me);
    assert_int_equal(me.nstages, 3);
    assert_int_equal(member_trains(&me)->job, TRAINS);
    assert_int_equal(member_stage_of(&me, self, ASKS)->class, JOB_CLASS_INTERACTIVE);
    assert_int_equal(member_stage_of(&me, other, TRAINS)->bytes, 1 << 20);
    stop(t, ASKS);
    assert_null(works_on(t, self, ASKS));
    assert_non_null(works_on(t, self, TRAINS));
    assert_non_null(works_on(t, other, TRAINS));
    assert_false(workers_are_idle(t->workers));
    stop(t, TRAINS);
    assert_non_null(works_on(t, other, TRAINS));
}

/* Where there are no groups with weights. Whoever is alone keeps what he has: it cannot be given
 * back. */
static void what_trains_gets_what_others_leave(void **state)
{
    struct test *t = *state;
    plan(t, TRAINS, JOB_TRAIN);
    const pid_t trains = spawn_pid(works_on(t, self, TRAINS)->stage);
    assert_int_equal(sched_getscheduler(trains), SCHED_OTHER);
    plan(t, ASKS, JOB_GENERATE);
    assert_int_equal(sched_getscheduler(trains), SCHED_IDLE);
    assert_int_equal(sched_getscheduler(spawn_pid(works_on(t, self, ASKS)->stage)), SCHED_OTHER);
    stop(t, TRAINS);
    plan(t, TRAINS + 2, JOB_TRAIN);
    assert_int_equal(sched_getscheduler(spawn_pid(works_on(t, self, TRAINS + 2)->stage)), SCHED_IDLE);
}

static void one_job_trains_at_a_time(void **state)
{
    struct test *t = *state;
    plan(t, TRAINS, JOB_TRAIN);
    open(t, self, TRAINS + 2, JOB_TRAIN);
    is_refused(t, TRAINS + 2, "busy with job 7 of self");
    plan(t, TRAINS + 3, JOB_TRAIN);
    is_refused(t, TRAINS + 3, "busy with job 7 of self");
    stop(t, TRAINS);
    open(t, self, TRAINS + 2, JOB_TRAIN);
    assert_non_null(works_on(t, self, TRAINS + 2));
}

static void what_does_not_fit_beside_others_is_refused(void **state)
{
    struct test *t = *state;
    t->alone.free_memory = 1 << 19;
    open(t, self, TRAINS, JOB_TRAIN); /* alone: its plan has looked */
    assert_non_null(works_on(t, self, TRAINS));
    open(t, self, ASKS, JOB_GENERATE);
    is_refused(t, ASKS, "its stage needs 1.0 MiB, and 0.5 MiB are free beside job 7");
    t->alone.free_memory = 1 << 20;
    open(t, self, ASKS, JOB_GENERATE);
    assert_non_null(works_on(t, self, ASKS));
}

enum { EMBED = 4 << 10, LAYER = 100 << 10, MAPPED = EMBED + LAYER + EMBED, OWN = 50 << 10 };

/* A job that maps the model at that path, and takes OWN bytes beside. */
static void open_of_model(struct test *t, uint64_t job, const char *model)
{
    size_t mapped[] = {EMBED, LAYER, EMBED};
    struct job_plan p = small_plan(JOB_GENERATE, 1);
    snprintf(p.model, sizeof p.model, "%s", model);
    p.mapped = mapped;
    p.nmapped = sizeof mapped / sizeof *mapped;
    p.bytes[0] = MAPPED + OWN;
    open_plan(t, self, job, &p);
}

static uint64_t promised(const struct test *t)
{
    uint64_t untaken;
    return workers_promised(t->workers, &untaken);
}

/* Whoever ends first: what is left has what it needs. */
static void jobs_on_one_model_share_its_memory(void **state)
{
    struct test *t = *state;
    open_of_model(t, 1, "/m");
    assert_int_equal(promised(t), MAPPED + OWN);
    t->alone.free_memory = OWN - 1;
    open_of_model(t, 2, "/m");
    is_refused(t, 2, "its stage needs 50.000 KiB, and 49.999 KiB are free beside job 1");
    t->alone.free_memory = OWN;
    open_of_model(t, 2, "/m");
    assert_int_equal(promised(t), MAPPED + 2 * OWN);
    open_of_model(t, 3, "/other");
    is_refused(t, 3, "its stage needs 158.0 KiB, and 50.0 KiB are free beside job 2");
    stop(t, 1);
    assert_int_equal(promised(t), MAPPED + OWN);
    open_of_model(t, 4, "/m");
    assert_int_equal(promised(t), MAPPED + 2 * OWN);
    stop(t, 4);
    assert_int_equal(promised(t), MAPPED + OWN);
    stop(t, 2);
    assert_int_equal(promised(t), 0);
}

/* The kernel calls mapped pages free: they are spoken for all the same, and once. */
static void mapped_memory_is_not_free(void **state)
{
    struct test *t = *state;
    uint64_t untaken;
    open_of_model(t, 1, "/m");
    open_of_model(t, 2, "/m");
    works_on(t, self, 1)->own_bytes = OWN / 2;
    works_on(t, self, 2)->own_bytes = 2 * OWN;
    assert_int_equal(workers_promised(t->workers, &untaken), MAPPED + 2 * OWN);
    assert_int_equal(untaken, MAPPED + OWN / 2);
}

/* So that heads plan with it. */
static void the_record_says_what_is_mapped(void **state)
{
    struct test *t = *state;
    struct member me = {.nstages = 0};
    open_of_model(t, 1, "/m");
    open(t, self, 2, JOB_GENERATE);
    plan(t, 3, JOB_GENERATE);
    workers_describe(t->workers, &me);
    const struct member_stage *maps = member_stage_of(&me, self, 1);
    assert_int_not_equal(maps->weights, 0);
    assert_int_equal(maps->nruns, 1);
    assert_int_equal(maps->runs[0].from, 0);
    assert_int_equal(maps->runs[0].end, 3);
    assert_int_equal(member_stage_of(&me, self, 2)->weights, 0);
    assert_int_equal(member_stage_of(&me, self, 3)->nruns, 0);
}

static void there_are_so_many_places(void **state)
{
    struct test *t = *state;
    for (uint64_t job = 1; job <= WORKERS_MAX; job++)
        plan(t, job, JOB_GENERATE);
    open(t, other, 1, JOB_SCORE);
    assert_null(works_on(t, other, 1));
    plan(t, 100, JOB_GENERATE);
    is_refused(t, 100, "this node holds 8 stages, and no more");
    stop(t, 3);
    plan(t, 100, JOB_GENERATE);
    assert_non_null(works_on(t, self, 100));
    assert_non_null(works_on(t, self, 4));
}

/* An interrupted job goes on from its copies, however many others came meanwhile; one that trains
 * takes their place. */
static void copies_outlive_other_jobs(void **state)
{
    struct test *t = *state;
    plan(t, TRAINS, JOB_TRAIN);
    const struct worker *w = works_on(t, self, TRAINS);
    json_t *keep = json_pack("{s:b}", "keep", 1);
    worker_take_stop(works_on(t, self, TRAINS), keep);
    json_decref(keep);
    event_base_dispatch(t->alone.base);
    assert_int_equal(w->held.n, 1);
    for (uint64_t job = 100; job < 99 + 2 * WORKERS_MAX; job++) {
        plan(t, job, JOB_GENERATE);
        stop(t, job);
    }
    for (uint64_t job = 200; job < 200 + WORKERS_MAX - 1; job++)
        plan(t, job, JOB_GENERATE); /* in all other places */
    assert_int_equal(w->held.n, 1);
    plan(t, TRAINS, JOB_TRAIN);
    assert_ptr_equal(works_on(t, self, TRAINS), w);
    stop(t, TRAINS);
    assert_int_equal(w->held.n, 0); /* it is over */
    stop(t, 200);
    plan(t, TRAINS + 2, JOB_TRAIN);
    const struct worker *next = works_on(t, self, TRAINS + 2);
    keep = json_pack("{s:b}", "keep", 1);
    worker_take_stop(works_on(t, self, TRAINS + 2), keep);
    json_decref(keep);
    event_base_dispatch(t->alone.base);
    assert_int_equal(next->held.n, 1);
    plan(t, TRAINS + 3, JOB_TRAIN);
    assert_int_equal(next->held.n, next == works_on(t, self, TRAINS + 3));
}

/* The sentence for who dials a job that has ended here. */
static void a_data_connection_names_its_job(void **state)
{
    struct test *t = *state;
    char why[200];
    struct link_hello hello = {.job = ASKS, .head_id = {1}};
    assert_int_equal(workers_data_hello(t->workers, &hello, why, sizeof why), -EPERM);
    assert_string_equal(why, "self holds no stage of job 8");
    open(t, self, ASKS, JOB_GENERATE);
    open(t, self, ASKS + 1, JOB_GENERATE);
    works_on(t, self, ASKS + 1)->state = WORKER_READY;
    hello.job = ASKS + 1;
    assert_int_equal(workers_data_hello(t->workers, &hello, why, sizeof why), -EPERM);
    assert_string_equal(why, "rank 0 to 0 was not expected by rank 0");
    hello.job = ASKS; /* which is not so far */
    assert_int_equal(workers_data_hello(t->workers, &hello, why, sizeof why), -EPERM);
    assert_string_equal(why, "self holds no stage of job 8");
}

int main(void)
{
#define WITH_WORKERS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_WORKERS(jobs_hold_the_node_side_by_side),
        WITH_WORKERS(what_trains_gets_what_others_leave),
        WITH_WORKERS(one_job_trains_at_a_time),
        WITH_WORKERS(what_does_not_fit_beside_others_is_refused),
        WITH_WORKERS(jobs_on_one_model_share_its_memory),
        WITH_WORKERS(mapped_memory_is_not_free),
        WITH_WORKERS(the_record_says_what_is_mapped),
        WITH_WORKERS(there_are_so_many_places),
        WITH_WORKERS(copies_outlive_other_jobs),
        WITH_WORKERS(a_data_connection_names_its_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
