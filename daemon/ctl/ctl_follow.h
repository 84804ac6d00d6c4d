/* SPDX-License-Identifier: MIT
 *
 * Follows a job to its end, after its submission or for ringctl attach. Shows the progress on one
 * line of a terminal, or a line for each tenth of the way, and then the result. Each returns an
 * exit status. */
#ifndef DAEMON_CTL_FOLLOW_H
#define DAEMON_CTL_FOLLOW_H

#include <jansson.h>

#include "daemon/common/job_type.h"
#include "daemon/ctl/ctl.h"

/* outlives: the job goes on when its daemon is started again. */
int ctl_follow_training(const struct ctl *ctl, const char *job, bool is_attached, bool outlives);
int ctl_follow_generation(const struct ctl *ctl, const char *job, bool can_detach, bool outlives);
/* The result of a scoring, as it is asked for: as JSON or as a table. */
void ctl_follow_show_score(const struct ctl *ctl, const json_t *result);
int ctl_follow_scoring(const struct ctl *ctl, const char *job, bool can_detach, bool outlives);
int ctl_follow_eval(const struct ctl *ctl, const char *job, bool can_detach, bool outlives);

/* Submits the job and follows it, or has it planned. Takes over spec. */
int ctl_follow_new(const struct ctl *ctl, enum job_type type, json_t *spec,
                   int (*follow)(const struct ctl *ctl, const char *job, bool can_detach, bool outlives));

#endif
