/* SPDX-License-Identifier: MIT */
#include "daemon/channel.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "daemon/progress.h"

enum {
    HEAD = 32,          /* bytes of a frame's head, a record of its own */
    CHUNK = 256 * 1024, /* payload bytes per record: scratch stays in L2, latency bounded */
    MAX_CHANNELS = 2,   /* previous and next in the ring */
    MAX_POOL = 32,      /* buffers kept for reuse */
};
enum frame_type { FRAME_CREDIT = 1, FRAME_MESSAGE = 2 };
enum inbox_state { IN_POSTED, IN_FILLING, IN_ARRIVED };

struct inbox { /* one expected message */
    struct inbox *next;
    struct msg_key key;
    enum inbox_state state;
    bool credited, variable;
    void *buffer; /* owned until taken */
    size_t cap, size;
};
struct outbox { /* one message to send */
    struct outbox *next;
    struct msg_key key;
    bool sending;
    void *buffer; /* owned */
    size_t size;
};
struct credit { /* a key the peer has room for */
    struct credit *next;
    struct msg_key key;
};
struct channel {
    struct exchange *x; /* borrowed: owner */
    uint32_t rank;
    int fd;
    struct seal tx, rx; /* each used by its own thread only */
    pthread_t sender, receiver;
    bool broken;
    bool sender_gone; /* what is still queued will never leave */
    struct inbox *in; /* below: under the exchange's lock */
    struct outbox *out, **out_tail;
    size_t nout;
    struct credit *credits;
    pthread_cond_t work; /* for the sender */
};
struct exchange {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the compute thread */
    uint64_t changes, seen;
    bool closing;
    char trouble[256];
    struct channel channels[MAX_CHANNELS];
    size_t n;
    struct {
        void *at;
        size_t cap;
    } pool[MAX_POOL];
    size_t npool;
    struct progress *progress; /* borrowed */
};

/* --- buffers: every one carries its capacity in the line before it ---------------------------- */

enum { LINE = 64 };

static size_t buffer_cap(void *buffer)
{
    size_t cap;
    memcpy(&cap, (char *)buffer - LINE, sizeof cap);
    return cap;
}

static void *pool_take(struct exchange *x, size_t size)
{
    for (size_t i = 0; i < x->npool; i++)
        if (x->pool[i].cap >= size && x->pool[i].cap / 2 <= size) {
            void *at = x->pool[i].at;
            x->pool[i] = x->pool[--x->npool];
            return at;
        }
    return NULL;
}

void *exchange_buffer(struct exchange *x, size_t size)
{
    size_t cap = (size + LINE) & ~(size_t)(LINE - 1);
    pthread_mutex_lock(&x->lock);
    char *at = pool_take(x, cap);
    pthread_mutex_unlock(&x->lock);
    if (at)
        return at;
    at = aligned_alloc(LINE, cap + LINE);
    if (!at)
        return NULL;
    memcpy(at, &cap, sizeof cap);
    return at + LINE;
}

static void release_locked(struct exchange *x, void *buffer)
{
    if (!buffer)
        return;
    if (x->npool < MAX_POOL) {
        x->pool[x->npool].at = buffer;
        x->pool[x->npool++].cap = buffer_cap(buffer);
    } else {
        free((char *)buffer - LINE);
    }
}

void exchange_release(struct exchange *x, void *buffer)
{
    pthread_mutex_lock(&x->lock);
    release_locked(x, buffer);
    pthread_mutex_unlock(&x->lock);
}

/* --- both directions -------------------------------------------------------------------------- */

static bool same(const struct msg_key *a, const struct msg_key *b)
{
    return a->round == b->round && a->kind == b->kind && a->stage == b->stage && a->mb == b->mb;
}

static void changed_locked(struct exchange *x)
{
    x->changes++;
    pthread_cond_signal(&x->changed);
}

/* The first reason is the one that counts. */
static void break_channel(struct channel *c, const char *what, const char *why)
{
    struct exchange *x = c->x;
    pthread_mutex_lock(&x->lock);
    c->broken = true;
    if (!x->closing && !*x->trouble)
        snprintf(x->trouble, sizeof x->trouble, "the data connection to rank %u %s: %s", c->rank, what, why);
    shutdown(c->fd, SHUT_RDWR); /* wakes the other thread */
    pthread_cond_signal(&c->work);
    changed_locked(x);
    pthread_mutex_unlock(&x->lock);
}

static void head_encode(uint8_t out[HEAD], enum frame_type type, const struct msg_key *key, uint64_t size)
{
    uint32_t round = htole32(key->round), mb = htole32(key->mb);
    uint16_t kind = htole16(key->kind), stage = htole16(key->stage);
    uint64_t length = htole64(size);
    memset(out, 0, HEAD);
    out[0] = (uint8_t)type;
    memcpy(out + 4, &round, 4);
    memcpy(out + 8, &kind, 2);
    memcpy(out + 10, &stage, 2);
    memcpy(out + 12, &mb, 4);
    memcpy(out + 16, &length, 8);
}

