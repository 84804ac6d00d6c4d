/* SPDX-License-Identifier: MIT
 *
 * The compute thread's side, and the start and end of lanes with their threads. All other files of
 * the exchange are below. */
#include "daemon/stage/exchange/exchange_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/progress.h"

enum { UNSENT_MAX = 16 * 1024 };

/* --- lanes ------------------------------------------------------------------------------------ */

/* What waits unsent in a slow lane's socket would have been faster over another lane: the kernel
 * keeps what is on its way, and little more. Over cables of 1000 and 200 Mbit/s that makes the
 * difference between 64 % and 100 % of their sum, and costs one fast cable nothing. */
static void keep_socket_short(int fd)
{
    const int bytes = UNSENT_MAX;
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

static int lane_start(struct lane *l)
{
    struct exchange *x = l->neighbor->x;
    keep_socket_short(l->fd);
    int r = 0;
    for (size_t i = 0; i < 2 * WORKERS && !r; i++) {
        r = pthread_create(&l->threads[i], NULL, i % 2 ? lane_sender : lane_receiver, l);
        l->nthreads += !r;
    }
    if (!r)
        return 0;
    pthread_mutex_lock(&x->lock);
    l->broken = true;
    pthread_cond_broadcast(&l->sync->work);
    pthread_mutex_unlock(&x->lock);
    shutdown(l->fd, SHUT_RDWR);
    for (size_t i = 0; i < l->nthreads; i++)
        pthread_join(l->threads[i], NULL);
    return -r;
}

/* Joins its threads, without the lock. */
static void lane_stop(struct lane *l)
{
    for (size_t i = 0; i < l->nthreads; i++)
        pthread_join(l->threads[i], NULL);
    lane_sample_tcp(l);
    close(l->fd);
    seal_wipe(&l->tx);
    seal_wipe(&l->rx);
    pthread_mutex_lock(&l->neighbor->x->lock);
    l->used = false;
    pthread_mutex_unlock(&l->neighbor->x->lock);
}

/* --- the compute thread's side ---------------------------------------------------------------- */

static struct neighbor *neighbor_of(struct exchange *x, uint32_t rank)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->neighbors[i].rank == rank)
            return &x->neighbors[i];
    return NULL;
}

int exchange_new(struct exchange **ret, struct progress *progress, struct err *err)
{
    struct exchange *x = calloc(1, sizeof *x);
    uint8_t *scratch = x ? malloc(2 * (SEAL_HEAD + SEAL_TAG) + BATCH * HEAD + EXCHANGE_SMALL) : NULL;
    if (!scratch) {
        free(x);
        return err_set(err, -ENOMEM, "out of memory");
    }
    x->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (x->event < 0) {
        const int e = errno;
        free(scratch);
        free(x);
        return err_set(err, -e, "no event for the data connections: %s", strerror(e));
    }
    x->scratch = scratch;
    x->progress = progress;
    x->rekey_ns = REKEY_NS;
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&x->changed, &attr);
    pthread_condattr_destroy(&attr);
    *ret = x;
    return 0;
}

