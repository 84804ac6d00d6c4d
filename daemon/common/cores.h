/* SPDX-License-Identifier: MIT
 *
 * How many threads are worth having: one for each core this process may run on. The two that share
 * a core's arithmetic are no faster together than one of them. Called by ringd and ringctl at their
 * start, and when ringd reads its configuration again. */
#ifndef DAEMON_CORES_H
#define DAEMON_CORES_H

#include <sched.h>

/* Cores that the CPUs `allowed` belong to, as root ("/sys/devices/system/cpu") tells it; a CPU it
 * says nothing of is one by itself. At least 1. */
unsigned cores_of(const char *root, const cpu_set_t *allowed);
/* Of this process. */
unsigned cores_here(void);

/* Of a stage. asked: 0 for as many as are worth having, and then OMP_NUM_THREADS has its say: 0,
 * for the stage to follow it. */
unsigned cores_threads(unsigned asked);

#endif
