/* SPDX-License-Identifier: MIT
 *
 * Inside the control connections: shared by peers.c (life of connections, messages), peers_member.c (who is let in, rosters) and
 * peers_show.c (what is shown of them), and by nobody else. Loop thread. */
#ifndef DAEMON_PEERS_IMPL_H
#define DAEMON_PEERS_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/util.h>

#include "daemon/peers.h"
#include "net/auth.h"
#include "net/clock.h"
#include "net/ring.h"

struct evconnlistener;
struct event;

enum {
    FRAME_ROUTED = LINK_FRAME_USER + 1,
    FRAME_RECORD = LINK_FRAME_USER + 2,
    FRAME_ROSTER = LINK_FRAME_USER + 3,
    FRAME_MEASURE = LINK_FRAME_USER + 4,
    MAX_TTL = RING_MAX_NODES
};
enum { BACKOFF_FIRST_MS = 200, BACKOFF_MAX_MS = 5000 };

/* A configured peer, or the other end of a cable: dialled until it answers. Of a cable only the smaller node id dials. */
struct dial {
    LIST_ENTRY(dial) next;
    struct peers *p; /* borrowed: owner */
    char host[128];
    uint16_t port;
    uint64_t cable;      /* its id; 0 = configured */
    unsigned ifindex;    /* of the cable, on our side */
    bool waits;          /* the other end dials */
    struct link *link;   /* borrowed: the session made by this dial, while it lives */
    struct event *timer; /* owned */
    unsigned backoff_ms;
    unsigned key_age; /* generations back: the other end may have been away while keys changed */
    uint8_t id[16];   /* whom we found there */
    bool known;
    char why[256]; /* why it is not a link yet */
};
struct session { /* one live connection */
    LIST_ENTRY(session) next;
    struct peers *p;
    struct link *link; /* owned */
    struct dial *dial; /* borrowed, or NULL where the peer dialled */
    uint64_t number;   /* names the path */
    uint64_t cable;    /* it runs over; 0 = none we know */
    bool up;
};
struct words { /* last reason a node's link ended */
    LIST_ENTRY(words) next;
    uint8_t id[16];
    char text[256];
};
struct peers {
    struct node *node;               /* borrowed: owner */
    struct evconnlistener *listener; /* owned */
    uint16_t port;
    uint64_t boot, numbers;
    struct instant refreshed; /* when our own record was last brought up to date for heartbeats */
    uint8_t psk[AUTH_PSK];    /* of the last link_setup given out */
    LIST_HEAD(, dial) dials;
    LIST_HEAD(, session) sessions;
    LIST_HEAD(, words) words;
};

/* A connection that is up with the node, other than `except`; NULL. */
struct session *peers_session_with(struct peers *p, const uint8_t id[16], const struct session *except);

/* The same over one cable: a second connection there is one too many. */
struct session *peers_session_over(struct peers *p, const uint8_t id[16], uint64_t cable,
                                   const struct session *except);
/* The end of a session, from wherever it comes: it leaves the list, the others are told, the link is freed. */
void peers_end_session(struct session *s, const char *text);
void peers_dial_now(evutil_socket_t fd, short what, void *dial);

/* peers_cable.c */
uint64_t peers_cable_of(struct peers *p, struct link *link, const uint8_t id[16]);

/* peers_member.c */
void peers_send_roster(struct peers *p, struct link *link);
void peers_redial(struct peers *p); /* whoever had a closed door may have come in */
void peers_learn_roster(struct peers *p, struct link *link, const uint8_t *body, size_t n);

#endif
