/* SPDX-License-Identifier: MIT
 *
 * The ways to other nodes, event by event with a fake clock: who dials when, what is waited for,
 * and which of two connections stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "daemon/ringd/peer/peering.h"

enum { S = 1000000 };

struct world {
    struct way way;
    struct instant now;
};

static struct world start(bool has_cluster)
{
    struct world w = {.now = {5 * (uint64_t)S}};
    way_init(&w.way, 7, has_cluster, w.now);
    return w;
}

static enum way_action tell(struct world *w, enum way_event event, const char *text)
{
    w->now.us += 1000;
    return way_step(&w->way, &(struct way_news){.event = event, .session = 3, .boot = 9, .text = text},
                    w->now);
}

/* Lets the running timer fire, which must be that one. */
static enum way_action fire(struct world *w, enum way_timer timer)
{
    assert_int_equal(w->way.timer, timer);
    assert_true(w->way.due.us >= w->now.us);
    w->now = w->way.due;
    return way_step(&w->way, &(struct way_news){.event = WAY_FIRED}, w->now);
}

static void is(const struct world *w, enum way_state state)
{
    assert_string_equal(way_state_name(w->way.state), way_state_name(state));
}

/* A cable whose smaller end we are, or are not, with a connection over it. */
static struct world connected(bool waits)
{
    struct world w = start(true);
    w.way.waits = waits;
    assert_int_equal(tell(&w, WAY_PLUGGED, NULL), waits ? WAY_NOTHING : WAY_DIAL);
    is(&w, waits ? WAY_WAITING : WAY_DIALING);
    assert_int_equal(tell(&w, WAY_CONNECTED, NULL), WAY_NOTHING);
    is(&w, WAY_UP);
    assert_string_equal(way_why(&w.way), "");
    return w;
}

static void nobody_is_called_without_a_cluster(void **state)
{
    (void)state;
    struct world w = start(false);
    assert_non_null(strstr(way_why(&w.way), "ringctl join"));
    assert_int_equal(w.way.timer, WAY_TIMER_NONE);
    assert_int_equal(tell(&w, WAY_OPENED, NULL), WAY_DIAL);
    assert_int_equal(tell(&w, WAY_CLOSED, NULL), WAY_NOTHING); /* the attempt goes on to its end */
    assert_int_equal(tell(&w, WAY_FAILED, "refused"), WAY_NOTHING);
    is(&w, WAY_IDLE);
}

static void attempts_grow_rarer(void **state)
{
    (void)state;
    struct world w = start(true);
    uint64_t wanted = WAY_BACKOFF_MS * UINT64_C(1000);
    assert_int_equal(tell(&w, WAY_OPENED, NULL), WAY_DIAL);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(tell(&w, WAY_FAILED, "no route to host"), WAY_NOTHING);
        is(&w, WAY_BACKING_OFF);
        assert_string_equal(way_why(&w.way), "no route to host");
        assert_in_range(w.way.due.us - w.now.us, wanted * 3 / 4, wanted * 5 / 4);
        wanted = wanted * 2 < WAY_BACKOFF_MAX_MS * UINT64_C(1000) ? wanted * 2
                                                                  : WAY_BACKOFF_MAX_MS * UINT64_C(1000);
        assert_int_equal(fire(&w, WAY_TIMER_BACKOFF), WAY_DIAL);
    }
    assert_int_equal(w.way.since.us, 5 * (uint64_t)S + 1000); /* one long attempt */
    tell(&w, WAY_FAILED, "no route to host");
    assert_int_equal(tell(&w, WAY_OPENED, NULL), WAY_DIAL); /* who belongs has changed: from the beginning */
    tell(&w, WAY_FAILED, "no route to host");
    assert_true(w.way.due.us - w.now.us <= WAY_BACKOFF_MS * UINT64_C(1250));
}

/* The other end was faster. Our own dial is answered late, or never: it must not end what
 * stands. */
