/* SPDX-License-Identifier: MIT
 *
 * What stages of this node lack of models whose outlines are here: taken from the nodes nearest to
 * this one that have it, and from the hub where no node has all of it. Owned by supply.c; loop
 * thread. */
#ifndef DAEMON_BRING_H
#define DAEMON_BRING_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct bring;
struct event_base;
struct members;
struct pull;
struct pulls;

struct bring_coming {
    const char *model, *from; /* from: "node NAME", or "the hub" */
    uint64_t done, total;     /* bytes */
    double rate;              /* bytes a second; 0: not known */
};

struct bring_setup { /* the pointers are borrowed */
    struct event_base *base;
    struct members *members;
    struct pulls *pulls;
    /* About once a second, how far it is. */
    void (*coming)(void *owner, const struct bring_coming *c);
    /* It is here; why: a sentence, it does not come. */
    void (*brought)(void *owner, const char *model, const char *why);
    void *owner;
};
struct bring *bring_new(const struct bring_setup *setup);
void bring_free(struct bring *b); /* nobody hears anything more; NULL is fine */

/* As supply_bring (supply.h); the JSON is copied. */
void bring_want(struct bring *b, const char *model, const char *content, const json_t *blocks,
                const json_t *holders, bool parts);
/* Something of a pull has changed. One that is over may be gone afterwards. */
void bring_changed(struct bring *b, const struct pull *p);

#endif
