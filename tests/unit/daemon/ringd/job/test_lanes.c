/* SPDX-License-Identifier: MIT
 *
 * Striping and repair: two exchanges over several lanes, lanes cut and added while messages flow;
 * every message arrives whole, once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/stage/exchange/exchange.h"
#include "daemon/common/progress.h"

enum { MESSAGES = 40 };

struct pair {
    struct exchange *a, *b;
    struct progress pa, pb;
    sem_t lost;
    size_t step; /* by which they grow */
};

static void on_lost(void *owner, uint32_t rank, uint64_t path, const char *why)
{
    struct pair *p = owner;
    assert_int_equal(rank, 1);
    assert_int_equal(path, 5);
    assert_non_null(why);
    sem_post(&p->lost);
}

/* A connected lane between both; returns a descriptor whose shutdown cuts it. */
static int add_lane(struct pair *p)
{
    int fds[2];
    uint8_t key[2][32];
    struct seal ab, ba;
    struct err err;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    randombytes_buf(key, sizeof key);
    seal_init(&ab, key[0], SEAL_CHACHA20_POLY1305);
    seal_init(&ba, key[1], SEAL_CHACHA20_POLY1305);
    int cut = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
    assert_int_equal(exchange_add(p->a, 1, 5, fds[0], &ab, &ba, &err), 0);
    assert_int_equal(exchange_add(p->b, 0, 5, fds[1], &ba, &ab, &err), 0);
    return cut;
}

static void cut_lane(int fd)
{
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

static struct msg_key key_of(uint32_t mb)
{
    return (struct msg_key){7, MSG_ACT, 1, mb};
}

static size_t size_of(const struct pair *p, uint32_t mb)
{
    return mb % 5 == 0 ? 0 : mb * p->step + 1;
}

static uint8_t byte_of(uint32_t mb, size_t i)
{
    return (uint8_t)(mb * 31 + i * 7 + (i >> 13));
}

static void *send_all(void *arg)
{
    struct pair *p = arg;
    for (uint32_t mb = 0; mb < MESSAGES; mb++) {
        struct msg_key key = key_of(mb);
        uint8_t *buffer = exchange_buffer(p->a, size_of(p, mb));
        for (size_t i = 0; i < size_of(p, mb); i++)
            buffer[i] = byte_of(mb, i);
        while (!exchange_room(p->a, 1, 3))
            exchange_wait(p->a);
        exchange_send(p->a, 1, &key, buffer, size_of(p, mb));
    }
    return NULL;
}

static void receive_one(struct pair *p, uint32_t mb)
{
    struct msg_key key = key_of(mb);
    size_t n = 0;
    while (!exchange_ready(p->b, 0, &key))
        exchange_wait(p->b);
    uint8_t *buffer = exchange_take(p->b, 0, &key, &n);
    assert_non_null(buffer);
    assert_int_equal(n, size_of(p, mb));
    for (size_t i = 0; i < n; i++)
        if (buffer[i] != byte_of(mb, i))
            fail_msg("message %u differs at byte %zu", mb, i);
    exchange_release(p->b, buffer);
    exchange_kick(p->b);
}

static void pair_init(struct pair *p, size_t step)
{
    struct err err;
    *p = (struct pair){.step = step};
    sem_init(&p->lost, 0, 0);
    assert_int_equal(exchange_new(&p->a, &p->pa, &err), 0);
    assert_int_equal(exchange_new(&p->b, &p->pb, &err), 0);
    exchange_on_lost(p->a, on_lost, p);
}

static void pair_done(struct pair *p)
{
    exchange_free(p->a);
    exchange_free(p->b);
    sem_destroy(&p->lost);
}

static void post(struct pair *p, uint32_t mb)
{
    struct msg_key key = key_of(mb);
    if (mb < MESSAGES)
        assert_int_equal(exchange_post(p->b, 0, &key, size_of(p, mb), false), 0);
    exchange_kick(p->b);
}

/* Lanes are cut and replaced after every few messages; with `lanes` = 1 there are moments without
 * any. */
static void run(int lanes, unsigned every, size_t step)
{
    struct pair p;
    pthread_t thread;
    int cut[2] = {-1, -1};
    pair_init(&p, step);
    for (int i = 0; i < lanes; i++)
        cut[i] = add_lane(&p);
    for (uint32_t mb = 0; mb < 3; mb++)
        post(&p, mb);
    pthread_create(&thread, NULL, send_all, &p);
    for (uint32_t mb = 0; mb < MESSAGES; mb++) {
        receive_one(&p, mb);
        post(&p, mb + 3);
        if (every && mb % every == every - 1) {
            int which = (int)(mb / every) % lanes;
            cut_lane(cut[which]);
            sem_wait(&p.lost);
            cut[which] = add_lane(&p);
        }
    }
    pthread_join(thread, NULL);
    assert_int_equal(exchange_flush(p.a, 10), 0);
    for (int i = 0; i < lanes; i++)
        close(cut[i]);
    pair_done(&p);
}

/* Of more and more chunks; and as small as those that the sender's own thread sends. */
enum { BIG = 77777, SMALL = 500 };

static void one_lane(void **state)
{
    (void)state;
    run(1, 0, BIG);
    run(1, 0, SMALL);
}

static void two_lanes(void **state)
{
    (void)state;
    run(2, 0, BIG);
    run(2, 0, SMALL);
}

static void a_cut_lane_is_replaced(void **state)
{
    (void)state;
    for (unsigned every = 1; every < 6; every++) {
        run(1, every, BIG);
        run(1, every, SMALL);
    }
}

static void one_of_two_lanes_is_cut(void **state)
{
    (void)state;
    for (unsigned every = 1; every < 6; every++) {
        run(2, every, BIG);
        run(2, every, SMALL);
    }
}

/* --- the same chunk twice, on lanes whose other end the test is ------------------------------- */

struct bare {
    int fd;
    struct seal tx;
};

static struct bare bare_lane(struct exchange *x, uint64_t path)
{
    int fds[2];
    uint8_t key[32] = {(uint8_t)path};
    struct bare lane;
    struct seal rx, tx;
    struct err err;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    seal_init(&lane.tx, key, SEAL_CHACHA20_POLY1305);
    seal_init(&rx, key, SEAL_CHACHA20_POLY1305);
    seal_init(&tx, (key[1] = 1, key), SEAL_CHACHA20_POLY1305);
    assert_int_equal(exchange_add(x, 0, path, fds[1], &tx, &rx, &err), 0);
    lane.fd = fds[0];
    const int little = 4096; /* so most of what was sent has been read when send returns */
    assert_int_equal(setsockopt(lane.fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little), 0);
    return lane;
}

/* A record of n bytes into `out`; returns its length. */
static size_t record(struct bare *lane, const uint8_t *plain, size_t n, uint8_t *out)
{
    struct seal turn;
    assert_int_equal(seal_turn(&lane->tx, n, &turn), 0);
    assert_int_equal(seal_seal(&turn, out, plain, n), 0);
    seal_wipe(&turn);
    return SEAL_HEAD + n + SEAL_TAG;
}

enum { WHOLE = 60000, PART = 50000 };

/* The only chunk of a message of WHOLE bytes, up to `upto` of them; what is left goes to `rest`. */
static void send_chunk(struct bare *lane, uint32_t mb, uint8_t again, size_t upto, uint8_t *rest)
{
    const uint8_t head[32] = {
        [0] = 2,   again, [4] = 7, [8] = MSG_ACT, [10] = 1, [12] = (uint8_t)mb, [16] = WHOLE & 0xff,
        WHOLE >> 8};
    uint8_t bytes[WHOLE], out[2 * (SEAL_HEAD + SEAL_TAG) + sizeof head + WHOLE];
    for (size_t i = 0; i < WHOLE; i++)
        bytes[i] = byte_of(mb, i);
    size_t n = record(lane, head, sizeof head, out), whole = n + record(lane, bytes, WHOLE, out + n);
    if (upto < WHOLE)
        memcpy(rest, out + n + upto, whole - n - upto);
    else
        upto = whole - n;
    assert_int_equal(send(lane->fd, out, n + upto, MSG_NOSIGNAL), n + upto);
}

static void receive_whole(struct exchange *x, uint32_t mb)
{
    struct msg_key key = key_of(mb);
    size_t n = 0;
    while (!exchange_ready(x, 0, &key))
        exchange_wait(x);
    uint8_t *buffer = exchange_take(x, 0, &key, &n);
    assert_int_equal(n, WHOLE);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buffer[i], byte_of(mb, i));
    exchange_release(x, buffer);
}

