/* SPDX-License-Identifier: MIT
 *
 * Messages through others, signed well by a member with a bug: (u8 length ‖ u8 what is made right ‖
 * bytes)*. What is let in lies within its frame, is of a member and of this life, and is not let in
 * again. */
#include "tests/fuzz/lib/input.h"
#include "tests/fuzz/lib/unsealed.h"

#include "daemon/ringd/cluster/envelope.h"

enum { AT_TO = 97, AT_TO_BOOT = AT_TO + 16, AT_FROM = AT_TO_BOOT + 8, RIGHT_TO = 1, RIGHT_FROM = 2 };

static struct roster roster = {.n = 1, .at = {{.id = {2}, .status = ROSTER_ACTIVE, .serial = 1}}};

static void take(struct envelopes *e, const uint8_t *data, size_t n)
{
    struct envelope v, again;
    if (envelopes_take(e, &roster, data, n, &v) != ENVELOPE_OURS)
        return;
    expect(v.to[0] == 1 && v.to_boot == 1 && v.from[0] == 2 && v.number && v.from_boot);
    expect(v.text == data + ENVELOPE_HEAD && v.n == n - ENVELOPE_HEAD);
    expect(envelopes_take(e, &roster, data, n, &again) == ENVELOPE_REPEATED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct auth_identity identity;
    static const struct member self = {.id = {1}, .name = "self", .version = "1", .boot = 1, .seq = 1};
    struct members *m = members_new(&self);
    struct envelopes *e = envelopes_new(&identity, m);
    struct input in = {data, n};
    uint8_t frame[256];
    while (in.left) {
        const size_t length = input_u8(&in);
        const uint8_t right = input_u8(&in);
        memset(frame, 0, sizeof frame);
        const size_t size = input_bytes(&in, frame, length);
        if (right & RIGHT_TO && size > ENVELOPE_HEAD) {
            memcpy(frame + AT_TO, (const uint8_t[24]){[0] = 1, [16] = 1}, 24);
            frame[0] %= 33;
        }
        if (right & RIGHT_FROM && size > ENVELOPE_HEAD)
            memcpy(frame + AT_FROM, roster.at[0].id, 16);
        take(e, frame, size);
    }
    envelopes_free(e);
    members_free(m);
    return 0;
}