static int head_decode(const uint8_t in[HEAD], enum frame_type *type, struct msg_key *key, uint64_t *size)
{
    uint32_t round, mb;
    uint16_t kind, stage;
    uint64_t length;
    memcpy(&round, in + 4, 4);
    memcpy(&kind, in + 8, 2);
    memcpy(&stage, in + 10, 2);
    memcpy(&mb, in + 12, 4);
    memcpy(&length, in + 16, 8);
    *type = in[0];
    *key = (struct msg_key){le32toh(round), le16toh(kind), le16toh(stage), le32toh(mb)};
    *size = le64toh(length);
    return in[0] == FRAME_CREDIT || in[0] == FRAME_MESSAGE ? 0 : -EBADMSG;
}

/* --- sending ---------------------------------------------------------------------------------- */

static int send_record(struct channel *c, uint8_t *scratch, const uint8_t *plain, size_t n)
{
    int r = seal_seal(&c->tx, scratch, plain, n);
    if (r < 0)
        return r;
    size_t left = SEAL_HEAD + n + SEAL_TAG;
    atomic_fetch_add_explicit(&c->x->progress->tx_bytes, left, memory_order_relaxed);
    while (left) {
        ssize_t sent = send(c->fd, scratch, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return -errno;
        scratch += sent;
        left -= (size_t)sent;
    }
    return 0;
}

static int send_message(struct channel *c, uint8_t *scratch, const struct outbox *out)
{
    uint8_t head[HEAD];
    head_encode(head, FRAME_MESSAGE, &out->key, out->size);
    int r = send_record(c, scratch, head, HEAD);
    for (size_t at = 0; !r && at < out->size; at += CHUNK) {
        size_t n = out->size - at < CHUNK ? out->size - at : CHUNK;
        r = send_record(c, scratch, (const uint8_t *)out->buffer + at, n);
    }
    return r;
}

static bool take_credit(struct channel *c, const struct msg_key *key)
{
    for (struct credit **at = &c->credits; *at; at = &(*at)->next)
        if (same(&(*at)->key, key)) {
            struct credit *used = *at;
            *at = used->next;
            free(used);
            return true;
        }
    return false;
}

/* What to send next: credits we owe first (they keep the peer going), then the first message the peer has
 * room for. */
static bool next_credit(struct channel *c, struct msg_key *ret)
{
    for (struct inbox *in = c->in; in; in = in->next)
        if (!in->credited) {
            in->credited = true;
            *ret = in->key;
            return true;
        }
    return false;
}

static struct outbox *next_message(struct channel *c)
{
    for (struct outbox *o = c->out; o; o = o->next)
        if (!o->sending && take_credit(c, &o->key)) {
            o->sending = true;
            return o;
        }
    return NULL;
}

static void message_sent(struct channel *c, struct outbox *sent)
{
    pthread_mutex_lock(&c->x->lock);
    for (struct outbox **at = &c->out; *at; at = &(*at)->next)
        if (*at == sent) {
            *at = sent->next;
            if (c->out_tail == &sent->next)
                c->out_tail = at;
            break;
        }
    c->nout--;
    release_locked(c->x, sent->buffer);
    changed_locked(c->x);
    pthread_mutex_unlock(&c->x->lock);
    free(sent);
}

static void sender_left(struct channel *c)
{
    pthread_mutex_lock(&c->x->lock);
    c->sender_gone = true;
    changed_locked(c->x);
    pthread_mutex_unlock(&c->x->lock);
}

static void *sender_main(void *arg)
{
    struct channel *c = arg;
    uint8_t *scratch = malloc(SEAL_HEAD + CHUNK + SEAL_TAG);
    int r = scratch ? 0 : -ENOMEM;
    while (!r) {
        struct msg_key key;
        struct outbox *out = NULL;
        bool credit = false;
        pthread_mutex_lock(&c->x->lock);
        while (!c->broken && !c->x->closing && !(credit = next_credit(c, &key)) && !(out = next_message(c)))
            pthread_cond_wait(&c->work, &c->x->lock);
        pthread_mutex_unlock(&c->x->lock);
        if (credit) {
            uint8_t head[HEAD];
            head_encode(head, FRAME_CREDIT, &key, 0);
            r = send_record(c, scratch, head, HEAD);
        } else if (out) {
            r = send_message(c, scratch, out);
            if (!r)
                message_sent(c, out);
        } else {
            break;
        }
    }
    if (r)
        break_channel(c, "broke while sending", strerror(-r));
    sender_left(c);
    free(scratch);
    return NULL;
}

/* --- receiving -------------------------------------------------------------------------------- */

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

/* One record of exactly n bytes into `to`, opened in place. */
static int receive_record(struct channel *c, uint8_t *to, size_t n)
{
    uint8_t head[SEAL_HEAD], tag[SEAL_TAG];
    size_t length;
    struct iovec iov = {head, sizeof head};
    int r = receive_exact(c->fd, &iov, 1);
    if (!r)
        r = seal_length(head, &length);
    if (!r && length != n)
        r = -EBADMSG;
    if (r)
        return r;
    struct iovec both[2] = {{to, n}, {tag, sizeof tag}};
    r = receive_exact(c->fd, both, 2);
    atomic_fetch_add_explicit(&c->x->progress->rx_bytes, SEAL_HEAD + n + SEAL_TAG, memory_order_relaxed);
    return r ? r : seal_open(&c->rx, head, to, n, tag);
}

static int receive_credit(struct channel *c, const struct msg_key *key)
{
    struct credit *credit = malloc(sizeof *credit);
    if (!credit)
        return -ENOMEM;
    pthread_mutex_lock(&c->x->lock);
    *credit = (struct credit){c->credits, *key};
    c->credits = credit;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->x->lock);
    return 0;
}

