/* SPDX-License-Identifier: MIT
 *
 * The compute thread in place of receivers: it reads messages, hears breaks and the end of a job,
 * gives lanes back, and stands still in no send that waits for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/stage/exchange/exchange_impl.h"
#include "daemon/common/progress.h"

enum { GUARD_S = 20 };

struct end {
    struct exchange *x;
    struct progress progress;
    uint32_t self, others[2], n; /* ranks */
    uint32_t rounds;
    size_t size;
    int failed;
};

static void join(struct end *a, struct end *b)
{
    const uint8_t there[32] = {1}, back[32] = {2};
    struct seal out, in;
    struct err err = {""};
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    seal_init(&out, there, SEAL_CHACHA20_POLY1305);
    seal_init(&in, back, SEAL_CHACHA20_POLY1305);
    assert_int_equal(exchange_add(a->x, b->self, 1, fd[0], &out, &in, &err), 0);
    assert_int_equal(exchange_add(b->x, a->self, 1, fd[1], &in, &out, &err), 0);
}

static void begin(struct end *e, uint32_t self)
{
    struct err err = {""};
    *e = (struct end){.self = self};
    assert_int_equal(exchange_new(&e->x, &e->progress, &err), 0);
}

static struct msg_key key_of(uint32_t from, uint32_t to, uint32_t mb)
{
    return (struct msg_key){1, MSG_SLICE, (uint16_t)(16 * from + to), mb};
}

static void post(struct end *e, uint32_t from, uint32_t mb)
{
    const struct msg_key key = key_of(from, e->self, mb);
    e->failed |= exchange_post(e->x, from, &key, e->size, false);
}

static void say(struct end *e, uint32_t to, uint32_t mb)
{
    const struct msg_key key = key_of(e->self, to, mb);
    uint8_t *buffer = exchange_buffer(e->x, e->size);
    memset(buffer, (int)(mb + e->self), e->size);
    e->failed |= exchange_send(e->x, to, &key, buffer, e->size);
}

static int await(struct end *e, uint32_t from, uint32_t mb)
{
    const struct msg_key key = key_of(from, e->self, mb);
    int r;
    while (!(r = exchange_ready(e->x, from, &key)))
        exchange_wait(e->x);
    return r;
}

static void hear(struct end *e, uint32_t from, uint32_t mb)
{
    const struct msg_key key = key_of(from, e->self, mb);
    size_t n = 0;
    const int r = await(e, from, mb);
    uint8_t *buffer = r == 1 ? exchange_take(e->x, from, &key, &n) : NULL;
    e->failed |= !buffer || n != e->size;
    for (size_t i = 0; i < n; i++)
        e->failed |= buffer[i] != (uint8_t)(mb + from);
    exchange_release(e->x, buffer);
}

/* Each round all say something to all. */
static void *run(void *arg)
{
    struct end *e = arg;
    for (uint32_t i = 0; i < e->n; i++)
        post(e, e->others[i], 0);
    for (uint32_t mb = 0; mb < e->rounds && !e->failed; mb++) {
        for (uint32_t i = 0; i < e->n; i++)
            e->failed |= exchange_attend(e->x, e->others[i]);
        for (uint32_t i = 0; i < e->n; i++) {
            post(e, e->others[i], mb + 1);
            say(e, e->others[i], mb);
        }
        for (uint32_t i = 0; i < e->n; i++)
            hear(e, e->others[i], mb);
        if (mb % 50 == 49)
            exchange_leave(e->x);
    }
    e->failed |= exchange_flush(e->x, GUARD_S);
    return NULL;
}

/* All that fits and more, and only then it listens. */
static void *say_all_then_hear(void *arg)
{
    struct end *e = arg;
    e->failed |= exchange_attend(e->x, e->others[0]);
    for (uint32_t mb = 1; mb <= e->rounds; mb++)
        say(e, e->others[0], mb);
    for (uint32_t mb = 1; mb <= e->rounds; mb++)
        hear(e, e->others[0], mb);
    e->failed |= exchange_flush(e->x, GUARD_S);
    return NULL;
}

static void meet(struct end *ends, size_t n, size_t size)
{
    for (uint32_t i = 0; i < n; i++)
        begin(&ends[i], i);
    for (uint32_t i = 0; i < n; i++) {
        ends[i].size = size;
        for (uint32_t k = 0; k < n; k++)
            if (k != i)
                ends[i].others[ends[i].n++] = k;
        for (uint32_t k = i + 1; k < n; k++)
            join(&ends[i], &ends[k]);
    }
}

static void talk_with(struct end *ends, size_t n, void *(*how)(void *end))
{
    pthread_t threads[3];
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, how, &ends[i]), 0);
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ends[i].failed, 0);
}

