/* SPDX-License-Identifier: MIT
 *
 * Beacons from any bytes, three ways: as a datagram from outside; as what a member with a bug seals, decoded;
 * and as a series of such beacons that a node with two ports takes in while time passes, whose events must
 * make sense. First byte: which. */
#include "tests/fuzz/fuzz.h"

#include <sodium.h>

#include "net/beacon.h"

enum { ROUND = 24, MAX_UP = 2 * BEACON_NEIGHBOURS };

static const struct in6_addr from = {{{0xfe, 0x80, [15] = 1}}};
static const uint8_t nonce[BEACON_NONCE] = {1};

static void outside(const uint8_t *data, size_t n, const struct beacon_key *key)
{
    struct beacon b;
    int type = beacon_peek(data, n);

    expect(beacon_decode(&b, key, 1, &from, data, n) < 0);
    if (type == BEACON_JOINQ || type == BEACON_JOINA)
        expect(n >= BEACON_HEAD && n - BEACON_HEAD <= BEACON_ASK_MAX);
}

static void inside(const uint8_t *data, size_t n, const struct beacon_key *key)
{
    uint8_t sealed[BEACON_MAX] = {'R', 'N', 'G', 'B', BEACON_VERSION, BEACON_HELLO, 1, 0},
            ad[BEACON_HEAD + 16];
    uint8_t again[BEACON_MAX];
    const size_t rim = BEACON_HEAD + BEACON_NONCE + crypto_aead_xchacha20poly1305_ietf_ABYTES;
    struct beacon b, back;
    int size;

    if (n > sizeof sealed - rim)
        return;
    memcpy(sealed + BEACON_HEAD, nonce, sizeof nonce);
    memcpy(ad, sealed, BEACON_HEAD);
    memcpy(ad + BEACON_HEAD, &from, 16);
    crypto_aead_xchacha20poly1305_ietf_encrypt(sealed + BEACON_HEAD + BEACON_NONCE, NULL, data, n, ad,
                                               sizeof ad, NULL, nonce, key->key);
    if (beacon_decode(&b, key, 1, &from, sealed, n + rim) < 0)
        return;
    expect(b.nheard <= BEACON_HEARD_MAX && b.hold_ms >= 1000 && b.proto_min <= b.proto_max &&
           memchr(b.name, 0, sizeof b.name));
    size = beacon_encode(&b, key, &from, nonce, again, sizeof again);
    expect(size > 0 && beacon_decode(&back, key, 1, &from, again, (size_t)size) == 0);
    expect(back.seq == b.seq && back.nheard == b.nheard && strcmp(back.name, b.name) == 0);
}

/* --- a series --- */

struct seen {
    size_t n;
    struct {
        uint64_t id;
        unsigned ifindex;
    } up[MAX_UP];
};

static size_t find(const struct seen *seen, const struct cable *c)
{
    size_t i = 0;

    while (i < seen->n && (seen->up[i].id != c->id || seen->up[i].ifindex != c->ifindex))
        i++;
    return i;
}

static void on_up(void *owner, const struct cable *c)
{
    struct seen *seen = owner;

    expect(seen->n < MAX_UP && find(seen, c) == seen->n);
    seen->up[seen->n].id = c->id;
    seen->up[seen->n++].ifindex = c->ifindex;
}

static void on_changed(void *owner, const struct cable *c)
{
    const struct seen *seen = owner;

    expect(find(seen, c) < seen->n);
}

static void on_down(void *owner, const struct cable *c, enum cable_end end)
{
    struct seen *seen = owner;
    size_t i = find(seen, c);

    (void)end;
    expect(i < seen->n);
    seen->up[i] = seen->up[--seen->n];
}

static void on_trouble(void *owner, const struct cable *with, enum neighbour_state state)
{
    (void)owner, (void)with;
    expect(state != NEIGHBOUR_TWO_WAY && state != NEIGHBOUR_HEARD);
}

/* A byte of input decides one thing: who speaks, of which boot, naming what, after how long. */
static void one_round(struct beacons *b, const uint8_t *in, const struct beacon_key *key, struct instant *now,
                      uint64_t seq)
{
    struct beacon beacon = {.type = in[0] % 16 ? BEACON_HELLO : BEACON_GOODBYE,
                            .boot = 1 + in[1] % 3,
                            .seq = in[2] % 4 ? seq : in[2],
                            .port_id = in[3] % 5,
                            .hold_ms = (uint16_t)(1000 + in[4] * 100),
                            .speed_mbps = in[5] % 2,
                            .nheard = 1,
                            .proto_min = 1,
                            .proto_max = 1};
    uint8_t out[BEACON_MAX];
    unsigned ifindex = 1 + in[6] % 2;
    struct in6_addr source = from;
    int n;

    source.s6_addr[15] = in[3] % 5;
    beacon.node_id[0] = in[0] / 16 % 4; /* 0: our own */
    beacon.heard[0] = (struct beacon_heard){.boot = 1, .port_id = 100 + ifindex, .seq = in[7]};
    n = beacon_encode(&beacon, key, &source, nonce, out, sizeof out);
    now->us += in[4] * 20000u;
    beacons_receive(b, ifindex, &source, out, (size_t)n, *now);
    beacons_expire(b, *now);
    expect(beacons_due(b).us > now->us || beacons_next_send(b, 1, *now, nonce, out, sizeof out) > 0 ||
           beacons_next_send(b, 2, *now, nonce, out, sizeof out) > 0);
    beacons_next_send(b, 2, *now, nonce, out, sizeof out);
}

static void series(const uint8_t *data, size_t n, const struct beacon_key *key)
{
    static const struct beacons_ops ops = {on_up, on_changed, on_down, on_trouble};
    struct beacons_self self = {.boot = 1, .name = "self", .proto_min = 1, .proto_max = 1};
    struct seen seen = {.n = 0};
    struct instant now = {1000000};
    struct beacons *b;

    expect(beacons_new(&b, &self, 1, &ops, &seen) == 0);
    beacons_set_keys(b, key, 1, now);
    for (unsigned i = 1; i <= 2; i++) {
        struct port port = {.ifindex = i, .port_id = 100 + i, .link_local = from};

        expect(beacons_port_add(b, &port, now) == 0);
    }
    for (size_t i = 0; i < ROUND && n >= 8; i++, data += 8, n -= 8)
        one_round(b, data, key, &now, i + 300);
    beacons_port_remove(b, 1, now);
    now.us += 100000000;
    beacons_expire(b, now);
    expect(seen.n == 0);
    beacons_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct beacon_key key = {.id = 1};

    if (n < 1)
        return 0;
    memset(key.key, 42, sizeof key.key);
    if (data[0] % 3 == 0)
        outside(data + 1, n - 1, &key);
    else if (data[0] % 3 == 1)
        inside(data + 1, n - 1, &key);
    else
        series(data + 1, n - 1, &key);
    return 0;
}