static struct inbox *find_inbox(struct channel *c, const struct msg_key *key)
{
    for (struct inbox *in = c->in; in; in = in->next)
        if (same(&in->key, key))
            return in;
    return NULL;
}

/* A message nobody posted, or of another size, is a protocol error: the plan told both ends what comes. */
static int receive_message(struct channel *c, const struct msg_key *key, uint64_t size)
{
    pthread_mutex_lock(&c->x->lock);
    struct inbox *in = find_inbox(c, key);
    bool fits = in && in->state == IN_POSTED && (in->variable ? size <= in->cap : size == in->cap);
    if (fits)
        in->state = IN_FILLING;
    pthread_mutex_unlock(&c->x->lock);
    if (!fits)
        return -EPROTO;
    int r = 0;
    for (size_t at = 0; !r && at < size; at += CHUNK)
        r = receive_record(c, (uint8_t *)in->buffer + at, size - at < CHUNK ? size - at : CHUNK);
    if (r)
        return r;
    pthread_mutex_lock(&c->x->lock);
    in->size = size;
    in->state = IN_ARRIVED;
    changed_locked(c->x);
    pthread_mutex_unlock(&c->x->lock);
    return 0;
}

static const char *receive_why(int r)
{
    switch (r) {
    case -EPIPE: return "closed by the other end";
    case -EBADMSG: return "a record was forged or damaged on the way";
    case -EPROTO: return "it sent a message that the plan does not know";
    default: return strerror(-r);
    }
}

static void *receiver_main(void *arg)
{
    struct channel *c = arg;
    int r = 0;
    while (!r) {
        uint8_t head[HEAD];
        enum frame_type type;
        struct msg_key key;
        uint64_t size;
        r = receive_record(c, head, HEAD);
        if (!r)
            r = head_decode(head, &type, &key, &size);
        if (!r)
            r = type == FRAME_CREDIT ? receive_credit(c, &key) : receive_message(c, &key, size);
    }
    break_channel(c, "ended", receive_why(r));
    return NULL;
}

/* --- the compute thread's side ---------------------------------------------------------------- */

static struct channel *channel_to(struct exchange *x, uint32_t rank)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->channels[i].rank == rank)
            return &x->channels[i];
    return NULL;
}

int exchange_new(struct exchange **ret, struct progress *progress, struct err *err)
{
    struct exchange *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(err, -ENOMEM, "out of memory");
    x->progress = progress;
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&x->changed, &attr);
    pthread_condattr_destroy(&attr);
    *ret = x;
    return 0;
}

int exchange_add(struct exchange *x, uint32_t rank, int fd, const struct seal *tx, const struct seal *rx,
                 struct err *err)
{
    if (x->n == MAX_CHANNELS)
        return err_set(err, -E2BIG, "more than %d data connections", MAX_CHANNELS);
    struct channel *c = &x->channels[x->n];
    *c = (struct channel){.x = x, .rank = rank, .fd = fd, .tx = *tx, .rx = *rx};
    c->out_tail = &c->out;
    pthread_cond_init(&c->work, NULL);
    int r = pthread_create(&c->receiver, NULL, receiver_main, c);
    if (r)
        return err_set(err, -r, "a thread for the data connection to rank %u: %s", rank, strerror(r));
    r = pthread_create(&c->sender, NULL, sender_main, c);
    if (r) {
        shutdown(fd, SHUT_RDWR);
        pthread_join(c->receiver, NULL);
        return err_set(err, -r, "a thread for the data connection to rank %u: %s", rank, strerror(r));
    }
    x->n++;
    return 0;
}

