/* SPDX-License-Identifier: MIT
 *
 * Files of a job that are opened here, with the rights of their user, and handed to the daemon,
 * which need not be able to read them. What cannot be opened here is left to the daemon. */
#ifndef DAEMON_CTL_LOAN_H
#define DAEMON_CTL_LOAN_H

#include <jansson.h>

#include "daemon/ctl/ctl.h"

struct ctl_loan {
    char ticket[40]; /* for the job's request, good for a minute; "": nothing was handed in */
    char why[400];   /* why a path, or all, was left to the daemon; "": none was */
};

/* Hands in what the spec names as input. A daemon that cannot be reached, or takes nothing, is no
 * failure: the request that follows says so, or the daemon reads the files itself. */
void ctl_loan_hand_in(struct ctl_loan *ret, const struct ctl *ctl, const json_t *spec);

#endif
