/* SPDX-License-Identifier: MIT
 *
 * How much of the CPUs the control group of this process may have in the long run. A quota is given
 * out once a period, so what is shorter than a period does not feel it, and a step made of many
 * such tasks does. Called by stage_cost.c; any thread. */
#ifndef DAEMON_STAGE_QUOTA_H
#define DAEMON_STAGE_QUOTA_H

#include <stddef.h>

/* CPUs: the least that the group `path` ("/a/b") or one above it may have, below `root`, as cpu.max
 * says it (version 2) or cpu.cfs_quota_us (version 1). INFINITY without a limit. */
double quota_of(const char *root, const char *path);
/* Of this process. */
double quota_here(void);

/* Seconds that a second of the CPUs takes in the long run. A short task may see all of a pause or
 * none, and what it took of the clock (wall [n]) says little; what it took of the CPUs (cpu [n])
 * does: a second of that is had in 1 / quota, or in what it takes without a pause, as in the turn
 * that had the least of them, if that is more. */
double quota_slows(const double *wall, const double *cpu, size_t n, double quota);

#endif
