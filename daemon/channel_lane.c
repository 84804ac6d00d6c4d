/* SPDX-License-Identifier: MIT
 *
 * The two threads of a lane. The sender takes whatever is next for its peer: credits and acknowledgements first (they keep the other
 * end going), then a chunk of the first message the peer has room for; lanes compete for chunks, which is the striping. The receiver
 * opens each chunk where the task wants it. */
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "daemon/channel_priv.h"
#include "daemon/progress.h"

enum { UNSENT_MAX = 16 * 1024 };
enum { HAVE_NOT = 0, HAVE = 1, CLAIMED = 2 /* + lane */ };

static unsigned lane_index(const struct lane *l)
{
    return (unsigned)(l - l->peer->lanes);
}

/* A lane that ends gives back what it had not finished: its chunks and credits are sent again over the others. */
static void break_lane(struct lane *l, const char *why)
{
    struct peer *p = l->peer;
    struct exchange *x = p->x;
    pthread_mutex_lock(&x->lock);
    bool first = !l->broken;
    void (*tell)(void *, uint32_t, uint64_t, const char *) = first && !x->closing ? x->lost : NULL;
    void *owner = x->owner;
    l->broken = true;
    shutdown(l->fd, SHUT_RDWR); /* wakes the other thread */
    for (struct outbox *o = first ? p->out : NULL; o; o = o->next)
        for (size_t i = 0; i < o->chunks; i++)
            if (o->chunk[i] == lane_index(l)) {
                o->chunk[i] = CHUNK_UNSENT;
                o->unsent++;
            }
    for (struct inbox *in = first ? p->in : NULL; in; in = in->next)
        if (in->state == IN_POSTED)
            in->credited = false;
    exchange_wake_senders(p);
    exchange_changed(x);
    pthread_mutex_unlock(&x->lock);
    if (tell)
        tell(owner, p->rank, l->path, why);
}

static const char *why_broken(int r)
{
    switch (r) {
    case -EPIPE:
    case -ECONNRESET: return "closed by the other end"; /* whichever thread comes upon it first */
    case -EBADMSG: return "a record was forged or damaged on the way";
    case -EPROTO: return "it sent a message that the plan does not know";
    default: return strerror(-r);
    }
}

/* --- frames ------------------------------------------------------------------------------------------------------------------------- */

static void frame_encode(uint8_t out[HEAD], const struct frame *f)
{
    uint32_t round = htole32(f->key.round), mb = htole32(f->key.mb);
    uint16_t kind = htole16(f->key.kind), stage = htole16(f->key.stage);
    uint64_t size = htole64(f->size), offset = htole64(f->offset);
    out[0] = (uint8_t)f->type;
    out[1] = out[2] = out[3] = 0;
    memcpy(out + 4, &round, 4);
    memcpy(out + 8, &kind, 2);
    memcpy(out + 10, &stage, 2);
    memcpy(out + 12, &mb, 4);
    memcpy(out + 16, &size, 8);
    memcpy(out + 24, &offset, 8);
}

static int frame_decode(struct frame *f, const uint8_t in[HEAD])
{
    uint32_t round, mb;
    uint16_t kind, stage;
    uint64_t size, offset;
    memcpy(&round, in + 4, 4);
    memcpy(&kind, in + 8, 2);
    memcpy(&stage, in + 10, 2);
    memcpy(&mb, in + 12, 4);
    memcpy(&size, in + 16, 8);
    memcpy(&offset, in + 24, 8);
    *f = (struct frame){
        in[0], {le32toh(round), le16toh(kind), le16toh(stage), le32toh(mb)}, le64toh(size), le64toh(offset)};
    bool known = in[0] == FRAME_CREDIT || in[0] == FRAME_CHUNK || in[0] == FRAME_ACK;
    return known && f->offset % CHUNK == 0 && (f->offset < f->size || !f->offset) ? 0 : -EBADMSG;
}

static size_t chunk_length(const struct frame *f)
{
    return f->size - f->offset < CHUNK ? f->size - f->offset : CHUNK;
}

/* --- sending --------------------------------------------------------------------------------------------------------------------------- */

