/* SPDX-License-Identifier: MIT
 *
 * The senders of a lane: two threads. One takes whatever is next for its neighbor: credits and
 * acknowledgements first (they keep the other end going), then a chunk of the first message the
 * neighbor has room for; lanes compete for chunks, which is the striping, and a lane leaves to the
 * others what they deliver sooner (exchange_share.c). While one of the two sends, the other seals
 * what comes next: both cost about the same, and what was sealed is still in the cache of its core
 * when it is sent. A small message goes out on the compute thread itself where a lane has nothing
 * else to do: no thread need be woken first. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/stage/exchange/exchange_impl.h"
#include "daemon/common/progress.h"

enum { QUICK_NS = 300 * 1000 };

struct lane_work {
    struct lane_frame frames[BATCH]; /* the last may be a chunk, */
    size_t n;
    struct outbox *out;         /* of this message */
    uint64_t number;            /* sent after all lower ones of its lane */
    struct seal heads, payload; /* the turns of its two records */
};

static bool take_credit(struct neighbor *p, const struct msg_key *key)
{
    for (struct credit **at = &p->credits; *at; at = &(*at)->next)
        if (same_key(&(*at)->key, key)) {
            struct credit *used = *at;
            *at = used->next;
            p->ncredits--;
            free(used);
            return true;
        }
    return false;
}

static void take_small(struct lane *l, struct lane_work *w)
{
    struct neighbor *p = l->neighbor;
    for (struct inbox *in = p->in; in && w->n < BATCH - 1; in = in->next)
        if (!in->credited) {
            in->credited = true;
            w->frames[w->n++] = (struct lane_frame){.type = FRAME_CREDIT, .key = in->key};
        }
    for (; l->nacks && w->n < BATCH - 1; l->nacks--) {
        w->frames[w->n++] = l->acks[l->ack_first];
        l->ack_first = (l->ack_first + 1) % MAX_ACKS;
    }
}

static bool may_go(struct neighbor *p, struct outbox *o)
{
    return o->unsent && (o->credited || (o->credited = take_credit(p, &o->key)));
}

static size_t next_chunk(const struct outbox *o)
{
    size_t i = 0;
    while (o->chunk[i] != CHUNK_UNSENT)
        i++;
    return i;
}

/* Bytes on the wire, near enough, and never 0. */
static size_t share_bytes(const struct lane_frame *f)
{
    return chunk_length(f) + HEAD;
}

static bool has_choice(const struct neighbor *p)
{
    size_t alive = 0;
    for (size_t i = 0; i < MAX_LANES; i++)
        alive += p->share[i].alive;
    return alive > 1;
}

static void take_chunk_of(struct neighbor *p, struct outbox *o, size_t i, struct lane_work *w, unsigned lane)
{
    o->chunk[i] = (uint8_t)lane;
    o->unsent--;
    o->readers++;
    w->out = o;
    uint8_t *again = &o->chunk[o->chunks + i];
    w->frames[w->n++] =
        (struct lane_frame){FRAME_CHUNK, o->key, o->size, (uint64_t)i * EXCHANGE_CHUNK, *again};
    *again += *again < UINT8_MAX;
    if (has_choice(p))
        share_give(p->share, MAX_LANES, lane, share_bytes(&w->frames[w->n - 1]), exchange_now_ns());
    else
        p->share[lane].held += share_bytes(&w->frames[w->n - 1]);
}

/* Puts the message behind those that are in the queue already. */
static void queue_up(struct share_queue *queue, const struct outbox *o)
{
    const size_t whole = (o->size < EXCHANGE_CHUNK ? o->size : EXCHANGE_CHUNK) + HEAD;
    const struct lane_frame next = {.size = o->size, .offset = (uint64_t)next_chunk(o) * EXCHANGE_CHUNK},
                            last = {.size = o->size, .offset = (uint64_t)(o->chunks - 1) * EXCHANGE_CHUNK};
    const size_t rest = o->chunk[o->chunks - 1] == CHUNK_UNSENT ? share_bytes(&last) : whole;
    queue->last =
        !queue->bytes && rest < whole ? rest : 0; /* alone in the queue, it is what is over whole ones */
    queue->next = share_bytes(&next);
    queue->chunk = whole;
    queue->bytes += (o->unsent - 1) * whole + rest;
}

/* The first message of which the lane would deliver a chunk before the others delivered all up to
 * there. If that is none, but there are some, the lane looks again later, and the lane that is to
 * send is woken unless it is at work. */