static void an_overtaken_dial_is_ended(void **state)
{
    (void)state;
    struct world w = start(true);
    assert_int_equal(tell(&w, WAY_PLUGGED, NULL), WAY_DIAL);
    w.way.session = 2; /* ours; what is connected has number 3 */
    assert_int_equal(tell(&w, WAY_CONNECTED, NULL), WAY_HANG_UP);
    is(&w, WAY_UP);
    assert_int_equal(w.way.session, 3);
    tell(&w, WAY_LOST, "silent");
    assert_int_equal(fire(&w, WAY_TIMER_BACKOFF), WAY_DIAL);
    w.way.session = 3; /* our own is connected */
    assert_int_equal(tell(&w, WAY_CONNECTED, NULL), WAY_NOTHING);
    tell(&w, WAY_LOST, "silent"); /* no dial is under way */
    assert_int_equal(tell(&w, WAY_CONNECTED, NULL), WAY_NOTHING);
}

static void other_keys_are_tried_on_a_stranger(void **state)
{
    (void)state;
    struct world w = start(true);
    tell(&w, WAY_OPENED, NULL);
    tell(&w, WAY_FAILED, "no route to host");
    assert_int_equal(w.way.key_age, 0);
    fire(&w, WAY_TIMER_BACKOFF);
    tell(&w, WAY_STRANGER, "another cluster");
    assert_int_equal(w.way.key_age, 1);
}

/* A dial of which nothing is heard at all. */
static void a_swallowed_dial_is_dropped(void **state)
{
    (void)state;
    struct world w = start(true);
    tell(&w, WAY_OPENED, NULL);
    w.way.session = 3;
    assert_int_equal(fire(&w, WAY_TIMER_HANDSHAKE), WAY_DROP);
    assert_int_equal(w.way.session, 0);
    is(&w, WAY_BACKING_OFF);
}

/* The larger id waits; if nobody calls, a firewall there may let it out and nobody in. */
static void the_end_that_is_not_called_calls(void **state)
{
    (void)state;
    struct world w = start(true);
    w.way.waits = true;
    tell(&w, WAY_PLUGGED, NULL);
    assert_int_equal(fire(&w, WAY_TIMER_CALL), WAY_DIAL);
    tell(&w, WAY_FAILED, "b refused: removed");
    is(&w, WAY_WAITING);
    assert_string_equal(way_why(&w.way), "b refused: removed");
}

static void a_cable_that_is_out_says_so(void **state)
{
    (void)state;
    struct world w = connected(false);
    assert_int_equal(w.way.timer, WAY_TIMER_DEAD);
    assert_int_equal(tell(&w, WAY_UNPLUGGED, "the cable on eth1 is out"), WAY_DROP);
    is(&w, WAY_OUT);
    assert_string_equal(way_why(&w.way), "the cable on eth1 is out");
    assert_int_equal(tell(&w, WAY_OPENED, NULL), WAY_NOTHING);
    is(&w, WAY_OUT);
    struct world forgotten = w;
    assert_int_equal(fire(&forgotten, WAY_TIMER_FORGET), WAY_FORGOTTEN);
    assert_int_equal(tell(&w, WAY_PLUGGED, NULL), WAY_DIAL);
}

/* The new life may have called before its beacon was heard: that connection is not touched. */
static void a_restart_drops_nothing(void **state)
{
    (void)state;
    struct world w = connected(true);
    assert_int_equal(tell(&w, WAY_RESTARTED, "restarted"), WAY_NOTHING);
    is(&w, WAY_OUT);
    assert_int_equal(tell(&w, WAY_CONNECTED, NULL), WAY_NOTHING);
    assert_int_equal(tell(&w, WAY_PLUGGED, NULL), WAY_NOTHING);
    is(&w, WAY_UP);
    tell(&w, WAY_LOST, "silent");
    is(&w, WAY_WAITING); /* and not OUT: it was plugged in */
}

