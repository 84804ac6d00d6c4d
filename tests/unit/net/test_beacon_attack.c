/* SPDX-License-Identifier: MIT
 *
 * What others may do to us with beacons: stale and crafted words, replays, copied identities,
 * floods. Fake clock. */
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

/* --- words put into a neighbour's mouth --- */

/* Says to the world's first port what a member `node`, `boot` would; `echo` is the beacon of that
 * port it names. */
static int speak(struct world *w, uint8_t node, uint64_t boot, uint64_t seq, uint64_t echo)
{
    uint8_t nonce[BEACON_NONCE] = {node};
    struct world_datagram d = {.source = {{{0xfe, 0x80, [15] = node}}}};
    struct beacon b = {.type = BEACON_HELLO,
                       .node_id = {node},
                       .boot = boot,
                       .seq = seq,
                       .port_id = node,
                       .hold_ms = 3500,
                       .nheard = 1,
                       .proto_min = 1,
                       .proto_max = 1};

    b.heard[0] = (struct beacon_heard){
        .boot = w->nodes[0].self.boot, .port_id = w->ports[0].port.port_id, .seq = echo};
    memcpy(b.heard[0].node_id, w->nodes[0].self.node_id, 16);
    d.n = (size_t)beacon_encode(&b, &w->key, &d.source, nonce, d.data, sizeof d.data);
    return world_inject(w, 0, &d);
}

/* One node, one port, nobody else. */
static struct world *lonely_node(uint64_t seed)
{
    struct world *w = world_new(seed);

    world_plug(w, world_node(w), world_segment(w));
    world_run(w, 100000); /* its first beacon has number 1 */
    return w;
}

static void only_a_recent_number_proves(void **state)
{
    struct world *w = lonely_node(20);

    (void)state;
    world_run(w, 4 * S);
    assert_int_equal(speak(w, 2, 7, 1, 1), 0);    /* was sent 4 s ago */
    assert_int_equal(speak(w, 2, 7, 2, 1000), 0); /* was never sent */
    assert_int_equal(speak(w, 2, 7, 3, 0), 0);
    assert_int_equal(w->nodes[0].ups, 0);
    world_free(w);
    w = lonely_node(20);
    assert_int_equal(speak(w, 2, 7, 1, 1), 0);
    assert_int_equal(w->nodes[0].ups, 1);
    world_free(w);
}

static void number_never_goes_back(void **state)
{
    struct world *w = lonely_node(21);

    (void)state;
    assert_int_equal(speak(w, 2, 7, 10, 1), 0);
    assert_int_equal(speak(w, 2, 7, 10, 1), -ESTALE);
    assert_int_equal(speak(w, 2, 7, 9, 1), -ESTALE);
    assert_int_equal(speak(w, 2, 7, 11, 1), 0);
    assert_int_equal(w->nodes[0].ups, 1);
    world_free(w);
}

/* What the old boot said before the new one came, heard after: neither a copy nor a cable. */
static void late_words_of_an_old_boot_mean_nothing(void **state)
{
    struct world *w = lonely_node(22);

    (void)state;
    assert_int_equal(speak(w, 2, 7, 1, 1), 0);
    assert_int_equal(speak(w, 2, 8, 1, 1), 0);
    assert_int_equal(w->nodes[0].last_end, CABLE_END_RESTARTED);
    assert_int_equal(w->nodes[0].ups, 2);
    assert_int_equal(speak(w, 2, 7, 2, 1), 0);
    assert_int_equal(w->nodes[0].ups, 2);
    assert_int_equal(w->nodes[0].ncables, 1);
    assert_int_equal(w->nodes[0].cables[0].boot, 8);
    assert_int_equal(w->nodes[0].troubles[NEIGHBOUR_CLONED], 0);
    world_run(w, S); /* but what names a beacon from after that does */
    assert_int_equal(speak(w, 2, 8, 2, 2), 0);
    assert_int_equal(speak(w, 2, 7, 3, 2), 0);
    assert_int_equal(w->nodes[0].ncables, 0);
    assert_int_equal(w->nodes[0].troubles[NEIGHBOUR_CLONED], 2);
    assert_null(w->error);
    world_free(w);
}

/* D has two cards in the switch and A is alone with it: each of D's ports hears one neighbour, and
 * D. */
