/* SPDX-License-Identifier: MIT
 *
 * The receivers of a lane: two threads. One reads, and lets the other read on while it opens a
 * chunk, where the task wants it. Credits and acknowledgements are heard in the order they come in.
 * Where the compute thread attends to the neighbor, both make room for it between two records. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "daemon/stage/exchange/exchange_impl.h"
#include "daemon/common/progress.h"

enum {
    ACKS_TOGETHER = 8 /* of a message that is not complete; each record of them wakes a thread at both ends */
};
enum { HAVE_NOT = 0, HAVE = 1, CLAIMED = 2 /* + lane */ };

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

static void count_received(struct lane *l, size_t n)
{
    const size_t all = SEAL_HEAD + n + SEAL_TAG;
    atomic_fetch_add_explicit(&l->neighbor->x->progress->rx_bytes, all, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->count->rx_bytes, all, memory_order_relaxed);
}

/* The beginning of a record, at most n bytes, once its length is among them. −EAGAIN with
 * MSG_DONTWAIT among the flags: nothing of it has come. */
static int receive_start(int fd, uint8_t *to, size_t n, int flags, size_t *ret)
{
    size_t have = 0;
    while (have < SEAL_HEAD) {
        ssize_t got = recv(fd, to + have, n - have, have ? 0 : flags);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got ? -errno : -EPIPE;
        have += (size_t)got;
    }
    *ret = have;
    return 0;
}

/* A record of frame heads, opened. There is at least one in it, so that much can be asked for
 * before its length is known. */
static int receive_heads(struct lane *l, uint8_t record[SEAL_HEAD + BATCH * HEAD + SEAL_TAG], int flags,
                         size_t *ret)
{
    size_t have = 0, n = 0;
    int r = receive_start(l->fd, record, SEAL_HEAD + HEAD + SEAL_TAG, flags, &have);
    if (!r)
        r = seal_length(record, &n);
    if (!r && (!n || n % HEAD || n > BATCH * HEAD))
        r = -EBADMSG;
    if (r)
        return r;
    struct iovec rest = {record + have, SEAL_HEAD + n + SEAL_TAG - have};
    r = receive_exact(l->fd, &rest, rest.iov_len > 0);
    if (r)
        return r;
    count_received(l, n);
    *ret = n;
    return seal_open(&l->rx, record, record + SEAL_HEAD, n, record + SEAL_HEAD + n);
}

/* A chunk that has been read and not yet opened. */
struct chunk_arrival {
    struct lane_frame frame;
    struct inbox *in; /* the place in it is claimed; NULL: it is here already, or another lane is at it */
    uint8_t *to;      /* NULL: no chunk has come */
    size_t n;
    uint8_t head[SEAL_HEAD], tag[SEAL_TAG];
    struct seal turn;
};

static int read_payload(struct lane *l, struct chunk_arrival *a)
{
    struct iovec iov[] = {{a->head, sizeof a->head}, {a->to, a->n}, {a->tag, sizeof a->tag}};
    size_t length;
    if (!a->n)
        return 0;
    int r = receive_exact(l->fd, iov, 3);
    if (!r)
        r = seal_length(a->head, &length);
    if (r)
        return r;
    count_received(l, a->n);
    return length == a->n ? seal_turn(&l->rx, a->n, &a->turn) : -EBADMSG;
}

static int open_payload(struct chunk_arrival *a)
{
    int r = a->n ? seal_open(&a->turn, a->head, a->to, a->n, a->tag) : 0;
    seal_wipe(&a->turn);
    return r;
}

static struct outbox *find_outbox(const struct neighbor *p, const struct msg_key *key)
{
    struct outbox *o = p->out;
    while (o && !same_key(&o->key, key))
        o = o->next;
    return o;
}

/* The neighbor decides how many there are: one that says more than MAX_CREDITS ends its lane. */
static int on_credit(struct neighbor *p, const struct msg_key *key)
{
    const struct outbox *out = find_outbox(p, key);
    if (out && out->credited)
        return 0; /* said again after a lane broke */
    for (const struct credit *c = p->credits; c; c = c->next)
        if (same_key(&c->key, key))
            return 0;
    struct credit *credit = p->ncredits < MAX_CREDITS ? malloc(sizeof *credit) : NULL;
    if (!credit)
        return p->ncredits < MAX_CREDITS ? -ENOMEM : -ENOBUFS;
    *credit = (struct credit){p->credits, *key};
    p->credits = credit;
    p->ncredits++;
    if (out) /* else there is nothing to send yet */
        exchange_wake_senders(p);
    return 0;
}

static void on_ack(struct neighbor *p, const struct lane_frame *f)
{
    struct outbox *o = find_outbox(p, &f->key);
    const size_t i = f->offset / EXCHANGE_CHUNK;
    if (!o || i >= o->chunks)
        return;
    if (o->chunk[i] != CHUNK_DONE) {
        o->unsent -= o->chunk[i] == CHUNK_UNSENT;
        o->chunk[i] = CHUNK_DONE;
        o->done++;
    }
    exchange_finish_message(p, o);
}

