/* SPDX-License-Identifier: MIT
 *
 * The exchange's inside. From the bottom: exchange_state.c (buffers and messages), exchange_lane.c
 * (what a lane's threads share), exchange_rate.c (its speed), exchange_receive.c (threads),
 * exchange_attend.c (the compute thread in their place), exchange_send.c (threads), exchange.c (the
 * compute thread's side, and lanes as a whole). */
#ifndef DAEMON_EXCHANGE_IMPL_H
#define DAEMON_EXCHANGE_IMPL_H

#include <pthread.h>

#include "daemon/stage/exchange/exchange.h"
#include "daemon/stage/exchange/exchange_share.h"

enum {
    HEAD = 32, /* bytes of one frame head; a record holds up to BATCH of them */
    BATCH = 16,
    UNTOLD_MAX = 16,
    MAX_NEIGHBORS = 15, /* ranks of a job but this one: those that it talks to */
    MAX_LANES =
        6, /* connections to one of them: one per cable, a relayed one, and one that is being replaced */
    WORKERS =
        2, /* threads per lane and direction: one seals while the other sends, one reads while the other opens */
    MAX_POOL = 32, /* buffers kept for reuse */
    MAX_ACKS =
        256, /* waiting on a lane: far more than chunks of all credited messages on their way at once would leave unsent */
    MAX_CREDITS =
        16384,   /* messages that a neighbor has room for and that are not here yet: no plan has as many */
    RECENT = 64, /* completed messages remembered, to know a late duplicate from nonsense */
};
enum frame_type { FRAME_CREDIT = 1, FRAME_CHUNK = 2, FRAME_ACK = 3, FRAME_REKEY = 4 };
#define REKEY_NS INT64_C(120000000000) /* age of a lane's key, from which on the next record is its last */
enum inbox_state { IN_POSTED, IN_FILLING, IN_ARRIVED };
enum chunk_state {
    CHUNK_UNSENT = 0xff,
    CHUNK_DONE = 0xfe
}; /* else the lane it was sent on and not yet acknowledged */

struct lane_frame {
    enum frame_type type;
    struct msg_key key;
    uint64_t size, offset; /* of the whole message; of a chunk in it */
    uint8_t again;         /* how often the chunk was given to a lane before */
};
struct chunk_place {     /* of a chunk in a message that is coming in */
    uint8_t have, again; /* HAVE_NOT…; of the frame that claimed it */
};
struct inbox { /* one expected message */
    struct inbox *next;
    struct msg_key key;
    enum inbox_state state;
    bool credited, variable;
    void *buffer; /* owned until taken */
    size_t cap, size, received;
    struct chunk_place *place; /* owned: per chunk, once the first has come */
};
struct outbox { /* one message to send */
    struct outbox *next;
    struct msg_key key;
    bool credited;
    bool last;    /* behind all that are not */
    void *buffer; /* owned */
    size_t size, chunks, done, unsent;
    uint8_t *chunk;   /* owned: chunk_state of each, and behind them how often each was given to a lane */
    unsigned readers; /* lanes that are sending from the buffer right now */
};
struct credit { /* a key the neighbor has room for, before we had the message */
    struct credit *next;
    struct msg_key key;
};
struct lane_sync { /* lives as long as the neighbor: threads of others may be about to wake this lane's */
    pthread_cond_t work; /* there may be something to send */
    pthread_cond_t turn; /* for a sender that has sealed before those ahead of it have sent */
    pthread_cond_t back; /* for receivers: the compute thread attends to the neighbor no more */
    pthread_mutex_t
        reading; /* the receiver that holds it reads the next record, and opens it after letting go. Before the lock */
};
struct lane {
    struct lane_sync *sync;    /* borrowed: neighbor */
    struct neighbor *neighbor; /* borrowed: owner */
    uint64_t path;             /* whoever added it knows it by this */
    int fd;
    struct seal tx;   /* under the lock */
    int64_t keyed_at; /* when it last got a key; the same */
    struct seal rx;   /* of the receiver that reads, or of the compute thread while there is none */
    unsigned readers; /* receivers that have not made room for the compute thread */
    bool read_here;   /* the compute thread is reading a record */
    pthread_t threads[2 * WORKERS];
    size_t nthreads;
    struct progress_lane *count; /* borrowed: the exchange's progress */
    uint32_t retransmits;        /* of this socket, counted so far */
    bool used, broken;
    bool called;          /* a sender has been woken, and has not looked yet */
    bool lent;            /* to the compute thread, which sends a message of its own */
    bool missed;          /* there was something for a sender meanwhile */
    int64_t look_again;   /* when to see whether another lane sent what was left to it; 0: nothing was */
    uint64_t taken, sent; /* pieces of work the senders have taken, and sent in the order of taking */
    bool quick;           /* sending the last chunk took no longer than sealing one might */
    struct lane_frame acks
        [MAX_ACKS]; /* still to be sent, over the lane the chunk came on: if it breaks, the chunk comes again anyway */
    size_t ack_first, nacks;
};
struct neighbor {
    struct exchange *x; /* borrowed: owner */
    uint32_t rank;
    struct lane lanes[MAX_LANES];
    struct lane_sync sync[MAX_LANES];
    struct share_lane share[MAX_LANES];
    struct inbox *in;
    struct outbox *out, **out_tail;
    size_t nout, nlast; /* all, and those of them that go last */
    struct credit *credits;
    size_t ncredits;
    bool attended; /* the compute thread reads its lanes, once their receivers have made room */
    int event;     /* eventfd: readable as long as it is attended; wakes receivers that wait for a record */
    bool
        unkicked; /* credits, acknowledgements or queued messages are left to go out together: exchange_kick */
    struct msg_key recent[RECENT];
    size_t nrecent;
    pthread_cond_t placed; /* a receiver has let go of a chunk's place */
};
struct exchange {
    int64_t rekey_ns;       /* REKEY_NS */
    pthread_mutex_t lock;   /* over everything below and all neighbors */
    pthread_cond_t changed; /* for the compute thread */
    uint64_t changes, seen;
    bool closing, flushing, abandoned;
    bool waiting; /* the compute thread does, and will tell what has come to be told meanwhile */
    bool attends; /* to a neighbor at least */
    bool polling; /* the compute thread sleeps in poll, and is woken through: */
    int event;    /* eventfd */
    struct neighbor neighbors[MAX_NEIGHBORS];
    size_t n;
    struct {
        void *at;
        size_t cap;
    } pool[MAX_POOL];
    size_t npool;
    uint8_t *scratch;          /* owned: the compute thread's, for what it sends itself, */
    uint8_t *chunk;            /* owned: and for a chunk that is here already, or NULL */
    struct progress *progress; /* borrowed */
    struct lane_loss {         /* a lane that broke while there was nobody to tell */
        uint32_t rank;
        uint64_t path;
        int r;
    } untold[UNTOLD_MAX];
    size_t n_untold;
    void (*lost)(void *owner, uint32_t rank, uint64_t path, const char *why);
    void *owner;
};

