/* SPDX-License-Identifier: MIT
 *
 * The file of --log over interruptions: each line is in it once, whatever the head knew of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/stage/stage_log.h"

static const char name[] = "/tmp/ringd-stage-log-test";

static void put(const char *text)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void assert_holds(const char *text)
{
    char read[1000] = "";
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    assert_true(fread(read, 1, sizeof read - 1, f) < sizeof read);
    fclose(f);
    assert_string_equal(read, text);
}

/* A run that writes steps 1 to 3; log_from below 0: it is not one that was interrupted. */
static void run(bool resume, long log_from)
{
    struct stage_log log;
    struct err err;
    json_t *said = log_from < 0 ? NULL : json_object();
    const struct job_spec spec = {
        .log = name, .resume = resume, .said = said, .log_from = log_from < 0 ? 0 : (size_t)log_from};
    if (stage_log_open(&log, &spec, &err))
        fail_msg("%s", err.text);
    for (int step = 1; step <= 3; step++) {
        json_t *line = json_pack("{s:i s:i}", "step", step, "loss", 0);
        assert_int_equal(stage_log_write(&log, "step", "", (uint64_t)step, line, &err), 0);
        json_decref(line);
    }
    uint64_t bytes;
    assert_int_equal(stage_log_sync(&log, &bytes, &err), 0);
    assert_int_equal(bytes, (uint64_t)ftello(log.file));
    stage_log_close(&log);
    json_decref(said);
}

#define LINE(n) "{\"step\":" #n ",\"loss\":0}\n"
static const char all[] = LINE(1) LINE(2) LINE(3);

static void a_new_run_empties_it(void **state)
{
    (void)state;
    put("what was there\n");
    run(false, -1);
    assert_holds(all);
}

static void a_resumed_run_writes_behind_it(void **state)
{
    (void)state;
    put(LINE(1) LINE(2));
    run(true, -1);
    assert_holds(LINE(1) LINE(2) LINE(1) LINE(2) LINE(3));
}

static void an_interrupted_run_writes_what_is_missing(void **state)
{
    (void)state;
    static const char *const there[] = {"",
                                        LINE(1),
                                        LINE(1) LINE(2),
                                        LINE(1) LINE(2) LINE(3),
                                        LINE(1) "{\"step\":2",
                                        LINE(1) "\n",
                                        "{\"step\":1,\"loss\":0}",
                                        LINE(1) "{\"step\":2}\n" LINE(3)};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        put(there[i]);
        run(false, 0);
        assert_holds(all);
    }
}

static void of_another_run_nothing_is_looked_at(void **state)
{
    (void)state;
    put("not ours\n" LINE(3) LINE(1));
    run(true, (long)strlen("not ours\n" LINE(3)));
    assert_holds("not ours\n" LINE(3) LINE(1) LINE(2) LINE(3));
    put("short\n"); /* somebody has begun another file */
    run(true, 500);
    assert_holds("short\n" LINE(1) LINE(2) LINE(3));
}

static void kinds_and_adapters_are_apart(void **state)
{
    (void)state;
    struct stage_log log;
    struct err err;
    json_t *said = json_object();
    put("{\"step\":4,\"loss\":1,\"adapter\":\"a\"}\n{\"step\":2,\"valid_loss\":1}\n{\"step\":3,\"sample\":"
        "\"\"}\n");
    assert_int_equal(stage_log_open(&log, &(struct job_spec){.log = name, .said = said}, &err), 0);
    assert_true(stage_log_has(&log, "step", "a", 4));
    assert_false(stage_log_has(&log, "step", "a", 5));
    assert_false(stage_log_has(&log, "step", "", 1));
    assert_true(stage_log_has(&log, "valid", "", 2));
    assert_true(stage_log_has(&log, "sample", "", 3));
    stage_log_close(&log);
    json_decref(said);
}

static void without_a_file_nothing_is_missing(void **state)
{
    (void)state;
    struct stage_log log;
    struct err err;
    uint64_t bytes;
    assert_int_equal(stage_log_open(&log, &(struct job_spec){.log = NULL}, &err), 0);
    assert_true(stage_log_has(&log, "step", "", 1));
    assert_int_equal(stage_log_sync(&log, &bytes, &err), 0);
    assert_int_equal(bytes, 0);
    stage_log_close(&log);
}

/* What was said before a save is not looked for. */
static void lines_before_a_save_are_there(void **state)
{
    (void)state;
    struct stage_log log;
    struct err err;
    json_t *said = json_object();
    put(LINE(1) LINE(2));
    const struct job_spec spec = {
        .log = name, .said = said, .log_from = strlen(LINE(1) LINE(2)), .log_step = 2};
    assert_int_equal(stage_log_open(&log, &spec, &err), 0);
    assert_true(stage_log_has(&log, "sample", "a", 2));
    assert_false(stage_log_has(&log, "sample", "a", 3));
    stage_log_close(&log);
    json_decref(said);
}

static int clean(void **state)
{
    (void)state;
    unlink(name);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_run_empties_it),
        cmocka_unit_test(a_resumed_run_writes_behind_it),
        cmocka_unit_test(an_interrupted_run_writes_what_is_missing),
        cmocka_unit_test(of_another_run_nothing_is_looked_at),
        cmocka_unit_test(kinds_and_adapters_are_apart),
        cmocka_unit_test(lines_before_a_save_are_there),
        cmocka_unit_test(without_a_file_nothing_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
