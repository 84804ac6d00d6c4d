/* SPDX-License-Identifier: MIT
 *
 * The environment a stage process is started in, by ringd for its jobs and by ringctl bench: what
 * is measured has to run as what is computed does. Any thread, while no other changes environ. */
#ifndef DAEMON_SPAWN_ENV_H
#define DAEMON_SPAWN_ENV_H

#include <stddef.h>

/* What a stage of that many threads (0: as many as there are) is started with: environ, and behind
 * `ret_inherited` entries of it ours, each of them and the list to be freed. The user's own
 * settings win. */
char **spawn_environment(int threads, size_t *ret_inherited);
void spawn_environment_free(char **env, size_t inherited);

#endif
