/* SPDX-License-Identifier: MIT
 *
 * The environment a stage process is started in, by ringd for its jobs and by ringctl bench: what
 * is measured has to run as what is computed does. Any thread, while no other changes environ. */
#ifndef DAEMON_SPAWN_ENV_H
#define DAEMON_SPAWN_ENV_H

#include <stddef.h>

/* What a stage of that many threads (0: as many as there are) is started with: environ, and behind
 * `ret_inherited` entries of it ours, each of them and the list to be freed. The user's own
 * settings win, but for those that cannot be obeyed: see below. */
char **spawn_environment(int threads, size_t *ret_inherited);
void spawn_environment_free(char **env, size_t inherited);
/* The setting of environ that binds threads to CPUs ("OMP_PROC_BIND=close") although this process
 * may not bind any, as in the service; NULL: there is none. OpenMP would end a stage that has it,
 * so stages start without it. */
const char *spawn_environment_refused(void);

#endif
