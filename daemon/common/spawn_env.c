/* SPDX-License-Identifier: MIT */
#include "daemon/common/spawn_env.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

extern char **environ;

static bool has_variable(char **env, size_t n, const char *assignment)
{
    const size_t len = (size_t)(strchr(assignment, '=') - assignment) + 1;
    for (size_t i = 0; i < n; i++)
        if (!strncmp(env[i], assignment, len))
            return true;
    return false;
}

/* --- threads bound to CPUs -------------------------------------------------------------------- */

static const char *const binding[] = {"OMP_PROC_BIND=", "OMP_PLACES=", "GOMP_CPU_AFFINITY="};

/* Asked with no CPU at all, which is wrong wherever it is allowed, so that nothing changes. */
static bool may_bind_threads(void)
{
    cpu_set_t none;
    CPU_ZERO(&none);
    return !sched_setaffinity(0, 0, &none) || errno != EPERM;
}

static bool is_binding(const char *assignment)
{
    for (size_t i = 0; i < sizeof binding / sizeof *binding; i++)
        if (!strncmp(assignment, binding[i], strlen(binding[i])))
            return true;
    return false;
}

const char *spawn_environment_refused(void)
{
    for (char **e = environ; *e; e++)
        if (is_binding(*e) && !may_bind_threads())
            return *e;
    return NULL;
}

/* --- the list --------------------------------------------------------------------------------- */

static char **with_variable(char **env, size_t *n, char *assignment)
{
    if (has_variable(env, *n, assignment)) { /* the user's own setting wins */
        free(assignment);
        return env;
    }
    env = xreallocarray(env, *n + 2, sizeof *env);
    env[(*n)++] = assignment;
    env[*n] = NULL;
    return env;
}

/* Idle pool threads must sleep; but a token is some hundred parallel regions with microseconds
 * between them, and to wake a thread takes longer than that: it looks so many times first, about 20
 * µs. */
char **spawn_environment(int threads, size_t *ret_inherited)
{
    const bool binds = !spawn_environment_refused();
    size_t n = 0, all = 0;
    while (environ[all])
        all++;
    char **env = xcalloc(all + 1, sizeof *env);
    for (size_t i = 0; i < all; i++)
        if (binds || !is_binding(environ[i]))
            env[n++] = environ[i];
    *ret_inherited = n;
    if (threads)
        env = with_variable(env, &n, xasprintf("OMP_NUM_THREADS=%d", threads));
    if (!has_variable(env, *ret_inherited, "OMP_WAIT_POLICY=")) {
        env = with_variable(env, &n, xstrdup("GOMP_SPINCOUNT=1000"));
        env = with_variable(env, &n, xstrdup("OMP_WAIT_POLICY=passive"));
    }
    return env;
}

void spawn_environment_free(char **env, size_t inherited)
{
    for (size_t i = inherited; env[i]; i++)
        free(env[i]);
    free(env);
}
