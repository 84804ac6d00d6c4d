/* SPDX-License-Identifier: MIT
 *
 * What beacons make of a network: two-way in time, shared segments, and every way a cable can end.
 * Fake clock throughout; forgeries and floods are test_beacon_attack's, the datagram itself is
 * test_beacon_wire's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/beacon_world.h"

enum { S = 1000000 };

/* --- a small network of all kinds ---
 *
 *    A ══ B ── C ── D          and a switch with A, B, C, D and D's second card
 */
static struct world *four_nodes(uint64_t seed)
{
    struct world *w = world_new(seed);
    size_t node[4], sw;

    for (size_t i = 0; i < 4; i++)
        node[i] = world_node(w);
    world_cable(w, node[0], node[1]);
    world_cable(w, node[0], node[1]);
    world_cable(w, node[1], node[2]);
    world_cable(w, node[2], node[3]);
    sw = world_segment(w);
    for (size_t i = 0; i < 4; i++)
        world_plug(w, node[i], sw);
    world_plug(w, node[3], sw);
    return w;
}

static void all_are_two_way_in_time(void **state)
{
    uint64_t worst = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct world *w = four_nodes(seed);
        uint64_t took = world_run_until_true(w, 5 * S);

        if (took > 1200000 || w->error)
            fail_msg("seed %lu: %s after %lu us", seed, w->error ? w->error : "not true", took);
        worst = took > worst ? took : worst;
        world_run(w, 60 * S);
        assert_true(world_is_true(w));
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(w->nodes[i].downs, 0);
        world_free(w);
    }
    print_message("all two-way after at most %lu ms\n", worst / 1000);
}

static void settled_segments_are_quiet(void **state)
{
    struct world *w = four_nodes(1);
    uint64_t before;

    (void)state;
    world_run(w, 30 * S);
    before = w->delivered;
    world_run(w, 100 * S);
    /* 8 ports on cables send one a second; 5 on the switch one in 5 s, to four others each */
    assert_in_range(w->delivered - before, 1100, 1300);
    world_free(w);
}

static void switch_with_two_left_is_a_cable(void **state)
{
    struct world *w = world_new(3);
    size_t a = world_node(w), b = world_node(w), c = world_node(w), sw = world_segment(w), pc;

    (void)state;
    world_plug(w, a, sw);
    world_plug(w, b, sw);
    pc = world_plug(w, c, sw);
    world_run(w, 40 * S);
    assert_true(world_is_true(w));
    assert_true(w->nodes[a].cables[0].shared);
    world_pull(w, pc);
    assert_true(world_run_until_true(w, 20 * S) < 20 * S); /* a settled segment's hold time is 17.5 s */
    assert_false(w->nodes[a].cables[0].shared);
    world_run(w, 60 * S);
    assert_int_equal(w->nodes[a].downs, 1);
    assert_null(w->error);
    world_free(w);
}

/* --- ends --- */

static void silence_ends_after_the_hold_time(void **state)
{
    struct world *w = world_pair(4);

    (void)state;
    world_run(w, 20 * S);
    world_kill(w, 1);
    world_run(w, 2200000);
    assert_int_equal(w->nodes[0].ncables, 1);
    world_run(w, 1400000);
    assert_int_equal(w->nodes[0].ncables, 0);
    assert_int_equal(w->nodes[0].last_end, CABLE_END_SILENT);
    assert_null(w->error);
    world_free(w);
}

/* A stopped process, or a machine that slept: what it could not hear is not held against the
 * others, and it asks again at once. */
static void our_own_standstill_is_nobodys_silence(void **state)
{
    static const uint64_t stood_us[] = {1 * S, 2 * S, 3 * S, 5 * S, 12 * S, UINT64_C(3600) * S};

    (void)state;
    for (size_t i = 0; i < sizeof stood_us / sizeof *stood_us; i++)
        for (uint64_t seed = 1; seed <= 40; seed++) {
            struct world *w = world_pair(seed);
            uint64_t took;

            world_run(w, 20 * S + seed * 37000);
            w->nodes[1].is_stopped = true;
            world_run(w, stood_us[i]);
            if (stood_us[i] <= 2 * S || stood_us[i] >= 5 * S)
                assert_int_equal(w->nodes[0].ncables, stood_us[i] <= 2 * S);
            w->nodes[1].is_stopped = false;
            took = world_run_until_true(w, 10 * S);
            if (took > 500000)
                fail_msg("seed %lu, %lu s: a cable on both ends after %lu us", seed, stood_us[i] / S, took);
            world_run(w, 10 * S);
            assert_int_equal(w->nodes[1].downs, 0);
            assert_int_equal(
                w->nodes[0].troubles[NEIGHBOUR_ONE_WAY] + w->nodes[1].troubles[NEIGHBOUR_ONE_WAY], 0);
            assert_true(world_is_true(w));
            assert_null(w->error);
            world_free(w);
        }
}

