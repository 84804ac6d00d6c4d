/* SPDX-License-Identifier: MIT
 *
 * What carry.c (the loop), carry_lane.c (one connection), carry_take.c (a source), carry_give.c (a
 * taker) and carry_say.c (what ringd hears) share. */
#ifndef DAEMON_CARRY_IMPL_H
#define DAEMON_CARRY_IMPL_H

#include <jansson.h>
#include <stdbool.h>

#include "daemon/fetch/carry/carry.h"
#include "daemon/fetch/carry/carry_disk.h"
#include "daemon/fetch/carry/carry_line.h"

enum {
    CARRY_LANES = 128, /* with 31 nodes that give and take, over two cables each */
    CARRY_FLIGHT = 4,  /* blocks asked of a source at once: 16 MiB, more than a fast cable holds */
    CARRY_TURN = 16    /* records of a lane before the others have their turn */
};

/* A block that was asked of a source. */
struct carry_flight {
    uint32_t block, at;    /* at: bytes of it that are here */
    struct digest *digest; /* owned: of these */
    bool is_asked;         /* the frame has left */
    bool is_said;          /* which hash the source has of it: */
    uint8_t said[DIGEST];
};

struct carry_lane {
    struct carry_line line;
    uint64_t path;
    bool is_source;
    bool is_hub;  /* a source that asks the hub for what is asked of it: one run of blocks at a time */
    bool is_open; /* OPEN was sent, or came */
    bool is_lost; /* to be forgotten at the end of the turn */
    /* a source */
    bool is_list_asked, is_which_asked;
    uint8_t *has;    /* owned: a bit for each block that it has; NULL: it has not said all of them yet */
    uint32_t has_at; /* bits of them that came */
    struct carry_flight flight[CARRY_FLIGHT];
    unsigned n_flight;
    uint32_t run_end; /* of the hub: the block after the last that was asked for; the first is in flight */
    /* a taker */
    bool wants_list;
    uint32_t list_at; /* bytes of the manifest that were sent */
    bool wants_which;
    uint32_t have_sent, have_of; /* bits of HAVE that it was sent, and what was promised when they began */
    uint32_t wants[CARRY_WANTS]; /* the first one is under way */
    unsigned n_wants;
    uint32_t at;       /* bytes of that one that were sent */
    bool is_hash_sent; /* of that one */
};

enum carry_room { ROOM_UNKNOWN, ROOM_ASKED, ROOM_GIVEN };

struct carry {
    const struct carry_setup *setup; /* borrowed */
    struct carry_disk *disk;         /* owned */
    struct carry_lane *lanes[CARRY_LANES];
    size_t n;
    enum carry_room room;
    bool is_ready;    /* all that is wanted is here */
    bool asks_again;  /* more was wanted while it was asked whether there is room */
    json_int_t want;  /* the number of the last order to want something */
    uint32_t readied; /* how often it became ready */
    uint8_t *list;    /* owned: the manifest as it comes, of the only lane that was asked for it */
    uint32_t list_n, list_size;
    int64_t tokens; /* bytes that may be given now */
    struct instant filled, reported, sourced, used;
    struct instant moved; /* a block has come, or another node has said that it has more */
    struct instant now;
    bool is_late; /* progress has not been said yet, of the block `late` */
    uint32_t late;
    bool is_over;
    int r; /* why it ends: of the disk, or of ringd */
    struct err *err;
};

/* Reads what has come, and sends what can be sent: true: there is more to send at once. */
void carry_lane_read(struct carry *c, struct carry_lane *l);
bool carry_lane_write(struct carry *c, struct carry_lane *l);
/* Heartbeats and the other end's silence. Returns when to look again: µs from now. */
uint64_t carry_lane_watch(struct carry *c, struct carry_lane *l);

/* The next record, where there is something to say: 1, 0 or −errno of the line. */
int carry_take_next(struct carry *c, struct carry_lane *l);
int carry_give_next(struct carry *c, struct carry_lane *l);
/* A frame of a source, of a taker. */
void carry_take_frame(struct carry *c, struct carry_lane *l, const struct carry_frame *f);
void carry_give_frame(struct carry *c, struct carry_lane *l, const struct carry_frame *f);
/* Something is under way from it, or can be asked of it, or it has not said what it has. */
bool carry_take_may_get(const struct carry *c, const struct carry_lane *l);
/* Until then (µs from now) the hub is not asked for what another node asks it for; UINT64_MAX: it
 * is already. */
uint64_t carry_take_patience(const struct carry *c);
/* The lane goes. */
void carry_take_let_go(struct carry *c, struct carry_lane *l);
/* The manifest is known now: what takers have asked for is held against it. */
void carry_give_check(struct carry *c);

/* carry_say.c. The disk or ringd has failed: the loop ends with this. */
void carry_fail(struct carry *c, int r);
/* An event to ringd; the reference is taken. */
void carry_say(struct carry *c, json_t *event);
void carry_say_progress(struct carry *c, uint32_t block);
/* Progress that was held back, once it is time. Returns µs until then. */
uint64_t carry_say_late(struct carry *c);
/* The lane ends: ringd hears of it, and the other end does where that can be done at once. What was
 * asked of it may be asked of others once the turn is over. wrong: it has broken the protocol. */
void carry_lane_lose(struct carry *c, struct carry_lane *l, bool wrong, const char *why, ...)
    __attribute__((format(printf, 4, 5)));

#endif
