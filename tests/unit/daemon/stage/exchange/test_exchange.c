/* SPDX-License-Identifier: MIT
 *
 * Data connections of stages over a socket pair: sizes, keys, endings and their sentences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/daemon/stage/exchange/exchange_pair.h"

/* --- messages --------------------------------------------------------------------------------- */

static void every_size_arrives(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 262143, 262144, 262145, 800000};
    struct pair p;
    join(&p);
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        post(p.x[1], 0, i, sizes[i], false);
        send_one(p.x[0], 1, i, sizes[i]);
        receive(p.x[1], 0, i, sizes[i]);
    }
    assert_true(p.progress[0].tx_bytes > 262143 + 800000);
    assert_true(p.progress[0].tx_bytes == p.progress[1].rx_bytes);
    part(&p);
}

static void both_ways_at_once(void **state)
{
    (void)state;
    enum { N = 40, SIZE = 70000 };
    struct pair p;
    join(&p);
    for (uint32_t i = 0; i < N; i++)
        for (int end = 0; end < 2; end++) {
            post(p.x[end], 1 - (uint32_t)end, i, SIZE, false);
            send_one(p.x[end], 1 - (uint32_t)end, i, SIZE);
        }
    for (uint32_t i = 0; i < N; i++)
        for (int end = 0; end < 2; end++)
            receive(p.x[end], 1 - (uint32_t)end, i, SIZE);
    part(&p);
}

/* A lane of that end whose key has grown old. */
static void age(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->neighbors[0].lanes[0].keyed_at -= REKEY_NS;
    pthread_mutex_unlock(&x->lock);
}

static void old_keys_are_left_behind(void **state)
{
    (void)state;
    enum { N = 30 };
    static const size_t sizes[] = {1, 65, 70000, 262145, 800000};
    struct pair p;
    struct seal there, back;
    join(&p);
    seals(&there, &back);
    for (uint32_t i = 0; i < N; i++) {
        const size_t n = sizes[i % (sizeof sizes / sizeof *sizes)];
        for (int end = 0; end < 2; end++) {
            age(p.x[end]);
            post(p.x[end], 1 - (uint32_t)end, i, n, false);
            send_one(p.x[end], 1 - (uint32_t)end, i, n);
        }
        for (int end = 0; end < 2; end++)
            receive(p.x[end], 1 - (uint32_t)end, i, n);
    }
    struct lane *a = &p.x[0]->neighbors[0].lanes[0], *b = &p.x[1]->neighbors[0].lanes[0];
    assert_false(a->broken || b->broken);
    pthread_mutex_lock(&p.x[0]->lock);
    assert_memory_not_equal(a->tx.key, there.key, sizeof there.key);
    pthread_mutex_unlock(&p.x[0]->lock);
    pthread_mutex_lock(&p.x[1]->lock);
    assert_memory_not_equal(b->tx.key, back.key, sizeof back.key);
    pthread_mutex_unlock(&p.x[1]->lock);
    part(&p);
}

/* One record that says nothing but that its key ends. */
static void expect_last_of_key(int fd, struct seal *from)
{
    uint8_t record[SEAL_HEAD + HEAD + SEAL_TAG];
    assert_int_equal(recv(fd, record, sizeof record, MSG_WAITALL), sizeof record);
    assert_int_equal(seal_open(from, record, record + SEAL_HEAD, HEAD, record + SEAL_HEAD + HEAD), 0);
    assert_int_equal(record[SEAL_HEAD], FRAME_REKEY);
    assert_int_equal(seal_ratchet(from), 0);
}

static void a_lane_with_nothing_to_say_changes_its_key(void **state)
{
    (void)state;
    struct pair p;
    struct seal there, back;
    const int fd = half(&p);
    seals(&there, &back);
    const uint64_t first = atomic_load(&p.progress[0].lanes[0].keyed_us);
    assert_true(first > 0);
    pthread_mutex_lock(&p.x[0]->lock);
    p.x[0]->rekey_ns = 1000000;
    exchange_wake_sender(&p.x[0]->neighbors[0].lanes[0]);
    pthread_mutex_unlock(&p.x[0]->lock);
    for (int i = 0; i < 3; i++)
        expect_last_of_key(fd, &there);
    assert_true(atomic_load(&p.progress[0].lanes[0].keyed_us) > first);
    close(fd);
    exchange_free(p.x[0]);
}

static void keys_differ_in_every_part(void **state)
{
    (void)state;
    struct pair p;
    join(&p);
    struct msg_key keys[4] = {{1, 2, 3, 4}, {9, 2, 3, 4}, {1, 9, 3, 4}, {1, 2, 9, 4}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(exchange_post(p.x[1], 0, &keys[i], 1, false), 0);
        uint8_t *buffer = exchange_buffer(p.x[0], 1);
        *buffer = (uint8_t)i;
        assert_int_equal(exchange_send(p.x[0], 1, &keys[i], buffer, 1), 0);
    }
    for (int i = 3; i >= 0; i--) {
        size_t n;
        while (!exchange_ready(p.x[1], 0, &keys[i]))
            exchange_wait(p.x[1]);
        uint8_t *buffer = exchange_take(p.x[1], 0, &keys[i], &n);
        assert_int_equal(*buffer, i);
        exchange_release(p.x[1], buffer);
    }
    part(&p);
}

