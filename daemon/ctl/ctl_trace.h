/* SPDX-License-Identifier: MIT
 *
 * ringctl train --trace: every step of a job goes to a file for a trace viewer while the job
 * runs. */
#ifndef DAEMON_CTL_TRACE_H
#define DAEMON_CTL_TRACE_H

#include "daemon/ctl/ctl.h"

struct ctl_trace;

/* Before there is a job: the file is begun, so that a path that cannot be written is said at once.
 * path: borrowed until the end. Exit status, with the reason printed. */
int ctl_trace_open(struct ctl_trace **ret, const char *path);
/* Steps are written from now on, by a thread. job: its name, copied. Exit status, with the reason
 * printed. */
int ctl_trace_begin(struct ctl_trace *t, const struct ctl *ctl, const char *job);
/* Closes the file, says how many steps are in it, and frees all. is_over: the job has ended, so its
 * last step is awaited; otherwise the file ends with the steps so far. Exit status, with the reason
 * printed. NULL is allowed. */
int ctl_trace_end(struct ctl_trace *t, const struct ctl *ctl, bool is_over);

#endif
