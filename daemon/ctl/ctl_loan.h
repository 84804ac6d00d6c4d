/* SPDX-License-Identifier: MIT
 *
 * Files of a job that are opened here, with the rights of their user, and handed to the daemon,
 * which need not be able to read them. What cannot be opened here is left to the daemon. */
#ifndef DAEMON_CTL_LOAN_H
#define DAEMON_CTL_LOAN_H

#include <jansson.h>
#include <stddef.h>

#include "daemon/ctl/ctl.h"

struct ctl_loan {
    char ticket[40]; /* for the job's request, good for a minute; "": nothing was handed in */
    char why[400];   /* why a path, or all, was left to the daemon; "": none was */
};

/* Hands in what the spec names as input. A daemon that cannot be reached, or takes nothing, is no
 * failure: the request that follows says so, or the daemon reads the files itself. */
void ctl_loan_hand_in(struct ctl_loan *ret, const struct ctl *ctl, const json_t *spec);

/* Of a job that waits for its files after its daemon was started again (`job`: its name, that of a
 * job of this node): opens those that it lists and hands them in. `text` says what came of it, in
 * a sentence. */
enum ctl_loan_end { CTL_LOAN_NONE /* it waits for none: there is no text */, CTL_LOAN_DONE, CTL_LOAN_FAILED };
enum ctl_loan_end ctl_loan_again(const struct ctl *ctl, const char *job, char *text, size_t size);

#endif