struct work {
    struct frame frames[BATCH]; /* the last may be a chunk, */
    size_t n;
    struct outbox *out; /* of this message */
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

static void take_chunk(struct peer *p, struct work *w, unsigned lane)
{
    for (struct outbox *o = p->out; o; o = o->next) {
        if (!o->unsent || (!o->credited && !(o->credited = take_credit(p, &o->key))))
            continue;
        size_t i = 0;
        while (o->chunk[i] != CHUNK_UNSENT)
            i++;
        o->chunk[i] = (uint8_t)lane;
        o->unsent--;
        o->readers++;
        w->out = o;
        w->frames[w->n++] = (struct frame){FRAME_CHUNK, o->key, o->size, (uint64_t)i * CHUNK};
        return;
    }
}

static bool take_work(struct lane *l, struct work *w)
{
    *w = (struct work){.n = 0};
    take_small(l, w);
    take_chunk(l->peer, w, lane_index(l));
    return w->n > 0;
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
static int send_work(struct lane *l, uint8_t *scratch, const struct work *w)
{
    uint8_t heads[BATCH * HEAD];
    for (size_t i = 0; i < w->n; i++)
        frame_encode(heads + i * HEAD, &w->frames[i]);
    size_t at = 0, n = w->n * HEAD;
    int r = seal_seal(&l->tx, scratch, heads, n);
    at += SEAL_HEAD + n + SEAL_TAG;
    const struct frame *last = &w->frames[w->n - 1];
    size_t payload = w->out ? chunk_length(last) : 0;
    if (r >= 0 && payload) {
        r = seal_seal(&l->tx, scratch + at, (const uint8_t *)w->out->buffer + last->offset, payload);
        at += SEAL_HEAD + payload + SEAL_TAG;
    }
    if (r < 0)
        return r;
    atomic_fetch_add_explicit(&l->peer->x->progress->tx_bytes, at, memory_order_relaxed);
    return send_all(l->fd, scratch, at);
}

static void *sender_main(void *arg)
{
    struct lane *l = arg;
    struct peer *p = l->peer;
    struct exchange *x = p->x;
    uint8_t *scratch = malloc(2 * (SEAL_HEAD + SEAL_TAG) + BATCH * HEAD + CHUNK);
    int r = scratch ? 0 : -ENOMEM;
    while (!r) {
        struct work w;
        bool found = false;
        pthread_mutex_lock(&x->lock);
        while (!l->broken && !x->closing && !(found = take_work(l, &w)))
            pthread_cond_wait(&p->work, &x->lock);
        l->busy = found;
        pthread_mutex_unlock(&x->lock);
        if (!found)
            break;
        r = send_work(l, scratch, &w);
        pthread_mutex_lock(&x->lock);
        l->busy = false;
        if (w.out) {
            w.out->readers--;
            exchange_finish_message(p, w.out);
        }
        exchange_changed(x);
        pthread_mutex_unlock(&x->lock);
    }
    if (r)
        break_lane(l, why_broken(r));
    free(scratch);
    return NULL;
}

/* --- receiving ---------------------------------------------------------------------------------------------------------------------------- */

static int receive_exact(int fd, struct iovec *iov, int n)
{
    while (n) {
        ssize_t got = readv(fd, iov, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? -errno : -EPIPE;
        while (n && (size_t)got >= iov->iov_len) {
            got -= (ssize_t)iov->iov_len;
            iov++;
            n--;
        }
        if (n) {
            iov->iov_base = (char *)iov->iov_base + got;
            iov->iov_len -= (size_t)got;
        }
    }
    return 0;
}

static int receive_length(struct lane *l, uint8_t head[SEAL_HEAD], size_t *ret)
{
    struct iovec iov = {head, SEAL_HEAD};
    int r = receive_exact(l->fd, &iov, 1);
    return r ? r : seal_length(head, ret);
}

/* The rest of a record whose head is read: n bytes into `to`, opened in place. */
static int receive_body(struct lane *l, const uint8_t head[SEAL_HEAD], uint8_t *to, size_t n)
{
    uint8_t tag[SEAL_TAG];
    struct iovec both[2] = {{to, n}, {tag, sizeof tag}};
    int r = receive_exact(l->fd, both, 2);
    atomic_fetch_add_explicit(&l->peer->x->progress->rx_bytes, SEAL_HEAD + n + SEAL_TAG,
                              memory_order_relaxed);
    return r ? r : seal_open(&l->rx, head, to, n, tag);
}

static int receive_payload(struct lane *l, uint8_t *to, size_t n)
{
    uint8_t head[SEAL_HEAD];
    size_t length;
    if (!n)
        return 0;
    int r = receive_length(l, head, &length);
    return r ? r : length != n ? -EBADMSG : receive_body(l, head, to, n);
}

static int on_credit(struct peer *p, const struct msg_key *key)
{
    for (const struct outbox *o = p->out; o; o = o->next)
        if (o->credited && same_key(&o->key, key))
            return 0; /* said again after a lane broke */
    for (const struct credit *c = p->credits; c; c = c->next)
        if (same_key(&c->key, key))
            return 0;
    struct credit *credit = malloc(sizeof *credit);
    if (!credit)
        return -ENOMEM;
    *credit = (struct credit){p->credits, *key};
    p->credits = credit;
    exchange_wake_senders(p);
    return 0;
}

static void on_ack(struct peer *p, const struct frame *f)
{
    for (struct outbox *o = p->out; o; o = o->next) {
        size_t i = f->offset / CHUNK;
        if (!same_key(&o->key, &f->key) || i >= o->chunks)
            continue;
        if (o->chunk[i] != CHUNK_DONE) {
            o->unsent -= o->chunk[i] == CHUNK_UNSENT;
            o->chunk[i] = CHUNK_DONE;
            o->done++;
        }
        exchange_finish_message(p, o);
        return;
    }
}

/* The receiver runs ahead of its lane's sender by at most what the other end had credit for; a peer that sends more without reading its
 * acknowledgements breaks the protocol. */
static int push_ack(struct lane *l, const struct frame *f)
{
    if (l->nacks == MAX_ACKS)
        return -EPROTO;
    struct frame *ack = &l->acks[(l->ack_first + l->nacks++) % MAX_ACKS];
    *ack = *f;
    ack->type = FRAME_ACK;
    exchange_wake_senders(l->peer);
    return 0;
}

static bool is_recent(const struct peer *p, const struct msg_key *key)
{
    for (size_t i = 0; i < RECENT && i < p->nrecent; i++)
        if (same_key(&p->recent[i], key))
            return true;
    return false;
}

/* Where a chunk goes: into the message (claimed for this lane), or nowhere, because it is here already or another lane is at it.
 * −EPROTO for a message nobody posted, or of another size: the plan told both ends what comes. */
static int claim(struct lane *l, const struct frame *f, struct inbox **ret)
{
    struct inbox *in = exchange_find_inbox(l->peer, &f->key);
    *ret = NULL;
    if (!in || in->state == IN_ARRIVED)
        return in || is_recent(l->peer, &f->key) ? 0 : -EPROTO;
    if (in->variable ? f->size > in->cap : f->size != in->cap)
        return -EPROTO;
    if (in->state == IN_POSTED) {
        in->have = calloc(f->size / CHUNK + 1, 1);
        if (!in->have)
            return -ENOMEM;
        in->size = f->size;
        in->state = IN_FILLING;
    }
    if (f->size != in->size)
        return -EPROTO;
    *ret = in;
    return 0;
}

static int accept_chunk(struct lane *l, struct inbox *in, const struct frame *f)
{
    struct peer *p = l->peer;
    in->have[f->offset / CHUNK] = HAVE;
    in->received += chunk_length(f);
    if (in->received == in->size) {
        in->state = IN_ARRIVED;
        p->recent[p->nrecent++ % RECENT] = in->key;
        exchange_changed(p->x);
    }
    return push_ack(l, f);
}

/* The chunk comes a second time, because the lane it came on first broke: perhaps before it was complete. That lane is shut, and when its
 * receiver has let go of the place, the copy takes it. */
static int receive_duplicate(struct lane *l, const struct frame *f, uint8_t *scratch)
{
    struct peer *p = l->peer;
    int r = receive_payload(l, scratch, chunk_length(f));
    if (r)
        return r;
    pthread_mutex_lock(&p->x->lock);
    struct inbox *in = NULL;
    uint8_t *have = NULL;
    while (!(r = claim(l, f, &in)) && in && *(have = &in->have[f->offset / CHUNK]) >= CLAIMED) {
        shutdown(p->lanes[*have - CLAIMED].fd, SHUT_RDWR);
        pthread_cond_wait(&p->work, &p->x->lock);
    }
    if (!r && in && *have == HAVE_NOT) {
        memcpy((uint8_t *)in->buffer + f->offset, scratch, chunk_length(f));
        r = accept_chunk(l, in, f);
    } else if (!r) {
        r = push_ack(l, f);
    }
    pthread_mutex_unlock(&p->x->lock);
    return r;
}

static int receive_chunk(struct lane *l, const struct frame *f, uint8_t *scratch)
{
    struct peer *p = l->peer;
    struct inbox *in;
    pthread_mutex_lock(&p->x->lock);
    int r = claim(l, f, &in);
    uint8_t *have = in ? &in->have[f->offset / CHUNK] : NULL;
    bool mine = have && *have == HAVE_NOT;
    if (mine)
        *have = (uint8_t)(CLAIMED + lane_index(l));
    pthread_mutex_unlock(&p->x->lock);
    if (r)
        return r;
    if (!mine)
        return receive_duplicate(l, f, scratch);
    r = receive_payload(l, (uint8_t *)in->buffer + f->offset, chunk_length(f));
    pthread_mutex_lock(&p->x->lock);
    if (r)
        *have = HAVE_NOT;
    else
        r = accept_chunk(l, in, f);
    exchange_wake_senders(p); /* also wakes a duplicate that waits for the place */
    pthread_mutex_unlock(&p->x->lock);
    return r;
}

static int receive_frame(struct lane *l, const struct frame *f, bool last, uint8_t *scratch)
{
    struct peer *p = l->peer;
    if (f->type == FRAME_CHUNK)
        return last ? receive_chunk(l, f, scratch) : -EBADMSG;
    pthread_mutex_lock(&p->x->lock);
    int r = 0;
    if (f->type == FRAME_CREDIT)
        r = on_credit(p, &f->key);
    else
        on_ack(p, f);
    pthread_mutex_unlock(&p->x->lock);
    return r;
}

static int receive_record(struct lane *l, uint8_t *scratch)
{
    uint8_t head[SEAL_HEAD], frames[BATCH * HEAD];
    size_t n;
    int r = receive_length(l, head, &n);
    if (!r && (!n || n % HEAD || n > sizeof frames))
        r = -EBADMSG;
    if (!r)
        r = receive_body(l, head, frames, n);
    for (size_t at = 0; !r && at < n; at += HEAD) {
        struct frame f;
        r = frame_decode(&f, frames + at);
        if (!r)
            r = receive_frame(l, &f, at + HEAD == n, scratch);
    }
    return r;
}

static void *receiver_main(void *arg)
{
    struct lane *l = arg;
    uint8_t *scratch = malloc(CHUNK);
    int r = scratch ? 0 : -ENOMEM;
    while (!r)
        r = receive_record(l, scratch);
    break_lane(l, why_broken(r));
    free(scratch);
    return NULL;
}

/* --- start and end -------------------------------------------------------------------------------------------------------------------------- */

/* What waits unsent in a slow lane's socket would have been faster over another lane: the kernel keeps what is on its way, and little
 * more. Over cables of 1000 and 200 Mbit/s that makes the difference between 64 % and 100 % of their sum, and costs one fast
 * cable nothing. */
static void keep_socket_short(int fd)
{
    const int bytes = UNSENT_MAX;
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

int lane_start(struct lane *l)
{
    keep_socket_short(l->fd);
    int r = pthread_create(&l->receiver, NULL, receiver_main, l);
    if (r)
        return -r;
    r = pthread_create(&l->sender, NULL, sender_main, l);
    if (!r)
        return 0;
    shutdown(l->fd, SHUT_RDWR);
    pthread_join(l->receiver, NULL);
    return -r;
}

void lane_stop(struct lane *l)
{
    pthread_join(l->receiver, NULL);
    pthread_join(l->sender, NULL);
    close(l->fd);
    seal_wipe(&l->tx);
    seal_wipe(&l->rx);
    l->used = false;
}