static struct exchange *two_bare_lanes(struct progress *progress, struct bare lane[2])
{
    struct exchange *x = NULL;
    struct err err;
    *progress = (struct progress){0};
    assert_int_equal(exchange_new(&x, progress, &err), 0);
    for (uint32_t i = 0; i < 2; i++) {
        const struct msg_key key = key_of(i);
        lane[i] = bare_lane(x, i + 1);
        assert_int_equal(exchange_post(x, 0, &key, WHOLE, false), 0);
    }
    exchange_kick(x);
    return x;
}

static void bare_lanes_done(struct exchange *x, struct bare lane[2])
{
    exchange_free(x);
    close(lane[0].fd);
    close(lane[1].fd);
}

/* What was still on its way over a lane given up must not end the one that stands in for it. */
static void a_late_copy_is_dropped(void **state)
{
    (void)state;
    struct progress progress;
    struct bare lane[2];
    uint8_t rest[WHOLE + SEAL_HEAD + SEAL_TAG];
    struct exchange *x = two_bare_lanes(&progress, lane);
    send_chunk(&lane[1], 0, 1, PART, rest);
    send_chunk(&lane[0], 0, 0, WHOLE, NULL);
    send_chunk(&lane[0], 1, 0, WHOLE, NULL);
    receive_whole(x, 1); /* so the copy before it has been read */
    const size_t left = SEAL_HEAD + WHOLE + SEAL_TAG - PART;
    assert_int_equal(send(lane[1].fd, rest, left, MSG_NOSIGNAL), left);
    receive_whole(x, 0);
    bare_lanes_done(x, lane);
}

static void a_later_copy_ends_what_is_stuck(void **state)
{
    (void)state;
    struct progress progress;
    struct bare lane[2];
    uint8_t rest[WHOLE + SEAL_HEAD + SEAL_TAG];
    struct exchange *x = two_bare_lanes(&progress, lane);
    send_chunk(&lane[0], 0, 0, PART, rest);
    send_chunk(&lane[1], 0, 1, WHOLE, NULL);
    receive_whole(x, 0);
    bare_lanes_done(x, lane);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_lane),
        cmocka_unit_test(two_lanes),
        cmocka_unit_test(a_cut_lane_is_replaced),
        cmocka_unit_test(one_of_two_lanes_is_cut),
        cmocka_unit_test(a_late_copy_is_dropped),
        cmocka_unit_test(a_later_copy_ends_what_is_stuck),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