static void talk(struct end *ends, size_t n, uint32_t rounds)
{
    for (size_t i = 0; i < n; i++)
        ends[i].rounds = rounds;
    talk_with(ends, n, run);
}

static void end(struct end *ends, size_t n)
{
    for (size_t i = 0; i < n; i++)
        exchange_free(ends[i].x);
}

/* With the lock held, a state that the other thread comes to by itself. */
static bool is_so(struct exchange *x, const bool *state)
{
    pthread_mutex_lock(&x->lock);
    const bool is = *state;
    pthread_mutex_unlock(&x->lock);
    return is;
}

static unsigned readers_of(struct exchange *x)
{
    unsigned n = 0;
    pthread_mutex_lock(&x->lock);
    for (size_t i = 0; i < MAX_LANES; i++)
        n += x->neighbors[0].lanes[i].readers;
    pthread_mutex_unlock(&x->lock);
    return n;
}

/* Until receivers have made room. */
static void attend(struct end *e, uint32_t rank)
{
    const struct msg_key none = key_of(rank, e->self, 99);
    assert_int_equal(exchange_attend(e->x, rank), 0);
    while (assert_int_equal(exchange_ready(e->x, rank, &none), 0), readers_of(e->x))
        exchange_wait(e->x);
}

/* --- messages --------------------------------------------------------------------------------- */

static void small_and_large_messages_of_two_and_three(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, EXCHANGE_SMALL - 1, EXCHANGE_SMALL, 3 * EXCHANGE_CHUNK + 1};
    for (size_t n = 2; n <= 3; n++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct end ends[3];
            meet(ends, n, sizes[i]);
            talk(ends, n, 120);
            end(ends, n);
        }
}

static void read_key(struct end *e, uint8_t ret[32])
{
    pthread_mutex_lock(&e->x->lock);
    memcpy(ret, e->x->neighbors[0].lanes[0].tx.key, 32);
    pthread_mutex_unlock(&e->x->lock);
}

static void keys_change(void **state)
{
    (void)state;
    struct end ends[2];
    meet(ends, 2, 100);
    uint8_t before[32], after[32];
    read_key(&ends[0], before);
    for (size_t i = 0; i < 2; i++) {
        pthread_mutex_lock(&ends[i].x->lock);
        ends[i].x->rekey_ns = 1000;
        pthread_mutex_unlock(&ends[i].x->lock);
    }
    talk(ends, 2, 300);
    read_key(&ends[0], after);
    assert_memory_not_equal(before, after, sizeof before);
    end(ends, 2);
}

/* Nothing comes from the one that is attended, and all from the other. */
static void *attend_one_hear_the_other(void *arg)
{
    struct end *e = arg;
    const uint32_t from = e->self == 0 ? 2 : 0;
    e->failed |= e->self == 0 && exchange_attend(e->x, 1);
    if (e->self != 1)
        post(e, from, 0);
    for (uint32_t mb = 0; mb < e->rounds && e->self != 1 && !e->failed; mb++) {
        post(e, from, mb + 1);
        say(e, from, mb);
        hear(e, from, mb);
    }
    e->failed |= exchange_flush(e->x, GUARD_S);
    return NULL;
}

static void who_attends_to_one_hears_the_other(void **state)
{
    (void)state;
    struct end ends[3];
    meet(ends, 3, 100);
    for (size_t i = 0; i < 3; i++)
        ends[i].rounds = 5000;
    talk_with(ends, 3, attend_one_hear_the_other);
    end(ends, 3);
}

/* Receivers do not come back by themselves, and do once they may. */
static void receivers_make_room(void **state)
{
    (void)state;
    struct end ends[2];
    meet(ends, 2, 100);
    attend(&ends[0], 1);
    post(&ends[0], 1, 0);
    exchange_kick(ends[0].x); /* it goes with the next message, or as soon as the thread sleeps */
    say(&ends[1], 0, 0);
    hear(&ends[0], 1, 0);
    assert_int_equal(readers_of(ends[0].x), 0);
    exchange_leave(ends[0].x);
    post(&ends[0], 1, 1);
    exchange_kick(ends[0].x);
    say(&ends[1], 0, 1);
    hear(&ends[0], 1, 1);
    exchange_kick(ends[0].x);
    assert_int_equal(exchange_flush(ends[1].x, GUARD_S), 0);
    end(ends, 2);
}

/* More than sockets hold, from both sides at once: each would wait in send for the other to
 * read. */
