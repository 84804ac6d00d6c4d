/* SPDX-License-Identifier: MIT
 *
 * Changes of keys on a link that is up: both ends agree, no frame is lost, old keys are gone, and
 * who does not keep to it is cut. */
#include "tests/unit/net/link_world.h"

#include <netinet/tcp.h>

#include "net/link_impl.h"

enum { CHANGES = 50 };

static uint64_t changes_of(const struct link *link)
{
    struct link_stats stats;

    link_stats(link, &stats);
    return stats.rekeys;
}

static void stop_when_both_changed(struct side *side)
{
    const struct world *w = side->world;

    if (w->a.link && w->b.link && changes_of(w->a.link) && changes_of(w->b.link))
        stop(side);
}

static void expect_same_keys(const struct world *w)
{
    assert_memory_equal(w->a.link->tx.key, w->b.link->rx.key, 32);
    assert_memory_equal(w->a.link->rx.key, w->b.link->tx.key, 32);
    assert_memory_not_equal(w->a.link->tx.key, w->a.link->rx.key, 32);
}

static void stop_when_no_change_is_under_way(struct side *side)
{
    const struct world *w = side->world;

    if (!w->a.link->rekey.asked && !w->b.link->rekey.answered)
        stop_when_both_changed(side);
}

/* Frames of both ends before, between and behind the words of each change. */
static void next_change(struct side *b)
{
    struct world *w = b->world;

    if (b->frames == 2 * CHANGES) {
        stop(b);
        return;
    }
    if (b->frames % 2)
        return;
    assert_int_equal(link_send(w->a.link, LINK_FRAME_USER, "before", 6), 0);
    link_rekey(w->a.link);
    assert_int_equal(link_send(w->a.link, LINK_FRAME_USER, "behind", 6), 0);
    assert_int_equal(link_send(w->b.link, LINK_FRAME_USER, "back", 4), 0);
}

static void keys_change_between_frames(void **state)
{
    struct world *w = *state;
    uint8_t first[32];

    w->a.setup.beat_us = w->b.setup.beat_us = 10000;
    bring_up(w);
    memcpy(first, w->a.link->tx.key, sizeof first);
    w->b.on_frame = next_change;
    next_change(&w->b);
    run(w);
    w->b.on_frame = NULL;
    w->a.on_beaten = w->b.on_beaten = stop_when_no_change_is_under_way;
    run(w);
    assert_int_equal(w->a.downs + w->b.downs, 0);
    assert_int_equal(w->b.frames, 2 * CHANGES);
    assert_true(changes_of(w->a.link) > 0);
    assert_memory_not_equal(w->a.link->tx.key, first, sizeof first);
    expect_same_keys(w);
}

static void nothing_is_left_of_a_change(void **state)
{
    static const struct link_rekey nothing;
    struct world *w = *state;

    bring_up(w);
    w->a.on_beaten = w->b.on_beaten = stop_when_both_changed;
    w->a.link->keyed_at.us = w->b.link->keyed_at.us = 0;
    link_rekey(w->a.link);
    link_rekey(w->a.link); /* one at a time */
    assert_int_equal(link_send(w->b.link, LINK_FRAME_USER, "x", 1), 0);
    w->a.on_frame = w->b.on_frame = stop;
    while (!changes_of(w->a.link) || !changes_of(w->b.link))
        event_base_loop(w->base, EVLOOP_ONCE);
    assert_int_equal(changes_of(w->a.link) + changes_of(w->b.link), 2);
    expect_same_keys(w);
    assert_memory_equal(&w->a.link->rekey, &nothing, sizeof nothing);
    assert_memory_equal(&w->b.link->rekey, &nothing, sizeof nothing);
    assert_true(w->a.link->keyed_at.us > 0);
    assert_true(w->b.link->keyed_at.us > 0);
}

static void old_keys_are_changed_by_themselves(void **state)
{
    struct world *w = *state;

    w->a.setup.beat_us = w->b.setup.beat_us = 10000;
    bring_up(w);
    w->a.link->keyed_at.us -= LINK_REKEY_US;
    w->b.link->keyed_at.us -= LINK_REKEY_US;
    w->a.on_beaten = w->b.on_beaten = stop_when_both_changed;
    run(w);
    expect_same_keys(w);
    assert_int_equal(w->a.downs + w->b.downs, 0);
}

