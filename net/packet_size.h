/* SPDX-License-Identifier: MIT
 *
 * How large a packet may be that gets over a cable and back: the other end sends every probe back
 * in its own size. PURE: told of time and answers, says what to send. Both ends' MTUs say what
 * should pass; a switch between them, or a driver, may take less and drop the rest without a
 * word. */
#ifndef NET_PACKET_SIZE_H
#define NET_PACKET_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

enum packet_size_limits {
    PACKET_LEAST = 1280,        /* what IPv6 wants of every path */
    PACKET_TRIES = 4,           /* unanswered probes that make a size lost, */
    PACKET_TRIES_AFTER = 8,     /* and one that has passed before */
    PACKET_TRY_US = 300000,     /* from one to the next */
    PACKET_AGAIN_US = 10000000, /* a cable that is known is tried again */
};

struct packet_search {
    uint32_t whole;  /* the smaller MTU of the two ends, bytes of IPv6 */
    uint32_t passes; /* the largest size that came back; 0 = not known */
    bool settled;    /* `passes` is all there is, until the next try */
    uint32_t testing;
    unsigned tries;
    struct instant due;
};

/* The cable is new, or an MTU has changed. Does nothing if `whole` is as it was. */
void packet_search_begin(struct packet_search *s, uint32_t whole, struct instant now);
/* The size to send a probe of now, 0 = none before s->due. */
uint32_t packet_search_next(struct packet_search *s, struct instant now);
/* A probe of that size came back. */
void packet_search_answered(struct packet_search *s, uint32_t size, struct instant now);
/* Larger packets than s->passes are lost though both ends' MTUs allow them. */
bool packet_search_is_narrow(const struct packet_search *s);

#endif