/* What is really gone is missed a hold time after we go on. */
static void who_left_while_we_stood_still_is_missed(void **state)
{
    struct world *w = world_pair(4);

    (void)state;
    world_run(w, 20 * S);
    w->nodes[1].is_stopped = true;
    world_kill(w, 0);
    world_run(w, 60 * S);
    w->nodes[1].is_stopped = false;
    world_run(w, 3600000);
    assert_int_equal(w->nodes[1].ncables, 0);
    assert_int_equal(w->nodes[1].last_end, CABLE_END_SILENT);
    world_free(w);
}

static void flood(struct world *w, size_t port)
{
    static const uint8_t question[24] = {'R', 'N', 'G', 'B', 1, 3};
    const struct world_port *p = &w->ports[port];

    for (int i = 0; i < 200; i++)
        beacons_receive(w->nodes[p->node].beacons, p->port.ifindex, &p->port.link_local, question,
                        sizeof question, w->now);
}

static void a_connection_that_talks_keeps_a_flooded_cable(void **state)
{
    struct world *w = world_pair(13);
    const uint64_t id = w->nodes[0].cables[0].id;

    (void)state;
    w->ports[0].deaf = true;
    for (int second = 0; second < 30; second++) {
        flood(w, 0);
        flood(w, 1);
        beacons_heard(w->nodes[0].beacons, id, w->now);
        beacons_heard(w->nodes[1].beacons, id, w->now);
        world_run(w, S);
    }
    assert_int_equal(w->nodes[0].downs + w->nodes[1].downs, 0);
    for (int second = 0; second < 9;
         second++) { /* nobody floods: then a port that hears no beacons is no cable */
        beacons_heard(w->nodes[0].beacons, id, w->now);
        world_run(w, S);
    }
    assert_int_equal(w->nodes[0].ncables, 0);
    flood(w, 0);
    beacons_heard(w->nodes[0].beacons, id, w->now); /* and makes no cable by itself */
    world_run(w, 4 * S);
    assert_int_equal(w->nodes[0].ncables, 0);
    assert_null(w->error);
    world_free(w);
}

static void goodbye_ends_at_once(void **state)
{
    struct world *w = world_pair(5);

    (void)state;
    world_leave(w, 1);
    world_run(w, 10000);
    assert_int_equal(w->nodes[0].ncables, 0);
    assert_int_equal(w->nodes[0].last_end, CABLE_END_LEFT);
    world_start(w, 1);
    assert_true(world_run_until_true(w, 5 * S) < 2 * S);
    assert_null(w->error);
    world_free(w);
}

static void restart_ends_the_old_boot(void **state)
{
    struct world *w = world_pair(6);

    (void)state;
    world_cable(w, 0, 1);
    world_run(w, 5 * S);
    world_kill(w, 1);
    world_run(w, S / 2); /* sooner than the hold time */
    world_start(w, 1);
    assert_true(world_run_until_true(w, 5 * S) < S);
    assert_int_equal(w->nodes[0].last_end, CABLE_END_RESTARTED);
    world_run(w, 60 * S);
    assert_true(world_is_true(w));
    assert_int_equal(w->nodes[0].downs, 2);
    assert_int_equal(w->nodes[0].troubles[NEIGHBOUR_CLONED], 0);
    assert_null(w->error);
    world_free(w);
}

static void own_port_gone_ends_at_once_and_comes_back(void **state)
{
    struct world *w = world_pair(7);
    struct port port = w->ports[0].port;

    (void)state;
    world_run(w, 60 * S); /* far beyond the numbers of the next seconds */
    beacons_port_remove(w->nodes[0].beacons, port.ifindex, w->now);
    assert_int_equal(w->nodes[0].ncables, 0);
    assert_int_equal(w->nodes[0].last_end, CABLE_END_PORT);
    port.ifindex = 1; /* the same card: the other end has seen its numbers, so they must go on */
    assert_int_equal(beacons_port_add(w->nodes[0].beacons, &port, w->now), 0);
    assert_true(world_run_until_true(w, 5 * S) < 2 * S);
    assert_null(w->error);
    world_free(w);
}

