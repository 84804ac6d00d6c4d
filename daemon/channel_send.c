/* SPDX-License-Identifier: MIT
 *
 * The senders of a lane: two threads. One takes whatever is next for its peer: credits and acknowledgements first (they keep the other
 * end going), then a chunk of the first message the peer has room for; lanes compete for chunks, which is the striping. While one of the two
 * sends, the other seals what comes next: both cost about the same, and what was sealed is still in the cache of its core when it is sent.
 * A small message goes out on the compute thread itself where a lane has nothing else to do: no thread need be woken first. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "daemon/channel_priv.h"
#include "daemon/progress.h"

enum { QUICK_NS = 300 * 1000 };

struct work {
    struct frame frames[BATCH]; /* the last may be a chunk, */
    size_t n;
    struct outbox *out;         /* of this message */
    uint64_t number;            /* sent after all lower ones of its lane */
    struct seal heads, payload; /* the turns of its two records */
};

static bool take_credit(struct peer *p, const struct msg_key *key)
{
    for (struct credit **at = &p->credits; *at; at = &(*at)->next)
        if (same_key(&(*at)->key, key)) {
            struct credit *used = *at;
            *at = used->next;
            free(used);
            return true;
        }
    return false;
}

static void take_small(struct lane *l, struct work *w)
{
    struct peer *p = l->peer;
    for (struct inbox *in = p->in; in && w->n < BATCH - 1; in = in->next)
        if (!in->credited) {
            in->credited = true;
            w->frames[w->n++] = (struct frame){.type = FRAME_CREDIT, .key = in->key};
        }
    for (; l->nacks && w->n < BATCH - 1; l->nacks--) {
        w->frames[w->n++] = l->acks[l->ack_first];
        l->ack_first = (l->ack_first + 1) % MAX_ACKS;
    }
}

static bool may_go(struct peer *p, struct outbox *o)
{
    return o->unsent && (o->credited || (o->credited = take_credit(p, &o->key)));
}

static void take_chunk_of(struct outbox *o, struct work *w, unsigned lane)
{
    size_t i = 0;
    while (o->chunk[i] != CHUNK_UNSENT)
        i++;
    o->chunk[i] = (uint8_t)lane;
    o->unsent--;
    o->readers++;
    w->out = o;
    uint8_t *again = &o->chunk[o->chunks + i];
    w->frames[w->n++] = (struct frame){FRAME_CHUNK, o->key, o->size, (uint64_t)i * CHUNK, *again};
    *again += *again < UINT8_MAX;
}

static void take_chunk(struct peer *p, struct work *w, unsigned lane)
{
    struct outbox *o = p->out;
    while (o && !may_go(p, o))
        o = o->next;
    if (o)
        take_chunk_of(o, w, lane);
}

/* The work's place among the others of its lane. */
static int take_turns(struct lane *l, struct work *w)
{
    w->number = l->taken++;
    int r = seal_turn(&l->tx, w->n * HEAD, &w->heads);
    const size_t payload = w->out ? chunk_length(&w->frames[w->n - 1]) : 0;
    if (!r && payload)
        r = seal_turn(&l->tx, payload, &w->payload);
    return r;
}

/* 1 if there was work, 0 if not. On a slow lane nothing is taken before everything else is sent: what is sealed early would
 * wait there, and could be on its way over another lane. */
static int take_work(struct lane *l, struct work *w)
{
    *w = (struct work){.n = 0};
    l->called = false;
    if (l->taken != l->sent && !l->quick) {
        l->missed = l->lent;
        return 0;
    }
    take_small(l, w);
    take_chunk(l->peer, w, lane_index(l));
    if (!w->n)
        return 0;
    int r = take_turns(l, w);
    if (l->quick && w->out && (w->out->unsent || w->out->next))
        pthread_cond_signal(&l->sync->work); /* the other sender goes on from here */
    return r ? r : 1;
}