static inline bool same_key(const struct msg_key *a, const struct msg_key *b)
{
    return a->round == b->round && a->kind == b->kind && a->stage == b->stage && a->mb == b->mb;
}

/* All below: with the lock held. */
void exchange_changed(struct exchange *x); /* wakes the compute thread */
/* Something to send: for any lane, for this one. A sender that is at work, or called already, will
 * look by itself. */
void exchange_wake_senders(struct neighbor *p);
void exchange_wake_sender(struct lane *l);
/* What is left to go out together goes: to all, or to those that the compute thread does not attend
 * to, because its next message takes it along. */
void exchange_kick_locked(struct exchange *x, bool all);
void exchange_free_buffer(void *buffer); /* not back to the pool */
void exchange_release_locked(struct exchange *x, void *buffer);
struct inbox *exchange_find_inbox(struct neighbor *p, const struct msg_key *key);
void exchange_finish_message(
    struct neighbor *p, struct outbox *o); /* frees it if everything is acknowledged and nobody reads it */

void exchange_free_outbox(struct exchange *x, struct outbox *o);

/* The compute thread's: sends its message over an idle lane, if it is small and the neighbor has
 * room for it. Lets go of the lock meanwhile. False: it is for the senders. */
bool exchange_send_here(struct neighbor *p, struct outbox *o);

/* Counts what only the kernel knows: segments sent again, and how long a round trip takes. */
void lane_sample_tcp(struct lane *l);
/* With the lock held: what it sends is sealed with a new key from now on. */
void lane_keyed(struct lane *l);
/* Without the lock: what the kernel knows. False: it measures no such connection. */
bool lane_sample(const struct lane *l, struct share_sample *ret);

/* What its threads run, and what they call without the lock. */
void *lane_sender(void *lane);
void *lane_receiver(void *lane);
void request_short_timeslice(void); /* the calling thread's first words */
/* r: why, a negative errno. It gives back what it had not finished: its chunks and credits are sent
 * again over the others. */
void lane_break(struct lane *l, int r);
/* In place of a receiver: 1, it has read a record, 0, none has begun to come, −errno as lane_break
 * wants it. `scratch` [EXCHANGE_CHUNK]. */
int lane_receive_here(struct lane *l, uint8_t *scratch);

/* The compute thread's, with the lock held; they let go of it meanwhile. */
bool attend_read(struct exchange *x); /* what has come on lanes that are attended; false: nothing has */
void attend_wait(struct exchange *x); /* as exchange_wait */
void attend_leave(struct exchange *x);

void frame_encode(uint8_t out[HEAD], const struct lane_frame *f);
int64_t exchange_now_ns(void); /* of a clock that only goes forward */
int frame_decode(struct lane_frame *f, const uint8_t in[HEAD]);

static inline unsigned lane_index(const struct lane *l)
{
    return (unsigned)(l - l->neighbor->lanes);
}

static inline size_t chunk_length(const struct lane_frame *f)
{
    return f->size - f->offset < EXCHANGE_CHUNK ? f->size - f->offset : EXCHANGE_CHUNK;
}

#endif
