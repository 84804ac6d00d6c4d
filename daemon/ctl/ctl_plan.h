/* SPDX-License-Identifier: MIT
 *
 * Plans: ringctl plan, the --dry-run of the commands that submit, and a plan as a table, also that
 * of a job that runs. One thread. */
#ifndef DAEMON_CTL_PLAN_H
#define DAEMON_CTL_PLAN_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/common/job_type.h"
#include "daemon/ctl/ctl.h"

/* Only the plan is wanted of the command, which has --dry-run. */
bool ctl_plan_wanted(const struct ctl *ctl);
/* Has the daemon plan that job, prints what it says, and writes it to the file `out` unless that is
 * NULL. Takes over spec. */
int ctl_plan_ask(const struct ctl *ctl, enum job_type type, json_t *spec, const char *out);

/* job: what has a "plan", and perhaps the measured "memory" of its stages. */
void ctl_print_plan(const json_t *job);

/* Of each adapter of a sweep its name and what is known of it: step, losses, where it is. Nothing
 * where there are none. */
void ctl_print_adapters(const json_t *adapters);

#endif
