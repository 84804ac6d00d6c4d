/* SPDX-License-Identifier: MIT
 *
 * The files of copies that a daemon keeps for the next stage process of a job. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/ringd/job/survive/held_files.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void files_outlive_a_process_and_not_their_job(void **state)
{
    (void)state;
    static const uint8_t a[16] = {1}, b[16] = {2};
    struct held_files f = {0};
    assert_int_equal(held_files_begin(&f, a, 7), 0);
    const int first = f.fd[0];
    held_files_run(&f);
    assert_int_equal(held_files_begin(&f, a, 7), 0);
    assert_int_equal(f.n, 2);
    assert_int_equal(f.fd[0], first);
    /* Of processes that never ran nothing stays. */
    for (int i = 0; i < 10; i++)
        assert_int_equal(held_files_begin(&f, a, 7), 0);
    assert_int_equal(f.n, 2);
    /* Of others the first file stays, and those of the latest. */
    int before = -1;
    for (int i = 0; i < 10; i++) {
        held_files_run(&f);
        before = f.fd[f.n - 1];
        assert_int_equal(held_files_begin(&f, a, 7), 0);
    }
    assert_int_equal(f.n, HELD_FILES_MAX);
    assert_int_equal(f.fd[0], first);
    assert_int_equal(f.fd[HELD_FILES_MAX - 2], before);
    held_files_settled(&f);
    assert_int_equal(f.n, 1);
    assert_false(is_open(first));
    const int last = f.fd[0];
    assert_true(is_open(last));
    /* The same number of another head is another job. */
    assert_int_equal(held_files_begin(&f, b, 7), 0);
    assert_int_equal(f.n, 1);
    held_files_drop(&f);
    assert_int_equal(f.n, 0);
    assert_false(is_open(last));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_outlive_a_process_and_not_their_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
