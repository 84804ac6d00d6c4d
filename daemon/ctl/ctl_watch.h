/* SPDX-License-Identifier: MIT
 *
 * Following one job to its end: events to the command that shows them. ^C asks whether to leave the
 * job alone or to cancel it, and a second one leaves; where nobody can be asked, the job is left
 * alone. What cannot be left (a short job, or one of ringctl local, which ends with its ring) is
 * cancelled instead. */
#ifndef DAEMON_CTL_WATCH_H
#define DAEMON_CTL_WATCH_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/ctl/ctl.h"

struct watch {
    void (*event)(void *owner, const char *type, const json_t *data); /* all but "end" */
    void *owner;
    bool can_detach; /* the job is worth something without this command */
    bool outlives;   /* it goes on when its daemon is started again */
    bool
        is_answer; /* ^C ends the job and not the command, which gets the job as it ended, or as it is when it has answered */
    uint64_t last_id; /* in: events after this one; out: the last one seen */
    bool is_chatty;   /* its events may be dropped while a question stands: more come */
};
/* job: its name, which ret_end has as `name` too. CTL_OK: ret_end is the job as it ended, or, of
 * one that answers and is kept, its answer, owned by the caller; whether that is well is
 * ctl_watch_verdict's to say. Otherwise the reason has been printed. */
int ctl_watch(const struct ctl *ctl, const char *job, struct watch *watch, json_t **ret_end);
/* CTL_OK, or the sentence of a job that failed or was cancelled, printed. */
int ctl_watch_verdict(const json_t *end);

#endif
