/* SPDX-License-Identifier: MIT
 *
 * What is inside records: frame heads and the bodies a link reads itself; and the record's own
 * length. */
#include "tests/fuzz/lib/fuzz.h"

#include "net/wire.h"

static void body(const uint8_t *data, size_t n)
{
    static uint8_t again[WIRE_BEAT_HEAD + WIRE_BEAT_MAX];
    struct wire_beat beat;
    struct wire_bye bye;
    struct wire_rekey rekey;

    if (wire_beat_decode(data, n, &beat) == 0) {
        expect(wire_beat_encode(&beat, again, sizeof again) == (int)n);
        expect(memcmp(again, data, n) == 0);
    }
    if (wire_rekey_decode(data, n, &rekey) == 0) {
        expect(wire_rekey_encode(&rekey, again) == (int)n);
        expect(memcmp(again, data, n) == 0);
    }
    if (wire_bye_decode(data, n, &bye) == 0) {
        expect(strlen(bye.text) == n - 1); /* zeros were made visible too */
        expect(wire_bye_encode(bye.code, bye.text, again, sizeof again) == (int)n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t again[WIRE_FRAME_HEAD];
    struct wire_frame f;
    size_t length;

    if (n >= SEAL_HEAD && seal_length(data, &length) == 0)
        expect(length <= SEAL_MAX);
    if (n >= WIRE_FRAME_HEAD && wire_frame_decode(data, WIRE_FRAME_HEAD, &f) == 0) {
        const struct wire_message *m = wire_message_find(f.type);

        expect(!m || m->min <= m->max);
        wire_frame_encode(&f, again);
        expect(memcmp(again, data, sizeof again) == 0);
        body(data + WIRE_FRAME_HEAD, n - WIRE_FRAME_HEAD);
    }
    body(data, n);
    return 0;
}
