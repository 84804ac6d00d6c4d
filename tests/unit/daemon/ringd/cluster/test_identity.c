/* SPDX-License-Identifier: MIT
 *
 * A node's boot number over restarts. */
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

#include "daemon/ringd/cluster/identity.h"

struct place {
    char dir[32], file[64];
};

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/identity-XXXXXX");
    *state = p;
    return sodium_init() < 0 || !mkdtemp(p->dir);
}

static int teardown(void **state)
{
    struct place *p = *state;
    snprintf(p->file, sizeof p->file, "%s/boot", p->dir);
    unlink(p->file);
    rmdir(p->dir);
    free(p);
    return 0;
}

static const char *in(struct place *p, const char *name)
{
    snprintf(p->file, sizeof p->file, "%s/%s", p->dir, name);
    return p->file;
}

static uint64_t boot(struct place *p, uint64_t wall_us)
{
    struct err err;
    uint64_t number = 0;
    assert_int_equal(identity_boot(&number, p->dir, wall_us, &err), 0);
    return number;
}

static void test_boots_grow(void **state)
{
    struct place *p = *state;
    const uint64_t now = UINT64_C(1800000000000000);
    assert_int_equal(boot(p, now), now);
    assert_int_equal(boot(p, now + 5), now + 5);
    assert_int_equal(boot(p, now - 86400000000), now + 6); /* a clock without battery */
    assert_int_equal(boot(p, now + 6), now + 7);
    assert_int_equal(boot(p, now + 100), now + 100);
}

static void test_a_damaged_boot_file(void **state)
{
    struct place *p = *state;
    const uint64_t now = UINT64_C(1800000000000000);
    FILE *f = fopen(in(p, "boot"), "w");
    assert_non_null(f);
    fputs("\xff\xff\xff\xff\xff\xff\xff\xff", f);
    fclose(f);
    assert_int_equal(chmod(p->file, 0600), 0);
    assert_int_equal(boot(p, now), now);
    assert_int_equal(truncate(p->file, 3), 0);
    assert_int_equal(boot(p, now + 1), now + 1);
}

static void test_no_room(void **state)
{
    struct err err;
    uint64_t number = 0;
    (void)state;
    assert_true(identity_boot(&number, "/nowhere", 7, &err) < 0);
    assert_int_equal(number, 7);
    assert_non_null(strstr(err.text, "/nowhere/boot"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_boots_grow, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_damaged_boot_file, setup, teardown),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
