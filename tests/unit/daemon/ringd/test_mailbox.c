/* SPDX-License-Identifier: MIT
 *
 * The mailbox: order, posts from calls, forgetting, many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <event2/event.h>
#include <pthread.h>

#include "daemon/ringd/mailbox.h"

enum { THREADS = 4, POSTS = 500 };

struct fixture {
    struct event_base *base;
    struct mailbox *box;
    int seen[16];
    int n;
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.base = event_base_new()};
    assert_int_equal(mailbox_new(&f.box, f.base), 0);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    mailbox_free(f->box);
    event_base_free(f->base);
    return 0;
}

struct note {
    struct fixture *f;
    int value;
};

static void take(void *arg)
{
    struct note *note = arg;
    note->f->seen[note->f->n++] = note->value;
}

static void calls_come_in_order(void **state)
{
    struct fixture *f = *state;
    struct note notes[3] = {{f, 1}, {f, 2}, {f, 3}};
    for (int i = 0; i < 3; i++)
        mailbox_post(f->box, take, &notes[i]);
    event_base_loop(f->base, EVLOOP_ONCE);
    assert_int_equal(f->n, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(f->seen[i], i + 1);
}

static void post_again(void *arg)
{
    struct note *note = arg;
    take(note);
    mailbox_post(note->f->box, take, note);
}

static void a_post_from_a_call_waits_for_the_next_turn(void **state)
{
    struct fixture *f = *state;
    struct note note = {f, 7};
    mailbox_post(f->box, post_again, &note);
    event_base_loop(f->base, EVLOOP_ONCE);
    assert_int_equal(f->n, 1);
    event_base_loop(f->base, EVLOOP_ONCE);
    assert_int_equal(f->n, 2);
}

static void forget_first(void *arg)
{
    struct note *note = arg;
    take(note);
    mailbox_forget(note->f->box, note + 1);
}

static void what_is_forgotten_is_not_called(void **state)
{
    struct fixture *f = *state;
    struct note notes[3] = {{f, 1}, {f, 2}, {f, 3}};
    mailbox_post(f->box, forget_first, &notes[0]);
    mailbox_post(f->box, take, &notes[1]);
    mailbox_post(f->box, take, &notes[2]);
    mailbox_post(f->box, take, &notes[1]);
    event_base_loop(f->base, EVLOOP_ONCE);
    assert_int_equal(f->n, 2);
    assert_int_equal(f->seen[1], 3);
    /* The queue's end is still in order. */
    mailbox_post(f->box, take, &notes[1]);
    event_base_loop(f->base, EVLOOP_ONCE);
    assert_int_equal(f->seen[2], 2);
}

static void undelivered_posts_are_dropped(void **state)
{
    struct fixture *f = *state;
    struct note note = {f, 1};
    mailbox_post(f->box, take, &note);
    mailbox_free(f->box);
    f->box = NULL;
    event_base_loop(f->base, EVLOOP_NONBLOCK);
    assert_int_equal(f->n, 0);
}

static void count(void *arg)
{
    struct fixture *f = arg;
    if (++f->n == THREADS * POSTS)
        event_base_loopbreak(f->base);
}

static void *poster(void *arg)
{
    struct fixture *f = arg;
    for (int i = 0; i < POSTS; i++)
        mailbox_post(f->box, count, f);
    return NULL;
}

static void many_threads_lose_nothing(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, poster, f);
    event_base_dispatch(f->base);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(f->n, THREADS * POSTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_come_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_post_from_a_call_waits_for_the_next_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_forgotten_is_not_called, set_up, tear_down),
        cmocka_unit_test_setup_teardown(undelivered_posts_are_dropped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_threads_lose_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