static int send_all(int fd, const uint8_t *data, size_t left)
{
    while (left) {
        ssize_t sent = send(fd, data, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return -errno;
        data += sent;
        left -= (size_t)sent;
    }
    return 0;
}

/* Heads and payload are two records in one buffer and one send. */
static int seal_work(struct work *w, uint8_t *scratch, size_t *ret)
{
    uint8_t heads[BATCH * HEAD];
    for (size_t i = 0; i < w->n; i++)
        frame_encode(heads + i * HEAD, &w->frames[i]);
    size_t at = 0, n = w->n * HEAD;
    int r = seal_seal(&w->heads, scratch, heads, n);
    at += SEAL_HEAD + n + SEAL_TAG;
    const struct frame *last = &w->frames[w->n - 1];
    size_t payload = w->out ? chunk_length(last) : 0;
    if (!r && payload) {
        r = seal_seal(&w->payload, scratch + at, (const uint8_t *)w->out->buffer + last->offset, payload);
        at += SEAL_HEAD + payload + SEAL_TAG;
    }
    seal_wipe(&w->heads);
    seal_wipe(&w->payload);
    *ret = at;
    return r;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Seals, waits until everything taken before is sent, and sends. */
static int send_work(struct lane *l, uint8_t *scratch, struct work *w)
{
    struct exchange *x = l->peer->x;
    size_t n;
    int r = seal_work(w, scratch, &n);
    if (r)
        return r;
    pthread_mutex_lock(&x->lock);
    while (l->sent != w->number && !l->broken)
        pthread_cond_wait(&l->sync->turn, &x->lock);
    r = l->broken ? -EPIPE : 0;
    pthread_mutex_unlock(&x->lock);
    if (r)
        return r;
    atomic_fetch_add_explicit(&x->progress->tx_bytes, n, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->count->tx_bytes, n, memory_order_relaxed);
    const int64_t begin = now_ns();
    r = send_all(l->fd, scratch, n);
    const bool quick = now_ns() - begin < QUICK_NS;
    pthread_mutex_lock(&x->lock);
    l->sent++;
    if (w->out)
        l->quick = quick;
    if (l->taken != l->sent)
        pthread_cond_broadcast(
            &l->sync->turn); /* beside a lent lane's, both senders may be waiting for theirs */
    else if (x->flushing)
        exchange_changed(x);
    pthread_mutex_unlock(&x->lock);
    return r;
}

static void work_done(struct lane *l, const struct work *w)
{
    w->out->readers--;
    exchange_finish_message(l->peer, w->out);
}

/* One whose last chunk the kernel took at once: the caller computes, and is not to stand still in send. If it does, because the cable died
 * since, it does until the lane is broken, as the senders do; the next rank waits for that message anyway. */
static struct lane *idle_lane(struct peer *p)
{
    for (struct lane *l = p->lanes; l < p->lanes + MAX_LANES; l++)
        if (l->used && !l->broken && l->quick && l->taken == l->sent)
            return l;
    return NULL;
}

bool exchange_send_here(struct peer *p, struct outbox *o)
{
    struct exchange *x = p->x;
    struct lane *l = o->size < SMALL ? idle_lane(p) : NULL;
    struct work w = {.n = 0};
    if (!l || !may_go(p, o))
        return false;
    take_small(l, &w);
    take_chunk_of(o, &w, lane_index(l));
    int r = take_turns(l, &w);
    l->lent = true;
    pthread_mutex_unlock(&x->lock);
    if (!r)
        r = send_work(l, x->scratch, &w);
    if (r)
        lane_break(l, r);
    pthread_mutex_lock(&x->lock);
    work_done(l, &w);
    l->lent = false;
    if (l->broken)
        pthread_cond_broadcast(&l->sync->turn); /* somebody may wait to put another in its place */
    if (l->missed)
        exchange_wake_sender(l);
    l->missed = false;
    return true;
}

void *lane_sender(void *arg)
{
    struct lane *l = arg;
    struct exchange *x = l->peer->x;
    uint8_t *scratch = malloc(2 * (SEAL_HEAD + SEAL_TAG) + BATCH * HEAD + CHUNK);
    int r = scratch ? 1 : -ENOMEM;
    lane_be_prompt();
    while (r > 0) {
        struct work w = {.n = 0};
        pthread_mutex_lock(&x->lock);
        for (r = 0; !l->broken && !x->closing && !(r = take_work(l, &w));)
            pthread_cond_wait(&l->sync->work, &x->lock);
        pthread_mutex_unlock(&x->lock);
        if (r > 0)
            r = send_work(l, scratch, &w) ?: 1;
        if (!w.out)
            continue;
        pthread_mutex_lock(&x->lock);
        work_done(l, &w);
        pthread_mutex_unlock(&x->lock);
    }
    if (r)
        lane_break(l, r);
    free(scratch);
    return NULL;
}
