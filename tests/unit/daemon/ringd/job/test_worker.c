/* SPDX-License-Identifier: MIT
 *
 * A worker whose node is its own head: the lease is free again after every end of a stage, and the
 * head hears why. The stage is a script. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/ringd/job/worker_impl.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"
#include "tests/lib/small_plan.h"
#include "tests/unit/daemon/ringd/job/stage_script.h"
#include "tests/unit/daemon/ringd/job/trace.h"
#include "tests/unit/daemon/ringd/job/worker_world.h"

enum { JOB = 7, GUARD_MS = 60000 };

struct test {
    struct alone alone; /* first: `told` gets it */
    struct worker *worker;
    struct timer *guard;
    char folder[32], script[64], cause[700];
    unsigned failed, stopped;
    int pid; /* of the stage, as it says */
};

static void on_told(struct alone *a, const char *kind, const json_t *body)
{
    struct test *t = (struct test *)a;
    const char *cause = json_string_value(json_object_get(body, "cause"));
    const char *pid = json_string_value(json_object_get(json_object_get(body, "event"), "pid"));
    if (!strcmp(kind, "job-failed")) {
        t->failed++;
        snprintf(t->cause, sizeof t->cause, "%s", cause ? cause : "");
    }
    t->stopped += !strcmp(kind, "job-stopped");
    if (pid)
        t->pid = (int)strtol(pid, NULL, 10);
    if (pid || !strcmp(kind, "job-stopped"))
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
    strcpy(t->folder, "/tmp/ringd-worker-XXXXXX");
    if (!mkdtemp(t->folder) || !alone_open(&t->alone, &err))
        return -1;
    snprintf(t->script, sizeof t->script, "%s/stage", t->folder);
    t->alone.told = on_told;
    t->worker = alone_worker(&t->alone);
    t->guard = timer_new(t->alone.base, on_guard, t);
    timer_set_ms(t->guard, GUARD_MS);
    return opts_set(t->alone.opts, "stage-binary", t->script, &err);
}

static int tear_down(void **state)
{
    struct test *t = *state;
    worker_free(t->worker);
    timer_free(t->guard);
    alone_close(&t->alone);
    unlink(t->script);
    rmdir(t->folder);
    free(t);
    return 0;
}

static void plan(struct test *t, const char *lines)
{
    stage_script_write(t->script, lines);
    const struct origin origin = {.head = {1}, .job = JOB};
    worker_plan(t->worker, JOB, 0, &origin, JOB_TRAIN, json_object(), json_array(), NULL);
    assert_false(worker_is_idle(t->worker));
    event_base_dispatch(t->alone.base);
}

static void stop_attempt(struct test *t, int attempt)
{
    const uint8_t head[16] = {1};
    json_t *body = json_pack("{s:i, s:i, s:s}", "job", JOB, "attempt", attempt, "cause", "a test");
    assert_true(worker_is_head(t->worker, head, body));
    worker_take_stop(t->worker, body);
    json_decref(body);
    event_base_dispatch(t->alone.base);
}

static void stop(struct test *t)
{
    stop_attempt(t, 0);
}

static void is_free(const struct test *t, unsigned times)
{
    assert_true(worker_is_idle(t->worker));
    assert_int_equal(t->alone.begun, times);
    assert_int_equal(t->alone.changed, times);
    assert_int_equal(t->stopped, times);
}

static void the_head_hears_how_a_stage_fails(void **state)
{
    static const struct {
        const char *lines, *cause;
    } ends[] = {
        {"say '{\"ev\":\"failed\",\"error\":\"no such model\"}'", "no such model"},
        {"kill -SEGV $$", "the stage process was killed by SIGSEGV"},
        {"say 'nonsense'; exec sleep 1000",
         "the stage process sent a message that ringd cannot read: are both of the same version?"},
    };
    struct test *t = *state;
    for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        plan(t, ends[i].lines);
        assert_int_equal(t->failed, i + 1);
        assert_string_equal(t->cause, ends[i].cause);
        is_free(t, i + 1);
    }
}

/* An interrupted job goes on from its copies, though another one had the node meanwhile. */
static void another_job_leaves_copies_alone(void **state)
{
    struct test *t = *state;
    const uint8_t head[16] = {1};
    const struct origin other = {.head = {1}, .job = JOB + 1};
    plan(t, "kill -SEGV $$");
    assert_int_equal(t->worker->held.n, 1);
    stage_script_write(t->script, "say '{\"ev\":\"done\"}'");
    worker_plan(t->worker, JOB + 1, 0, &other, JOB_GENERATE, json_object(), json_array(), NULL);
    event_base_dispatch(t->alone.base);
    assert_int_equal(t->worker->held.n, 1);
    stage_script_write(t->script, "say '{\"ev\":\"hears\"}'; exec sleep 1000");
    worker_plan(t->worker, JOB + 1, 1, &other, JOB_GENERATE, json_object(), json_array(), NULL);
    json_t *body = json_pack("{s:i s:i}", "job", JOB + 1, "attempt", 1);
    assert_true(worker_is_head(t->worker, head, body));
    worker_take_stop(t->worker, body);
    json_decref(body);
    event_base_dispatch(t->alone.base);
    assert_int_equal(t->worker->held.n, 1);
    plan(t, "say '{\"ev\":\"done\"}'");
    assert_int_equal(t->worker->held.n, 0);
}

