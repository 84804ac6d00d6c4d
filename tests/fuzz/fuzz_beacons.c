/* SPDX-License-Identifier: MIT
 *
 * A series of beacons of members with a bug, which a node with two ports takes in while time
 * passes: what it tells of cables must make sense. */
#include "tests/fuzz/lib/fuzz.h"
#include "tests/fuzz/lib/unsealed.h"

#include "net/beacon.h"

enum { ROUND = 24, SILENT_ROUNDS = 1000, MAX_UP = 2 * BEACON_NEIGHBOURS };

static const struct in6_addr from = {{{0xfe, 0x80, [15] = 1}}};
static const uint8_t nonce[BEACON_NONCE] = {1};

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

/* Some are connected, and not with the boots they tell. */
static uint64_t proved_boot(void *owner, const uint8_t node_id[static 16])
{
    (void)owner;
    return node_id[0] % 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct beacon_key key = {.id = 1};
    static const struct beacons_ops ops = {on_up, on_changed, on_down, on_trouble, proved_boot};
    struct beacons_self self = {.boot = 1, .name = "self", .proto_min = 1, .proto_max = 1};
    struct seen seen = {.n = 0};
    struct instant now = {1000000};
    uint8_t out[BEACON_MAX];
    struct beacons *b;

    expect(beacons_new(&b, &self, 1, &ops, &seen) == 0);
    beacons_set_key(b, &key, now);
    for (unsigned i = 1; i <= 2; i++) {
        struct port port = {.ifindex = i, .port_id = 100 + i, .link_local = from};

        expect(beacons_port_add(b, &port, now) == 0);
    }
    for (size_t i = 0; i < ROUND && n >= 8; i++, data += 8, n -= 8)
        one_round(b, data, &key, &now, i + 300);
    beacons_port_remove(b, 1, now);
    /* Nobody speaks any more. A leap in time would pass for a node that stood still, so it goes on
     * from one thing that is due to the next. */
    for (size_t i = 0; i < SILENT_ROUNDS && seen.n > 0; i++) {
        struct instant due = beacons_due(b);

        now = due.us > now.us ? due : now;
        beacons_expire(b, now);
        beacons_next_send(b, 2, now, nonce, out, sizeof out);
    }
    expect(seen.n == 0);
    beacons_free(b);
    return 0;
}
