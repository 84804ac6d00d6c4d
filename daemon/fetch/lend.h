/* SPDX-License-Identifier: MIT
 *
 * The hub as a source of a model that nodes carry (carry/carry.h): gives one taker what it asks
 * for, and asks the hub for that, a run of blocks in one request. Nothing of it comes to this
 * node's disk. One taker, one thread. */
#ifndef DAEMON_FETCH_LEND_H
#define DAEMON_FETCH_LEND_H

#include "daemon/fetch/carry/carry_line.h"
#include "daemon/fetch/manifest.h"
#include "daemon/fetch/pull_bytes.h"

struct lend_setup { /* all borrowed */
    const char *content;
    struct manifest *manifest; /* how long heads are is noted there */
    const uint8_t *list;       /* the same as bytes */
    size_t list_n;
    const char *org, *name, *commit;
    struct carry_line *line;        /* to the taker */
    int watch;                      /* readable: ringd has said stop, or has ended */
    void (*waits)(const char *why); /* the hub is tried again in a moment, because of this */
};

struct lend;
struct lend *lend_new(const struct lend_setup *setup);
void lend_free(struct lend *l);
/* 0: the taker wants no more. −ECANCELED; an error and a sentence. */
int lend_run(struct lend *l, struct hub *hub, struct err *err);
/* For who waits for the hub meanwhile: says to the taker that it is still there. False: the taker
 * is gone. owner: a struct lend. */
bool lend_tick(void *owner);
/* A sentence to the taker, once nothing follows. */
void lend_say_gone(struct carry_line *line, const char *why);

#endif