static void own_beacon_makes_a_segment_shared(void **state)
{
    struct world *w = world_new(23);
    size_t a = world_node(w), d = world_node(w), sw = world_segment(w), second;

    (void)state;
    world_plug(w, a, sw);
    world_plug(w, d, sw);
    second = world_plug(w, d, sw);
    assert_true(world_run_until_true(w, 5 * S) < 2 * S);
    assert_int_equal(w->nodes[d].ncables, 2);
    assert_true(w->nodes[d].cables[0].shared && w->nodes[d].cables[1].shared);
    world_run(w, 60 * S);
    world_pull(w, second);
    assert_true(world_run_until_true(w, 60 * S) < 40 * S);
    assert_false(w->nodes[d].cables[0].shared);
    assert_null(w->error);
    world_free(w);
}

/* --- attacks --- */

/* A switch with A, B and a stranger; B dies. Everything ever heard is repeated to A, at A's leisure
 * and in bursts. */
static void replays_and_garbage_have_no_effect(void **state)
{
    struct world *w = world_new(12);
    size_t a = world_node(w), b = world_node(w), sw = world_segment(w), pa = world_plug(w, a, sw);
    struct beacons_stats stats;
    struct neighbour_view view[4];
    unsigned replayed = 0;

    (void)state;
    world_plug(w, b, sw);
    w->is_taping = true;
    world_run(w, 130 * S);
    w->is_taping = false;
    assert_true(w->ntape > 240);
    world_kill(w, b);
    world_run(w, 20 * S);
    assert_int_equal(w->nodes[a].downs, 1);
    for (size_t i = 0; i < w->ntape && i < WORLD_TAPE; i++) {
        const struct world_datagram *d = &w->tape[i];

        if (d->to != pa)
            continue;
        assert_int_equal(world_inject(w, pa, d), -ESTALE);
        replayed++;
        world_run(w, S / 10);
    }
    for (size_t i = 0; i < 500; i++) {
        struct world_datagram d = {.n = world_random(w) % (BEACON_MAX + 1)};

        for (size_t k = 0; k < d.n; k++)
            d.data[k] = (uint8_t)world_random(w);
        if (i % 2) /* as like a beacon as an outsider can make it */
            memcpy(d.data, w->tape[0].data, BEACON_HEAD);
        assert_true(world_inject(w, pa, &d) < 0);
        world_run(w, S / 100);
    }
    assert_in_range(replayed, 100, 240);
    assert_int_equal(w->nodes[a].ups, 1);
    assert_int_equal(w->nodes[a].downs, 1);
    assert_int_equal(beacons_neighbours(w->nodes[a].beacons, w->now, view, 4), 0);
    beacons_stats(w->nodes[a].beacons, &stats);
    assert_int_equal(stats.stale, replayed);
    assert_null(w->error);
    world_free(w);
}

/* Recordings of an earlier life are as good as a stranger's, while the present one is up and after
 * it. */
static void replay_of_an_old_boot_takes_nothing_away(void **state)
{
    struct world *w = world_pair(13);
    unsigned accepted = 0;

    (void)state;
    w->is_taping = true;
    world_run(w, 100 * S);
    w->is_taping = false;
    world_kill(w, 0); /* both forget each other, the recording remains */
    world_kill(w, 1);
    world_start(w, 0);
    world_start(w, 1);
    world_run(w, 10 * S);
    assert_true(world_is_true(w));
    w->nodes[0].ups = w->nodes[0].downs = 0;
    for (size_t i = 0; i < w->ntape && i < WORLD_TAPE; i++) {
        if (w->tape[i].to != 0)
            continue;
        accepted += world_inject(w, 0, &w->tape[i]) == 0;
        world_run(w, S / 2);
        assert_true(world_is_true(w)); /* not a switch, not a restart, not a copy */
    }
    assert_true(accepted > 0);
    assert_int_equal(w->nodes[0].ups + w->nodes[0].downs, 0);
    assert_int_equal(w->nodes[0].troubles[NEIGHBOUR_CLONED], 0);
    assert_null(w->error);
    world_free(w);
}

/* The beacons of B, repeated by a stranger from its own address, or heard on another port of A. */
static void beacons_do_not_travel(void **state)
{
    struct world *w = world_pair(14);
    size_t c = world_node(w), other = world_cable(w, 0, c);
    struct world_datagram d;

    (void)state;
    w->is_taping = true;
    w->ports[0].deaf = true;
    world_run(w, 2 * S);
    w->ports[0].deaf = false;
    for (size_t i = 0; i < w->ntape; i++) {
        if (w->tape[i].from != other + 1)
            continue;
        d = w->tape[i];
        d.source.s6_addr[14] = 66;
        assert_int_equal(world_inject(w, 0, &d), -EKEYREJECTED);
    }
    world_free(w);
}

