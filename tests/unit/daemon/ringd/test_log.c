/* SPDX-License-Identifier: MIT
 *
 * The log while nobody reads it: no line waits, and the next one that gets through says how many
 * were lost. What others wrote does not command a terminal and adds no lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ringd/log.h"

enum { PATIENCE_S = 20, ROOM = 1 << 20 };

static int reader, kept;

/* Standard error is a pipe, and this reads it when it likes. */
static int set_up(void **state)
{
    int fds[2];
    (void)state;
    unsetenv("JOURNAL_STREAM");
    kept = dup(STDERR_FILENO);
    if (kept < 0 || pipe(fds) || dup2(fds[1], STDERR_FILENO) < 0)
        return -1;
    close(fds[1]);
    reader = fds[0];
    fcntl(reader, F_SETFL, O_NONBLOCK);
    alarm(PATIENCE_S); /* a line that waits would wait for ever */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    alarm(0);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(reader);
    return 0;
}

static char *heard(void)
{
    char *text = calloc(1, ROOM);
    size_t n = 0;
    for (ssize_t got; (got = read(reader, text + n, ROOM - 1 - n)) > 0;)
        n += (size_t)got;
    return text;
}

static size_t lines(const char *text)
{
    size_t n = 0;
    for (; (text = strchr(text, '\n')); text++)
        n++;
    return n;
}

static void nobody_waits_for_a_reader(void **state)
{
    enum { MANY = 5000 };
    char want[64];
    (void)state;
    const uint64_t before = log_dropped();
    for (int i = 0; i < MANY; i++)
        log_info("line %d of many that nobody reads", i);
    const uint64_t lost = log_dropped() - before;
    assert_in_range(lost, 1, MANY - 1);
    char *text = heard();
    assert_int_equal(lines(text), MANY - lost);
    assert_null(strstr(text, "were lost"));
    free(text);
    log_info("read again");
    log_info("and again");
    text = heard();
    snprintf(want, sizeof want, "warning: %llu lines of the log were lost", (unsigned long long)lost);
    assert_non_null(strstr(text, want));
    assert_true(strstr(text, want) < strstr(text, "read again"));
    assert_int_equal(lines(text), 3);
    assert_int_equal(log_dropped() - before, lost);
    free(text);
}

static void text_of_others_is_cleaned(void **state)
{
    (void)state;
    log_job(LOG_LEVEL_INFO, 7, "node %s: %s", "a\x1B[2J", "one\n12:00:00 error: forged");
    char *text = heard();
    assert_null(strchr(text, '\x1B'));
    assert_int_equal(lines(text), 1);
    assert_non_null(strstr(text, "job 7: node a\xEF\xBF\xBD[2J: one 12:00:00 error: forged\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_reader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(text_of_others_is_cleaned, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
