/* SPDX-License-Identifier: MIT
 *
 * Control groups (version 2) of stage processes, below the one systemd has delegated to the
 * service: each stage in its own, with a limit of memory, so that what it takes too much ends it
 * and nothing else. Without a delegated group there are none, and stages run as before. Owned by
 * the worker; loop thread. */
#ifndef DAEMON_CGROUP_H
#define DAEMON_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct scope;

/* Where the group of this process is, if it was delegated to it; −ENOENT if it was not. */
int scope_find_delegated(char *ret, size_t size);
/* Makes that group one with children: this process moves into a child of its own. −errno: it stays
 * as it was. */
int scope_prepare(const char *folder);

int scope_new(struct scope **ret, const char *folder, uint64_t job);
int scope_add(struct scope *s, pid_t pid);
int scope_limit(struct scope *s, uint64_t bytes);
/* Was a process of it killed because memory ran out? */
bool scope_ran_out(const struct scope *s);
/* Most a stage may have that was planned with so many bytes. */
uint64_t scope_with_headroom(uint64_t planned);
/* The sentence about a stage that ended before its job did. s may be NULL; planned and peak (most
 * it had resident): bytes, 0 unknown; how: "was killed by SIGKILL: …", which is told with these
 * two, or another such text, or "" if it just ended. */
void scope_why_ended(char *ret, size_t size, const struct scope *s, uint64_t planned, uint64_t peak,
                     const char *how);
void scope_free(struct scope *s); /* its processes are gone */

#endif
