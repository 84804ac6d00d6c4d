/* SPDX-License-Identifier: MIT
 *
 * What a control group says of its share of the CPUs, in files of our own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/stage/plan/stage_quota.h"

struct world {
    char root[64];
};

static void put(const struct world *w, const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", w->root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_group(const struct world *w, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", w->root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int setup(void **state)
{
    static struct world w;
    strcpy(w.root, "/tmp/ringd-quota-XXXXXX");
    *state = mkdtemp(w.root) ? &w : NULL;
    make_group(&w, "a");
    make_group(&w, "a/b");
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const files[] = {"a/b/cpu.max", "a/b/cpu.cfs_quota_us", "a/b/cpu.cfs_period_us",
                                        "a/cpu.max"};
    const struct world *w = *state;
    char path[200];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", w->root, files[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/a/b", w->root);
    rmdir(path);
    snprintf(path, sizeof path, "%s/a", w->root);
    rmdir(path);
    return rmdir(w->root);
}

static void test_the_least_counts(void **state)
{
    const struct world *w = *state;
    assert_true(isinf(quota_of(w->root, "/a/b")));
    put(w, "a/b/cpu.max", "max 100000\n");
    assert_true(isinf(quota_of(w->root, "/a/b")));
    put(w, "a/b/cpu.max", "150000 100000\n");
    assert_true(quota_of(w->root, "/a/b") == 1.5);
    put(w, "a/cpu.max", "5000 10000\n");
    assert_true(quota_of(w->root, "/a/b") == 0.5);
    put(w, "a/b/cpu.max", "10000 40000\n");
    assert_true(quota_of(w->root, "/a/b") == 0.25);
    assert_true(quota_of(w->root, "/a") == 0.5);
    assert_true(isinf(quota_of(w->root, "/")));
}

static void test_version_1(void **state)
{
    const struct world *w = *state;
    put(w, "a/b/cpu.cfs_quota_us", "");
    assert_true(isinf(quota_of(w->root, "/a/b")));
    put(w, "a/b/cpu.cfs_quota_us", "-1\n");
    put(w, "a/b/cpu.cfs_period_us", "100000\n");
    assert_true(isinf(quota_of(w->root, "/a/b")));
    put(w, "a/b/cpu.cfs_quota_us", "75000\n");
    assert_true(quota_of(w->root, "/a/b") == 0.75);
}

static void test_nonsense(void **state)
{
    const struct world *w = *state;
    put(w, "a/b/cpu.max", "lots\n");
    assert_true(isinf(quota_of(w->root, "/a/b")));
    put(w, "a/b/cpu.max", "10000 0\n");
    assert_true(isinf(quota_of(w->root, "/a/b")));
    put(w, "a/b/cpu.max", "");
    assert_true(isinf(quota_of(w->root, "/a/b")));
    assert_true(quota_here() > 0);
}

/* One thread, of which a turn saw none, some, or too much of a pause; two threads, which a quota
 * above one does not hold up, or does. */
static void test_time_of_the_cpus_counts(void **state)
{
    (void)state;
    const double wall[] = {0.02, 0.03, 0.011}, cpu[] = {0.01, 0.01, 0.011}, both[] = {0.04, 0.06, 0.022},
                 none[] = {0, 0, 0};
    assert_true(quota_slows(wall, cpu, 3, 0.4) == 2.5);
    assert_true(quota_slows(wall, cpu, 3, 1.5) == 1);
    assert_true(quota_slows(wall, both, 3, 1.6) == 0.625);
    assert_true(quota_slows(wall, both, 3, 4) == 0.5);
    assert_true(quota_slows(wall, none, 3, 0.5) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_least_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_version_1, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
        cmocka_unit_test(test_time_of_the_cpus_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
