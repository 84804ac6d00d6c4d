/* SPDX-License-Identifier: MIT
 *
 * Inside the control connections: shared by peers.c (life of connections, records),
 * peers_message.c (messages), peers_way.c (ways: carries out what peering.c decides), peers_cable.c
 * (ways over cables), peers_door.c (who calls), peers_blocked.c (why nobody answers), peers_rival.c
 * (two connections over one way), peers_member.c (who is let in, rosters) and peers_show.c (what is
 * shown of them), and by nobody else. Loop thread. */
#ifndef DAEMON_PEERS_IMPL_H
#define DAEMON_PEERS_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/util.h>
#include <net/if.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/peer/peering.h"
#include "daemon/ringd/peer/peers.h"
#include "net/auth.h"
#include "net/clock.h"
#include "net/ring.h"

struct envelopes;
struct evconnlistener;
struct event;

enum {
    FRAME_MESSAGE = LINK_FRAME_USER + 1,
    FRAME_RECORD = LINK_FRAME_USER + 2,
    FRAME_ROSTER = LINK_FRAME_USER + 3,
    FRAME_MEASURE = LINK_FRAME_USER + 4,
    FRAME_ROUTED = LINK_FRAME_USER + 5,
};
enum { PEERS_MAX_OUT = 64 }; /* cables that are out and remembered */

/* So many a second, and once as many at a time. */
struct allowance {
    struct instant even; /* when what was taken will have been made up for */
};

/* A way to another node: a configured peer, or the other end of a cable. */
struct dial {
    LIST_ENTRY(dial) next;
    struct peers *p; /* borrowed: owner */
    struct way way;
    struct timer *timer; /* owned: the way's */
    char host[128];
    uint16_t port;
    uint64_t cable;       /* its id; 0 = configured */
    unsigned ifindex;     /* of the cable, on our side */
    char on[IF_NAMESIZE]; /* the name of that port, also when it is gone */
    uint32_t packet;      /* bytes of the largest packet that gets over it, 0 = not known */
    bool known;           /* whom we found there: */
    uint8_t id[16];
    char name[64];
    struct allowance calls; /* from there */
};
struct session { /* one live connection */
    LIST_ENTRY(session) next;
    struct peers *p;
    struct link *link;    /* owned */
    struct dial *dial;    /* borrowed, or NULL where the peer dialled */
    uint64_t number;      /* names the path */
    uint64_t cable;       /* it runs over; 0 = none we know */
    uint64_t told;        /* the sequence number of our record that last went over it in a heartbeat */
    bool agreed;          /* the hello of the other end was taken */
    bool up;              /* and ours there */
    bool dials_lanes;     /* we dial data connections over it: the end that dialled the session begins */
    bool peer_unanswered; /* the other end tried to, and this node did not answer */
    bool worn; /* it sends larger packets than the cable passes: the next connection takes its place */
};
struct words { /* last reason a node's link ended */
    LIST_ENTRY(words) next;
    uint8_t id[16];
    char text[400];
};
struct peers {
    struct peers_setup s;
    struct evconnlistener *listener; /* owned */
    struct timer *resume_accept;     /* owned: when it listens again */
    unsigned accepted;               /* calls taken since */
    struct instant full;             /* when the log last named a limit that keeps callers out */
    struct allowance strangers;
    struct link_seen seen;
    struct envelopes *envelopes; /* owned */
    uint16_t port;
    uint64_t boot, numbers;
    struct seal_offer seal; /* measured when we opened */
    /* our own record, for heartbeats: when it was last looked at, signed, and found to say
     * something new */
    struct instant refreshed, signed_at, changed;
    struct instant beat; /* all our heartbeats are sent whole seconds from then */
    struct member said;  /* as it was signed */
    uint8_t *psk;        /* owned: [AUTH_PSK], of the last link_setup given out; secret.h */
    LIST_HEAD(, dial) dials;
    LIST_HEAD(, session) sessions;
    LIST_HEAD(, words) words;
};

/* The end of a session, from wherever it comes: it leaves the list, the others are told, the link
 * is freed. */
void peers_end_session(struct session *s, const char *text);
struct session *peers_session_new(struct peers *p, struct dial *d);

/* peers_rival.c */
/* A connection that is up with the node, other than `except`; NULL. */
struct session *peers_session_with(struct peers *p, const uint8_t id[16], const struct session *except);
/* The same over that cable (0 = a configured address, or a cable that is not known yet). */
struct session *peers_session_over(struct peers *p, const uint8_t id[16], uint64_t cable);
/* Its hello has been heard: whether another connection with that node, over the same way, is the
 * one to stay. */
bool peers_is_refused(const struct session *s);
/* The same once it is up, as the other end may have dialled as well: closes the one of both that
 * goes, and tells whether it is this one. */
bool peers_is_one_too_many(struct session *s);
/* peers_way.c */
/* So long a silence ends a connection. */
uint64_t peers_silence_us(const struct peers *p);
struct dial *peers_way_new(struct peers *p);
void peers_way_free(struct dial *d);
/* Something happened to the way: what follows is done. It may be gone afterwards only if it was
 * OUT. */
void peers_way_step(struct dial *d, const struct way_news *news);
/* A second connection over a way that is up, to replace the first. */
void peers_way_renew(struct dial *d);
/* For link_setup: 0, or what the cable passes if that is less than this end's port would send. */
uint16_t peers_max_segment(const struct dial *d);
/* A connection is up: the ways it runs over are. It has ended, and is no longer listed: those ways
 * take another, or are lost. */
void peers_ways_joined(struct peers *p, const struct session *s);
void peers_ways_parted(struct peers *p, uint64_t session, const uint8_t *id, const struct way_news *news);
/* peers_door.c */
int peers_door_open(struct peers *p, struct err *err);
void peers_door_close(struct peers *p);
/* peers_cable.c */
uint64_t peers_cable_of(struct peers *p, struct link *link, const uint8_t id[16]);

/* peers_blocked.c: our call over the cable was not answered, though beacons pass there. A
 * sentence. */
void peers_tell_blocked(const struct dial *d, char *out, size_t size);

/* peers_message.c: frames of a connection that is up. */
void peers_take_message(struct peers *p, const struct link *link, const uint8_t *text, size_t n);
void peers_take_routed(struct peers *p, const struct link *link, const uint8_t *data, size_t n);
/* peers_member.c */
/* The daemon there has ended: our record says so to all, until it is connected again. */
void peers_note_ended(struct peers *p, const uint8_t id[16]);
void peers_forget_ended(struct peers *p, const uint8_t id[16]);
void peers_send_roster(struct peers *p, struct link *link);
void peers_redial(struct peers *p); /* whoever had a closed door may have come in */
void peers_learn_roster(struct peers *p, struct link *link, const uint8_t *body, size_t n);

#endif
