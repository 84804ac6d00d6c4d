/* SPDX-License-Identifier: MIT */
#include "daemon/common/spawn_env.h"

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
    size_t n = 0;
    while (environ[n])
        n++;
    *ret_inherited = n;
    char **env = xcalloc(n + 1, sizeof *env);
    memcpy(env, environ, n * sizeof *env);
    if (threads)
        env = with_variable(env, &n, xasprintf("OMP_NUM_THREADS=%d", threads));
    if (!has_variable(environ, *ret_inherited, "OMP_WAIT_POLICY=")) {
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