static void channel_done(struct channel *c)
{
    pthread_join(c->receiver, NULL);
    pthread_join(c->sender, NULL);
    close(c->fd);
    seal_wipe(&c->tx);
    seal_wipe(&c->rx);
    for (struct inbox *in = c->in, *next; in; in = next) {
        next = in->next;
        release_locked(c->x, in->buffer);
        free(in);
    }
    for (struct outbox *o = c->out, *next; o; o = next) {
        next = o->next;
        release_locked(c->x, o->buffer);
        free(o);
    }
    for (struct credit *k = c->credits, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    pthread_cond_destroy(&c->work);
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    pthread_mutex_lock(&x->lock);
    x->closing = true;
    for (size_t i = 0; i < x->n; i++) {
        shutdown(x->channels[i].fd, SHUT_RDWR);
        pthread_cond_signal(&x->channels[i].work);
    }
    pthread_mutex_unlock(&x->lock);
    for (size_t i = 0; i < x->n; i++)
        channel_done(&x->channels[i]);
    for (size_t i = 0; i < x->npool; i++)
        free((char *)x->pool[i].at - LINE);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

int exchange_post(struct exchange *x, uint32_t from, const struct msg_key *key, size_t size, bool variable)
{
    struct channel *c = channel_to(x, from);
    struct inbox *in = c ? calloc(1, sizeof *in) : NULL;
    void *buffer = in ? exchange_buffer(x, size) : NULL;
    if (!buffer) {
        free(in);
        return c ? -ENOMEM : -ENOTCONN;
    }
    *in = (struct inbox){.key = *key, .variable = variable, .buffer = buffer, .cap = size};
    pthread_mutex_lock(&x->lock);
    struct inbox **tail = &c->in;
    while (*tail)
        tail = &(*tail)->next;
    *tail = in;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&x->lock);
    return 0;
}

int exchange_ready(struct exchange *x, uint32_t from, const struct msg_key *key)
{
    struct channel *c = channel_to(x, from);
    if (!c)
        return -ENOTCONN;
    pthread_mutex_lock(&x->lock);
    x->seen = x->changes;
    struct inbox *in = find_inbox(c, key);
    int r = in && in->state == IN_ARRIVED ? 1 : c->broken ? -EPIPE : 0;
    pthread_mutex_unlock(&x->lock);
    return r;
}

void *exchange_take(struct exchange *x, uint32_t from, const struct msg_key *key, size_t *ret_size)
{
    struct channel *c = channel_to(x, from);
    void *buffer = NULL;
    pthread_mutex_lock(&x->lock);
    for (struct inbox **at = c ? &c->in : NULL; at && *at; at = &(*at)->next)
        if (same(&(*at)->key, key) && (*at)->state == IN_ARRIVED) {
            struct inbox *in = *at;
            *at = in->next;
            buffer = in->buffer;
            *ret_size = in->size;
            free(in);
            break;
        }
    pthread_mutex_unlock(&x->lock);
    return buffer;
}

int exchange_room(struct exchange *x, uint32_t to, size_t limit)
{
    struct channel *c = channel_to(x, to);
    if (!c)
        return -ENOTCONN;
    pthread_mutex_lock(&x->lock);
    x->seen = x->changes;
    int r = c->broken ? -EPIPE : c->nout < limit;
    pthread_mutex_unlock(&x->lock);
    return r;
}

int exchange_send(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size)
{
    struct channel *c = channel_to(x, to);
    struct outbox *out = c ? malloc(sizeof *out) : NULL;
    if (!out) {
        exchange_release(x, buffer);
        return c ? -ENOMEM : -ENOTCONN;
    }
    *out = (struct outbox){.key = *key, .buffer = buffer, .size = size};
    pthread_mutex_lock(&x->lock);
    *c->out_tail = out;
    c->out_tail = &out->next;
    c->nout++;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&x->lock);
    return 0;
}

void exchange_wait(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    while (x->changes == x->seen)
        pthread_cond_wait(&x->changed, &x->lock);
    x->seen = x->changes;
    pthread_mutex_unlock(&x->lock);
}

/* The last message may be read by a peer that closes at once: the connection is then known to be broken
 * before its sender knows that the message has left. So it is the sender that says what did not leave. */
int exchange_flush(struct exchange *x, int seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    int r = 0;
    pthread_mutex_lock(&x->lock);
    for (size_t i = 0; i < x->n && !r; i++)
        while (!r && x->channels[i].nout) {
            if (x->channels[i].sender_gone)
                r = -EPIPE;
            else if (pthread_cond_timedwait(&x->changed, &x->lock, &until))
                r = -ETIME;
        }
    pthread_mutex_unlock(&x->lock);
    return r;
}

const char *exchange_trouble(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    const char *text = *x->trouble ? x->trouble : NULL;
    pthread_mutex_unlock(&x->lock);
    return text;
}
