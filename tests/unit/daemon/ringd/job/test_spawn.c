/* SPDX-License-Identifier: MIT
 *
 * Stage processes, each a script of a few lines: how they end, what they may send, and what comes
 * of those that do not end. Every wait is for an event; a guard fails what never comes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/common/conf.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/spawn_socket.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"
#include "tests/unit/daemon/ringd/job/stage_script.h"
#include "tests/unit/daemon/ringd/job/trace.h"

enum { GUARD_MS = 60000 };
#define FOREVER "exec sleep 1000" /* a child of its own would outlive it */

struct test {
    struct event_base *base;
    struct opts *opts;
    struct spawner *spawner;
    struct timer *guard;
    int threads;
    char folder[32], script[64];
    struct spawn *stage;
    unsigned events, ends;
    char kind[32], said[64], text[700];
    bool lets_go;         /* of the stage, inside its first event */
    const char *stops_at; /* the loop, at this kind of event */
};

static void on_event(void *owner, const char *kind, json_t *event)
{
    struct test *t = owner;
    const char *said = json_string_value(json_object_get(event, "said"));
    t->events++;
    snprintf(t->kind, sizeof t->kind, "%s", kind);
    snprintf(t->said, sizeof t->said, "%s", said ? said : "");
    if (t->lets_go) {
        spawn_free(t->stage);
        t->stage = NULL;
        event_base_loopbreak(t->base);
    }
    if (t->stops_at && !strcmp(kind, t->stops_at))
        event_base_loopbreak(t->base);
}

static void on_ended(void *owner, const char *text)
{
    struct test *t = owner;
    t->ends++;
    snprintf(t->text, sizeof t->text, "%s", text);
    event_base_loopbreak(t->base);
}

static const struct spawn_ops ops = {on_event, on_ended};

static void on_guard(void *owner)
{
    (void)owner;
    fail_msg("what was waited for does not come");
}

static int set_up(void **state)
{
    struct test *t = calloc(1, sizeof *t);
    *state = t;
    log_set_level("error");
    strcpy(t->folder, "/tmp/ringd-spawn-XXXXXX");
    if (!mkdtemp(t->folder))
        return -1;
    snprintf(t->script, sizeof t->script, "%s/stage", t->folder);
    t->base = event_base_new();
    t->opts = opts_new(conf_table);
    t->threads = 1;
    t->guard = timer_new(t->base, on_guard, t);
    timer_set_ms(t->guard, GUARD_MS);
    t->spawner = spawner_new(&(struct spawner_setup){.base = t->base,
                                                     .opts = t->opts,
                                                     .threads = &t->threads,
                                                     .groups = t->folder,
                                                     .kill_after_us = 100000,
                                                     .give_up_us = 100000});
    return 0;
}

static int tear_down(void **state)
{
    struct test *t = *state;
    spawn_free(t->stage);
    spawner_free(t->spawner);
    timer_free(t->guard);
    opts_free(t->opts);
    event_base_free(t->base);
    unlink(t->script);
    rmdir(t->folder);
    free(t);
    return 0;
}

static void begin(struct test *t, uint64_t within_us, const char *lines)
{
    struct err err;
    stage_script_write(t->script, lines);
    assert_int_equal(opts_set(t->opts, "stage-binary", t->script, &err), 0);
    assert_int_equal(spawn_start(&t->stage, t->spawner, within_us, &ops, t, &err), 0);
}

static void run(struct test *t)
{
    event_base_dispatch(t->base);
}

/* --- ends ------------------------------------------------------------------------------------- */

static void the_last_words_come_before_the_end(void **state)
{
    struct test *t = *state;
    begin(t, 0, "say '{\"ev\":\"hello\",\"said\":\"one\"}'; say '{\"ev\":\"bye\",\"said\":\"two\"}'");
    run(t);
    assert_int_equal(t->events, 2);
    assert_string_equal(t->said, "two");
    assert_int_equal(t->ends, 1);
    assert_string_equal(t->text, "");
    assert_int_equal(spawn_memory(t->stage), 0);
    assert_true(spawn_peak(t->stage) > 0);
}

static void an_end_is_named(void **state)
{
    static const struct {
        const char *lines, *text;
    } ends[] = {
        {"exit 3", "ended with an error it could not report"},
        {"exit 127", "could not be started: is ringd-stage where --stage-binary says?"},
        {"kill -SEGV $$", "was killed by SIGSEGV"},
    };
    struct test *t = *state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        begin(t, 0, ends[i].lines);
        run(t);
        assert_string_equal(t->text, ends[i].text);
        spawn_free(t->stage);
    }
    t->stage = NULL;
}

static void who_ignores_sigterm_is_killed(void **state)
{
    struct test *t = *state;
    t->stops_at = "ready";
    begin(t, 0, "trap '' TERM; say '{\"ev\":\"ready\"}'; " FOREVER);
    run(t);
    assert_int_equal(t->events, 1);
    spawn_end(t->stage);
    run(t);
    assert_non_null(strstr(t->text, "was killed by SIGKILL"));
}

static void a_stopped_process_ends_when_asked(void **state)
{
    struct test *t = *state;
    t->stops_at = "ready";
    begin(t, 0, "say '{\"ev\":\"ready\"}'; kill -STOP $$; " FOREVER);
    run(t);
    spawn_end(t->stage);
    run(t);
    assert_string_equal(t->text, "was killed by SIGTERM");
}

