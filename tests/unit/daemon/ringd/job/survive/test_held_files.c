/* SPDX-License-Identifier: MIT
 *
 * The files of copies that a daemon keeps for the next stage process of a job. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "daemon/ringd/job/survive/held_files.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* Numbers of descriptors come again. */
static ino_t which(const struct held_files *f, size_t i)
{
    struct stat st;
    assert_int_equal(fstat(f->file[i].fd, &st), 0);
    return st.st_ino;
}

static void files_outlive_a_process_and_not_their_job(void **state)
{
    (void)state;
    static const uint8_t a[16] = {1}, b[16] = {2};
    struct held_files f = {0};
    assert_int_equal(held_files_begin(&f, a, 7, 1), 0);
    const int first = f.file[0].fd;
    held_files_run(&f);
    held_files_whole(&f);
    assert_int_equal(held_files_begin(&f, a, 7, 1), 0);
    assert_int_equal(f.n, 2);
    assert_int_equal(f.file[0].fd, first);
    /* Of processes that never ran nothing stays. */
    for (int i = 0; i < 10; i++)
        assert_int_equal(held_files_begin(&f, a, 7, 1), 0);
    assert_int_equal(f.n, 2);
    /* Of others the first file stays, and those of the latest. */
    int before = -1;
    for (int i = 0; i < 10; i++) {
        held_files_run(&f);
        held_files_whole(&f);
        before = f.file[f.n - 1].fd;
        assert_int_equal(held_files_begin(&f, a, 7, 1), 0);
    }
    assert_int_equal(f.n, HELD_FILES_MAX);
    assert_int_equal(f.file[0].fd, first);
    assert_int_equal(f.file[HELD_FILES_MAX - 2].fd, before);
    held_files_settled(&f);
    assert_int_equal(f.n, 1);
    assert_false(is_open(first));
    const int last = f.file[0].fd;
    assert_true(is_open(last));
    /* The same number of another head is another job. */
    assert_int_equal(held_files_begin(&f, b, 7, 1), 0);
    assert_int_equal(f.n, 1);
    /* So is the same number that comes again after a loss. */
    held_files_run(&f);
    assert_int_equal(held_files_begin(&f, b, 7, 2), 0);
    assert_int_equal(f.n, 1);
    held_files_drop(&f);
    assert_int_equal(f.n, 0);
    assert_false(is_open(last));
}

/* Others may have let go of all that came before the second file. */
static void files_that_are_not_whole_make_room_first(void **state)
{
    (void)state;
    static const uint8_t a[16] = {1};
    struct held_files f = {0};
    ino_t whole[2], before = 0;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(held_files_begin(&f, a, 7, 1), 0);
        held_files_run(&f);
        held_files_whole(&f);
        whole[i] = which(&f, i);
    }
    for (int i = 0; i < 10; i++) {
        before = which(&f, f.n - 1);
        assert_int_equal(held_files_begin(&f, a, 7, 1), 0);
        held_files_run(&f);
    }
    assert_int_equal(f.n, HELD_FILES_MAX);
    assert_int_equal(which(&f, 0), whole[0]);
    assert_int_equal(which(&f, 1), whole[1]);
    assert_int_equal(which(&f, 2), before);
    held_files_drop(&f);
    held_files_whole(&f); /* of nothing */
    assert_int_equal(f.n, 0);
}

static void a_file_that_cannot_be_made_costs_no_other(void **state)
{
    (void)state;
    static const uint8_t a[16] = {1};
    struct held_files f = {0};
    struct rlimit limit;
    assert_int_equal(held_files_begin(&f, a, 7, 1), 0);
    held_files_run(&f);
    const ino_t first = which(&f, 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, limit.rlim_max}), 0);
    assert_int_equal(held_files_begin(&f, a, 7, 1), -EMFILE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(held_files_begin(&f, a, 7, 1), 0);
    assert_int_equal(f.n, 2);
    assert_int_equal(which(&f, 0), first);
    held_files_drop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_outlive_a_process_and_not_their_job),
        cmocka_unit_test(files_that_are_not_whole_make_room_first),
        cmocka_unit_test(a_file_that_cannot_be_made_costs_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