/* Keys that were new while our own loop stood still are not from a time to come. */
static void a_loop_that_stood_still_makes_no_key_newer_than_now(void **state)
{
    struct world *w = *state;
    struct link *a;

    bring_up(w);
    a = w->a.link;
    a->keyed_at = a->last_heard = clock_now();
    a->due.us = a->keyed_at.us - 5 * LINK_LATE_US;
    link_session_tick(a);
    assert_int_equal(w->a.downs, 0);
    assert_true(a->keyed_at.us <= clock_now().us);
    assert_true(a->last_heard.us <= clock_now().us);
}

static void who_never_changes_is_cut(void **state)
{
    struct world *w = *state;

    w->b.setup.beat_us = 10000;
    bring_up(w);
    w->b.link->keyed_at.us -= LINK_REKEY_US + LINK_REKEY_US / 2; /* a dialer that forgot */
    w->b.on_down = stop;
    while (!w->b.downs)
        run(w);
    expect_end(&w->b, LINK_END_PROTOCOL, "did not change keys in time");
}

static void what_makes_no_key_is_refused(void **state)
{
    static const struct {
        bool from_dialer;
        struct wire_rekey word;
    } cases[] = {
        {false, {.step = WIRE_REKEY_ASK, .key = {9}}},
        {true, {.step = WIRE_REKEY_ASK}}, /* zero: no secret */
        {false, {.step = WIRE_REKEY_ANSWER, .key = {9}}},
        {true, {.step = WIRE_REKEY_ANSWER, .key = {9}}},
        {true, {.step = WIRE_REKEY_DONE}},
        {false, {.step = WIRE_REKEY_DONE}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t body[WIRE_REKEY_MAX];
        struct world *w;

        if (i > 0)
            world_setup(state);
        w = *state;
        bring_up(w);
        struct side *from = cases[i].from_dialer ? &w->a : &w->b, *to = cases[i].from_dialer ? &w->b : &w->a;
        const int n = wire_rekey_encode(&cases[i].word, body);
        assert_int_equal(link_session_send(from->link, WIRE_REKEY, body, (size_t)n), 0);
        to->on_down = stop;
        from->on_down = NULL;
        while (!to->downs)
            run(w);
        expect_end(to, LINK_END_PROTOCOL, "changes keys in a way that makes none");
        if (i + 1 < sizeof cases / sizeof *cases)
            world_teardown(state);
    }
}

static unsigned user_timeout(const struct link *link)
{
    unsigned ms = 0;
    socklen_t n = sizeof ms;

    assert_int_equal(getsockopt(link->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &n), 0);
    return ms;
}

/* Of a data link nothing may end the connection but its ends: a rank may compute for an hour. */
static void only_control_links_have_a_time_limit_in_the_kernel(void **state)
{
    struct world *w = *state;

    w->a.setup.dead_us = w->b.setup.dead_us = 7000000;
    bring_up(w);
    assert_int_equal(user_timeout(w->a.link), 7000);
    assert_int_equal(user_timeout(w->b.link), 7000);
    world_teardown(state);
    world_setup(state);
    w = *state;
    w->a.setup.kind = LINK_DATA;
    w->a.setup.hello.job = 77;
    w->a.setup.hello.dim = 4096;
    snprintf(w->a.setup.hello.fingerprint, sizeof w->a.setup.hello.fingerprint,
             "0123456789abcdef0123456789abcdef");
    bring_up(w);
    assert_int_equal(user_timeout(w->a.link), 0);
    assert_int_equal(user_timeout(w->b.link), 0);
    link_rekey(w->a.link); /* nor do they change keys here: records are their owner's */
    assert_false(w->a.link->rekey.asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(keys_change_between_frames),
        TEST(nothing_is_left_of_a_change),
        TEST(old_keys_are_changed_by_themselves),
        TEST(who_never_changes_is_cut),
        TEST(a_loop_that_stood_still_makes_no_key_newer_than_now),
        TEST(what_makes_no_key_is_refused),
        TEST(only_control_links_have_a_time_limit_in_the_kernel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
