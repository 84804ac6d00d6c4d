/* SPDX-License-Identifier: MIT
 *
 * The beacon datagram: what it says, what PROTOCOL.md shows, and that every truncation and bit flip
 * is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/beacon.h"
#include "tests/lib/protocol_doc.h"

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
    assert_int_equal(beacon_decode(&back, &key, &from, data, (size_t)n), 0);
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

/* What only some say: left out where there is nothing to tell. */
static void what_a_port_adds(void **state)
{
    static const struct prefix pools[] = {
        {AF_INET, 16, {10, 98}}, {AF_INET, 31, {192, 168, 7, 2}}, {AF_INET6, 16, {0xfd}}};
    struct beacon b, back;
    struct beacon_key key;
    struct in6_addr from;
    uint8_t nonce[24], data[BEACON_MAX];

    (void)state;
    example(&b, &key, &from, nonce);
    b.max_mtu = 65522;
    strcpy(b.port_name, "thunderbolt0123");
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        b.pool = pools[i];
        int n = beacon_encode(&b, &key, &from, nonce, data, sizeof data);
        assert_true(n > 0);
        assert_int_equal(beacon_decode(&back, &key, &from, data, (size_t)n), 0);
        assert_int_equal(back.max_mtu, 65522);
        assert_string_equal(back.port_name, "thunderbolt0123");
        assert_true(prefix_equal(&back.pool, pools[i].family == AF_INET ? &pools[i] : &(struct prefix){0}));
    }
    b.pool = (struct prefix){AF_INET, 16, {11, 98}}; /* of the world: nobody's to give */
    int n = beacon_encode(&b, &key, &from, nonce, data, sizeof data);
    assert_int_equal(beacon_decode(&back, &key, &from, data, (size_t)n), -EBADMSG);
    b.pool = (struct prefix){AF_INET, 16, {10, 98, 1}}; /* no network */
    n = beacon_encode(&b, &key, &from, nonce, data, sizeof data);
    assert_int_equal(beacon_decode(&back, &key, &from, data, (size_t)n), -EBADMSG);
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
    strcpy(b.port_name, "thunderbolt0123");
    b.max_mtu = 65522;
    b.pool = (struct prefix){AF_INET, 16, {10, 98}};
    n = beacon_encode(&b, &key, &from, nonce, data, sizeof data);
    assert_true(n > 0);
    assert_int_equal(beacon_decode(&back, &key, &from, data, (size_t)n), 0);
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
    assert_in_range(n, 1, BEACON_MAX);
    for (int cut = 0; cut < n; cut++) {
        uint8_t *exact = malloc((size_t)cut + 1); /* so that a sanitizer sees reads past the end */

        memcpy(exact, data, (size_t)cut);
        assert_true(beacon_decode(&back, &key, &from, exact, (size_t)cut) < 0);
        free(exact);
    }
    for (int bit = 0; bit < n * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_true(beacon_decode(&back, &key, &from, data, (size_t)n) < 0);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memset(longer, 0, sizeof longer);
    memcpy(longer, data, n > 0 ? (size_t)n : 0); /* the compiler cannot see what is asserted */
    for (int more = n + 1; more <= BEACON_MAX; more += 97)
        assert_true(beacon_decode(&back, &key, &from, longer, (size_t)more) < 0);
    from.s6_addr[15] ^= 1;
    assert_int_equal(beacon_decode(&back, &key, &from, data, (size_t)n), -EKEYREJECTED);
    from.s6_addr[15] ^= 1;
    key.id++;
    assert_int_equal(beacon_decode(&back, &key, &from, data, (size_t)n), -ENOKEY);
    key.id--;
    assert_int_equal(beacon_decode(&back, &key, &from, data, (size_t)n), 0);
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
        if (beacon_decode(&back, &key, &from, data, (size_t)n) != cases[i].expected)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datagram_says_what_it_said),
        cmocka_unit_test(what_a_port_adds),
        cmocka_unit_test(largest_datagram_fits),
        cmocka_unit_test(every_truncation_and_flip_is_refused),
        cmocka_unit_test(nonsense_inside_is_refused),
        cmocka_unit_test(questions_are_clear),
        cmocka_unit_test(cable_id_is_the_same_on_both_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