static struct outbox *choose(struct lane *l, size_t *ret_chunk)
{
    struct neighbor *p = l->neighbor;
    const unsigned me = lane_index(l);
    const int64_t now = exchange_now_ns();
    struct share_queue queue = {.bytes = 0};
    size_t left = 0, first = MAX_LANES;
    for (struct outbox *o = p->out; o; o = o->next) {
        if (!may_go(p, o))
            continue;
        queue_up(&queue, o);
        const enum share_choice choice = share_choose(p->share, MAX_LANES, me, &queue, now);
        if (choice != SHARE_LEAVE) {
            *ret_chunk = choice == SHARE_LAST ? o->chunks - 1 : next_chunk(o);
            return o;
        }
        if (!left) {
            left = queue.next;
            first = share_first(p->share, MAX_LANES, left, now);
        }
    }
    if (!left)
        return NULL;
    l->look_again = share_look_again(p->share, MAX_LANES, me, left, now);
    exchange_wake_sender(&p->lanes[first]);
    return NULL;
}

static void take_chunk(struct lane *l, struct lane_work *w)
{
    struct neighbor *p = l->neighbor;
    struct outbox *o = p->out;
    while (o && !may_go(p, o))
        o = o->next;
    size_t chunk = o ? next_chunk(o) : 0;
    if (o && has_choice(p))
        o = choose(l, &chunk);
    if (o)
        take_chunk_of(p, o, chunk, w, lane_index(l));
}

/* An old key seals no more than what it announces its end with: whoever learns a key later cannot
 * read what was sent minutes before. */
static void take_rekey(const struct lane *l, struct lane_work *w)
{
    if (exchange_now_ns() - l->keyed_at >= l->neighbor->x->rekey_ns)
        w->frames[w->n++] = (struct lane_frame){.type = FRAME_REKEY};
}

/* The work's place among the others of its lane. */
static int take_turns(struct lane *l, struct lane_work *w)
{
    w->number = l->taken++;
    int r = seal_turn(&l->tx, w->n * HEAD, &w->heads);
    const size_t payload = w->out ? chunk_length(&w->frames[w->n - 1]) : 0;
    if (!r && payload)
        r = seal_turn(&l->tx, payload, &w->payload);
    if (!r && w->frames[0].type == FRAME_REKEY) {
        lane_keyed(l);
        r = seal_ratchet(&l->tx);
    }
    return r;
}

/* 1 if there was work, 0 if not. On a slow lane nothing is taken before everything else is sent:
 * what is sealed early would wait there, and could be on its way over another lane. */
static int take_work(struct lane *l, struct lane_work *w)
{
    *w = (struct lane_work){.n = 0};
    l->called = false;
    l->look_again = 0;
    if (l->taken != l->sent && !l->quick) {
        l->missed = l->lent;
        return 0;
    }
    take_rekey(l, w);
    take_small(l, w);
    take_chunk(l, w);
    if (!w->n)
        return 0;
    int r = take_turns(l, w);
    if (l->quick && w->out && (w->out->unsent || w->out->next))
        pthread_cond_signal(&l->sync->work); /* the other sender goes on from here */
    return r ? r : 1;
}

/* The compute thread may be what reads the neighbor's messages. It does not stand still in send
 * then, where the other end may stand as well: receivers read again. */
static void make_way(struct lane *l)
{
    struct exchange *x = l->neighbor->x;
    pthread_mutex_lock(&x->lock);
    attend_leave(x);
    pthread_mutex_unlock(&x->lock);
}

static int send_all(struct lane *l, const uint8_t *data, size_t left, bool here)
{
    int flags = MSG_NOSIGNAL | (here ? MSG_DONTWAIT : 0);
    while (left) {
        ssize_t sent = send(l->fd, data, left, flags);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN && flags & MSG_DONTWAIT) {
            flags = MSG_NOSIGNAL;
            make_way(l);
            continue;
        }
        if (sent <= 0)
            return -errno;
        data += sent;
        left -= (size_t)sent;
    }
    return 0;
}

