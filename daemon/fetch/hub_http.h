/* SPDX-License-Identifier: MIT
 *
 * Requests to a hub, one after the other. Redirects are followed by hand: the token goes to the hub
 * alone, never to where it sends us. Every wait has a deadline, and ends at once when ringd lets go
 * of this process. One thread. */
#ifndef DAEMON_HUB_HTTP_H
#define DAEMON_HUB_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/fetch/hub_headers.h"
#include "engine/err.h"
#include "net/clock.h"

struct hub;

struct hub_setup {        /* all borrowed */
    const char *endpoint; /* "https://huggingface.co" */
    const char *token;    /* NULL: none */
    int watch;            /* readable: ringd has said stop, or has ended */
    /* Each second while something is waited for, perhaps: false: nobody waits any more. Or NULL. */
    bool (*tick)(void *owner);
    void *owner;
};
/* −EINVAL and a sentence: that is no endpoint. */
int hub_open(struct hub **ret, const struct hub_setup *setup, struct err *err);
void hub_close(struct hub *h);

struct hub_request {
    const char *path; /* behind the endpoint; begins with a slash */
    bool is_head;     /* stops where the hub itself has answered: what it says of a file counts */
    uint64_t from;    /* > 0: only what lies behind so many bytes */
    uint64_t to;      /* > 0: and before that one */
    /* Of an answer 200 or 206; borrowed. begin: before its first byte, false ends the answer. */
    bool (*begin)(void *owner, const struct hub_headers *headers);
    bool (*take)(void *owner, const void *bytes, size_t n);
    void *owner;
};
/* 0: the hub, or where it sent us, has answered: what, ret says. −EPROTO, −EIO, −ETIMEDOUT and a
 * sentence: no answer, or not all of it. −ECANCELED: nobody waits any more, or take or begin said
 * false. */
int hub_ask(struct hub *h, const struct hub_request *q, struct hub_headers *ret, struct err *err);

/* How a try that failed is followed by another: later each time, until nothing new has come for too
 * long. */
struct hub_patience {
    struct instant since; /* of the last byte that was new */
    unsigned tries;
};
void hub_patience_begin(struct hub_patience *p); /* something new has come */
/* Is this an answer after which the same may be asked again? */
bool hub_is_passing(int r, const struct hub_headers *headers);
/* Waits before the next try: 0. −ETIMEDOUT: it is enough; err, which says what went wrong, stays.
 * −ECANCELED. */
int hub_wait(struct hub *h, struct hub_patience *p, const struct hub_headers *headers);
/* The sentence about an answer that is not 200 or 206, in the hub's own words where it has some.
 * what: a model or a file. Returns −EACCES, −ENOENT, −EBUSY or −EPROTO. */
int hub_refusal(const struct hub *h, const struct hub_headers *headers, const char *what, struct err *err);

/* An answer that is read whole. */
struct hub_text {
    char *bytes; /* owned; NUL behind it */
    size_t n;
};
/* With tries again. −E2BIG and others with a sentence; `what` as above. */
int hub_get_text(struct hub *h, const char *path, size_t most, const char *what, struct hub_text *ret,
                 struct err *err);

#endif
