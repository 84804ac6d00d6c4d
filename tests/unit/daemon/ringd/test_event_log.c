/* SPDX-License-Identifier: MIT
 *
 * The event log: numbering, filtering by job, what a slow or a forgetful reader is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/event_log.h"

static void expect_text(struct event_log *log, uint64_t job, uint64_t after, const char *text, uint64_t id,
                        bool last)
{
    uint64_t got_id = 0;
    bool got_last = !last;
    char *got = event_log_next(log, job, after, &got_id, &got_last);
    assert_non_null(got);
    assert_string_equal(got, text);
    assert_int_equal(got_id, id);
    assert_int_equal(got_last, last);
    free(got);
}

static void events_come_as_server_sent_events(void **state)
{
    (void)state;
    struct event_log *log = event_log_new(8, SIZE_MAX);
    assert_int_equal(event_log_publish(log, 3, "step", "{\"step\":1}"), 1);
    assert_int_equal(event_log_publish(log, 3, "end", "{}"), 2);
    expect_text(log, 3, 0, "id: 1\nevent: step\ndata: {\"step\":1}\n\n", 1, false);
    expect_text(log, 3, 1, "id: 2\nevent: end\ndata: {}\n\n", 2, true);
    event_log_free(log);
}

/* Whoever was behind is told, as with too many events. */
static void many_bytes_crowd_out_the_oldest(void **state)
{
    (void)state;
    struct event_log *log = event_log_new(8, 100);
    for (int i = 0; i < 4; i++)
        event_log_publish(log, 1, "step", "{\"one\":1}"); /* 39 bytes with its end: two fit */
    expect_text(log, 1, 1, "id: 2\nevent: resync\ndata: {\"lost_after\":1,\"next\":3}\n\n", 2, false);
    expect_text(log, 1, 2, "id: 3\nevent: step\ndata: {\"one\":1}\n\n", 3, false);
    char large[300];
    memset(large, '1', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    event_log_publish(log, 1, "step", large);
    event_log_publish(log, 1, "end", "{}");
    expect_text(log, 1, 5, "id: 6\nevent: end\ndata: {}\n\n", 6, true);
    expect_text(log, 1, 2, "id: 5\nevent: resync\ndata: {\"lost_after\":2,\"next\":6}\n\n", 5, false);
    event_log_free(log);
}

static void a_line_break_does_not_end_an_event(void **state)
{
    (void)state;
    struct event_log *log = event_log_new(8, SIZE_MAX);
    event_log_publish(log, 0, "node", "{\n\"a\":\r\n1}");
    expect_text(log, 0, 0, "id: 1\nevent: node\ndata: { \"a\":  1}\n\n", 1, false);
    event_log_free(log);
}

static void a_reader_of_one_job_sees_only_it(void **state)
{
    (void)state;
    struct event_log *log = event_log_new(8, SIZE_MAX);
    uint64_t id;
    bool last;
    event_log_publish(log, 1, "step", "1");
    event_log_publish(log, 2, "step", "2");
    event_log_publish(log, 0, "node", "3");
    expect_text(log, 2, 0, "id: 2\nevent: step\ndata: 2\n\n", 2, false);
    assert_null(event_log_next(log, 2, 2, &id, &last));
    assert_int_equal(id, 3);
    assert_false(last);
    expect_text(log, 0, 2, "id: 3\nevent: node\ndata: 3\n\n", 3, false);
    event_log_free(log);
}

static void a_slow_reader_is_told_what_it_lost(void **state)
{
    (void)state;
    struct event_log *log = event_log_new(4, SIZE_MAX);
    for (int i = 0; i < 10; i++)
        event_log_publish(log, 1, "step", "0");
    expect_text(log, 1, 2, "id: 6\nevent: resync\ndata: {\"lost_after\":2,\"next\":7}\n\n", 6, false);
    expect_text(log, 1, 6, "id: 7\nevent: step\ndata: 0\n\n", 7, false);
    /* One that asks for whatever there is has lost nothing. */
    expect_text(log, 1, 0, "id: 7\nevent: step\ndata: 0\n\n", 7, false);
    event_log_free(log);
}

static void a_quiet_jobs_reader_has_lost_nothing(void **state)
{
    (void)state;
    struct event_log *log = event_log_new(4, SIZE_MAX);
    uint64_t at = 0;
    bool last;
    event_log_publish(log, 1, "step", "first");
    free(event_log_next(log, 1, at, &at, &last));
    for (int i = 0; i < 20; i++) {
        event_log_publish(log, 2, "step", "noise");
        assert_null(event_log_next(log, 1, at, &at, &last));
    }
    event_log_publish(log, 1, "end", "{}");
    expect_text(log, 1, at, "id: 22\nevent: end\ndata: {}\n\n", 22, true);
    event_log_free(log);
}

static void an_id_from_before_a_restart_starts_anew(void **state)
{
    (void)state;
    struct event_log *log = event_log_new(4, SIZE_MAX);
    event_log_publish(log, 1, "step", "0");
    expect_text(log, 1, 900, "id: 0\nevent: resync\ndata: {\"lost_after\":900,\"next\":1}\n\n", 0, false);
    event_log_free(log);
}

static void count(void *owner)
{
    ++*(int *)owner;
}

static void publishing_calls_the_listener(void **state)
{
    (void)state;
    struct event_log *log = event_log_new(2, SIZE_MAX);
    int n = 0;
    event_log_publish(log, 0, "node", "{}");
    event_log_on_publish(log, count, &n);
    event_log_publish(log, 0, "node", "{}");
    event_log_publish(log, 0, "node", "{}");
    event_log_on_publish(log, NULL, NULL);
    event_log_publish(log, 0, "node", "{}");
    assert_int_equal(n, 2);
    event_log_free(log);
    event_log_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_come_as_server_sent_events),
        cmocka_unit_test(many_bytes_crowd_out_the_oldest),
        cmocka_unit_test(a_line_break_does_not_end_an_event),
        cmocka_unit_test(a_reader_of_one_job_sees_only_it),
        cmocka_unit_test(a_slow_reader_is_told_what_it_lost),
        cmocka_unit_test(a_quiet_jobs_reader_has_lost_nothing),
        cmocka_unit_test(an_id_from_before_a_restart_starts_anew),
        cmocka_unit_test(publishing_calls_the_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
