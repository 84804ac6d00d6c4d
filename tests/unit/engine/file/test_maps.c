/* SPDX-License-Identifier: MIT
 *
 * A file that is opened again is mapped where it was, as long as it is the same file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/maps.h"

enum { BYTES = 3 * 4096 };

struct file {
    char path[40];
    int fd;
    struct maps_stamp stamp;
};

static void look(struct file *f)
{
    struct stat st;
    assert_int_equal(fstat(f->fd, &st), 0);
    f->stamp = (struct maps_stamp){st.st_dev, st.st_ino, st.st_mtim, st.st_ctim};
}

static void make(struct file *f, char content)
{
    char bytes[BYTES];
    strcpy(f->path, "/tmp/ringd-maps-XXXXXX");
    f->fd = mkstemp(f->path);
    memset(bytes, content, sizeof bytes);
    assert_int_equal(write(f->fd, bytes, BYTES), BYTES);
    look(f);
}

static void drop(const struct file *f)
{
    close(f->fd);
    unlink(f->path);
}

static char *take(struct maps *m, const struct file *f)
{
    void *at = NULL;
    assert_int_equal(maps_take(m, &at, f->fd, BYTES, &f->stamp), 0);
    return at;
}

static bool is_mapped(char *at)
{
    return !msync(at, BYTES, MS_ASYNC);
}

static void what_was_given_back_is_found_again(void **state)
{
    (void)state;
    struct maps *m = maps_new();
    struct file a, b;
    make(&a, 'a');
    make(&b, 'b');
    char *first = take(m, &a), *other = take(m, &b);
    assert_int_equal(first[BYTES - 1], 'a');
    assert_int_equal(other[0], 'b');
    assert_ptr_equal(take(m, &a), first); /* of two users */
    for (int i = 0; i < 2; i++)
        maps_give_back(m, first, BYTES);
    maps_give_back(m, other, BYTES);
    assert_ptr_equal(take(m, &a), first);
    maps_trim(m);
    assert_true(is_mapped(first));
    assert_false(is_mapped(other));
    maps_give_back(m, first, BYTES);
    maps_free(m);
    assert_false(is_mapped(first));
    drop(&a);
    drop(&b);
}

static void a_file_that_was_written_to_is_another(void **state)
{
    (void)state;
    struct maps *m = maps_new();
    struct file a;
    make(&a, 'a');
    char *first = take(m, &a);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    assert_int_equal(futimens(a.fd, times), 0);
    look(&a);
    char *second = take(m, &a);
    assert_ptr_not_equal(second, first);
    maps_give_back(m, first, BYTES);
    maps_trim(m);
    assert_false(is_mapped(first));
    assert_true(is_mapped(second));
    maps_give_back(m, second, BYTES);
    maps_free(m);
    drop(&a);
}

static void without_them_nothing_stays(void **state)
{
    (void)state;
    struct file a;
    void *none;
    make(&a, 'a');
    char *at = take(NULL, &a);
    assert_int_equal(at[0], 'a');
    maps_give_back(NULL, at, BYTES);
    assert_false(is_mapped(at));
    assert_int_equal(maps_take(NULL, &none, -1, BYTES, &a.stamp), -EBADF);
    drop(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_given_back_is_found_again),
        cmocka_unit_test(a_file_that_was_written_to_is_another),
        cmocka_unit_test(without_them_nothing_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
