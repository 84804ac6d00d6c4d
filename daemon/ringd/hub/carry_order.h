/* SPDX-License-Identifier: MIT
 *
 * What is to come of a model, and from which nodes. Loop thread. */
#ifndef DAEMON_CARRY_ORDER_H
#define DAEMON_CARRY_ORDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/ring.h"

struct members;

enum { CARRY_FROM = RING_MAX_NODES - 1 };
struct carry_order {
    const char *model, *content; /* exact; MODEL_CONTENT digits */
    const char *list;            /* the hash of its list of blocks; NULL or "": not known */
    const json_t *blocks;        /* beside its outline: [file, first block, the next one not], …; or NULL */
    uint8_t from[CARRY_FROM][16];
    size_t nfrom;
    bool whole; /* all of its blocks */
    bool hub;   /* and from the hub what these have not, */
    bool nodes; /* or never from the hub: it knows nothing of it, or something else */
};

/* Of a message "model-want", whose texts are borrowed: −1: what is asked for makes no sense. */
int carry_order_read(struct carry_order *ret, const struct members *members, const json_t *body);

#endif