/* The receiver runs ahead of its lane's sender by at most what the other end had credit for; a
 * neighbor that sends more without reading its acknowledgements breaks the protocol. */
static int push_ack(struct lane *l, const struct lane_frame *f)
{
    if (l->nacks == MAX_ACKS)
        return -EPROTO;
    struct lane_frame *ack = &l->acks[(l->ack_first + l->nacks++) % MAX_ACKS];
    *ack = *f;
    ack->type = FRAME_ACK;
    ack->again = 0;
    if (l->nacks >= ACKS_TOGETHER || l->neighbor->x->flushing)
        exchange_wake_sender(l);
    return 0;
}

static bool is_recent(const struct neighbor *p, const struct msg_key *key)
{
    for (size_t i = 0; i < RECENT && i < p->nrecent; i++)
        if (same_key(&p->recent[i], key))
            return true;
    return false;
}

/* Where a chunk goes: into the message (claimed for this lane), or nowhere, because it is here
 * already or another lane is at it. −EPROTO for a message nobody posted, or of another size: the
 * plan told both ends what comes. */
static int claim(struct lane *l, const struct lane_frame *f, struct inbox **ret)
{
    struct inbox *in = exchange_find_inbox(l->neighbor, &f->key);
    *ret = NULL;
    if (l->broken) /* the other receiver has found something: nothing that came after it is taken */
        return -EPIPE;
    if (!in || in->state == IN_ARRIVED)
        return in || is_recent(l->neighbor, &f->key) ? 0 : -EPROTO;
    if (in->variable ? f->size > in->cap : f->size != in->cap)
        return -EPROTO;
    if (in->state == IN_POSTED) {
        in->place = calloc(f->size / EXCHANGE_CHUNK + 1, sizeof *in->place);
        if (!in->place)
            return -ENOMEM;
        in->size = f->size;
        in->state = IN_FILLING;
    }
    if (f->size != in->size)
        return -EPROTO;
    *ret = in;
    return 0;
}

/* The other end waits for nothing but the last acknowledgement of a message, on whichever lane it
 * is: they are sent once it is complete. */
static int accept_chunk(struct lane *l, struct inbox *in, const struct lane_frame *f)
{
    struct neighbor *p = l->neighbor;
    in->place[f->offset / EXCHANGE_CHUNK].have = HAVE;
    in->received += chunk_length(f);
    int r = push_ack(l, f);
    if (in->received == in->size) {
        in->state = IN_ARRIVED;
        p->recent[p->nrecent++ % RECENT] = in->key;
        exchange_changed(p->x);
        if (p->x->waiting || p->attended)
            p->unkicked = true;
        else
            exchange_wake_senders(p);
    }
    return r;
}

/* The chunk comes a second time, because a lane it was sent on broke. If another is at an earlier
 * sending of it, that is the one: it is shut, and when its receiver has let go of the place, the
 * copy takes it. If the other is at a later one, it is this lane that was given up. */
static int settle_duplicate(struct lane *l, const struct chunk_arrival *a)
{
    struct neighbor *p = l->neighbor;
    const struct lane_frame *f = &a->frame;
    pthread_mutex_lock(&p->x->lock);
    struct inbox *in = NULL;
    struct chunk_place *place = NULL;
    bool late = false;
    int r;
    while (!(r = claim(l, f, &in)) && in &&
           (place = &in->place[f->offset / EXCHANGE_CHUNK])->have >= CLAIMED) {
        late = place->again > f->again;
        if (late)
            break;
        shutdown(p->lanes[place->have - CLAIMED].fd, SHUT_RDWR);
        pthread_cond_wait(&p->placed, &p->x->lock);
    }
    if (!r && in && place->have == HAVE_NOT) {
        memcpy((uint8_t *)in->buffer + f->offset, a->to, a->n);
        r = accept_chunk(l, in, f);
    } else if (!r && !late) {
        r = push_ack(l, f);
        exchange_wake_sender(l); /* the message may be complete already */
    }
    pthread_mutex_unlock(&p->x->lock);
    return r;
}

static int settle_chunk(struct lane *l, const struct chunk_arrival *a, int r)
{
    struct neighbor *p = l->neighbor;
    pthread_mutex_lock(&p->x->lock);
    if (r)
        a->in->place[a->frame.offset / EXCHANGE_CHUNK].have = HAVE_NOT;
    else
        r = accept_chunk(l, a->in, &a->frame);
    pthread_cond_broadcast(&p->placed);
    pthread_mutex_unlock(&p->x->lock);
    return r;
}