static struct neighbor *neighbor_new(struct exchange *x, uint32_t rank)
{
    const int event = x->n < MAX_NEIGHBORS ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (event < 0)
        return NULL;
    struct neighbor *p = &x->neighbors[x->n++];
    *p = (struct neighbor){.x = x, .rank = rank, .event = event};
    p->out_tail = &p->out;
    pthread_cond_init(&p->placed, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (size_t i = 0; i < MAX_LANES; i++) {
        pthread_cond_init(&p->sync[i].work, &attr);
        pthread_cond_init(&p->sync[i].turn, NULL);
        pthread_cond_init(&p->sync[i].back, NULL);
        pthread_mutex_init(&p->sync[i].reading, NULL);
    }
    pthread_condattr_destroy(&attr);
    return p;
}

/* A place for a lane; a broken one's threads have ended or are about to, so joining them does not
 * wait for the network. */
static struct lane *free_lane(struct neighbor *p)
{
    for (size_t i = 0; i < MAX_LANES; i++) {
        struct lane *l = &p->lanes[i];
        if (l->used && l->broken) {
            while (l->lent || l->read_here)
                pthread_cond_wait(&l->sync->turn, &p->x->lock);
            pthread_mutex_unlock(&p->x->lock);
            lane_stop(l);
            pthread_mutex_lock(&p->x->lock);
        }
        if (!l->used)
            return l;
    }
    return NULL;
}

int exchange_add(struct exchange *x, uint32_t rank, uint64_t path, int fd, const struct seal *tx,
                 const struct seal *rx, struct err *err)
{
    pthread_mutex_lock(&x->lock);
    struct neighbor *p = neighbor_of(x, rank);
    if (!p)
        p = neighbor_new(x, rank);
    struct lane *l = p ? free_lane(p) : NULL;
    if (l)
        *l = (struct lane){.sync = &p->sync[l - p->lanes],
                           .neighbor = p,
                           .path = path,
                           .count = progress_lane(x->progress, path),
                           .fd = fd,
                           .tx = *tx,
                           .rx = *rx,
                           .readers = WORKERS,
                           .used = true};
    if (l) {
        lane_keyed(l);
        p->share[lane_index(l)] = (struct share_lane){.alive = true};
    }
    pthread_mutex_unlock(&x->lock);
    if (!p && x->n < MAX_NEIGHBORS)
        return err_set(err, -EMFILE, "no event for the data connections to rank %u", rank);
    if (!p)
        return err_set(err, -E2BIG, "rank %u is one more than the %d that a job can have", rank,
                       MAX_NEIGHBORS);
    if (!l)
        return err_set(err, -EMLINK, "rank %u is reached over %d connections already", rank, MAX_LANES);
    int r = lane_start(l);
    if (r) {
        pthread_mutex_lock(&x->lock);
        l->used = false;
        p->share[lane_index(l)].alive = false;
        pthread_mutex_unlock(&x->lock);
        return err_set(err, r, "no thread can be started for the data connection to rank %u: %s", rank,
                       strerror(-r));
    }
    return 0;
}

void exchange_sample_tcp(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    for (size_t i = 0; i < x->n; i++)
        for (size_t l = 0; l < MAX_LANES; l++)
            if (x->neighbors[i].lanes[l].used && !x->neighbors[i].lanes[l].broken)
                lane_sample_tcp(&x->neighbors[i].lanes[l]);
    pthread_mutex_unlock(&x->lock);
}

static bool is_alive(uint64_t path, const uint64_t *alive, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (alive[i] == path)
            return true;
    return path == 0;
}

void exchange_keep(struct exchange *x, const uint64_t *alive, size_t n)
{
    pthread_mutex_lock(&x->lock);
    for (size_t i = 0; i < x->n; i++)
        for (size_t l = 0; l < MAX_LANES; l++) {
            struct lane *lane = &x->neighbors[i].lanes[l];
            if (lane->used && !lane->broken && !is_alive(lane->path, alive, n))
                shutdown(lane->fd, SHUT_RDWR); /* its threads notice and break it */
        }
    pthread_mutex_unlock(&x->lock);
}

static void neighbor_done(struct neighbor *p)
{
    for (size_t i = 0; i < MAX_LANES; i++)
        if (p->lanes[i].used)
            lane_stop(&p->lanes[i]);
    for (struct inbox *in = p->in, *next; in; in = next) {
        next = in->next;
        exchange_release_locked(p->x, in->buffer);
        free(in->place);
        free(in);
    }
    for (struct outbox *o = p->out, *next; o; o = next) {
        next = o->next;
        exchange_free_outbox(p->x, o);
    }
    for (struct credit *k = p->credits, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    for (size_t i = 0; i < MAX_LANES; i++) {
        pthread_cond_destroy(&p->sync[i].work);
        pthread_cond_destroy(&p->sync[i].turn);
        pthread_cond_destroy(&p->sync[i].back);
        pthread_mutex_destroy(&p->sync[i].reading);
    }
    pthread_cond_destroy(&p->placed);
    close(p->event);
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    pthread_mutex_lock(&x->lock);
    x->closing = true;
    for (size_t i = 0; i < x->n; i++) {
        for (size_t l = 0; l < MAX_LANES; l++)
            if (x->neighbors[i].lanes[l].used)
                shutdown(x->neighbors[i].lanes[l].fd, SHUT_RDWR);
        for (size_t l = 0; l < MAX_LANES; l++) {
            pthread_cond_broadcast(&x->neighbors[i].sync[l].work);
            pthread_cond_broadcast(&x->neighbors[i].sync[l].back);
        }
    }
    pthread_mutex_unlock(&x->lock);
    for (size_t i = 0; i < x->n; i++)
        neighbor_done(&x->neighbors[i]);
    for (size_t i = 0; i < x->npool; i++)
        exchange_free_buffer(x->pool[i].at);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    close(x->event);
    free(x->scratch);
    free(x->chunk);
    free(x);
}

int exchange_post(struct exchange *x, uint32_t from, const struct msg_key *key, size_t size, bool variable)
{
    struct neighbor *p = neighbor_of(x, from);
    struct inbox *in = p ? calloc(1, sizeof *in) : NULL;
    void *buffer = in ? exchange_buffer(x, size) : NULL;
    if (!buffer) {
        free(in);
        return p ? -ENOMEM : -ENOTCONN;
    }
    *in = (struct inbox){.key = *key, .variable = variable, .buffer = buffer, .cap = size};
    pthread_mutex_lock(&x->lock);
    struct inbox **tail = &p->in;
    while (*tail)
        tail = &(*tail)->next;
    *tail = in;
    p->unkicked = true;
    pthread_mutex_unlock(&x->lock);
    return 0;
}

static int ready_locked(struct exchange *x, struct neighbor *p, const struct msg_key *key)
{
    x->seen = x->changes;
    const struct inbox *in = exchange_find_inbox(p, key);
    return x->abandoned ? -ECANCELED : in && in->state == IN_ARRIVED;
}

int exchange_ready(struct exchange *x, uint32_t from, const struct msg_key *key)
{
    struct neighbor *p = neighbor_of(x, from);
    if (!p)
        return -ENOTCONN;
    pthread_mutex_lock(&x->lock);
    int r;
    while (!(r = ready_locked(x, p, key)) && x->attends && attend_read(x))
        ;
    pthread_mutex_unlock(&x->lock);
    return r;
}

void *exchange_take(struct exchange *x, uint32_t from, const struct msg_key *key, size_t *ret_size)
{
    struct neighbor *p = neighbor_of(x, from);
    void *buffer = NULL;
    pthread_mutex_lock(&x->lock);
    for (struct inbox **at = p ? &p->in : NULL; at && *at; at = &(*at)->next)
        if (same_key(&(*at)->key, key) && (*at)->state == IN_ARRIVED) {
            struct inbox *in = *at;
            *at = in->next;
            buffer = in->buffer;
            *ret_size = in->size;
            free(in->place);
            free(in);
            break;
        }
    pthread_mutex_unlock(&x->lock);
    return buffer;
}

static int room_locked(struct exchange *x, const struct neighbor *p, size_t limit)
{
    x->seen = x->changes;
    return x->abandoned ? -ECANCELED : p->nout - p->nlast < limit;
}

int exchange_room(struct exchange *x, uint32_t to, size_t limit)
{
    struct neighbor *p = neighbor_of(x, to);
    if (!p)
        return -ENOTCONN;
    pthread_mutex_lock(&x->lock);
    int r;
    while (!(r = room_locked(x, p, limit)) && x->attends && attend_read(x))
        ;
    pthread_mutex_unlock(&x->lock);
    return r;
}

static struct outbox *outbox_new(const struct msg_key *key, void *buffer, size_t size)
{
    struct outbox *o = calloc(1, sizeof *o);
    size_t chunks = size ? (size + EXCHANGE_CHUNK - 1) / EXCHANGE_CHUNK : 1;
    uint8_t *chunk = o ? calloc(2, chunks) : NULL;
    if (!chunk) {
        free(o);
        return NULL;
    }
    memset(chunk, CHUNK_UNSENT, chunks);
    *o = (struct outbox){
        .key = *key, .buffer = buffer, .size = size, .chunks = chunks, .unsent = chunks, .chunk = chunk};
    return o;
}

/* Behind all others, or before those that go last. */
static void enqueue(struct neighbor *p, struct outbox *out)
{
    struct outbox **at = out->last ? p->out_tail : &p->out;
    while (*at && !(*at)->last)
        at = &(*at)->next;
    out->next = *at;
    *at = out;
    if (!out->next)
        p->out_tail = &out->next;
    p->nout++;
    p->nlast += out->last;
}

enum send_how { SEND_HERE, SEND_QUEUED, SEND_LAST };

static int send_on(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size,
                   enum send_how how)
{
    struct neighbor *p = neighbor_of(x, to);
    struct outbox *out = p ? outbox_new(key, buffer, size) : NULL;
    if (!out) {
        exchange_release(x, buffer);
        return p ? -ENOMEM : -ENOTCONN;
    }
    pthread_mutex_lock(&x->lock);
    out->last = how == SEND_LAST;
    enqueue(p, out);
    const bool here =
        how == SEND_HERE || p->attended; /* it waits for the message, and no kick is for it alone */
    p->unkicked |= !here;
    if (here && !exchange_send_here(p, out))
        exchange_wake_senders(p);
    pthread_mutex_unlock(&x->lock);
    return 0;
}

int exchange_send(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size)
{
    return send_on(x, to, key, buffer, size, SEND_HERE);
}

int exchange_queue(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size)
{
    return send_on(x, to, key, buffer, size, SEND_QUEUED);
}

int exchange_queue_last(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size)
{
    return send_on(x, to, key, buffer, size, SEND_LAST);
}

void exchange_kick(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    exchange_kick_locked(x, false);
    pthread_mutex_unlock(&x->lock);
}

int exchange_attend(struct exchange *x, uint32_t rank)
{
    static const uint64_t one = 1;
    struct neighbor *p = neighbor_of(x, rank);
    if (!p)
        return -ENOTCONN;
    if (p->attended) /* only this thread changes that */
        return 0;
    if (!x->chunk)
        x->chunk = malloc(EXCHANGE_CHUNK);
    if (!x->chunk)
        return -ENOMEM;
    pthread_mutex_lock(&x->lock);
    const int e = write(p->event, &one, sizeof one) < 0 ? -errno : 0;
    if (!e)
        p->attended = x->attends = true;
    pthread_mutex_unlock(&x->lock);
    return e;
}

void exchange_leave(struct exchange *x)
{
    if (!x->attends) /* only this thread changes that */
        return;
    pthread_mutex_lock(&x->lock);
    attend_leave(x);
    pthread_mutex_unlock(&x->lock);
}

void exchange_wait(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    exchange_kick_locked(x, false);
    x->waiting = true;
    if (x->attends)
        attend_wait(x);
    while (x->changes == x->seen)
        pthread_cond_wait(&x->changed, &x->lock);
    x->waiting = false;
    x->seen = x->changes;
    pthread_mutex_unlock(&x->lock);
}

void exchange_abandon(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->abandoned = true;
    for (size_t i = 0; i < x->n; i++)
        for (size_t l = 0; l < MAX_LANES; l++)
            if (x->neighbors[i].lanes[l].read_here) /* of a record perhaps half has come */
                shutdown(x->neighbors[i].lanes[l].fd, SHUT_RD);
    exchange_changed(x);
    pthread_mutex_unlock(&x->lock);
}

/* Nothing left to send, acknowledgements included, and no sender in the middle of it. */
static bool is_flushed(const struct neighbor *p)
{
    if (p->nout)
        return false;
    for (size_t i = 0; i < MAX_LANES; i++)
        if (p->lanes[i].used && !p->lanes[i].broken &&
            (p->lanes[i].taken != p->lanes[i].sent || p->lanes[i].nacks))
            return false;
    return true;
}

int exchange_flush(struct exchange *x, int seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    int r = 0;
    pthread_mutex_lock(&x->lock);
    attend_leave(x);
    x->flushing = true;
    for (size_t i = 0; i < x->n; i++)
        exchange_wake_senders(&x->neighbors[i]); /* acknowledgements may be held back */
    for (size_t i = 0; i < x->n && !r; i++)
        while (!r && !is_flushed(&x->neighbors[i]))
            r = x->abandoned                                            ? -ECANCELED
                : pthread_cond_timedwait(&x->changed, &x->lock, &until) ? -ETIME
                                                                        : 0;
    x->flushing = false;
    pthread_mutex_unlock(&x->lock);
    return r;
}
