/* SPDX-License-Identifier: MIT
 *
 * What rank 0 says, on the node of rank 1: the lines that its next head lacks, how far those before
 * went, and nothing where there may be a gap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/job/survive/line_log.h"

static void add(struct line_log *l, const char *lines)
{
    json_t *event = json_pack("{s:s}", "lines", lines);
    line_log_add(l, event);
    json_decref(event);
}

static void has(const struct line_log *l, uint64_t from, const char *want)
{
    json_t *is = line_log_encode(l, from);
    char *text = is ? json_dumps(is, JSON_COMPACT | JSON_SORT_KEYS) : strdup("nothing");
    assert_string_equal(text, want);
    free(text);
    json_decref(is);
}

#define STEP(n) "{\"ev\":\"step\",\"step\":" #n "}\n"

static void lines_are_kept_behind_what_was_said_before(void **state)
{
    struct line_log l = {0};
    (void)state;
    has(&l, 0, "nothing");
    add(&l, "{\"ev\":\"said\",\"said\":{\"step\":{\"\":4}}}\n" STEP(5));
    add(&l, STEP(6) "{\"ev\":\"valid\",\"step\":6}\n" STEP(7));
    has(&l, 0,
        "{\"before\":{\"step\":{\"\":4}},\"lines\":[{\"ev\":\"step\",\"step\":5},{\"ev\":\"step\",\"step\":6}"
        ","
        "{\"ev\":\"valid\",\"step\":6},{\"ev\":\"step\",\"step\":7}]}");
    has(&l, 7,
        "{\"before\":{\"step\":{\"\":6},\"valid\":{\"\":6}},\"lines\":[{\"ev\":\"step\",\"step\":7}]}");
    /* The next attempt. */
    add(&l, "{\"ev\":\"said\",\"said\":{\"step\":{\"\":7}}}\n");
    has(&l, 0, "{\"before\":{\"step\":{\"\":7}},\"lines\":[]}");
    line_log_clear(&l);
    has(&l, 0, "nothing");
}

static void the_latest_decision_outlives_its_line(void **state)
{
    struct line_log l = {0};
    (void)state;
    add(&l, "{\"ev\":\"said\",\"said\":{}}\n{\"ev\":\"so-far\",\"step\":1,\"so_far\":{\"skipped\":1}}\n"
            "{\"ev\":\"so-far\",\"step\":2,\"so_far\":{\"skipped\":2}}\n" STEP(3));
    has(&l, 3,
        "{\"before\":{\"so-far\":{\"\":{\"ev\":\"so-far\",\"so_far\":{\"skipped\":2},\"step\":2}}},\"lines\":"
        "[{"
        "\"ev\":\"step\",\"step\":3}]}");
    line_log_clear(&l);
}

static void of_too_many_the_newest_stay(void **state)
{
    enum { LINES = 8000, LINE = 100 };
    struct line_log l = {0};
    char line[LINE + 1];
    (void)state;
    add(&l, "{\"ev\":\"said\",\"said\":{}}\n");
    for (int i = 1; i <= LINES; i++) {
        snprintf(line, sizeof line, "{\"ev\":\"step\",\"step\":%d,\"adapter\":\"%*s\"}\n", i, 40,
                 i % 2 ? "a" : "b");
        add(&l, line);
        assert_true(l.bytes <= LINE_LOG_BYTES);
    }
    json_t *is = line_log_encode(&l, 0), *lines = json_object_get(is, "lines"),
           *before = json_object_get(json_object_get(is, "before"), "step");
    const size_t n = json_array_size(lines);
    assert_true(n > LINE_LOG_BYTES / LINE && n < LINES);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(lines, n - 1), "step")), LINES);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(lines, 0), "step")), LINES - n + 1);
    assert_int_equal(json_object_size(before), 2);
    json_decref(is);
    line_log_clear(&l);
}

/* Another node's text: without one of the lines the others would leave a gap. */
static void what_cannot_be_read_leaves_nothing(void **state)
{
    static const char *const odd[] = {
        STEP(5) "nonsense\n",
        STEP(5) "[]\n",
        STEP(5) "{\"ev\":\"step\",\"step\":6}",
        "{\"ev\":\"step\"}\n",
        "{\"ev\":\"step\",\"step\":-1}\n",
        "{\"ev\":\"done\",\"step\":6}\n",
        "{\"ev\":\"said\",\"said\":7}\n",
        "{\"ev\":\"step\",\"step\":6,\"adapter\":"
        "\"12345678901234567890123456789012345678901234567890123456789012345\"}\n",
    };
    struct line_log l = {0};
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        add(&l, "{\"ev\":\"said\",\"said\":{}}\n" STEP(1));
        add(&l, odd[i]);
        has(&l, 0, "nothing");
        add(&l, STEP(7)); /* and nobody knows what was before it */
        has(&l, 0, "nothing");
    }
    add(&l, "{\"ev\":\"said\",\"said\":{}}\n" STEP(1));
    json_t *none = json_object(); /* a stage that got no text */
    line_log_add(&l, none);
    json_decref(none);
    has(&l, 0, "nothing");
}

static void no_more_adapters_are_remembered_than_a_job_has(void **state)
{
    struct line_log l = {0};
    char line[9000];
    (void)state;
    add(&l, "{\"ev\":\"said\",\"said\":{}}\n");
    memset(line, ' ', sizeof line);
    for (int i = 0; i < 200; i++) {
        const int n = snprintf(line, sizeof line, "{\"ev\":\"step\",\"step\":1,\"adapter\":\"%d\"}", i);
        line[n] = ' ';
        memcpy(line + sizeof line - 2, "\n", 2);
        add(&l, line);
    }
    has(&l, 0, "nothing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_kept_behind_what_was_said_before),
        cmocka_unit_test(the_latest_decision_outlives_its_line),
        cmocka_unit_test(of_too_many_the_newest_stay),
        cmocka_unit_test(what_cannot_be_read_leaves_nothing),
        cmocka_unit_test(no_more_adapters_are_remembered_than_a_job_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
