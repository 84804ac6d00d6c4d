/* SPDX-License-Identifier: MIT
 *
 * Handshake payloads: the opening, and the hello of both kinds. What decodes must encode, and
 * decode to the same again. */
#include "tests/fuzz/lib/fuzz.h"

#include "net/wire.h"

static void hello(enum link_kind kind, const uint8_t *data, size_t n)
{
    static uint8_t again[WIRE_HELLO_MAX];
    struct link_hello h, back;
    const char *what = NULL;
    int len;

    if (wire_hello_decode(data, n, kind, &h, &what) < 0) {
        expect(what != NULL);
        return;
    }
    expect(strnlen(h.name, sizeof h.name) < sizeof h.name &&
           strnlen(h.version, sizeof h.version) < sizeof h.version);
    len = wire_hello_encode(&h, kind, again, sizeof again);
    expect(len > 0 && wire_hello_decode(again, (size_t)len, kind, &back, &what) == 0);
    expect(strcmp(h.name, back.name) == 0 && h.boot == back.boot && h.proto_max == back.proto_max);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t again[WIRE_OPENING];
    struct wire_opening o;

    hello(LINK_CONTROL, data, n);
    hello(LINK_DATA, data, n);
    hello(LINK_JOIN, data, n);
    if (wire_opening_decode(data, n, &o) == 0) {
        expect(wire_opening_encode(&o, again, sizeof again) == (int)n);
        expect(memcmp(again, data, n) == 0);
    }
    return 0;
}