/* Heads and payload are two records in one buffer and one send. */
static int seal_work(struct lane_work *w, uint8_t *scratch, size_t *ret)
{
    uint8_t heads[BATCH * HEAD];
    for (size_t i = 0; i < w->n; i++)
        frame_encode(heads + i * HEAD, &w->frames[i]);
    size_t at = 0, n = w->n * HEAD;
    int r = seal_seal(&w->heads, scratch, heads, n);
    at += SEAL_HEAD + n + SEAL_TAG;
    const struct lane_frame *last = &w->frames[w->n - 1];
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

/* With the lock held: the kernel has the work's chunk. `sampled`: the sample is worth something. */
static void hand_over(struct lane *l, const struct lane_work *w, const struct share_sample *sample,
                      bool sampled, int64_t now)
{
    struct neighbor *p = l->neighbor;
    share_given(&p->share[lane_index(l)], share_bytes(&w->frames[w->n - 1]));
    if (!sampled || !share_measured(&p->share[lane_index(l)], sample, now))
        return;
    for (size_t i = 0; i < MAX_LANES; i++)
        if (p->lanes[i].used && p->lanes[i].look_again)
            exchange_wake_sender(&p->lanes[i]);
}

/* Seals, waits until everything taken before is sent, and sends. */
static int send_work(struct lane *l, uint8_t *scratch, struct lane_work *w, bool here)
{
    struct exchange *x = l->neighbor->x;
    size_t n;
    int r = seal_work(w, scratch, &n);
    if (r)
        return r;
    pthread_mutex_lock(&x->lock);
    while (l->sent != w->number && !l->broken)
        pthread_cond_wait(&l->sync->turn, &x->lock);
    r = l->broken ? -EPIPE : 0;
    const bool choice = has_choice(l->neighbor);
    pthread_mutex_unlock(&x->lock);
    if (r)
        return r;
    atomic_fetch_add_explicit(&x->progress->tx_bytes, n, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->count->tx_bytes, n, memory_order_relaxed);
    const int64_t begin = exchange_now_ns();
    r = send_all(l, scratch, n, here);
    const int64_t end = exchange_now_ns();
    struct share_sample sample;
    /* To ask the kernel takes 1 µs: only where there is a choice, and not for what is sealed and
     * sent in little more. */
    const bool sampled = choice && n >= EXCHANGE_SMALL && lane_sample(l, &sample);
    pthread_mutex_lock(&x->lock);
    l->sent++;
    if (w->out) {
        l->quick = end - begin < QUICK_NS;
        hand_over(l, w, &sample, sampled, end);
    }
    if (l->taken != l->sent)
        pthread_cond_broadcast(
            &l->sync->turn); /* beside a lent lane's, both senders may be waiting for theirs */
    else if (x->flushing)
        exchange_changed(x);
    pthread_mutex_unlock(&x->lock);
    return r;
}

static void work_done(struct lane *l, const struct lane_work *w)
{
    w->out->readers--;
    exchange_finish_message(l->neighbor, w->out);
}

static bool is_idle(const struct lane *l)
{
    return l->used && !l->broken && l->quick && l->taken == l->sent;
}

/* The one that delivers the message first, if its last chunk the kernel took at once: the caller
 * computes, and is not to stand still in send. If it does, because the cable died since, it does
 * until the lane is broken, as the senders do; the next rank waits for that message anyway. */
static struct lane *idle_lane(struct neighbor *p, size_t bytes)
{
    if (has_choice(p)) {
        struct lane *first = &p->lanes[share_first(p->share, MAX_LANES, bytes + HEAD, exchange_now_ns())];
        return is_idle(first) ? first : NULL;
    }
    for (struct lane *l = p->lanes; l < p->lanes + MAX_LANES; l++)
        if (is_idle(l))
            return l;
    return NULL;
}

bool exchange_send_here(struct neighbor *p, struct outbox *o)
{
    struct exchange *x = p->x;
    struct lane *l = o->size < EXCHANGE_SMALL ? idle_lane(p, o->size) : NULL;
    struct lane_work w = {.n = 0};
    if (!l || !may_go(p, o))
        return false;
    take_rekey(l, &w);
    take_small(l, &w);
    take_chunk_of(p, o, next_chunk(o), &w, lane_index(l));
    int r = take_turns(l, &w);
    l->lent = true;
    pthread_mutex_unlock(&x->lock);
    if (!r)
        r = send_work(l, x->scratch, &w, true);
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

/* Until somebody calls, it is time to look again at what was left to another lane, or the key is
 * old: a lane that has nothing to say changes it too. A key that is old already waits for those
 * who send. */
static void await_work(struct lane *l)
{
    struct exchange *x = l->neighbor->x;
    const int64_t old = l->keyed_at + x->rekey_ns;
    int64_t due = old > exchange_now_ns() ? old : 0;
    if (l->look_again && (!due || l->look_again < due))
        due = l->look_again;
    const struct timespec until = {due / 1000000000, due % 1000000000};
    if (due)
        pthread_cond_timedwait(&l->sync->work, &x->lock, &until);
    else
        pthread_cond_wait(&l->sync->work, &x->lock);
}

void *lane_sender(void *arg)
{
    struct lane *l = arg;
    struct exchange *x = l->neighbor->x;
    uint8_t *scratch = malloc(2 * (SEAL_HEAD + SEAL_TAG) + BATCH * HEAD + EXCHANGE_CHUNK);
    int r = scratch ? 1 : -ENOMEM;
    request_short_timeslice();
    while (r > 0) {
        struct lane_work w = {.n = 0};
        pthread_mutex_lock(&x->lock);
        for (r = 0; !l->broken && !x->closing && !(r = take_work(l, &w));)
            await_work(l);
        pthread_mutex_unlock(&x->lock);
        if (r > 0)
            r = send_work(l, scratch, &w, false) ?: 1;
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
