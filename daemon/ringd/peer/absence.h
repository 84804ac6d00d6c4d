/* SPDX-License-Identifier: MIT
 *
 * Nodes that somebody needs, and which of them are out of reach: an outage shorter than
 * --dead-after is waited out, a node whose daemon has ended or was started again is not waited for.
 * PURE: asks members, is given the time. coord watches the nodes of its job, the worker the head of
 * its own; tests use a fake clock. */
#ifndef DAEMON_ABSENCE_H
#define DAEMON_ABSENCE_H

#include "daemon/ringd/cluster/members.h"

enum {
    ABSENCE_BEAT_US = 1500000, /* so old is the last word of a node whose heartbeats come */
    ABSENCE_NOTICED_US =
        5000000, /* so long a silence may have lasted when the connection is given up for it */
    ABSENCE_RETURN_US =
        1000000, /* that is how long it may take from the plug to the connection: no part of the outage */
    ABSENCE_LATE_US = 500000, /* our own lateness from which on the time does not count against the others */
};

enum absence_news {
    ABSENCE_NOTHING,
    ABSENCE_OUT,      /* it is out of reach from now on */
    ABSENCE_BACK,     /* it was, and is no longer */
    ABSENCE_TOO_LONG, /* it was, for as long as it is waited for; this and the next two are reported until the node is no longer watched */
    ABSENCE_ENDED,    /* it is, and a neighbour saw its daemon end */
    ABSENCE_RESTARTED, /* its daemon was restarted */
};

struct absence {
    size_t n;
    struct {
        uint8_t id[16];
        uint64_t boot; /* of the life that is needed */
        bool is_out;
        struct instant since; /* the outage began, as far as it can be known */
    } at[RING_MAX_NODES];
};

/* Watches these nodes from now on, and no others. */
void absence_watch(struct absence *a, const struct members *m, const uint8_t (*ids)[16], size_t n);
/* That node is needed no more, if it was. */
void absence_forget(struct absence *a, const uint8_t id[16]);
/* The next news, and the node it is about: call it until it returns none, after every change and
 * when it is due. `patience_us`: --dead-after. */
enum absence_news absence_next(struct absence *a, const struct members *m, uint64_t patience_us,
                               struct instant now, size_t *ret_which);
/* When somebody will have been out of reach for too long; UINT64_MAX: nobody is. */
struct instant absence_due(const struct absence *a, uint64_t patience_us);

#endif
