/* SPDX-License-Identifier: MIT
 *
 * Files that were lent to a process stand before the file system, and are read from their beginning
 * each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/file/input.h"
#include "engine/file/lent.h"
#include "train/jsonl.h"

/* A file of that text which no path leads to. */
static int hidden(const char *text)
{
    char path[] = "/tmp/ringd-lent-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    unlink(path);
    return fd;
}

static int forget(void **state)
{
    (void)state;
    lent_clear();
    return 0;
}

static void a_lent_file_is_read_whenever_it_is_opened(void **state)
{
    struct err err;
    char *text;
    size_t n;
    (void)state;
    assert_int_equal(lent_add("/nowhere/rows.json", hidden("seven b")), 0);
    for (int i = 0; i < 2; i++) { /* the offset of the descriptor is at the end */
        assert_int_equal(input_read("/nowhere/rows.json", 100, &text, &n, &err), 0);
        assert_string_equal(text, "seven b");
        free(text);
    }
    assert_int_equal(input_read("/nowhere/rows.json", 3, &text, &n, &err), -EFBIG);
    assert_int_equal(input_read("/nowhere/other.json", 100, &text, &n, &err), -ENOENT);
}

static void rows_are_read_twice(void **state)
{
    (void)state;
    assert_int_equal(lent_add("/nowhere/rows.jsonl", hidden("{\"a\":1}\n{\"a\":2}\n")), 0);
    for (int i = 0; i < 2; i++) {
        struct jsonl *in;
        struct err err;
        json_t *row;
        assert_int_equal(jsonl_open(&in, "/nowhere/rows.jsonl", &err), 0);
        for (int want = 1; want <= 2; want++) {
            assert_int_equal(jsonl_next(in, &row, &err), 1);
            assert_int_equal(json_integer_value(json_object_get(row, "a")), want);
            json_decref(row);
        }
        assert_int_equal(jsonl_next(in, &row, &err), 0);
        jsonl_close(in);
    }
}

static void a_lent_folder_has_what_was_lent_in_it(void **state)
{
    struct stat st;
    (void)state;
    assert_int_equal(lent_add_folder("/usr"), 0); /* which has other files, too */
    assert_int_equal(lent_add("/usr/config.json", hidden("{}")), 0);
    assert_int_equal(lent_find("/usr"), -EISDIR);
    assert_int_equal(lent_find("/usr/"), -EISDIR);
    assert_int_equal(input_stat("/usr", &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_true(input_is_there("/usr//config.json"));
    assert_false(input_is_there("/usr/bin"));
    assert_int_equal(input_open("/usr/bin"), -ENOENT);
    assert_true(input_is_there("/usr/bin/env")); /* not right in it: the file system's */
    assert_int_equal(lent_find("/usr2"), -ENODATA);
    assert_int_equal(lent_find("/us"), -ENODATA);
    assert_int_equal(lent_find("/"), -ENODATA);
}

static void count(void *arg, const char *name, int fd)
{
    int *n = arg;
    assert_true(fd >= 0);
    *n += !strcmp(name, "a") || !strcmp(name, "b");
}

static void files_of_a_folder_are_counted(void **state)
{
    int n = 0;
    (void)state;
    assert_int_equal(lent_add_folder("/m"), 0);
    assert_int_equal(lent_add("/m/a", hidden("a")), 0);
    assert_int_equal(lent_add("/m/b", hidden("b")), 0);
    assert_int_equal(lent_add("/m/below/c", hidden("c")), 0);
    assert_int_equal(lent_add("/ma", hidden("d")), 0);
    assert_int_equal(lent_each("/m/", count, &n), 2);
    assert_int_equal(n, 2);
}

static void descriptors_are_found_in_order(void **state)
{
    (void)state;
    assert_int_equal(lent_next(0), -1);
    const int low = hidden("a"), high = fcntl(low, F_DUPFD_CLOEXEC, low + 10);
    assert_int_equal(lent_add("/b", high), 0);
    assert_int_equal(lent_add("/a", low), 0);
    assert_int_equal(lent_next(0), low);
    assert_int_equal(lent_next(low + 1), high);
    assert_int_equal(lent_next(high + 1), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_lent_file_is_read_whenever_it_is_opened, forget),
        cmocka_unit_test_teardown(rows_are_read_twice, forget),
        cmocka_unit_test_teardown(a_lent_folder_has_what_was_lent_in_it, forget),
        cmocka_unit_test_teardown(files_of_a_folder_are_counted, forget),
        cmocka_unit_test_teardown(descriptors_are_found_in_order, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
