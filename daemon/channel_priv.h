/* SPDX-License-Identifier: MIT
 *
 * The exchange's inside, shared by channel.c (the compute thread's side) and channel_lane.c (the threads of each connection). */
#ifndef DAEMON_CHANNEL_PRIV_H
#define DAEMON_CHANNEL_PRIV_H

#include <pthread.h>

#include "daemon/channel.h"

enum {
    HEAD = 32, /* bytes of one frame head; a record holds up to BATCH of them */
    BATCH = 16,
    CHUNK =
        256 *
        1024, /* payload bytes per record: scratch stays in L2, latency bounded, and the unit of striping */
    MAX_PEERS = 2, /* previous and next in the ring */
    MAX_LANES =
        6, /* connections to one of them: one per cable, a relayed one, and one that is being replaced */
    MAX_POOL = 32, /* buffers kept for reuse */
    MAX_ACKS =
        256, /* waiting on a lane: far more than chunks of all credited messages on their way at once would leave unsent */
    RECENT = 64, /* completed messages remembered, to know a late duplicate from nonsense */
};
enum frame_type { FRAME_CREDIT = 1, FRAME_CHUNK = 2, FRAME_ACK = 3 };
enum inbox_state { IN_POSTED, IN_FILLING, IN_ARRIVED };
enum chunk_state {
    CHUNK_UNSENT = 0xff,
    CHUNK_DONE = 0xfe
}; /* else the lane it was sent on and not yet acknowledged */

struct frame {
    enum frame_type type;
    struct msg_key key;
    uint64_t size, offset; /* of the whole message; of a chunk in it */
};
struct inbox { /* one expected message */
    struct inbox *next;
    struct msg_key key;
    enum inbox_state state;
    bool credited, variable;
    void *buffer; /* owned until taken */
    size_t cap, size, received;
    uint8_t *have; /* owned: per chunk, once the first has come */
};
struct outbox { /* one message to send */
    struct outbox *next;
    struct msg_key key;
    bool credited;
    void *buffer; /* owned */
    size_t size, chunks, done, unsent;
    uint8_t *chunk;   /* owned: chunk_state of each */
    unsigned readers; /* lanes that are sending from the buffer right now */
};
struct credit { /* a key the peer has room for, before we had the message */
    struct credit *next;
    struct msg_key key;
};
struct lane {
    struct peer *peer; /* borrowed: owner */
    uint64_t path;     /* whoever added it knows it by this */
    int fd;
    struct seal tx, rx; /* each used by its own thread only */
    pthread_t sender, receiver;
    bool used, broken, busy; /* busy: the sender is between taking work and having sent it */
    struct frame acks
        [MAX_ACKS]; /* still to be sent, over the lane the chunk came on: if it breaks, the chunk comes again anyway */
    size_t ack_first, nacks;
};
struct peer {
    struct exchange *x; /* borrowed: owner */
    uint32_t rank;
    struct lane lanes[MAX_LANES];
    struct inbox *in;
    struct outbox *out, **out_tail;
    size_t nout;
    struct credit *credits;
    struct msg_key recent[RECENT];
    size_t nrecent;
    pthread_cond_t work; /* for the senders */
};
struct exchange {
    pthread_mutex_t lock;   /* over everything below and all peers */
    pthread_cond_t changed; /* for the compute thread */
    uint64_t changes, seen;
    bool closing;
    struct peer peers[MAX_PEERS];
    size_t n;
    struct {
        void *at;
        size_t cap;
    } pool[MAX_POOL];
    size_t npool;
    struct progress *progress; /* borrowed */
    void (*lost)(void *owner, uint32_t rank, uint64_t path, const char *why);
    void *owner;
};

static inline bool same_key(const struct msg_key *a, const struct msg_key *b)
{
    return a->round == b->round && a->kind == b->kind && a->stage == b->stage && a->mb == b->mb;
}

/* All below: with the lock held. */
void exchange_changed(struct exchange *x); /* wakes the compute thread */
void exchange_wake_senders(struct peer *p);
void exchange_release_locked(struct exchange *x, void *buffer);
struct inbox *exchange_find_inbox(struct peer *p, const struct msg_key *key);
void exchange_finish_message(
    struct peer *p, struct outbox *o); /* frees it if everything is acknowledged and nobody reads it */

/* Starts and ends a lane's two threads; lane_stop joins them (without the lock). */
int lane_start(struct lane *l);
void lane_stop(struct lane *l);

#endif