static void what_flaps_is_left_alone(void **state)
{
    (void)state;
    struct world w = connected(false);
    for (int i = 0; i < WAY_FLAPS - 1; i++) {
        w.now.us += 10 * (uint64_t)S;
        assert_int_equal(tell(&w, WAY_UNPLUGGED, "out"), WAY_DROP);
        assert_int_equal(tell(&w, WAY_PLUGGED, NULL), WAY_DIAL);
        tell(&w, WAY_CONNECTED, NULL);
    }
    tell(&w, WAY_LOST, "silent");
    is(&w, WAY_FLAPPING);
    assert_int_equal(w.way.due.us - w.now.us, WAY_HOLD_US);
    assert_int_equal(tell(&w, WAY_PLUGGED, NULL), WAY_NOTHING); /* the same boot: no reason to begin again */
    is(&w, WAY_FLAPPING);
    assert_int_equal(fire(&w, WAY_TIMER_HOLD), WAY_DIAL);
    tell(&w, WAY_CONNECTED, NULL);
    tell(&w, WAY_LOST, "silent");
    is(&w, WAY_BACKING_OFF); /* it counts from the beginning */
}

static void slow_flaps_and_restarts_do_not_count(void **state)
{
    (void)state;
    struct world w = connected(false);
    for (int i = 0; i < 5; i++) {
        w.now.us += 31 * (uint64_t)S;
        tell(&w, WAY_LOST, "silent");
        is(&w, WAY_BACKING_OFF);
        tell(&w, WAY_CONNECTED, NULL);
    }
    w.now.us += 61 * (uint64_t)S;
    for (uint64_t boot = 10; boot < 15; boot++) {
        tell(&w, WAY_LOST, "it left");
        is(&w, WAY_BACKING_OFF);
        way_step(&w.way, &(struct way_news){.event = WAY_CONNECTED, .session = 3, .boot = boot}, w.now);
    }
    tell(&w, WAY_CONNECTED, NULL);
    for (int i = 0; i < WAY_FLAPS; i++) {
        tell(&w, WAY_LOST, "silent");
        if (i < WAY_FLAPS - 1)
            tell(&w, WAY_CONNECTED, NULL);
    }
    is(&w, WAY_FLAPPING);
    assert_int_equal(way_step(&w.way, &(struct way_news){.event = WAY_PLUGGED, .boot = 99}, w.now), WAY_DIAL);
}

/* Without this way the node is out of reach: it is called again, however often it came and went. */
static void the_only_way_is_not_left_alone(void **state)
{
    (void)state;
    struct world w = connected(false);
    w.way.is_only = true;
    for (int i = 0; i < 3 * WAY_FLAPS; i++) {
        assert_int_equal(tell(&w, WAY_UNPLUGGED, "out"), WAY_DROP);
        assert_int_equal(tell(&w, WAY_PLUGGED, NULL), WAY_DIAL);
        tell(&w, WAY_CONNECTED, NULL);
    }
    w.way.is_only = false;
    tell(&w, WAY_LOST, "reset");
    is(&w, WAY_FLAPPING);
    w.way.is_only = true;
    assert_int_equal(tell(&w, WAY_NEEDED, NULL), WAY_DIAL); /* the other way has ended */
    assert_int_equal(tell(&w, WAY_NEEDED, NULL), WAY_NOTHING);
}

/* A daemon that stands still for a while, again and again, says nothing about its cable. */
static void silence_is_no_flap(void **state)
{
    (void)state;
    struct world w = connected(false);
    for (int i = 0; i < 3 * WAY_FLAPS; i++) {
        const struct way_news out = {
            .event = WAY_UNPLUGGED, .is_silent = true, .text = "nothing was heard any more"};
        const struct way_news lost = {
            .event = WAY_LOST, .is_silent = true, .text = "it closed the connection"};
        assert_int_equal(way_step(&w.way, i % 2 ? &out : &lost, w.now), i % 2 ? WAY_DROP : WAY_NOTHING);
        is(&w, i % 2 ? WAY_OUT : WAY_BACKING_OFF);
        assert_int_equal(tell(&w, WAY_PLUGGED, NULL), WAY_DIAL);
        tell(&w, WAY_CONNECTED, NULL);
    }
}

/* --- two connections over one way --- */

