/* SPDX-License-Identifier: MIT
 *
 * The environment of a stage: what is added to that of the daemon, and that nothing is where the
 * user has said something himself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* As the filter of the service refuses it; in a process that ends with it. */
static void test_no_binding_where_it_is_refused(void **state)
{
    (void)state;
    forget();
    setenv("OMP_PROC_BIND", "close", 1);
    setenv("OMP_PLACES", "cores", 1);
    assert_null(spawn_environment_refused());
    const pid_t pid = fork();
    if (pid == 0) {
        scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
        if (seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(sched_setaffinity), 0) ||
            seccomp_load(filter))
            _exit(77);
        seccomp_release(filter);
        size_t inherited;
        char **env = spawn_environment(0, &inherited);
        const char *refused = spawn_environment_refused();
        const bool is_right = refused && !strncmp(refused, "OMP_P", 5) && !variable(env, "OMP_PROC_BIND") &&
                              !variable(env, "OMP_PLACES") && variable(env, "PATH") &&
                              variable(env, "OMP_WAIT_POLICY");
        spawn_environment_free(env, inherited);
        _exit(!is_right);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    size_t inherited;
    char **env = spawn_environment(0, &inherited);
    assert_string_equal(variable(env, "OMP_PROC_BIND"), "close");
    spawn_environment_free(env, inherited);
    unsetenv("OMP_PROC_BIND");
    unsetenv("OMP_PLACES");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_sleep_soon),
        cmocka_unit_test(test_the_users_own_settings_win),
        cmocka_unit_test(test_no_binding_where_it_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