/* The words of rank 0 belong to the copies, and go with them. */
static void lines_are_kept_as_long_as_copies(void **state)
{
    struct test *t = *state;
    const struct origin other = {.head = {1}, .job = JOB + 1};
    static const char lines[] =
        "say '{\"ev\":\"lines\",\"lines\":\"{\\\"ev\\\":\\\"said\\\",\\\"said\\\":{}}\\n\"}'; kill -SEGV $$";
    for (int done = 0; done <= 1; done++) {
        plan(t, lines);
        assert_non_null(t->worker->lines.before);
        if (done) {
            plan(t, "say '{\"ev\":\"done\"}'");
        } else {
            stage_script_write(t->script, "say '{\"ev\":\"failed\",\"error\":\"\"}'");
            worker_plan(t->worker, JOB + 1, 0, &other, JOB_GENERATE, json_object(), json_array(), NULL);
            event_base_dispatch(t->alone.base);
            assert_non_null(t->worker->lines.before);
            worker_plan(t->worker, JOB + 1, 1, &other, JOB_TRAIN, json_object(), json_array(), NULL);
            event_base_dispatch(t->alone.base);
        }
        assert_null(t->worker->lines.before);
    }
}

/* What the head has to say is read before a stage starts. */
static void a_plan_that_does_not_fit_is_refused(void **state)
{
    struct test *t = *state;
    const uint8_t head[16] = {1};
    struct job_plan lame = small_plan(JOB_TRAIN, 1), long_one = small_plan(JOB_TRAIN, 2);
    lame.dim = 0;
    const struct {
        const struct job_plan *plan;
        const char *cause;
    } bad[] = {{&lame, "(\"dim\" must be a whole number of at least 1, and is 0)"},
               {&long_one, "the head sent a plan of 2 ranks for 1 nodes"}};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *body = json_pack("{s:i, s:i, s:o, s:[s]}", "job", JOB + i, "rank", 0, "plan",
                                 job_plan_encode(bad[i].plan), "nodes", "01000000000000000000000000000000");
        worker_take_open(t->worker, head, body);
        json_decref(body);
        event_base_dispatch(t->alone.base);
        assert_int_equal(t->failed, i + 1);
        assert_non_null(strstr(t->cause, bad[i].cause));
        assert_true(worker_is_idle(t->worker));
        assert_int_equal(t->alone.begun, 0);
    }
}

/* Of a stage that lacks what it says, and goes on once it hears that this is here. */
#define LACKS                                                                                                \
    "say '{\"ev\":\"lacks\",\"model\":\"org/name\",\"blocks\":[[\"w\",0,2]]}'\n"                             \
    "until dd bs=65536 count=1 2>/dev/null <&3 | grep -qa brought; do :; done\n"                             \
    "say '{\"ev\":\"hello\",\"pid\":\"'$$'\"}'; exec sleep 1000"

static void opens(struct test *t, unsigned rank, const char *expected)
{
    const uint8_t head[16] = {rank ? 2 : 1};
    const struct job_plan p = small_plan(JOB_TRAIN, rank + 1);
    json_t *nodes = rank ? json_pack("[s,s]", "02000000000000000000000000000000",
                                     "01000000000000000000000000000000")
                         : json_pack("[s]", "01000000000000000000000000000000"),
           *body = json_pack("{s:i, s:i, s:i, s:o, s:o, s:[s], s:b}", "job", JOB, "attempt", 1, "rank", rank,
                             "plan", job_plan_encode(&p), "nodes", nodes, "holders", "a node", "parts", 1);
    stage_script_write(t->script, LACKS);
    worker_take_open(t->worker, head, body);
    json_decref(body);
    event_base_dispatch(t->alone.base);
    char *text = json_dumps(t->alone.brings, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
}

/* Its head says who has it; the head itself has asked. */
static void what_a_stage_lacks_is_brought(void **state)
{
    struct test *t = *state;
    opens(t, 0, "[\"org/name\",[[\"w\",0,2]],null,true]");
    worker_brought(t->worker, "org/other", NULL);
    worker_brought(t->worker, "org/name", NULL);
    worker_brought(t->worker, "org/name", "a word too much");
    event_base_dispatch(t->alone.base);
    assert_true(t->pid > 0);
    assert_int_equal(t->failed, 0);
    stop_attempt(t, 1);
}

static void another_node_is_told_who_has_it(void **state)
{
    struct test *t = *state;
    opens(t, 1, "[\"org/name\",[[\"w\",0,2]],[\"a node\"],true]");
}

static void a_stage_that_ignores_the_stop_is_killed(void **state)
{
    struct test *t = *state;
    plan(t, "trap '' TERM; say '{\"ev\":\"hello\",\"pid\":\"'$$'\"}'; exec sleep 1000");
    stop(t);
    assert_int_equal(t->failed, 0); /* it was to end */
    is_free(t, 1);
    assert_int_equal(kill(t->pid, 0), -1);
}

static void the_lease_does_not_hang_with_the_stage(void **state)
{
    struct test *t = *state;
    struct worker_totals totals = {0};
    plan(t, "say '{\"ev\":\"hello\",\"pid\":\"'$$'\"}'; exec sleep 1000");
    const pid_t tracer = trace_begin(t->pid);
    stop(t);
    is_free(t, 1);
    assert_int_equal(kill(t->pid, 0), 0);
    worker_add_totals(t->worker, &totals);
    assert_int_equal(totals.running, 0);
    assert_true(spawner_lingering(t->alone.spawner) > 0); /* taken all the same */
    plan(t, "exit 0");                                    /* the next job has its stage */
    is_free(t, 2);
    trace_end(tracer);
    while (kill(t->pid, 0) == 0)
        event_base_loop(t->alone.base, EVLOOP_ONCE);
    assert_int_equal(spawner_lingering(t->alone.spawner), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_head_hears_how_a_stage_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_job_leaves_copies_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_are_kept_as_long_as_copies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_plan_that_does_not_fit_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_stage_lacks_is_brought, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_node_is_told_who_has_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stage_that_ignores_the_stop_is_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_lease_does_not_hang_with_the_stage, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
