/* SPDX-License-Identifier: MIT
 *
 * What a data connection sends first: what there is room for, what is in a hurry, and what is said
 * together at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <unistd.h>

#include "tests/unit/daemon/stage/exchange/exchange_pair.h"

/* What an exchange sends of its own accord, in the time that it would take to. */
static bool is_quiet(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, 50) == 0;
}

/* One record of so many frame heads, and nothing behind it. */
static void expect_heads(int fd, size_t heads)
{
    uint8_t record[1000];
    const size_t n = SEAL_HEAD + heads * HEAD + SEAL_TAG;
    assert_int_equal(recv(fd, record, n, MSG_WAITALL), n);
    assert_true(is_quiet(fd));
}

/* Each record on its way interrupts somebody who computes. */
static void what_is_told_together_goes_together(void **state)
{
    (void)state;
    struct pair p;
    const int fd = half(&p);
    post(p.x[0], 1, 0, 10, false);
    expect_heads(fd, 1);
    for (uint32_t i = 1; i < 4; i++) {
        const struct msg_key key = key_of(i);
        assert_int_equal(exchange_post(p.x[0], 1, &key, 10, false), 0);
        assert_true(is_quiet(fd));
    }
    exchange_kick(p.x[0]);
    expect_heads(fd, 3);
    exchange_free(p.x[0]);
    close(fd);
}

/* What the receiver has no room for waits, and nothing behind it does. */
static void credits_decide_the_order(void **state)
{
    (void)state;
    struct pair p;
    join(&p);
    for (uint32_t i = 0; i < 4; i++)
        send_one(p.x[0], 1, i, 1000);
    assert_int_equal(exchange_room(p.x[0], 1, 5), 1);
    assert_int_equal(exchange_room(p.x[0], 1, 4), 0);
    post(p.x[1], 0, 2, 1000, false);
    receive(p.x[1], 0, 2, 1000);
    struct msg_key first = key_of(0);
    assert_int_equal(exchange_ready(p.x[1], 0, &first), 0);
    for (uint32_t i = 0; i < 4; i++)
        if (i != 2)
            post(p.x[1], 0, i, 1000, false);
    receive(p.x[1], 0, 3, 1000);
    receive(p.x[1], 0, 1, 1000);
    receive(p.x[1], 0, 0, 1000);
    assert_int_equal(exchange_flush(p.x[0], 10), 0);
    assert_int_equal(exchange_room(p.x[0], 1, 1), 1);
    part(&p);
}

/* Copies of what a job trains are large, and the step that follows them is in a hurry. */
static void what_goes_last_stands_in_nobodys_way(void **state)
{
    (void)state;
    static const uint32_t order[] = {2, 0, 1};
    struct pair p;
    join(&p);
    for (uint32_t i = 0; i < 3; i++) {
        const struct msg_key key = key_of(i);
        void *buffer = exchange_buffer(p.x[0], 600000);
        assert_non_null(buffer);
        fill(buffer, 600000, i);
        assert_int_equal((i < 2 ? exchange_queue_last : exchange_queue)(p.x[0], 1, &key, buffer, 600000), 0);
        assert_int_equal(exchange_room(p.x[0], 1, 1), i < 2);
    }
    pthread_mutex_lock(&p.x[0]->lock);
    const struct outbox *out = p.x[0]->neighbors[0].out;
    for (uint32_t i = 0; i < 3; i++, out = out->next)
        assert_int_equal(out->key.mb, order[i]);
    assert_null(out);
    pthread_mutex_unlock(&p.x[0]->lock);
    for (uint32_t i = 0; i < 3; i++)
        post(p.x[1], 0, i, 600000, false);
    exchange_kick(p.x[0]);
    for (uint32_t i = 0; i < 3; i++)
        receive(p.x[1], 0, i, 600000);
    send_one(p.x[0], 1, 3, 10); /* the queue is whole */
    post(p.x[1], 0, 3, 10, false);
    receive(p.x[1], 0, 3, 10);
    assert_int_equal(exchange_flush(p.x[0], 10), 0);
    part(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_told_together_goes_together),
        cmocka_unit_test(credits_decide_the_order),
        cmocka_unit_test(what_goes_last_stands_in_nobodys_way),
    };
    return cmocka_run_group_tests_name("exchange_order", tests, NULL, NULL);
}