static void a_variable_message_may_be_shorter(void **state)
{
    (void)state;
    struct pair p;
    join(&p);
    post(p.x[1], 0, 0, 500000, true);
    send_one(p.x[0], 1, 0, 300000);
    receive(p.x[1], 0, 0, 300000);
    post(p.x[1], 0, 1, 10, true);
    send_one(p.x[0], 1, 1, 0);
    receive(p.x[1], 0, 1, 0);
    part(&p);
}

static void buffers_are_used_again(void **state)
{
    (void)state;
    struct pair p;
    join(&p);
    void *a = exchange_buffer(p.x[0], 4096), *b = exchange_buffer(p.x[0], 4096);
    exchange_release(p.x[0], a);
    exchange_release(p.x[0], NULL);
    assert_ptr_equal(exchange_buffer(p.x[0], 4000), a);
    void *other = exchange_buffer(p.x[0], 4000);
    assert_ptr_not_equal(other, b);
    exchange_release(p.x[0], other);
    exchange_release(p.x[0], a);
    void *small = exchange_buffer(p.x[0], 100); /* not a large one for a small message */
    assert_ptr_not_equal(small, a);
    exchange_release(p.x[0], small);
    exchange_release(p.x[0], b);
    part(&p);
}

/* --- endings ---------------------------------------------------------------------------------- */

/* The connection breaks, and whoever has to make another one is told why. */
struct loss {
    sem_t said;
    uint32_t rank;
    char why[128];
};

static void on_lost(void *owner, uint32_t rank, uint64_t path, const char *why)
{
    struct loss *l = owner;
    (void)path;
    l->rank = rank;
    snprintf(l->why, sizeof l->why, "%s", why);
    sem_post(&l->said);
}

static void watch(struct loss *l, struct exchange *x)
{
    sem_init(&l->said, 0, 0);
    exchange_on_lost(x, on_lost, l);
}

static void ends_with(struct loss *l, uint32_t from, const char *want)
{
    sem_wait(&l->said);
    assert_int_equal(l->rank, from);
    assert_string_equal(l->why, want);
    sem_destroy(&l->said);
}

static void another_size_is_a_protocol_error(void **state)
{
    (void)state;
    static const struct {
        size_t sent, room;
        bool variable;
    } wrong[] = {{10, 11, false}, {11, 10, false}, {11, 10, true}};
    for (size_t i = 0; i < 3; i++) {
        struct pair p;
        struct loss loss;
        join(&p);
        watch(&loss, p.x[1]);
        post(p.x[1], 0, 0, wrong[i].room, wrong[i].variable);
        send_one(p.x[0], 1, 0, wrong[i].sent);
        ends_with(&loss, 0, "it sent a message that the plan does not know");
        part(&p);
    }
}

static void a_closed_end_is_named(void **state)
{
    (void)state;
    struct pair p;
    struct loss loss;
    join(&p);
    watch(&loss, p.x[0]);
    post(p.x[0], 1, 0, 10, false);
    exchange_free(p.x[1]);
    ends_with(&loss, 1, "closed by the other end");
    send_one(p.x[0], 1, 3, 10); /* waits for another connection */
    assert_int_equal(exchange_flush(p.x[0], 0), -ETIME);
    p.x[1] = NULL;
    part(&p);
}

/* It is said once somebody asks: else nobody would make another connection. */
static void a_lane_that_broke_before_is_named(void **state)
{
    (void)state;
    struct pair p;
    struct loss loss;
    int fd = half(&p);
    const struct msg_key key = key_of(0);
    post(p.x[0], 1, 0, 10, false);
    assert_int_equal(exchange_ready(p.x[0], 1, &key), 0);
    close(fd);
    exchange_wait(p.x[0]); /* until it has broken */
    watch(&loss, p.x[0]);
    ends_with(&loss, 1, "closed by the other end");
    part(&p);
}

static void noise_is_not_believed(void **state)
{
    (void)state;
    struct pair p;
    int fd = half(&p);
    uint8_t noise[4 + 32 + 16] = {32};
    struct loss loss;
    memset(noise + 4, 0x5a, sizeof noise - 4);
    watch(&loss, p.x[0]);
    post(p.x[0], 1, 0, 10, false);
    assert_int_equal(write(fd, noise, sizeof noise), sizeof noise);
    ends_with(&loss, 1, "a record was forged or damaged on the way");
    part(&p);
    close(fd);

    static const uint8_t long_record[4] = {0xff, 0xff, 0xff, 0xff};
    fd = half(&p);
    watch(&loss, p.x[0]);
    post(p.x[0], 1, 0, 10, false);
    assert_int_equal(write(fd, long_record, 4), 4);
    ends_with(&loss, 1, strerror(EMSGSIZE));
    part(&p);
    close(fd);
}

