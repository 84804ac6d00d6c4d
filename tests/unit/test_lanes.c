/* SPDX-License-Identifier: MIT
 *
 * Striping and repair: two exchanges over several lanes, lanes cut and added while messages flow; every message arrives whole, once. */
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

#include "daemon/channel.h"
#include "daemon/progress.h"

struct pair {
    struct exchange *a, *b;
    struct progress pa, pb;
    sem_t lost;
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

static size_t size_of(uint32_t mb)
{
    return mb % 5 == 0 ? 0 : (size_t)mb * 77777 + 1;
}

static uint8_t byte_of(uint32_t mb, size_t i)
{
    return (uint8_t)(mb * 31 + i * 7 + (i >> 13));
}

static void *send_all(void *arg)
{
    struct pair *p = arg;
    for (uint32_t mb = 0; mb < 40; mb++) {
        struct msg_key key = key_of(mb);
        uint8_t *buffer = exchange_buffer(p->a, size_of(mb));
        for (size_t i = 0; i < size_of(mb); i++)
            buffer[i] = byte_of(mb, i);
        while (!exchange_room(p->a, 1, 3))
            exchange_wait(p->a);
        exchange_send(p->a, 1, &key, buffer, size_of(mb));
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
    assert_int_equal(n, size_of(mb));
    for (size_t i = 0; i < n; i++)
        if (buffer[i] != byte_of(mb, i))
            fail_msg("message %u differs at byte %zu", mb, i);
    exchange_release(p->b, buffer);
}

static void pair_init(struct pair *p)
{
    struct err err;
    memset(p, 0, sizeof *p);
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
    if (mb < 40)
        assert_int_equal(exchange_post(p->b, 0, &key, size_of(mb), false), 0);
}

/* Lanes are cut and replaced after every few messages; with `lanes` = 1 there are moments without any. */
static void run(int lanes, unsigned every)
{
    struct pair p;
    pthread_t thread;
    int cut[2] = {-1, -1};
    pair_init(&p);
    for (int i = 0; i < lanes; i++)
        cut[i] = add_lane(&p);
    for (uint32_t mb = 0; mb < 3; mb++)
        post(&p, mb);
    pthread_create(&thread, NULL, send_all, &p);
    for (uint32_t mb = 0; mb < 40; mb++) {
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

static void one_lane(void **state)
{
    (void)state;
    run(1, 0);
}

static void two_lanes(void **state)
{
    (void)state;
    run(2, 0);
}

static void a_cut_lane_is_replaced(void **state)
{
    (void)state;
    for (unsigned every = 1; every < 6; every++)
        run(1, every);
}

static void one_of_two_lanes_is_cut(void **state)
{
    (void)state;
    for (unsigned every = 1; every < 6; every++)
        run(2, every);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_lane), cmocka_unit_test(two_lanes),
                                       cmocka_unit_test(a_cut_lane_is_replaced),
                                       cmocka_unit_test(one_of_two_lanes_is_cut)};
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
