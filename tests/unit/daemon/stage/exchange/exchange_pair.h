/* SPDX-License-Identifier: MIT
 *
 * Two exchanges over a socket pair, or one and a bare socket, and messages between them: for
 * test_exchange.c and test_exchange_order.c. */
#ifndef TESTS_UNIT_EXCHANGE_PAIR_H
#define TESTS_UNIT_EXCHANGE_PAIR_H

#include <string.h>
#include <sys/socket.h>

#include "daemon/stage/exchange/exchange_impl.h"
#include "daemon/common/progress.h"

struct pair {
    struct progress progress[2];
    struct exchange *x[2]; /* rank 0 and rank 1 */
};

static inline void seals(struct seal *a_to_b, struct seal *b_to_a)
{
    uint8_t key[32] = {1};
    seal_init(a_to_b, key, SEAL_CHACHA20_POLY1305);
    key[0] = 2;
    seal_init(b_to_a, key, SEAL_CHACHA20_POLY1305);
}

/* One end is an exchange, the other a bare socket. */
static inline int half(struct pair *p)
{
    int fd[2];
    struct seal there, back;
    struct err err = {""};
    memset(p, 0, sizeof *p);
    seals(&there, &back);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    assert_int_equal(exchange_new(&p->x[0], &p->progress[0], &err), 0);
    assert_int_equal(exchange_add(p->x[0], 1, 1, fd[0], &there, &back, &err), 0);
    return fd[1];
}

static inline void join(struct pair *p)
{
    struct seal there, back;
    struct err err = {""};
    int fd = half(p);
    seals(&there, &back);
    assert_int_equal(exchange_new(&p->x[1], &p->progress[1], &err), 0);
    assert_int_equal(exchange_add(p->x[1], 0, 1, fd, &back, &there, &err), 0);
}

static inline void part(struct pair *p)
{
    exchange_free(p->x[0]);
    exchange_free(p->x[1]);
}

static inline struct msg_key key_of(uint32_t mb)
{
    return (struct msg_key){7, MSG_ACT, 1, mb};
}

static inline void fill(uint8_t *at, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static inline void send_one(struct exchange *x, uint32_t to, uint32_t mb, size_t n)
{
    struct msg_key key = key_of(mb);
    uint8_t *buffer = exchange_buffer(x, n);
    assert_non_null(buffer);
    assert_int_equal((uintptr_t)buffer % 64, 0);
    fill(buffer, n, mb);
    assert_int_equal((mb % 2 ? exchange_queue : exchange_send)(x, to, &key, buffer, n), 0);
    exchange_kick(x);
}

static inline void post(struct exchange *x, uint32_t from, uint32_t mb, size_t n, bool variable)
{
    struct msg_key key = key_of(mb);
    assert_int_equal(exchange_post(x, from, &key, n, variable), 0);
    exchange_kick(x);
}

static inline int await(struct exchange *x, uint32_t from, uint32_t mb)
{
    struct msg_key key = key_of(mb);
    int r;
    while (!(r = exchange_ready(x, from, &key)))
        exchange_wait(x);
    return r;
}

static inline void receive(struct exchange *x, uint32_t from, uint32_t mb, size_t want)
{
    struct msg_key key = key_of(mb);
    size_t n = 0;
    assert_int_equal(await(x, from, mb), 1);
    uint8_t *buffer = exchange_take(x, from, &key, &n), *expected = test_malloc(want + 1);
    assert_non_null(buffer);
    assert_int_equal(n, want);
    fill(expected, want, mb);
    assert_memory_equal(buffer, expected, want);
    test_free(expected);
    exchange_release(x, buffer);
    assert_null(exchange_take(x, from, &key, &n)); /* once */
    exchange_kick(x);
}

#endif