static void copied_identity_is_refused(void **state)
{
    struct world *w = world_new(15);
    size_t a = world_node(w), b = world_node(w), c = world_node(w), pc;

    (void)state;
    memcpy(w->nodes[c].self.node_id, w->nodes[b].self.node_id, 16);
    world_kill(w, c);
    world_cable(w, a, b);
    pc = world_cable(w, a, c);
    world_run(w, 5 * S);
    assert_int_equal(w->nodes[a].ncables, 1);
    world_start(w, c);
    world_run(w, 4 * S);
    assert_int_equal(w->nodes[a].ncables, 0);
    assert_int_equal(w->nodes[a].last_end, CABLE_END_CLONED);
    assert_true(w->nodes[a].troubles[NEIGHBOUR_CLONED] >= 2); /* both are named */
    world_run(w, 60 * S);
    assert_int_equal(w->nodes[a].ncables, 0);
    world_kill(w, c); /* one is taken away: the other may stay */
    world_pull(w, pc);
    world_run(w, 60 * S);
    assert_int_equal(w->nodes[a].ncables, 1);
    assert_null(w->error);
    world_free(w);
}

static void copy_of_ourselves_is_refused(void **state)
{
    struct world *w = world_new(16);
    size_t a = world_node(w), b = world_node(w);

    (void)state;
    memcpy(w->nodes[b].self.node_id, w->nodes[a].self.node_id, 16);
    world_kill(w, b);
    world_start(w, b);
    world_cable(w, a, b);
    world_run(w, 10 * S);
    assert_int_equal(w->nodes[a].ups + w->nodes[b].ups, 0);
    assert_int_equal(w->nodes[a].troubles[NEIGHBOUR_CLONED], 1);
    world_free(w);
}

/* Ten thousand datagrams a second that look right: opened at most 100 times, and the cable
 * stays. */
static void flood_does_not_crowd_out(void **state)
{
    struct world *w = world_pair(17);
    struct world_datagram d = {.source = {{{0xfe, 0x80, [15] = 66}}}, .n = 200};
    struct beacons_stats stats;

    (void)state;
    w->is_taping = true;
    world_run(w, 2 * S);
    memcpy(d.data, w->tape[0].data, BEACON_HEAD);
    for (int i = 0; i < 200000; i++) {
        int r = world_inject(w, 0, &d);

        assert_true(r == -EKEYREJECTED || r == -EBUSY);
        world_run(w, 100);
    }
    beacons_stats(w->nodes[0].beacons, &stats);
    assert_in_range(stats.foreign, 1900, 2200);
    assert_int_equal(w->nodes[0].downs + w->nodes[1].downs, 0);
    assert_true(world_is_true(w));
    world_free(w);
}

/* 100 neighbours on one port, half of them proved: bounded, counted; those who never prove anything
 * make room. */
static void table_is_bounded(void **state)
{
    struct world *w = world_pair(18);
    struct beacons *a = w->nodes[0].beacons;
    struct neighbour_view view[BEACON_NEIGHBOURS];
    struct beacons_stats stats;
    size_t full = 0, cables = 0;
    uint64_t seq = 0;

    (void)state;
    w->is_taping = true;
    world_run(w, 3 * S);
    for (size_t i = 0; i < w->ntape; i++) {
        struct beacon b;

        if (w->tape[i].from == 0 &&
            beacon_decode(&b, &w->key, &w->tape[i].source, w->tape[i].data, w->tape[i].n) == 0)
            seq = b.seq;
    }
    assert_true(seq > 0);
    for (unsigned i = 0; i < 200; i++) {
        uint8_t nonce[BEACON_NONCE] = {(uint8_t)i, (uint8_t)(i >> 8)};
        struct world_datagram d = {.source = {{{0xfe, 0x80, [14] = (uint8_t)(i >> 8), [15] = (uint8_t)i}}}};
        struct beacon b = {.type = BEACON_HELLO,
                           .boot = 1,
                           .seq = 1,
                           .port_id = i,
                           .hold_ms = 60000,
                           .nheard = i < 100,
                           .proto_min = 1,
                           .proto_max = 1};

        b.node_id[0] = (uint8_t)i;
        b.heard[0] = (struct beacon_heard){
            .boot = w->nodes[0].self.boot, .port_id = w->ports[0].port.port_id, .seq = seq};
        memcpy(b.heard[0].node_id, w->nodes[0].self.node_id, 16);
        if (i >= 40 && i < 100)
            b.nheard = 0;
        d.n = (size_t)beacon_encode(&b, &w->key, &d.source, nonce, d.data, sizeof d.data);
        w->now.us += 10000;
        full += world_inject(w, 0, &d) == -ENOSPC;
    }
    assert_int_equal(full, 0);
    assert_int_equal(beacons_neighbours(a, w->now, view, BEACON_NEIGHBOURS), BEACON_NEIGHBOURS);
    for (size_t i = 0; i < BEACON_NEIGHBOURS; i++)
        cables += view[i].state == NEIGHBOUR_TWO_WAY;
    assert_int_equal(cables, 41);
    beacons_stats(a, &stats);
    assert_int_equal(stats.limited, 0);
    world_free(w);
}

