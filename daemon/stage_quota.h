/* SPDX-License-Identifier: MIT
 *
 * How much of the CPUs the control group of this process may have in the long run. A quota is given out once a period, so what is
 * shorter than a period does not feel it, and a step made of many such tasks does. Called by stage_cost.c; any thread. */
#ifndef DAEMON_STAGE_QUOTA_H
#define DAEMON_STAGE_QUOTA_H

/* CPUs: the least that the group `path` ("/a/b") or one above it may have, below `root`, as cpu.max says it (version 2) or
 * cpu.cfs_quota_us (version 1). INFINITY without a limit. */
double quota_of(const char *root, const char *path);
/* Of this process. */
double quota_here(void);

#endif
