/* SPDX-License-Identifier: MIT
 *
 * Processor time for others, where there are no control groups with weights: the threads of a
 * process get what nobody else on this machine wants. The kernel lets nobody without privileges
 * take that back, so it is done only once there are others. Any thread. */
#ifndef DAEMON_YIELD_CPU_H
#define DAEMON_YIELD_CPU_H

#include <sys/types.h>

/* All threads that the process has, and those that they start later. −errno: it goes on as before;
 * done twice it does no harm. */
int yield_cpu(pid_t pid);

#endif