/* --- who was removed --- */

static size_t sealed_with(const struct world *w, size_t port, unsigned generation)
{
    size_t n = 0;

    for (size_t i = 0; i < w->ntape; i++)
        n += w->tape[i].from == port && beacon_generation(w->tape[i].data) == generation;
    return n;
}

/* He has the network key of the generation before. Whatever he says of himself or of others with
 * it: nothing happens, and nothing is said in that key that he could read. */
static void a_removed_member_has_no_say(void **state)
{
    struct world *w = world_pair(40);
    struct beacon_key next = w->key, before = w->key;
    const struct cable victim = w->nodes[0].cables[0];
    struct beacons_stats stats;

    (void)state;
    next.id = 2;
    next.key[0] ^= 1;
    beacons_set_key(w->nodes[0].beacons, &next, w->now);
    beacons_set_key(w->nodes[1].beacons, &next, w->now);
    w->is_taping = true;
    for (uint64_t seq = 1; seq < 60; seq++) { /* one of them names a beacon that was just sent */
        w->key = before;
        assert_int_equal(speak(w, 9, 7, seq, seq), -ENOKEY);
        struct beacon b = {.type = seq % 2 ? BEACON_GOODBYE : BEACON_HELLO,
                           .boot = victim.boot + (seq % 3 == 0),
                           .seq = 1000000 + seq,
                           .port_id = victim.peer_port_id,
                           .hold_ms = 3500,
                           .nheard = 1,
                           .proto_min = 1,
                           .proto_max = 1};
        struct world_datagram d = {.source = victim.address};
        const uint8_t nonce[BEACON_NONCE] = {(uint8_t)seq};
        memcpy(b.node_id, victim.node_id, 16);
        b.heard[0] = (struct beacon_heard){
            .boot = w->nodes[0].self.boot, .port_id = w->ports[0].port.port_id, .seq = seq};
        memcpy(b.heard[0].node_id, w->nodes[0].self.node_id, 16);
        d.n = (size_t)beacon_encode(&b, &before, &d.source, nonce, d.data, sizeof d.data);
        assert_int_equal(world_inject(w, 0, &d), -ENOKEY);
        w->key = next;
        world_run(w, S / 4);
    }
    assert_int_equal(w->nodes[0].downs + w->nodes[1].downs, 0);
    assert_int_equal(w->nodes[0].ups + w->nodes[1].ups, 2);
    assert_false(w->nodes[0].cables[0].shared);
    assert_int_equal(w->nodes[0].troubles[NEIGHBOUR_CLONED], 0);
    assert_int_equal(sealed_with(w, 0, 1), 0);
    assert_true(sealed_with(w, 0, 2) > 10);
    beacons_stats(w->nodes[0].beacons, &stats);
    assert_true(stats.foreign >= 118);
    assert_null(w->error);
    world_free(w);
}

/* --- members with the key, against a connection that knows better --- */

static void connect_to(struct world *w, uint8_t node, uint64_t boot)
{
    w->nodes[0].connected_id[0] = node;
    w->nodes[0].connected_boot = boot;
}

static int say_goodbye(struct world *w, uint8_t node, uint64_t boot, uint64_t seq)
{
    uint8_t nonce[BEACON_NONCE] = {node, 1};
    struct world_datagram d = {.source = {{{0xfe, 0x80, [15] = node}}}};
    struct beacon b = {.type = BEACON_GOODBYE,
                       .node_id = {node},
                       .boot = boot,
                       .seq = seq,
                       .port_id = node,
                       .hold_ms = 3500,
                       .proto_min = 1,
                       .proto_max = 1};

    d.n = (size_t)beacon_encode(&b, &w->key, &d.source, nonce, d.data, sizeof d.data);
    return world_inject(w, 0, &d);
}

