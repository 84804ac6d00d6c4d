/* SPDX-License-Identifier: MIT
 *
 * Beacons: the datagram (every truncation and bit flip), and what a neighbour's words may do to us: two-way
 * check, replay, copies, restarts, one-way cables, limits. Fake clock throughout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/beacon_world.h"
#include "tests/unit/protocol_doc.h"

enum { S = 1000000 };

/* --- the datagram
 * ----------------------------------------------------------------------------------------------- */

static void example(struct beacon *b, struct beacon_key *key, struct in6_addr *from, uint8_t nonce[24])
{
    uint8_t network_key[32];

    *b = (struct beacon){.type = BEACON_HELLO,
                         .boot = 0x1122334455667788,
                         .seq = 77,
                         .port_id = 0xa1a2a3a4,
                         .hold_ms = 3500,
                         .flags = BEACON_HAS_DEFAULT_ROUTE,
                         .kind = PORT_ETH,
                         .speed_mbps = 2500,
                         .mtu = 9000,
                         .tcp_port = 17464,
                         .proto_min = 1,
                         .proto_max = 2,
                         .nheard = 1,
                         .name = "anna",
                         .attempt = 3};
    b->heard[0] = (struct beacon_heard){.boot = 5, .port_id = 6, .seq = 7};
    for (size_t i = 0; i < 16; i++) {
        b->node_id[i] = (uint8_t)i;
        b->heard[0].node_id[i] = (uint8_t)(0xf0 + i);
    }
    for (size_t i = 0; i < 32; i++)
        network_key[i] = (uint8_t)i;
    for (size_t i = 0; i < 24; i++)
        nonce[i] = (uint8_t)(0x40 + i);
    key->id = 9;
    beacon_key_derive(key->key, network_key);
    *from = (struct in6_addr){{{0xfe, 0x80, [15] = 1}}};
}

static void datagram_says_what_it_said(void **state)
{
    struct beacon b, back;
    struct beacon_key key;
    struct in6_addr from;
    uint8_t nonce[24], data[BEACON_MAX];
    int n;

    (void)state;
    example(&b, &key, &from, nonce);
    n = beacon_encode(&b, &key, &from, nonce, data, sizeof data);
    assert_true(n > 0);
    assert_true(protocol_doc_shows("beacon", data, (size_t)n));
    assert_int_equal(beacon_peek(data, (size_t)n), BEACON_HELLO);
    assert_int_equal(beacon_decode(&back, &key, 1, &from, data, (size_t)n), 0);
    assert_memory_equal(back.node_id, b.node_id, 16);
    assert_int_equal(back.boot, b.boot);
    assert_int_equal(back.seq, b.seq);
    assert_int_equal(back.port_id, b.port_id);
    assert_int_equal(back.hold_ms, b.hold_ms);
    assert_int_equal(back.flags, b.flags);
    assert_int_equal(back.kind, b.kind);
    assert_int_equal(back.speed_mbps, b.speed_mbps);
    assert_int_equal(back.mtu, b.mtu);
    assert_int_equal(back.tcp_port, b.tcp_port);
    assert_int_equal(back.proto_min, 1);
    assert_int_equal(back.proto_max, 2);
    assert_int_equal(back.nheard, 1);
    assert_memory_equal(&back.heard[0], &b.heard[0], sizeof b.heard[0]);
    assert_string_equal(back.name, "anna");
    assert_int_equal(back.attempt, 3);
    for (int cap = 0; cap < n; cap++)
        assert_int_equal(beacon_encode(&b, &key, &from, nonce, data, (size_t)cap), -ENOBUFS);
}

static void largest_datagram_fits(void **state)
{
    struct beacon b, back;
    struct beacon_key key;
    struct in6_addr from;
    uint8_t nonce[24], data[BEACON_MAX];
    int n;

    (void)state;
    example(&b, &key, &from, nonce);
    b.nheard = BEACON_HEARD_MAX;
    memset(b.name, 'x', sizeof b.name - 1);
    b.name[sizeof b.name - 1] = '\0';
    n = beacon_encode(&b, &key, &from, nonce, data, sizeof data);
    assert_true(n > 0);
    assert_int_equal(beacon_decode(&back, &key, 1, &from, data, (size_t)n), 0);
    assert_string_equal(back.name, b.name);
}