static void nobody_stands_still_in_send(void **state)
{
    (void)state;
    enum { MANY = 60 };
    struct end ends[2];
    meet(ends, 2, EXCHANGE_SMALL - 1);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t mb = 0; mb <= MANY; mb++)
            post(&ends[i], !i, mb);
        exchange_kick(ends[i].x);
    }
    for (uint32_t i = 0; i < 2; i++) /* from here on both know that the other has room for all */
        say(&ends[i], !i, 0);
    for (uint32_t i = 0; i < 2; i++) {
        hear(&ends[i], !i, 0);
        ends[i].rounds = MANY;
    }
    talk_with(ends, 2, say_all_then_hear);
    end(ends, 2);
}

/* --- what ends a wait ------------------------------------------------------------------------- */

struct waiting {
    struct end *e;
    int answer;
    pthread_t thread;
};

static void *wait_for_one(void *arg)
{
    struct waiting *w = arg;
    post(w->e, 1, 0);
    w->answer = await(w->e, 1, 0);
    return NULL;
}

static void wait_begin(struct waiting *w, struct end *e)
{
    *w = (struct waiting){.e = e};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_one, w), 0);
}

static void the_end_of_a_job_wakes_who_sleeps(void **state)
{
    (void)state;
    struct end ends[2];
    struct waiting w;
    meet(ends, 2, 100);
    attend(&ends[0], 1);
    wait_begin(&w, &ends[0]);
    while (!is_so(ends[0].x, &ends[0].x->polling))
        sched_yield();
    exchange_abandon(ends[0].x);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.answer, -ECANCELED);
    exchange_free(ends[0].x);
    exchange_free(ends[1].x);
}

static void count_loss(void *owner, uint32_t rank, uint64_t path, const char *why)
{
    (void)rank;
    (void)path;
    (void)why;
    ++*(int *)owner;
}

/* The other end stops within a record, on both of its lanes: when the thread lets go of the first,
 * it does not begin with the second. No lane is blamed for that once the job ends. */
static void the_end_of_a_job_wakes_who_has_half_a_record(void **state)
{
    (void)state;
    const uint8_t key[32] = {1}, half[SEAL_HEAD + HEAD] = {HEAD};
    struct end e;
    struct seal tx, rx;
    struct err err = {""};
    struct waiting w;
    int fd[2][2], lost = 0;
    begin(&e, 0);
    seal_init(&tx, key, SEAL_CHACHA20_POLY1305);
    seal_init(&rx, key, SEAL_CHACHA20_POLY1305);
    exchange_on_lost(e.x, count_loss, &lost);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd[i]), 0);
        assert_int_equal(exchange_add(e.x, 1, 1 + i, fd[i][0], &tx, &rx, &err), 0);
    }
    const struct lane *l = e.x->neighbors[0].lanes;
    attend(&e, 1);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(send(fd[i][1], half, sizeof half, MSG_NOSIGNAL), sizeof half);
    wait_begin(&w, &e);
    while (!is_so(e.x, &l[0].read_here))
        sched_yield();
    exchange_abandon(e.x);
    pthread_join(w.thread, NULL);
    assert_int_equal(w.answer, -ECANCELED);
    assert_int_equal(lost, 0);
    exchange_free(e.x);
    for (size_t i = 0; i < 2; i++)
        close(fd[i][1]);
}

/* Its lane breaks while the compute thread sleeps, and the message comes over another one. */
static void a_lane_takes_the_place_of_a_broken_one(void **state)
{
    (void)state;
    struct end ends[2];
    struct waiting w;
    for (int again = 0; again < 2; again++) { /* the second time in the place of the first */
        meet(ends, 2, 100);
        attend(&ends[0], 1);
        wait_begin(&w, &ends[0]);
        for (int i = 0; i <= again; i++) {
            while (!is_so(ends[0].x, &ends[0].x->polling))
                sched_yield();
            exchange_keep(ends[0].x, NULL, 0);
            while (!is_so(ends[0].x, &ends[0].x->neighbors[0].lanes[0].broken))
                sched_yield();
            join(&ends[0], &ends[1]);
        }
        say(&ends[1], 0, 0);
        exchange_kick(ends[1].x);
        pthread_join(w.thread, NULL);
        assert_int_equal(w.answer, 1);
        exchange_free(ends[0].x);
        exchange_free(ends[1].x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_and_large_messages_of_two_and_three),
        cmocka_unit_test(keys_change),
        cmocka_unit_test(who_attends_to_one_hears_the_other),
        cmocka_unit_test(receivers_make_room),
        cmocka_unit_test(nobody_stands_still_in_send),
        cmocka_unit_test(the_end_of_a_job_wakes_who_sleeps),
        cmocka_unit_test(the_end_of_a_job_wakes_who_has_half_a_record),
        cmocka_unit_test(a_lane_takes_the_place_of_a_broken_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
