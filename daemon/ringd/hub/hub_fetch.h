/* SPDX-License-Identifier: MIT
 *
 * Processes of ringd-fetch, each of which brings one model from a hub, looks one up, reads one
 * again, carries one between nodes, or is the hub for one that does: started, given their orders,
 * heard, and reaped. Nothing here waits, but fetchers_free does for a moment. Loop thread. */
#ifndef DAEMON_HUB_FETCH_H
#define DAEMON_HUB_FETCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"

struct event_base;
struct hub_fetch;
struct ipc_lane;
struct fetchers;

struct fetchers_setup { /* all borrowed */
    struct event_base *base;
    const char *program; /* ringd-fetch */
    const char *dir;     /* the folder of models */
};
struct fetchers *fetchers_new(const struct fetchers_setup *setup);
void fetchers_free(struct fetchers *f); /* ends those that run */

/* Of a failure: it stays, it may pass, or this node's disk has no room. */
enum fetch_end { FETCH_LASTS, FETCH_PASSES, FETCH_IS_FULL };

struct hub_fetch_ops {
    void (*resolved)(void *owner, const char *model); /* its exact name, checked */
    /* Of "list": which model it is, checked. NULL: it is never said. */
    void (*listed)(void *owner, const char *content);
    /* So many bytes are to come: hub_fetch_say_room is expected. NULL, as the next: never asked. */
    void (*room)(void *owner, uint64_t bytes);
    void (*progress)(void *owner, uint64_t done, uint64_t total, const char *file);
    /* Of one that carries; else NULL: all is here that is wanted up to that order, and it goes on
     * to give. */
    void (*ready)(void *owner, uint64_t want);
    /* The same: a lane has ended. wrong: the other end sent what it must not. */
    void (*lost)(void *owner, uint64_t path, bool wrong, const char *why);
    /* Of "lend", or of one that carries what is lent: the hub is tried again in a moment, because
     * of this. NULL: nobody minds. */
    void (*waits)(void *owner, const char *why);
    /* In place of over: it ended without a word, killed perhaps. NULL: that is over as well. */
    void (*died)(void *owner, const char *why);
    /* Once, and last. why: NULL, it is done; or a sentence. */
    void (*over)(void *owner, const char *why, enum fetch_end end);
};
struct hub_order {
    const char *what; /* "pull", "list", "resolve", "verify", "carry", "lend" or "add" */
    const char *model;
    const char *content; /* of "carry" and "lend": which files those are; else NULL */
    const char *list;    /* of "carry": the hash of its list of blocks; NULL or "": not known */
    bool is_of_hub;      /* of "carry": what comes is the hub's */
    const json_t *want;  /* of "carry": as of hub_fetch_want; NULL: it gives */
    const char *folder;  /* of "add": whose files get the name; else NULL */
    const char *kept;    /* of "add": this node's copy of that folder, should it not be readable; or NULL */
};
/* The process lives until it is over, or hub_fetch_stop. */
int hub_fetch_start(struct hub_fetch **ret, struct fetchers *f, const struct hub_order *order,
                    const struct hub_fetch_ops *ops, void *owner, struct err *err);
/* To one that carries: what more is to come: {"do": "want", "number"} for a model's outline, with
 * "blocks" more of it (daemon/fetch/carry/carry.h). Copied. −EAGAIN: it takes no messages. */
int hub_fetch_want(struct hub_fetch *f, const json_t *want);
/* To one that carries: a connection of its own, to a source (rank 0), to a taker (rank 1) or to
 * one that asks the hub (rank 2); to such a one, its only connection. Both are borrowed. −EAGAIN:
 * it takes no messages. */
int hub_fetch_send_lane(struct hub_fetch *f, const struct ipc_lane *lane, int fd);
/* There is room; why: a sentence, there is none. */
void hub_fetch_say_room(struct hub_fetch *f, const char *why);
/* The owner hears nothing more; what has come stays on the disk. NULL is fine. Not to be called
 * once it is over. */
void hub_fetch_stop(struct hub_fetch *f);

#endif