static int read_chunk(struct lane *l, const struct lane_frame *f, uint8_t *scratch, struct chunk_arrival *ret)
{
    struct neighbor *p = l->neighbor;
    struct inbox *in;
    pthread_mutex_lock(&p->x->lock);
    int r = claim(l, f, &in);
    struct chunk_place *place = in ? &in->place[f->offset / EXCHANGE_CHUNK] : NULL;
    bool mine = place && place->have == HAVE_NOT;
    if (mine)
        *place = (struct chunk_place){(uint8_t)(CLAIMED + lane_index(l)), f->again};
    pthread_mutex_unlock(&p->x->lock);
    if (r)
        return r;
    *ret = (struct chunk_arrival){.frame = *f, .n = chunk_length(f), .to = scratch};
    if (mine) {
        ret->in = in;
        ret->to = (uint8_t *)in->buffer + f->offset;
    }
    return read_payload(l, ret);
}

static int read_frame(struct lane *l, const struct lane_frame *f)
{
    struct neighbor *p = l->neighbor;
    pthread_mutex_lock(&p->x->lock);
    int r = 0;
    if (f->type == FRAME_CREDIT)
        r = on_credit(p, &f->key);
    else
        on_ack(p, f);
    pthread_mutex_unlock(&p->x->lock);
    return r;
}

static int read_record(struct lane *l, uint8_t *scratch, int flags, struct chunk_arrival *ret)
{
    uint8_t record[SEAL_HEAD + BATCH * HEAD + SEAL_TAG];
    bool is_last = false; /* of its key; with the payload that it announces */
    size_t n = 0;
    int r = receive_heads(l, record, flags, &n);
    for (size_t at = 0; !r && at < n; at += HEAD) {
        struct lane_frame f;
        r = frame_decode(&f, record + SEAL_HEAD + at);
        if (!r && f.type == FRAME_REKEY)
            is_last = true;
        else if (!r && f.type != FRAME_CHUNK)
            r = read_frame(l, &f);
        else if (!r)
            r = at + HEAD == n ? read_chunk(l, &f, scratch, ret) : -EBADMSG;
    }
    return !r && is_last ? seal_ratchet(&l->rx) : r;
}

/* r: how reading it went. */
static int settle(struct lane *l, struct chunk_arrival *a, int r)
{
    if (!r)
        r = open_payload(a);
    if (a->in)
        return settle_chunk(l, a, r);
    return r ? r : settle_duplicate(l, a);
}

int lane_receive_here(struct lane *l, uint8_t *scratch)
{
    struct chunk_arrival a = {.to = NULL};
    int r = read_record(l, scratch, MSG_DONTWAIT, &a);
    if (r == -EAGAIN)
        return 0;
    if (a.to)
        r = settle(l, &a, r);
    return r ? r : 1;
}

/* Until a record begins to come, or the compute thread attends. */
static bool await_record(const struct lane *l)
{
    struct pollfd fds[] = {{l->fd, POLLIN, 0}, {l->neighbor->event, POLLIN, 0}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return !fds[1].revents;
}

/* Reads until a chunk has come that takes long enough to open for the other receiver to be woken,
 * or this one is to make room. */
static int receive_some(struct lane *l, uint8_t *scratch)
{
    struct chunk_arrival a = {.to = NULL};
    int r = 0;
    pthread_mutex_lock(&l->sync->reading);
    while (!r && await_record(l)) {
        a = (struct chunk_arrival){.to = NULL};
        r = read_record(l, scratch, 0, &a);
        if (a.n >= EXCHANGE_SMALL)
            break;
        if (a.to)
            r = settle(l, &a, r);
    }
    if (r) /* before the other one finds what it cannot understand, and says so first */
        lane_break(l, r);
    pthread_mutex_unlock(&l->sync->reading);
    return a.n >= EXCHANGE_SMALL ? settle(l, &a, r) : r;
}

/* As long as the compute thread attends, it has the lane to itself once both receivers are here.
 * −EPIPE: there is nothing to come back to. */
static int make_room(struct lane *l)
{
    struct neighbor *p = l->neighbor;
    pthread_mutex_lock(&p->x->lock);
    l->readers--;
    if (p->attended && !l->readers)
        exchange_changed(p->x);
    while (p->attended && !l->broken && !p->x->closing)
        pthread_cond_wait(&l->sync->back, &p->x->lock);
    l->readers++;
    const int r = l->broken || p->x->closing ? -EPIPE : 0;
    pthread_mutex_unlock(&p->x->lock);
    return r;
}

void *lane_receiver(void *arg)
{
    struct lane *l = arg;
    uint8_t *scratch = malloc(EXCHANGE_CHUNK);
    int r = scratch ? 0 : -ENOMEM;
    request_short_timeslice();
    while (!r && !(r = make_room(l)))
        r = receive_some(l, scratch);
    lane_break(l, r);
    free(scratch);
    return NULL;
}
