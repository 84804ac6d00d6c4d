/* SPDX-License-Identifier: MIT
 *
 * Beacons from any bytes: as a datagram, and as what a member with a bug seals. What is decoded
 * means itself again. First byte: which. */
#include "tests/fuzz/lib/fuzz.h"
#include "tests/fuzz/lib/unsealed.h"

#include "net/beacon.h"

static const struct in6_addr from = {{{0xfe, 0x80, [15] = 1}}};
static const uint8_t nonce[BEACON_NONCE] = {1};
static const struct beacon_key key = {.id = 1};

static void datagram(const uint8_t *data, size_t n)
{
    uint8_t again[BEACON_MAX];
    struct beacon b, back;
    int type = beacon_peek(data, n);

    if (type == BEACON_JOINQ || type == BEACON_JOINA)
        expect(n >= BEACON_HEAD && n - BEACON_HEAD <= BEACON_ASK_MAX);
    if (beacon_decode(&b, &key, &from, data, n) < 0)
        return;
    expect(type == BEACON_HELLO || type == BEACON_GOODBYE);
    expect(b.nheard <= BEACON_HEARD_MAX && b.hold_ms >= 1000 && b.proto_min <= b.proto_max &&
           memchr(b.name, 0, sizeof b.name) && memchr(b.port_name, 0, sizeof b.port_name));
    int size = beacon_encode(&b, &key, &from, nonce, again, sizeof again);
    expect(size > 0 && beacon_decode(&back, &key, &from, again, (size_t)size) == 0);
    expect(back.seq == b.seq && back.nheard == b.nheard && strcmp(back.name, b.name) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t sealed[BEACON_MAX] = {'R', 'N', 'G', 'B', BEACON_VERSION, BEACON_HELLO, 1, 0};
    const size_t at = BEACON_HEAD + BEACON_NONCE, rim = at + crypto_aead_xchacha20poly1305_ietf_ABYTES;

    if (n < 1)
        return 0;
    if (data[0] % 8 == 0) {
        datagram(data + 1, n - 1);
    } else if (n - 1 <= sizeof sealed - rim) {
        memcpy(sealed + at, data + 1, n - 1);
        datagram(sealed, n - 1 + rim);
    }
    return 0;
}
