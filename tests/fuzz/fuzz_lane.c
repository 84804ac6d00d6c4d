/* SPDX-License-Identifier: MIT
 *
 * What a rank may be sent by a neighbour whose records are good: frames of a data connection, any of them, in
 * any order, with payloads of any length. A lane's receiver is called without its threads, on records
 * that were sealed beforehand. Input: u8 number of frames ‖ frames ‖ u16 length of a payload, again and again;
 * 0xffff stands for the length the last frame's chunk should have. */
#include "tests/fuzz/fuzz.h"

#include "daemon/channel_receive.c" /* what is in them is not for others */
#include "daemon/channel_send.c"

enum { RECORDS = 64, SMALL = 100, OPEN_ENDED = 5000, TWO_CHUNKS = CHUNK + 7, RIGHT_LENGTH = 0xffff };

static const struct {
    struct msg_key key;
    size_t size;
    bool variable;
} expected[] = {{{.kind = 1, .mb = 1}, SMALL, false},
                {{.kind = 2, .mb = 1}, OPEN_ENDED, true},
                {{.kind = 1, .mb = 2}, TWO_CHUNKS, false},
                {{.kind = 2, .mb = 2}, 0, true}};

struct bytes {
    const uint8_t *at;
    size_t left;
};

static size_t take(struct bytes *in, void *to, size_t n)
{
    n = n < in->left ? n : in->left;
    if (n > 0)
        memcpy(to, in->at, n);
    in->at += n;
    in->left -= n;
    return n;
}

static void put_record(int fd, struct seal *tx, const uint8_t *plain, size_t n)
{
    static uint8_t record[SEAL_HEAD + CHUNK + SEAL_TAG];
    expect(seal_seal(tx, record, plain, n) == 0);
    expect(write(fd, record, SEAL_HEAD + n + SEAL_TAG) == (ssize_t)(SEAL_HEAD + n + SEAL_TAG));
}

static void put_all(int fd, struct seal *tx, struct bytes in)
{
    static uint8_t payload[CHUNK];
    for (int i = 0; i < RECORDS && in.left > 0; i++) {
        uint8_t count, frames[(BATCH + 2) * HEAD], length[2] = {0};
        struct frame last;
        take(&in, &count, 1);
        size_t n = take(&in, frames, (count % (BATCH + 1)) * (size_t)HEAD + (count >= 0xf0));
        put_record(fd, tx, frames, n);
        if (n < HEAD || frames[n / HEAD * HEAD - HEAD] != FRAME_CHUNK)
            continue;
        take(&in, length, 2);
        n = frame_decode(&last, frames + n / HEAD * HEAD - HEAD) ? 0 : chunk_length(&last);
        if (length[0] + 256 * length[1] != RIGHT_LENGTH)
            n = length[0] + 256u * length[1];
        if (n > 0)
            put_record(fd, tx, payload, n);
    }
    expect(lseek(fd, 0, SEEK_SET) == 0);
}

static void post_all(struct exchange *x)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
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
    for (; take_work(l, &w) > 0; l->sent++)
        if (w.out) {
            w.out->readers--;
            exchange_finish_message(l->peer, w.out);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct progress progress;
    static uint8_t scratch[CHUNK];
    static const uint8_t key[32] = {1};
    struct exchange *x = NULL;
    struct err err;
    struct seal tx;
    const int fd = memfd_create("lane", MFD_CLOEXEC);
    expect(fd >= 0 && exchange_new(&x, &progress, &err) == 0);
    struct peer *p = &x->peers[x->n++];
    *p = (struct peer){.x = x, .rank = 1, .out_tail = &p->out};
    pthread_cond_init(&p->placed, NULL);
    pthread_cond_init(&p->sync[0].work, NULL);
    struct lane *l = &p->lanes[0]; /* never `used`: it has no threads to be joined */
    *l = (struct lane){.sync = &p->sync[0], .peer = p, .fd = fd};
    seal_init(&tx, key, SEAL_CHACHA20_POLY1305);
    l->rx = l->tx = tx;
    put_all(fd, &tx, (struct bytes){data, n});
    post_all(x);
    for (int r = 0; r == 0; send_nothing(l)) {
        struct arrival a = {.to = NULL};
        r = read_record(l, scratch, &a);
        if (a.to)
            r = settle(l, &a, r);
    }
    take_all(x);
    close(fd);
    exchange_free(x);
    return 0;
}
