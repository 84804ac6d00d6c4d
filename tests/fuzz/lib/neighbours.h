/* SPDX-License-Identifier: MIT
 *
 * In place of the exchange (daemon/stage/exchange/exchange.h), for one program: neighbours whose
 * messages are the input. exchange_take is the program's, which makes them of it. */
#ifndef TESTS_FUZZ_NEIGHBOURS_H
#define TESTS_FUZZ_NEIGHBOURS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/stage/exchange/exchange.h"
#include "tests/fuzz/lib/input.h"

enum {
    ROUNDS = 4,
    LARGE = 1 << 22 /* a message that is not waited for: the system may refuse its memory too */
};

struct posted {
    struct msg_key key;
    uint32_t from;
    size_t size;
    bool variable;
};
struct exchange {
    struct input *in; /* borrowed */
    struct posted posted[256];
    size_t n, rounds;
    size_t vocab;
};

static struct exchange neighbours;

int exchange_new(struct exchange **ret, struct progress *progress, struct err *err)
{
    (void)progress, (void)err;
    *ret = &neighbours;
    return 0;
}

void exchange_free(struct exchange *x)
{
    if (x)
        x->n = 0;
}

int exchange_add(struct exchange *x, uint32_t rank, uint64_t path, int fd, const struct seal *tx,
                 const struct seal *rx, struct err *err)
{
    (void)x, (void)rank, (void)path, (void)fd, (void)tx, (void)rx, (void)err;
    return 0;
}

void exchange_on_lost(struct exchange *x,
                      void (*lost)(void *owner, uint32_t rank, uint64_t path, const char *why), void *owner)
{
    (void)x, (void)lost, (void)owner;
}

void exchange_keep(struct exchange *x, const uint64_t *alive, size_t n)
{
    (void)x, (void)alive, (void)n;
}

void exchange_sample_tcp(struct exchange *x)
{
    (void)x;
}

/* Not a byte more than was asked for. */
void *exchange_buffer(struct exchange *x, size_t size)
{
    void *at;
    (void)x;
    return size > LARGE || posix_memalign(&at, 64, size ? size : 1) ? NULL : at;
}

void exchange_release(struct exchange *x, void *buffer)
{
    (void)x;
    free(buffer);
}

int exchange_post(struct exchange *x, uint32_t from, const struct msg_key *key, size_t size, bool variable)
{
    if (x->n == sizeof x->posted / sizeof *x->posted || size > LARGE)
        return -ENOMEM;
    x->posted[x->n++] = (struct posted){*key, from, size, variable};
    return 0;
}

static inline struct posted *neighbours_find(struct exchange *x, uint32_t from, const struct msg_key *key)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->posted[i].from == from && !memcmp(&x->posted[i].key, key, sizeof *key))
            return &x->posted[i];
    return NULL;
}

/* What was not posted never comes; nor does a GO when nothing is left to make it of. */
int exchange_ready(struct exchange *x, uint32_t from, const struct msg_key *key)
{
    if (!neighbours_find(x, from, key) || (key->kind == MSG_GO && (!x->in->left || x->rounds == ROUNDS)))
        return -EPIPE;
    return 1;
}

int exchange_room(struct exchange *x, uint32_t to, size_t limit)
{
    (void)x, (void)to, (void)limit;
    return 1;
}

int exchange_send(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size)
{
    uint8_t sum = 0; /* all of it is read, as it would be to be sealed */
    (void)to, (void)key;
    for (size_t i = 0; i < size; i++)
        sum ^= ((volatile const uint8_t *)buffer)[i];
    (void)sum;
    exchange_release(x, buffer);
    return 0;
}

int exchange_queue(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size)
{
    return exchange_send(x, to, key, buffer, size);
}

int exchange_queue_last(struct exchange *x, uint32_t to, const struct msg_key *key, void *buffer, size_t size)
{
    return exchange_send(x, to, key, buffer, size);
}

void exchange_kick(struct exchange *x)
{
    (void)x;
}

int exchange_attend(struct exchange *x, uint32_t rank)
{
    (void)x, (void)rank;
    return 0;
}

void exchange_leave(struct exchange *x)
{
    (void)x;
}

void exchange_wait(struct exchange *x)
{
    (void)x;
    expect(false); /* nothing is ever on its way */
}

void exchange_abandon(struct exchange *x)
{
    (void)x;
}

int exchange_flush(struct exchange *x, int seconds)
{
    (void)x, (void)seconds;
    return 0;
}

#endif
