/* SPDX-License-Identifier: MIT
 *
 * Answers of a model that the ring serves already, for generate, chat and score: nothing is opened.
 * A command's --model is the name of what is served, or the folder of it, served as it is.
 * Functions return an exit status, and have said why when it is not CTL_OK. */
#ifndef DAEMON_CTL_SERVED_H
#define DAEMON_CTL_SERVED_H

#include <jansson.h>

#include "daemon/ctl/ctl.h"

/* The name of what is served and answers this spec as a job of it would; owned by the caller. NULL:
 * there is none, or the spec wants what only a job can do. */
int ctl_served_find(const struct ctl *ctl, const json_t *spec, char **ret_name);

struct served_answer {
    void (*text)(void *owner, const char *text);  /* as it comes */
    void (*aside)(void *owner, const char *text); /* of its reasoning, which is no part of it */
    void *owner;
    int signal_fd; /* ^C ends the answer where it is, another signal the command; -1: none is read */
};

/* The answer to a spec of `generate`: its prompt, ids or messages, and what it says of the choice
 * of tokens. */
int ctl_served_ask(const struct ctl *ctl, const char *name, const json_t *spec, struct served_answer *answer);
/* What a job of a spec of `score` with a text or ids would have as its result; a new object. */
int ctl_served_score(const struct ctl *ctl, const char *name, const json_t *spec, json_t **ret);

#endif