static void a_goodbye_waits_for_the_connection(void **state)
{
    struct world *w = lonely_node(41);

    (void)state;
    assert_int_equal(speak(w, 2, 7, 1, 1), 0);
    connect_to(w, 2, 7);
    assert_int_equal(say_goodbye(w, 2, 7, 2), 0); /* somebody else's */
    assert_int_equal(w->nodes[0].ncables, 1);
    assert_int_equal(speak(w, 2, 7, 3, 1), 0);
    connect_to(w, 2, 0);
    beacons_expire(w->nodes[0].beacons, w->now);
    assert_int_equal(w->nodes[0].ncables, 1); /* it spoke again: that was no goodbye of its own */
    connect_to(w, 2, 7);
    assert_int_equal(say_goodbye(w, 2, 7, 4), 0);
    connect_to(w, 2, 0); /* and now it has really gone */
    beacons_expire(w->nodes[0].beacons, w->now);
    assert_int_equal(w->nodes[0].ncables, 0);
    assert_int_equal(w->nodes[0].last_end, CABLE_END_LEFT);
    assert_null(w->error);
    world_free(w);
}

static void no_other_boot_counts_beside_a_connection(void **state)
{
    struct world *w = lonely_node(42);

    (void)state;
    assert_int_equal(speak(w, 2, 7, 1, 1), 0);
    connect_to(w, 2, 7);
    for (uint64_t boot = 8; boot < 20; boot++)
        assert_int_equal(speak(w, 2, boot, 1, 1), 0);
    assert_int_equal(w->nodes[0].downs, 0);
    assert_int_equal(w->nodes[0].cables[0].boot, 7);
    assert_int_equal(w->nodes[0].troubles[NEIGHBOUR_CLONED], 0);
    connect_to(w, 2, 20); /* it has restarted, and said so over a connection */
    assert_int_equal(speak(w, 2, 20, 1, 1), 0);
    assert_int_equal(w->nodes[0].ncables, 1);
    assert_int_equal(w->nodes[0].cables[0].boot, 20);
    assert_int_equal(w->nodes[0].last_end, CABLE_END_RESTARTED);
    connect_to(w, 2, 0);
    assert_int_equal(speak(w, 2, 21, 1, 1), 0); /* without one, its beacon is all there is */
    assert_int_equal(w->nodes[0].cables[0].boot, 21);
    assert_null(w->error);
    world_free(w);
}

/* Whoever spoke ahead in a member's name made its own beacons stale: while they are, its connection
 * keeps the cable. */
static void beacons_spoken_ahead_end_no_cable(void **state)
{
    struct world *w = lonely_node(43);

    (void)state;
    assert_int_equal(speak(w, 2, 7, 1, 1), 0);
    const uint64_t cable = w->nodes[0].cables[0].id;
    assert_int_equal(speak(w, 2, 7, UINT64_MAX, 1), 0);
    for (uint64_t seq = 2; seq < 30; seq++) {
        assert_int_equal(speak(w, 2, 7, seq, 1), -ESTALE);
        beacons_heard(w->nodes[0].beacons, cable, w->now);
        world_run(w, S);
    }
    assert_int_equal(w->nodes[0].ncables, 1);
    world_run(w, 8 * S); /* nobody speaks any more */
    assert_int_equal(w->nodes[0].ncables, 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_recent_number_proves),
        cmocka_unit_test(number_never_goes_back),
        cmocka_unit_test(late_words_of_an_old_boot_mean_nothing),
        cmocka_unit_test(own_beacon_makes_a_segment_shared),
        cmocka_unit_test(replays_and_garbage_have_no_effect),
        cmocka_unit_test(replay_of_an_old_boot_takes_nothing_away),
        cmocka_unit_test(beacons_do_not_travel),
        cmocka_unit_test(copied_identity_is_refused),
        cmocka_unit_test(copy_of_ourselves_is_refused),
        cmocka_unit_test(flood_does_not_crowd_out),
        cmocka_unit_test(table_is_bounded),
        cmocka_unit_test(a_removed_member_has_no_say),
        cmocka_unit_test(a_goodbye_waits_for_the_connection),
        cmocka_unit_test(no_other_boot_counts_beside_a_connection),
        cmocka_unit_test(beacons_spoken_ahead_end_no_cable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