static void every_truncation_and_flip_is_refused(void **state)
{
    struct beacon b, back;
    struct beacon_key key;
    struct in6_addr from;
    uint8_t nonce[24], data[BEACON_MAX], longer[BEACON_MAX];
    int n;

    (void)state;
    example(&b, &key, &from, nonce);
    n = beacon_encode(&b, &key, &from, nonce, data, sizeof data);
    for (int cut = 0; cut < n; cut++) {
        uint8_t *exact = malloc((size_t)cut + 1); /* so that a sanitizer sees reads past the end */

        memcpy(exact, data, (size_t)cut);
        assert_true(beacon_decode(&back, &key, 1, &from, exact, (size_t)cut) < 0);
        free(exact);
    }
    for (int bit = 0; bit < n * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_true(beacon_decode(&back, &key, 1, &from, data, (size_t)n) < 0);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memset(longer, 0, sizeof longer);
    memcpy(longer, data, (size_t)n);
    for (int more = n + 1; more <= BEACON_MAX; more += 97)
        assert_true(beacon_decode(&back, &key, 1, &from, longer, (size_t)more) < 0);
    from.s6_addr[15] ^= 1;
    assert_int_equal(beacon_decode(&back, &key, 1, &from, data, (size_t)n), -EKEYREJECTED);
    from.s6_addr[15] ^= 1;
    key.id++;
    assert_int_equal(beacon_decode(&back, &key, 1, &from, data, (size_t)n), -ENOKEY);
    key.id--;
    assert_int_equal(beacon_decode(&back, &key, 1, &from, data, (size_t)n), 0);
}

/* What opens may still be nonsense: a member with a bug. */
static void nonsense_inside_is_refused(void **state)
{
    static const struct {
        const char *what;
        size_t nheard;
        uint16_t hold_ms;
        uint8_t proto_min;
        char first;
        int expected;
    } cases[] = {{"as it should be", 1, 3500, 1, 'a', 0},
                 {"hold time of nothing", 1, 999, 1, 'a', -EBADMSG},
                 {"versions crossed", 1, 3500, 3, 'a', -EBADMSG},
                 {"escape in a name", 1, 3500, 1, '\033', -EBADMSG},
                 {"broken UTF-8 in a name", 1, 3500, 1, '\xff', -EBADMSG}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct beacon b, back;
        struct beacon_key key;
        struct in6_addr from;
        uint8_t nonce[24], data[BEACON_MAX];
        int n;

        example(&b, &key, &from, nonce);
        b.nheard = cases[i].nheard;
        b.hold_ms = cases[i].hold_ms;
        b.proto_min = cases[i].proto_min;
        b.name[0] = cases[i].first;
        n = beacon_encode(&b, &key, &from, nonce, data, sizeof data);
        if (beacon_decode(&back, &key, 1, &from, data, (size_t)n) != cases[i].expected)
            fail_msg("%s", cases[i].what);
    }
}

static void questions_are_clear(void **state)
{
    uint8_t tag[16], data[BEACON_MAX];
    int n;

    (void)state;
    for (size_t i = 0; i < sizeof tag; i++)
        tag[i] = (uint8_t)(0x70 + i);
    n = beacon_ask_encode(BEACON_JOINQ, tag, sizeof tag, data, sizeof data);
    assert_int_equal(n, BEACON_HEAD + 16);
    assert_true(protocol_doc_shows("beacon-joinq", data, (size_t)n));
    assert_int_equal(beacon_peek(data, (size_t)n), BEACON_JOINQ);
    assert_int_equal(beacon_peek(data, BEACON_HEAD + BEACON_ASK_MAX + 1), -EBADMSG);
    assert_int_equal(beacon_ask_encode(BEACON_HELLO, tag, sizeof tag, data, sizeof data), -EINVAL);
    assert_int_equal(beacon_ask_encode(BEACON_JOINA, data, BEACON_ASK_MAX + 1, data, sizeof data), -EINVAL);
}

static void cable_id_is_the_same_on_both_ends(void **state)
{
    uint8_t a[16] = {1}, b[16] = {2};

    (void)state;
    assert_true(cable_id(a, 10, b, 20) == cable_id(b, 20, a, 10));
    assert_true(cable_id(a, 10, b, 20) != cable_id(a, 20, b, 10));
    assert_true(cable_id(a, 10, a, 20) == cable_id(a, 20, a, 10));
}

/* --- the network of NETWORK.md §1.6
 * ----------------------------------------------------------------------------------
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

/* --- ends
 * ---------------------------------------------------------------------------------------------------------
 */

static struct world *two_nodes(uint64_t seed)
{
    struct world *w = world_new(seed);
    size_t a = world_node(w), b = world_node(w);

    world_cable(w, a, b);
    assert_true(world_run_until_true(w, 5 * S) < 2 * S);
    return w;
}

static void silence_ends_after_the_hold_time(void **state)
{
    struct world *w = two_nodes(4);

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

static void goodbye_ends_at_once(void **state)
{
    struct world *w = two_nodes(5);

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
    struct world *w = two_nodes(6);

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
    struct world *w = two_nodes(7);
    struct port port = w->ports[0].port;

    (void)state;
    world_run(w, 3 * S);
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
    struct world *w = two_nodes(10);

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

static void keys_change_without_a_gap(void **state)
{
    struct world *w = two_nodes(11);
    struct beacon_key keys[2] = {w->key, w->key}, other = w->key;

    (void)state;
    keys[0].id = 2;
    keys[0].key[0] ^= 1;
    beacons_set_keys(w->nodes[0].beacons, keys, 2,
                     w->now); /* seals with the new one; the other end knows both */
    keys[0] = w->key;
    keys[1].id = 2;
    keys[1].key[0] ^= 1;
    beacons_set_keys(w->nodes[1].beacons, keys, 2, w->now);
    world_run(w, 30 * S);
    assert_int_equal(w->nodes[0].downs + w->nodes[1].downs, 0);
    other.id = 3;
    beacons_set_keys(w->nodes[1].beacons, &other, 1, w->now); /* thrown out */
    world_run(w, 5 * S);
    assert_int_equal(w->nodes[0].ncables + w->nodes[1].ncables, 0);
    beacons_set_keys(w->nodes[1].beacons, NULL, 0, w->now);
    world_run(w, 5 * S);
    assert_null(w->error);
    world_free(w);
}

/* --- attacks
 * ------------------------------------------------------------------------------------------------------ */

/* A switch with A, B and a stranger; B dies. Everything ever heard is repeated to A, at A's leisure and in
 * bursts. */
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

/* Recordings of an earlier life are as good as a stranger's, while the present one is up and after it. */
static void replay_of_an_old_boot_takes_nothing_away(void **state)
{
    struct world *w = two_nodes(13);
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
    struct world *w = two_nodes(14);
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

/* Ten thousand datagrams a second that look right: opened at most 100 times, and the cable stays. */
static void flood_does_not_crowd_out(void **state)
{
    struct world *w = two_nodes(17);
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

/* 100 neighbours on one port, half of them proved: bounded, counted; those who never prove anything make
 * room. */
static void table_is_bounded(void **state)
{
    struct world *w = two_nodes(18);
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
            beacon_decode(&b, &w->key, 1, &w->tape[i].source, w->tape[i].data, w->tape[i].n) == 0)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datagram_says_what_it_said),
        cmocka_unit_test(largest_datagram_fits),
        cmocka_unit_test(every_truncation_and_flip_is_refused),
        cmocka_unit_test(nonsense_inside_is_refused),
        cmocka_unit_test(questions_are_clear),
        cmocka_unit_test(cable_id_is_the_same_on_both_ends),
        cmocka_unit_test(all_are_two_way_in_time),
        cmocka_unit_test(settled_segments_are_quiet),
        cmocka_unit_test(switch_with_two_left_is_a_cable),
        cmocka_unit_test(silence_ends_after_the_hold_time),
        cmocka_unit_test(goodbye_ends_at_once),
        cmocka_unit_test(restart_ends_the_old_boot),
        cmocka_unit_test(own_port_gone_ends_at_once_and_comes_back),
        cmocka_unit_test(one_way_cable_is_named_and_never_up),
        cmocka_unit_test(versions_without_overlap_never_come_up),
        cmocka_unit_test(news_are_told),
        cmocka_unit_test(keys_change_without_a_gap),
        cmocka_unit_test(replays_and_garbage_have_no_effect),
        cmocka_unit_test(replay_of_an_old_boot_takes_nothing_away),
        cmocka_unit_test(beacons_do_not_travel),
        cmocka_unit_test(copied_identity_is_refused),
        cmocka_unit_test(copy_of_ourselves_is_refused),
        cmocka_unit_test(flood_does_not_crowd_out),
        cmocka_unit_test(table_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
