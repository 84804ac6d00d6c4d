/* SPDX-License-Identifier: MIT
 *
 * A stranger's bytes wherever a seal or a signature stands in front, with the real ciphers: nothing
 * gets past it. First byte: where. The targets beacon, cert, roster, record and cluster_file have
 * what lies behind. */
#include "tests/fuzz/lib/fuzz.h"

#include "daemon/ringd/cluster/record.h"
#include "net/beacon.h"
#include "net/cert.h"
#include "net/roster.h"

static void beacon(const uint8_t *data, size_t n)
{
    static const struct beacon_key key = {.id = 1, .key = {1}};
    static const struct in6_addr from = {{{0xfe, 0x80, [15] = 1}}};
    struct beacon b;
    expect(beacon_decode(&b, &key, &from, data, n) < 0);
}

static void record(const uint8_t *data, size_t n)
{
    static const struct auth_identity identity;
    static struct roster roster = {.n = 1, .at = {{.id = {2}, .status = ROSTER_ACTIVE, .serial = 1}}};
    static struct members *m;
    static struct records *r;
    static const struct member self = {.id = {1}, .name = "self", .boot = 1, .seq = 1};
    uint8_t id[16];
    if (!r) {
        m = members_new(&self);
        r = records_new(&identity, m);
    }
    const enum record_verdict v = records_take(r, &roster, data, n, (struct instant){1}, id);
    expect(v == RECORD_BROKEN || v == RECORD_FORGED || v == RECORD_KNOWN);
    expect(members_count(m) == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t seed[CERT_SEED] = {1};
    static uint8_t pub[CERT_CLUSTER_KEY], secret[CERT_SECRET];
    static struct roster r;
    struct cert c;
    if (n < 1)
        return 0;
    if (!pub[0] && !pub[1])
        cert_cluster_keys(pub, secret, seed);
    switch (data[0] % 4) {
    case 0: beacon(data + 1, n - 1); break;
    case 1: expect(cert_open(data + 1, n - 1, pub, &c) < 0); break;
    case 2: expect(roster_open(data + 1, n - 1, pub, &r) < 0); break;
    default: record(data + 1, n - 1); break;
    }
    return 0;
}
