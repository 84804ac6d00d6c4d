/* SPDX-License-Identifier: MIT
 *
 * A job's plan as a table: who holds what, and memory planned, available and measured. Called by ringctl job, and by the commands that
 * follow a job which was only to be planned. */
#ifndef DAEMON_CTL_PLAN_H
#define DAEMON_CTL_PLAN_H

#include <jansson.h>

/* job: in full, with its plan; the rest of that is for --json. */
void ctl_print_plan(const json_t *job);

#endif
