/* SPDX-License-Identifier: MIT
 *
 * What a rank may be sent by a neighbour whose records are good: frames of a data connection, any
 * of them, in any order, with payloads of any length. A lane's receiver is called without its
 * threads, and reads records that are open. Input: u8 number of frames ‖ frames ‖ u16 length of a
 * payload, again and again; 0xffff stands for the length the last frame's chunk should have. */
#include "tests/fuzz/lib/input.h"

#include <sys/uio.h>

#include "net/seal.h"

static ssize_t next_bytes(int fd, const struct iovec *iov, int n);
static int open_record(struct seal *s, const uint8_t *head, uint8_t *data, size_t n, const uint8_t *tag);
#define readv next_bytes
#define seal_open open_record
#include "daemon/stage/exchange/exchange_receive.c" /* what is in them is not for others */
#undef readv
#undef seal_open
#include "daemon/stage/exchange/exchange_send.c"

enum {
    RECORDS = 64,
    LITTLE = 100,
    OPEN_ENDED = 5000,
    TWO_CHUNKS = EXCHANGE_CHUNK + 7,
    RIGHT_LENGTH = 0xffff
};

static const struct {
    struct msg_key key;
    size_t size;
    bool variable;
} expected[] = {{{.kind = 1, .mb = 1}, LITTLE, false},
                {{.kind = 2, .mb = 1}, OPEN_ENDED, true},
                {{.kind = 1, .mb = 2}, TWO_CHUNKS, false},
                {{.kind = 2, .mb = 2}, 0, true}};

static struct stream {
    struct input in;
    unsigned records;
    size_t at, length,
        payload; /* of the record: read so far, of its body; payload: of the chunk announced, to come */
    uint8_t frames[(BATCH + 2) * HEAD];
} stream; /* readv has no argument to hand it on by */

static int open_record(struct seal *s, const uint8_t *head, uint8_t *data, size_t n, const uint8_t *tag)
{
    (void)s, (void)head, (void)data, (void)n, (void)tag;
    return 0;
}

/* The next record is a chunk's payload, or frames; what their last one is decides about the record
 * after it. */
static void next_record(struct stream *s)
{
    uint8_t length[2] = {0};
    struct lane_frame last;
    if (s->payload) {
        s->length = s->payload;
        s->payload = 0;
        memset(s->frames, 0, sizeof s->frames);
        return;
    }
    const uint8_t count = input_u8(&s->in);
    s->length = input_bytes(&s->in, s->frames, (count % (BATCH + 1)) * (size_t)HEAD + (count >= 0xf0));
    if (s->length < HEAD || s->frames[s->length / HEAD * HEAD - HEAD] != FRAME_CHUNK)
        return;
    input_bytes(&s->in, length, 2);
    s->payload = frame_decode(&last, s->frames + s->length / HEAD * HEAD - HEAD) ? 0 : chunk_length(&last);
    if (length[0] + 256 * length[1] != RIGHT_LENGTH)
        s->payload = length[0] + 256u * length[1];
}

/* The next bytes of the record, at most n; beyond its frames a body is whatever is there
 * already. */
static size_t next_part(struct stream *s, uint8_t *to, size_t n)
{
    if (!s->records || s->at == SEAL_HEAD + s->length + SEAL_TAG) {
        if (s->records == RECORDS || (!s->in.left && !s->payload))
            return 0;
        next_record(s);
        s->records++;
        s->at = 0;
    }
    size_t part = 1, body = s->at - SEAL_HEAD;
    if (s->at < SEAL_HEAD) {
        *to = (uint8_t)(s->length >> 8 * s->at);
    } else {
        const size_t left = body < s->length ? s->length - body : s->length + SEAL_TAG - body;
        part = left < n ? left : n;
        if (body < s->length && body < sizeof s->frames)
            memcpy(to, s->frames + body, part < sizeof s->frames - body ? part : sizeof s->frames - body);
    }
    s->at += part;
    return part;
}

static ssize_t next_bytes(int fd, const struct iovec *iov, int n)
{
    ssize_t done = 0;
    (void)fd;
    for (; n > 0; iov++, n--)
        for (size_t at = 0, part; at < iov->iov_len; at += part, done += (ssize_t)part)
            if (!(part = next_part(&stream, (uint8_t *)iov->iov_base + at, iov->iov_len - at)))
                return done;
    return done;
}

/* The large message is posted in few runs: its memory takes longer than all else. */
static void post_all(struct exchange *x, bool with_large)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        if (expected[i].size > EXCHANGE_CHUNK && !with_large)
            continue;
        expect(exchange_post(x, 1, &expected[i].key, expected[i].size, expected[i].variable) == 0);
        expect(exchange_send(x, 1, &expected[i].key, exchange_buffer(x, expected[i].size),
                             expected[i].size) == 0);
    }
    exchange_kick(x);
}

static void take_all(struct exchange *x)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        size_t size;
        void *buffer = exchange_take(x, 1, &expected[i].key, &size);
        expect(!buffer || (expected[i].variable ? size <= expected[i].size : size == expected[i].size));
        exchange_release(x, buffer);
    }
}

/* What the sender would take up, so that neither acknowledgements nor chunks pile up. */
static void send_nothing(struct lane *l)
{
    struct lane_work w;
    for (; take_work(l, &w) > 0; l->sent++)
        if (w.out) {
            w.out->readers--;
            exchange_finish_message(l->neighbor, w.out);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct progress progress;
    static uint8_t scratch[EXCHANGE_CHUNK];
    static const uint8_t key[32] = {1};
    struct exchange *x = NULL;
    struct err err;
    expect(exchange_new(&x, &progress, &err) == 0);
    struct neighbor *p = &x->neighbors[x->n++];
    *p = (struct neighbor){.x = x, .rank = 1, .out_tail = &p->out};
    pthread_cond_init(&p->placed, NULL);
    pthread_cond_init(&p->sync[0].work, NULL);
    struct lane *l = &p->lanes[0]; /* never `used`: it has no threads to be joined */
    *l = (struct lane){.sync = &p->sync[0], .neighbor = p, .count = &progress.lanes[0], .fd = -1};
    seal_init(&l->rx, key, SEAL_CHACHA20_POLY1305); /* turns are taken, if not used */
    l->tx = l->rx;
    stream = (struct stream){.in = {data, n}};
    post_all(x, n > 0 && data[n - 1] % 8 == 0);
    for (int r = 0; r == 0; send_nothing(l)) {
        struct chunk_arrival a = {.to = NULL};
        r = read_record(l, scratch, 0, &a);
        if (a.to)
            r = settle(l, &a, r);
    }
    take_all(x);
    exchange_free(x);
    return 0;
}
