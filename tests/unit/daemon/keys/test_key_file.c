/* SPDX-License-Identifier: MIT
 *
 * A node's identity on disk: made once, found again, refused when it is damaged or open to
 * others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/keys/key_file.h"

static void test_the_key_stays(void **state)
{
    char dir[] = "/tmp/ringd-keys-XXXXXX", path[64];
    uint8_t first[AUTH_SEED], again[AUTH_SEED];
    struct err err;
    struct stat st;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/identity", dir);
    assert_int_equal(key_file_load(first, dir, &err), 0);
    assert_int_equal(key_file_load(again, dir, &err), 0);
    assert_memory_equal(first, again, sizeof first);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(key_file_load(again, dir, &err), -EPERM);
    assert_non_null(strstr(err.text, "chmod 600"));
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(key_file_load(again, dir, &err), -EINVAL);
    assert_non_null(strstr(err.text, "damaged"));
    unlink(path);
    rmdir(dir);
}

static void test_no_folder(void **state)
{
    uint8_t seed[AUTH_SEED];
    struct err err;
    (void)state;
    assert_true(key_file_load(seed, "/nowhere", &err) < 0);
    assert_non_null(strstr(err.text, "/nowhere/identity"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_key_stays),
        cmocka_unit_test(test_no_folder),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
