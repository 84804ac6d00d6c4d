/* SPDX-License-Identifier: MIT
 *
 * Cores counted from the siblings of CPUs, in files of our own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "daemon/common/cores.h"
#include "tests/lib/tiny.h"

enum { CPUS = 8 };

static void put(const char *root, int cpu, const char *file, const char *text)
{
    char path[400];
    snprintf(path, sizeof path, "%s/cpu%d", root, cpu);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/cpu%d/topology", root, cpu);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/cpu%d/topology/%s", root, cpu, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static cpu_set_t these(const int *cpus, size_t n)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t i = 0; i < n; i++)
        CPU_SET(cpus[i], &set);
    return set;
}

/* Siblings lie side by side on CPUs 0 to 3 and apart on 4 to 7, where an older kernel speaks. */
static void siblings_are_one_core(void **state)
{
    (void)state;
    struct temp_dir dir = temp_dir_new();
    static const char *const lists[CPUS] = {"0-1\n", "0-1\n", "2-3\n", "2-3\n",
                                            "4,6\n", "5,7\n", "4,6\n", "5,7\n"};
    for (int cpu = 0; cpu < CPUS; cpu++)
        put(dir.path, cpu, cpu < 4 ? "core_cpus_list" : "thread_siblings_list", lists[cpu]);
    static const struct {
        size_t n, cores;
        int cpus[CPUS];
    } cases[] = {
        {8, 4, {0, 1, 2, 3, 4, 5, 6, 7}}, {2, 1, {0, 1}}, {2, 2, {1, 3}}, {3, 2, {4, 5, 6}}, {1, 1, {7}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cpu_set_t set = these(cases[i].cpus, cases[i].n);
        assert_int_equal(cores_of(dir.path, &set), cases[i].cores);
    }
    temp_dir_free(&dir);
}

static void untold_ones_stand_alone(void **state)
{
    (void)state;
    struct temp_dir dir = temp_dir_new();
    const int cpus[] = {0, 1, 2};
    const cpu_set_t three = these(cpus, 3), none = these(cpus, 0);
    assert_int_equal(cores_of(dir.path, &three), 3);
    assert_int_equal(cores_of(dir.path, &none), 1);
    put(dir.path, 1, "core_cpus_list", "no number\n");
    put(dir.path, 2, "core_cpus_list", "0,2\n");
    assert_int_equal(cores_of(dir.path, &three), 2);
    temp_dir_free(&dir);
}

/* What is asked for counts, then OpenMP's own variable, then the cores. */
static void the_environment_has_its_say(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(cores_threads(3), 3);
    assert_int_equal(cores_threads(0), cores_here());
    assert_true(cores_here() >= 1);
    setenv("OMP_NUM_THREADS", "5", 1);
    assert_int_equal(cores_threads(0), 0);
    assert_int_equal(cores_threads(3), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(siblings_are_one_core),
        cmocka_unit_test(untold_ones_stand_alone),
        cmocka_unit_test(the_environment_has_its_say),
    };
    return cmocka_run_group_tests_name("cores", tests, NULL, NULL);
}
