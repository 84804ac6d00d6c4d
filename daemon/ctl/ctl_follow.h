/* SPDX-License-Identifier: MIT
 *
 * A job followed to its end, by whoever submitted it or by ringctl attach: its progress on one line
 * of a terminal, or a line for each tenth of the way, and what came out. Each returns an exit
 * status. */
#ifndef DAEMON_CTL_FOLLOW_H
#define DAEMON_CTL_FOLLOW_H

#include "daemon/ctl/ctl.h"

int ctl_follow_training(const struct ctl *ctl, const char *job);
int ctl_follow_generation(const struct ctl *ctl, const char *job, bool can_detach);
int ctl_follow_scoring(const struct ctl *ctl, const char *job, bool can_detach);

#endif
