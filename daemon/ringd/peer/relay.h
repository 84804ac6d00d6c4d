/* SPDX-License-Identifier: MIT
 *
 * Data connections the long way round, for ranks that no cable joins. The dialling end asks its
 * neighbour for a way, that one the next, and each allots a token; then one TCP connection is made
 * from hop to hop, each beginning with the token of the hop it reaches, and spliced. The two ends
 * shake hands through it as if they were neighbours, so what is between them carries bytes it
 * cannot read. Both sides are here: asking for a way (lanes.c) and being one. A way lasts while
 * both ends work on the job it was asked for, or are in reach where it carries a model. PROTOCOL.md
 * §8 has messages and bytes. Knows nodes only through its setup. Loop thread.
 *
 * A hop's part:  ASKING (the next hop) → OFFERED (token given out) → CONNECTING (onwards) →
 * SPLICING → gone; all but the last have 10 s. */
#ifndef DAEMON_RELAY_H
#define DAEMON_RELAY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/link.h"

struct event_base;
struct relay;
struct relay_ask;

enum {
    RELAY_MAX_LEGS = 16,
    RELAY_MAX_GUESTS = 16
}; /* connections relayed here at once; those that have not said their token yet */

/* A neighbour, and one of the ways to it. */
struct relay_hop {
    uint8_t id[16];
    uint64_t path;
    char host[64];
    uint16_t port, max_segment; /* as in link_setup */
};
struct relay_setup {
    struct event_base *base;
    uint64_t patience_us; /* of each step; 0 = 10 s */
    void *owner;
    int (*send)(void *owner, const uint8_t to[16], json_t *message); /* takes the reference; as peers_send */
    /* The node itself if it is a neighbour, else the neighbour on the way to it; −EHOSTUNREACH. */
    int (*next)(void *owner, const uint8_t to[16], struct relay_hop *ret);
    bool (*has_path)(void *owner, uint64_t path);
    uint64_t (*path_at)(void *owner, const char *address); /* whose other end that is; 0 = none */
    bool (*works)(void *owner, const uint8_t id[16], const uint8_t head[16], uint64_t job);
    const char *(*name)(void *owner, const uint8_t *id); /* NULL: our own */
    void (*log)(void *owner, const char *text);
};

struct relay *relay_new(const struct relay_setup *setup);
void relay_free(struct relay *r);

/* What is wanted: a way between these two, for that job. */
struct relay_want {
    uint8_t from[16], to[16], head[16];
    uint64_t job; /* 0: a model is carried */
};
struct relay_way {
    struct relay_hop hop;            /* whom to connect to */
    bool relayed;                    /* else it is the end itself, and there is no preamble */
    uint8_t preamble[LINK_PREAMBLE]; /* how the connection begins */
    char through[256];               /* names of the nodes between, from here on */
};
struct relay_ask_ops { /* one of them, once, from the loop; the ask is then there to be freed, and what
                          is passed ends with it */
    void (*ready)(void *owner, const struct relay_way *way);
    void (*refused)(void *owner, const char *why);
};
struct relay_ask *relay_ask(struct relay *r, const struct relay_want *want, const struct relay_ask_ops *ops,
                            void *owner);
void relay_ask_free(struct relay_ask *ask);

/* The messages "relay-open", "relay-ready" and "relay-refused", whose fields have been checked. */
void relay_take_open(struct relay *r, const uint8_t asker[16], const json_t *body);
void relay_take_ready(struct relay *r, const uint8_t from[16], const json_t *body);
void relay_take_refused(struct relay *r, const uint8_t from[16], const json_t *body);
/* A connection that began with LINK_RELAY, from that address; takes the socket. */
void relay_accept(struct relay *r, int fd, const char *address);
/* Nodes, paths or jobs changed: what has lost its reason or its way ends. */
void relay_changed(struct relay *r);
size_t relay_count(const struct relay *r);

#endif
