/* SPDX-License-Identifier: MIT
 *
 * The environment of a stage: what is added to that of the daemon, and that nothing is where the
 * user has said something himself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/spawn_env.h"

/* What the stage would read; NULL: not set. */
static const char *variable(char **env, const char *name)
{
    const size_t len = strlen(name);
    for (; *env; env++)
        if (!strncmp(*env, name, len) && (*env)[len] == '=')
            return *env + len + 1;
    return NULL;
}

static void forget(void)
{
    static const char *const names[] = {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static void test_threads_sleep_soon(void **state)
{
    (void)state;
    size_t inherited;
    forget();
    char **env = spawn_environment(3, &inherited);
    assert_string_equal(variable(env, "OMP_NUM_THREADS"), "3");
    assert_string_equal(variable(env, "OMP_WAIT_POLICY"), "passive");
    assert_string_equal(variable(env, "GOMP_SPINCOUNT"), "1000");
    assert_string_equal(variable(env, "PATH"), getenv("PATH"));
    spawn_environment_free(env, inherited);
}

static void test_the_users_own_settings_win(void **state)
{
    (void)state;
    size_t inherited;
    forget();
    setenv("OMP_NUM_THREADS", "5", 1);
    setenv("GOMP_SPINCOUNT", "7", 1);
    char **env = spawn_environment(3, &inherited);
    assert_string_equal(variable(env, "OMP_NUM_THREADS"), "5");
    assert_string_equal(variable(env, "GOMP_SPINCOUNT"), "7");
    assert_string_equal(variable(env, "OMP_WAIT_POLICY"), "passive");
    spawn_environment_free(env, inherited);

    forget();
    setenv("OMP_WAIT_POLICY", "active", 1); /* which says how long to look, too */
    env = spawn_environment(0, &inherited);
    assert_string_equal(variable(env, "OMP_WAIT_POLICY"), "active");
    assert_null(variable(env, "GOMP_SPINCOUNT"));
    assert_null(variable(env, "OMP_NUM_THREADS"));
    spawn_environment_free(env, inherited);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_sleep_soon),
        cmocka_unit_test(test_the_users_own_settings_win),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