static void it_has_to_end_in_time(void **state)
{
    struct test *t = *state;
    begin(t, 100000, FOREVER);
    run(t);
    assert_string_equal(t->text, "was not done within 0.1 s");
}

static void who_closes_its_socket_has_to_end(void **state)
{
    struct test *t = *state;
    begin(t, 0, "exec 3>&-; " FOREVER);
    run(t);
    assert_string_equal(t->text, "closed its connection with ringd and went on");
}

static void its_owner_may_let_go_inside_an_event(void **state)
{
    struct test *t = *state;
    t->lets_go = true;
    begin(t, 0, "say '{\"ev\":\"one\"}'; say '{\"ev\":\"two\"}'; " FOREVER);
    run(t);
    assert_int_equal(t->events, 1);
    spawner_free(t->spawner); /* which reaps it */
    t->spawner = NULL;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(t->ends, 0);
}

/* --- one that does not end -------------------------------------------------------------------- */

static void one_that_does_not_end_is_given_up(void **state)
{
    struct test *t = *state;
    char wanted[100];
    int pid = 0;
    t->stops_at = "ready";
    begin(t, 0, "say '{\"ev\":\"ready\",\"said\":\"'$$'\"}'; " FOREVER);
    run(t);
    assert_int_equal(sscanf(t->said, "%d", &pid), 1);
    const pid_t tracer = trace_begin(pid);
    spawn_end(t->stage);
    run(t);
    snprintf(wanted, sizeof wanted, "was killed and does not end (process %d)", pid);
    assert_string_equal(t->text, wanted);
    spawn_free(t->stage);
    t->stage = NULL;
    assert_true(spawner_lingering(t->spawner) > 0);
    trace_end(tracer);
    while (kill(pid, 0) == 0) /* until it is reaped, which the loop does */
        event_base_loop(t->base, EVLOOP_ONCE);
    assert_int_equal(spawner_lingering(t->spawner), 0);
    assert_int_equal(t->ends, 1);
}

/* --- what it sends ---------------------------------------------------------------------------- */

static void what_cannot_be_read_ends_it(void **state)
{
    static const struct {
        const char *lines, *text;
    } cases[] = {
        {"printf '\\0\\0\\0\\002' >&3", "sent a message of 33554432 bytes, and ringd takes at most 16777216"},
        {"printf '\\0\\0\\0\\0' >&3", "sent a message that ringd cannot read: are both of the same version?"},
        {"say '{\"ev\":'", "sent a message that ringd cannot read: are both of the same version?"},
        {"say '{\"do\":\"plan\"}'", "sent a message that ringd cannot read: are both of the same version?"},
    };
    struct test *t = *state;
    char lines[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(lines, sizeof lines, "%s; say '{\"ev\":\"late\"}'; exec cat /dev/zero >&3", cases[i].lines);
        begin(t, 0, lines);
        run(t);
        assert_string_equal(t->text, cases[i].text);
        assert_int_equal(t->events, 0); /* nothing more was read */
        spawn_free(t->stage);
    }
    t->stage = NULL;
}

/* More than a window's events: they wait, and none is lost. */
static void many_events_arrive_in_order(void **state)
{
    struct test *t = *state;
    begin(t, 0, "i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); say '{\"ev\":\"n\",\"said\":\"'$i'\"}'; done");
    run(t);
    assert_int_equal(t->events, 2000);
    assert_string_equal(t->said, "2000");
    assert_string_equal(t->text, "");
}

static void the_page_keeps_its_size(void **state)
{
    struct test *t = *state;
    begin(t, 0,
          "truncate -s 0 /proc/self/fd/4 2>/dev/null && say '{\"ev\":\"cut\"}'; "
          "truncate -s 1000000 /proc/self/fd/4 2>/dev/null && say '{\"ev\":\"grown\"}'; exit 0");
    run(t);
    assert_int_equal(t->events, 0);
    assert_string_equal(t->text, "");
}

/* --- control groups --------------------------------------------------------------------------- */

static void a_busy_group_is_removed_later(void **state)
{
    struct test *t = *state;
    char group[64], file[80];
    t->stops_at = "ready";
    begin(t, 0, "say '{\"ev\":\"ready\"}'; " FOREVER);
    run(t);
    snprintf(group, sizeof group, "%s/job-7-%d", t->folder, (int)spawn_pid(t->stage));
    snprintf(file, sizeof file, "%s/cgroup.kill", group);
    assert_int_equal(spawn_confine(t->stage, 7), -ENOENT); /* a folder without the kernel's files */
    assert_non_null(spawn_group(t->stage));
    FILE *f = fopen(file, "we");
    assert_non_null(f);
    fclose(f);
    spawn_free(t->stage);
    t->stage = NULL;
    for (struct stat at = {0}; !at.st_size; stat(file, &at)) /* told to kill all */
        event_base_loop(t->base, EVLOOP_ONCE);
    assert_int_equal(unlink(file), 0);
    while (!access(group, F_OK))
        event_base_loop(t->base, EVLOOP_ONCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_last_words_come_before_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_end_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_ignores_sigterm_is_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stopped_process_ends_when_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_has_to_end_in_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_closes_its_socket_has_to_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(its_owner_may_let_go_inside_an_event, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_does_not_end_is_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_events_arrive_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_page_keeps_its_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_busy_group_is_removed_later, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