/* Calls over two cables may arrive before the beacons that name these cables: neither takes the
 * other's place. */
static void unnamed_cables_are_told_apart(void **state)
{
    (void)state;
    assert_false(session_same_way(0, "fe80::1%2", 0, "fe80::2%3"));
    assert_false(session_same_way(0, "fe80::1%2", 0, "fe80::1%3"));
    assert_false(session_same_way(0, "fe80::1%2", 0, "10.0.0.1"));
    assert_true(session_same_way(0, "fe80::1%2", 0, "fe80::1%2"));
    assert_true(session_same_way(0, "10.0.0.1", 0, "10.0.1.1"));
    assert_true(session_same_way(7, "fe80::1%2", 7, "fe80::1%2"));
    assert_false(session_same_way(7, "fe80::1%2", 8, "fe80::2%3"));
    assert_false(session_same_way(7, "fe80::1%2", 0, "10.0.0.1"));
}

/* Both ends see the same two connections, in any order, and keep the same one. */
static void both_ends_keep_the_same(void **state)
{
    (void)state;
    struct session_view by_smaller[2] = {{true, 1, 0},
                                         {false, 1, 0}}; /* as seen by the smaller id, and by the larger */
    struct session_view by_larger[2] = {{false, 1, 0}, {true, 1, 0}};
    for (int end = 0; end < 2; end++) {
        assert_int_equal(session_choose(end == 0, NULL, &by_larger[end]), SESSION_TAKE);
        assert_int_equal(session_choose(end == 0, &by_smaller[end], &by_larger[end]), SESSION_REFUSE);
        assert_int_equal(session_choose(end == 0, &by_larger[end], &by_smaller[end]), SESSION_REPLACE);
    }
}

/* Whoever dials again has lost its connection, or was restarted; who finds a friend under a second
 * address has not. */
static void who_calls_again_is_believed(void **state)
{
    (void)state;
    struct session_view accepted = {false, 1, 0}, dialed = {true, 1, 0}, reborn = {false, 2, 0};
    for (int smaller = 0; smaller < 2; smaller++) {
        assert_int_equal(session_choose(smaller, &accepted, &accepted), SESSION_REPLACE);
        assert_int_equal(session_choose(smaller, &dialed, &dialed), SESSION_REFUSE);
        assert_int_equal(session_choose(smaller, &accepted, &reborn), SESSION_REPLACE);
        assert_int_equal(session_choose(smaller, &dialed, &reborn), SESSION_REPLACE);
    }
}

/* The larger id waits to be called, and calls itself when nobody does: over a connection that is
 * silent it was lost there. */
static void who_calls_over_a_silent_connection_is_believed(void **state)
{
    (void)state;
    struct session_view old = {true, 1, WAY_QUIET_US}, news = {false, 1, 0};
    assert_int_equal(session_choose(true, &old, &news), SESSION_REFUSE); /* both called at once */
    old.silent_us++;
    assert_int_equal(session_choose(true, &old, &news), SESSION_REPLACE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_called_without_a_cluster),
        cmocka_unit_test(attempts_grow_rarer),
        cmocka_unit_test(an_overtaken_dial_is_ended),
        cmocka_unit_test(other_keys_are_tried_on_a_stranger),
        cmocka_unit_test(a_swallowed_dial_is_dropped),
        cmocka_unit_test(the_end_that_is_not_called_calls),
        cmocka_unit_test(a_cable_that_is_out_says_so),
        cmocka_unit_test(a_restart_drops_nothing),
        cmocka_unit_test(what_flaps_is_left_alone),
        cmocka_unit_test(slow_flaps_and_restarts_do_not_count),
        cmocka_unit_test(the_only_way_is_not_left_alone),
        cmocka_unit_test(silence_is_no_flap),
        cmocka_unit_test(unnamed_cables_are_told_apart),
        cmocka_unit_test(both_ends_keep_the_same),
        cmocka_unit_test(who_calls_again_is_believed),
        cmocka_unit_test(who_calls_over_a_silent_connection_is_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
