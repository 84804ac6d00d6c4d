/* SPDX-License-Identifier: MIT
 *
 * What a rank may be sent by a neighbour whose records are good: frames of a data connection, any of them, in
 * any order, with payloads of any length. The lane's receiving end is called without its threads, and reads records
 * that are open. Input: u8 number of frames ‖ frames ‖ u16 length of a payload, again and again; 0xffff stands for the
 * length the last frame's chunk should have. */
#include "tests/fuzz/input.h"

#include <sys/uio.h>

#include "net/seal.h"

static ssize_t next_bytes(int fd, const struct iovec *iov, int n);
static int open_record(struct seal *s, const uint8_t *head, uint8_t *data, size_t n, const uint8_t *tag);
#define readv next_bytes
#define seal_open open_record
#include "daemon/channel_lane.c" /* its receiving end is not for others */
#undef readv
#undef seal_open

enum { RECORDS = 64, SMALL = 100, OPEN_ENDED = 5000, TWO_CHUNKS = CHUNK + 7, RIGHT_LENGTH = 0xffff };

static const struct {
    struct msg_key key;
    size_t size;
    bool variable;
} expected[] = {{{.kind = 1, .mb = 1}, SMALL, false},
                {{.kind = 2, .mb = 1}, OPEN_ENDED, true},
                {{.kind = 1, .mb = 2}, TWO_CHUNKS, false},
                {{.kind = 2, .mb = 2}, 0, true}};

static struct stream {
    struct input in;
    unsigned records;
    bool in_body;
    size_t length, payload; /* of the body to come; payload: it belongs to the chunk before */
    uint8_t frames[(BATCH + 2) * HEAD];
} stream; /* readv has no argument to hand it on by */

static int open_record(struct seal *s, const uint8_t *head, uint8_t *data, size_t n, const uint8_t *tag)
{
    (void)s, (void)head, (void)data, (void)n, (void)tag;
    return 0;
}

/* The next record is a chunk's payload, or frames; what their last one is decides about the record after it. */
static void next_record(struct stream *s)
{
    uint8_t length[2] = {0};
    struct frame last;
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

static ssize_t next_bytes(int fd, const struct iovec *iov, int n)
{
    struct stream *s = &stream;
    uint8_t *to = iov->iov_base;
    (void)fd, (void)n;
    if (s->in_body) { /* never asked for otherwise than all at once */
        expect(n == 2 && iov->iov_len == s->length);
        memcpy(to, s->frames, s->length < sizeof s->frames ? s->length : sizeof s->frames);
        s->in_body = false;
        return (ssize_t)(iov[0].iov_len + iov[1].iov_len);
    }
    expect(n == 1 && iov->iov_len == SEAL_HEAD);
    if (s->records++ == RECORDS || (!s->in.left && !s->payload))
        return 0;
    next_record(s);
    for (size_t i = 0; i < SEAL_HEAD; i++)
        to[i] = (uint8_t)(s->length >> 8 * i);
    s->in_body = true;
    return SEAL_HEAD;
}

/* The large message is posted in few runs: its memory takes longer than all else. */
static void post_all(struct exchange *x, bool with_large)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        if (expected[i].size > CHUNK && !with_large)
            continue;
        expect(exchange_post(x, 1, &expected[i].key, expected[i].size, expected[i].variable) == 0);
        expect(exchange_send(x, 1, &expected[i].key, exchange_buffer(x, expected[i].size),
                             expected[i].size) == 0);
    }
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
    struct work w;
    while (take_work(l, &w))
        if (w.out) {
            w.out->readers--;
            exchange_finish_message(l->peer, w.out);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct progress progress;
    static uint8_t scratch[CHUNK];
    struct exchange *x = NULL;
    struct err err;
    expect(exchange_new(&x, &progress, &err) == 0);
    struct peer *p = &x->peers[x->n++];
    *p = (struct peer){.x = x, .rank = 1, .out_tail = &p->out};
    pthread_cond_init(&p->work, NULL);
    struct lane *l = &p->lanes[0]; /* never `used`: it has no threads to be joined */
    *l = (struct lane){.peer = p, .fd = -1};
    stream = (struct stream){.in = {data, n}};
    post_all(x, n > 0 && data[n - 1] % 8 == 0);
    while (receive_record(l, scratch) == 0)
        send_nothing(l);
    take_all(x);
    exchange_free(x);
    return 0;
}