static void one_way_cable_is_named_and_never_up(void **state)
{
    struct world *w = world_new(8);
    size_t a = world_node(w), b = world_node(w), p = world_cable(w, a, b);
    struct neighbour_view view[4];

    (void)state;
    w->ports[p].mute = true; /* A hears B, B does not hear A */
    world_run(w, 60 * S);
    assert_int_equal(w->nodes[a].ups + w->nodes[b].ups, 0);
    assert_int_equal(w->nodes[a].troubles[NEIGHBOUR_ONE_WAY], 1);
    assert_int_equal(w->nodes[b].troubles[NEIGHBOUR_ONE_WAY], 0);
    assert_int_equal(beacons_neighbours(w->nodes[a].beacons, w->now, view, 4), 1);
    assert_string_equal(neighbour_state_name(view[0].state), "one-way");
    assert_int_equal(beacons_neighbours(w->nodes[b].beacons, w->now, view, 4), 0);
    w->ports[p].mute = false;
    assert_true(world_run_until_true(w, 5 * S) < 3 * S);
    w->ports[p].mute = true; /* and again: now it is a cable that goes down */
    world_run(w, 9 * S);
    assert_int_equal(w->nodes[a].ncables + w->nodes[b].ncables, 0);
    assert_int_equal(w->nodes[a].last_end, CABLE_END_ONE_WAY);
    assert_int_equal(w->nodes[b].last_end, CABLE_END_SILENT);
    assert_null(w->error);
    world_free(w);
}

static void versions_without_overlap_never_come_up(void **state)
{
    struct world *w = world_new(9);
    size_t a = world_node(w), b;

    (void)state;
    b = world_node(w);
    world_kill(w, b);
    w->nodes[b].self.proto_min = w->nodes[b].self.proto_max = 2;
    world_start(w, b);
    world_cable(w, a, b);
    world_run(w, 20 * S);
    assert_int_equal(w->nodes[a].ups + w->nodes[b].ups, 0);
    assert_int_equal(w->nodes[a].troubles[NEIGHBOUR_VERSION], 1);
    world_free(w);
}

static void news_are_told(void **state)
{
    struct world *w = world_pair(10);

    (void)state;
    w->ports[1].port.speed_mbps = 10000;
    w->ports[1].port.has_default_route = true;
    assert_int_equal(beacons_port_add(w->nodes[1].beacons, &w->ports[1].port, w->now), 0);
    assert_int_equal(beacons_set_attempt(w->nodes[1].beacons, 2, 4, w->now), 0);
    assert_int_equal(beacons_set_attempt(w->nodes[1].beacons, 99, 4, w->now), -ENODEV);
    world_run(w, S / 2);
    assert_int_equal(w->nodes[0].cables[0].speed_mbps, 10000);
    assert_int_equal(w->nodes[0].cables[0].attempt, 4);
    assert_true(w->nodes[0].cables[0].has_default_route);
    assert_int_equal(w->nodes[0].changes, 1);
    assert_int_equal(w->nodes[0].downs, 0);
    world_free(w);
}

/* The new roster reaches the other end over the connection, within moments. */
static void keys_change_without_a_gap(void **state)
{
    struct world *w = world_pair(11);
    struct beacon_key next = w->key;

    (void)state;
    next.id = 2;
    next.key[0] ^= 1;
    beacons_set_key(w->nodes[0].beacons, &next, w->now);
    world_run(w, S);
    beacons_set_key(w->nodes[1].beacons, &next, w->now);
    world_run(w, 30 * S);
    assert_int_equal(w->nodes[0].downs + w->nodes[1].downs, 0);
    next.id = 3;
    beacons_set_key(w->nodes[1].beacons, &next, w->now); /* thrown out */
    world_run(w, 5 * S);
    assert_int_equal(w->nodes[0].ncables + w->nodes[1].ncables, 0);
    beacons_set_key(w->nodes[1].beacons, NULL, w->now);
    world_run(w, 5 * S);
    assert_null(w->error);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_two_way_in_time),
        cmocka_unit_test(settled_segments_are_quiet),
        cmocka_unit_test(switch_with_two_left_is_a_cable),
        cmocka_unit_test(silence_ends_after_the_hold_time),
        cmocka_unit_test(our_own_standstill_is_nobodys_silence),
        cmocka_unit_test(who_left_while_we_stood_still_is_missed),
        cmocka_unit_test(a_connection_that_talks_keeps_a_flooded_cable),
        cmocka_unit_test(goodbye_ends_at_once),
        cmocka_unit_test(restart_ends_the_old_boot),
        cmocka_unit_test(own_port_gone_ends_at_once_and_comes_back),
        cmocka_unit_test(one_way_cable_is_named_and_never_up),
        cmocka_unit_test(versions_without_overlap_never_come_up),
        cmocka_unit_test(news_are_told),
        cmocka_unit_test(keys_change_without_a_gap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
