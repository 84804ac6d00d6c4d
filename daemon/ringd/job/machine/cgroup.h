/* SPDX-License-Identifier: MIT
 *
 * Control groups (version 2) of stage processes, below the one systemd has delegated to the
 * service: each stage in its own, with a limit of memory, so that what it takes too much ends it
 * and nothing else, and with a weight at the processors, by the class of its job. Without a
 * delegated group there are none, and stages run as before. Owned by the worker; loop thread. */
#ifndef DAEMON_CGROUP_H
#define DAEMON_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/job_type.h"

struct cgroup;

/* Where the group of this process is, if it was delegated to it; −ENOENT if it was not. */
int cgroup_find_delegated(char *ret, size_t size);
/* Makes that group one with children: this process, and what it has started,
 * moves into a child of its own. −errno: it stays as it was. */
int cgroup_prepare(const char *folder);

/* Both, for stages: the folder, to be freed. NULL: outside a service there is none; if it cannot be
 * used, the log says why. */
char *cgroup_find_room(void);

/* Of that process: jobs of several heads have the same number. */
int cgroup_new(struct cgroup **ret, const char *folder, uint64_t job, pid_t pid);
int cgroup_add(struct cgroup *s, pid_t pid);
/* Processor time by the class of the job, where groups have weights; and whether this one has its
 * weight. s may be NULL. */
void cgroup_weigh(struct cgroup *s, enum job_class class);
bool cgroup_is_weighed(const struct cgroup *s);
int cgroup_limit(struct cgroup *s, uint64_t bytes);
/* What its processes have resident, with what they map of files; 0: nobody says. s may be NULL. */
uint64_t cgroup_memory(const struct cgroup *s);
/* All its processes, also those that a stage has started. */
void cgroup_kill(struct cgroup *s);
/* The group, not the struct. −EBUSY: a process is still in it, to be tried again later. */
int cgroup_remove(const struct cgroup *s);
/* Was a process of it killed because memory ran out? */
bool cgroup_ran_out(const struct cgroup *s);
/* How many processes the kernel has ended for want of memory since it started, in any group; 0: it
 * does not say. */
uint64_t cgroup_machine_kills(void);
/* Most a stage may have that was planned with so many bytes. */
uint64_t cgroup_with_headroom(uint64_t planned);
/* The sentence about a stage that ended before its job did. s may be NULL; planned and peak (most
 * it had resident): bytes, 0 unknown; how: "was killed by SIGKILL: …", which is told with these
 * two, or another such text, or "" if it just ended. */
void cgroup_why_ended(char *ret, size_t size, const struct cgroup *s, uint64_t planned, uint64_t peak,
                      const char *how);
void cgroup_free(struct cgroup *s); /* the struct */

#endif