static void what_has_arrived_outlives_the_connection(void **state)
{
    (void)state;
    struct pair p;
    struct loss loss;
    join(&p);
    watch(&loss, p.x[1]);
    post(p.x[1], 0, 1, 50, false);
    post(p.x[1], 0, 0, 50, false);
    send_one(p.x[0], 1, 1, 50);
    assert_int_equal(exchange_flush(p.x[0], 10), 0);
    exchange_free(p.x[0]);
    p.x[0] = NULL;
    ends_with(&loss, 0, "closed by the other end");
    receive(p.x[1], 0, 1, 50);
    part(&p);
}

static void *read_and_leave(void *arg)
{
    struct pair *p = arg;
    int r = await(p->x[1], 0, 0);
    if (exchange_flush(p->x[1], 10)) /* what it has read is acknowledged before it goes */
        r = -ETIME;
    exchange_free(p->x[1]);
    return r == 1 ? NULL : p;
}

/* The last message of a job: its reader closes at once, and that must not look as if it had not
 * left. */
static void a_last_message_has_left(void **state)
{
    (void)state;
    for (int turn = 0; turn < 300; turn++) {
        struct pair p;
        pthread_t reader;
        void *failed;
        join(&p);
        post(p.x[1], 0, 0, 100, false);
        assert_int_equal(pthread_create(&reader, NULL, read_and_leave, &p), 0);
        send_one(p.x[0], 1, 0, 100);
        int r = exchange_flush(p.x[0], 10);
        pthread_join(reader, &failed);
        assert_null(failed);
        assert_int_equal(r, 0);
        exchange_free(p.x[0]);
    }
}

static void waiting_for_room_has_a_limit(void **state)
{
    (void)state;
    struct pair p;
    join(&p);
    send_one(p.x[0], 1, 0, 10); /* never posted there */
    assert_int_equal(exchange_flush(p.x[0], 0), -ETIME);
    part(&p);
}

static void *wait_for_one(void *arg)
{
    const struct pair *p = arg;
    const struct msg_key key = key_of(0);
    int r;
    while (!(r = exchange_ready(p->x[0], 1, &key)))
        exchange_wait(p->x[0]);
    return (void *)(intptr_t)r;
}

static void who_waits_hears_that_it_is_abandoned(void **state)
{
    (void)state;
    struct pair p;
    pthread_t waiting;
    void *heard;
    join(&p);
    post(p.x[0], 1, 0, 100, false); /* never sent */
    assert_int_equal(pthread_create(&waiting, NULL, wait_for_one, &p), 0);
    exchange_abandon(p.x[0]);
    assert_int_equal(pthread_join(waiting, &heard), 0);
    assert_int_equal((intptr_t)heard, -ECANCELED);
    assert_int_equal(exchange_room(p.x[0], 1, 1), -ECANCELED);
    send_one(p.x[0], 1, 1, 100); /* never posted there */
    assert_int_equal(exchange_flush(p.x[0], 1000), -ECANCELED);
    part(&p);
}

static void strangers_are_no_neighbors(void **state)
{
    (void)state;
    struct pair p;
    struct msg_key key = key_of(0);
    struct seal a, b;
    struct err err = {""};
    int fd[2];
    size_t n;
    join(&p);
    assert_int_equal(exchange_post(p.x[0], 5, &key, 1, false), -ENOTCONN);
    assert_int_equal(exchange_ready(p.x[0], 5, &key), -ENOTCONN);
    assert_int_equal(exchange_room(p.x[0], 5, 1), -ENOTCONN);
    assert_null(exchange_take(p.x[0], 5, &key, &n));
    assert_int_equal(exchange_send(p.x[0], 5, &key, exchange_buffer(p.x[0], 1), 1), -ENOTCONN);
    seals(&a, &b);
    for (uint32_t rank = 2; rank <= 16; rank++) { /* with rank 1 there are 15 of them, and one more */
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        assert_int_equal(exchange_add(p.x[0], rank, 1, fd[0], &a, &b, &err), rank < 16 ? 0 : -E2BIG);
        close(fd[1]);
    }
    assert_string_equal(err.text, "rank 16 is one more than the 15 that a job can have");
    close(fd[0]);
    part(&p);
    exchange_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_arrives),
        cmocka_unit_test(old_keys_are_left_behind),
        cmocka_unit_test(a_lane_with_nothing_to_say_changes_its_key),
        cmocka_unit_test(both_ways_at_once),
        cmocka_unit_test(keys_differ_in_every_part),
        cmocka_unit_test(a_variable_message_may_be_shorter),
        cmocka_unit_test(buffers_are_used_again),
        cmocka_unit_test(another_size_is_a_protocol_error),
        cmocka_unit_test(a_closed_end_is_named),
        cmocka_unit_test(a_lane_that_broke_before_is_named),
        cmocka_unit_test(noise_is_not_believed),
        cmocka_unit_test(what_has_arrived_outlives_the_connection),
        cmocka_unit_test(a_last_message_has_left),
        cmocka_unit_test(waiting_for_room_has_a_limit),
        cmocka_unit_test(who_waits_hears_that_it_is_abandoned),
        cmocka_unit_test(strangers_are_no_neighbors),
    };
    return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
