/* SPDX-License-Identifier: MIT
 *
 * Results that the daemon keeps because it cannot write where its user wants them: said at the
 * start of a job, fetched at its end or later. Functions that return an exit status have said why
 * when it is not CTL_OK. */
#ifndef DAEMON_CTL_RESULT_H
#define DAEMON_CTL_RESULT_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/ctl/ctl.h"

/* For the daemon: {"path", "dev", "ino"} of the folder the spec's result goes to, or would be made
 * in, as this user sees it. NULL: there is none, or this user could not write there either. The
 * caller owns it. */
json_t *result_seen(const json_t *spec);
/* The daemon's answer to a job that was submitted: says it, if the result will have to be
 * fetched. */
void result_announce(const json_t *reply);
/* Fetches the result of a job that has ended well, if the daemon has kept it. Into the folder of
 * another user only for who submitted it, not for who attached to it. */
int result_deliver(const struct ctl *ctl, const json_t *job, bool is_attached);

#endif
