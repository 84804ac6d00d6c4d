/* SPDX-License-Identifier: MIT
 *
 * Records of nodes as frames, signed well by a member with a bug: u16 length and record, again and
 * again. What is news is handed on as it came. */
#include "tests/fuzz/lib/input.h"
#include "tests/fuzz/lib/unsealed.h"

#include "daemon/ringd/cluster/members_impl.h" /* emptied, not made anew, for each run */
#include "daemon/ringd/cluster/record.h"

static const char prefix[] = "{\"id\":\"02000000000000000000000000000000\",";
static struct roster roster = {.n = 1, .at = {{.id = {2}, .status = ROSTER_ACTIVE, .serial = 1}}};

static void take(struct records *r, const uint8_t *body, size_t n, struct instant now)
{
    static uint8_t out[RECORD_MAX];
    uint8_t id[16];
    if (records_take(r, &roster, body, n, now, id) != RECORD_NEWS)
        return;
    expect(records_write(r, id, now, out, sizeof out) == n);
    expect(!memcmp(out + RECORD_HEAD, body + RECORD_HEAD, n - RECORD_HEAD));
}

/* Whoever holds the key may sign anything. */
static int sign(void *holder, enum auth_purpose purpose, const void *text, size_t n,
                uint8_t ret[static AUTH_SIGNATURE])
{
    (void)holder, (void)purpose, (void)text, (void)n;
    memset(ret, 0, AUTH_SIGNATURE);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct auth_identity identity = {.sign = sign};
    static const struct member self = {.id = {1}, .name = "self", .version = "1", .boot = 1, .seq = 1};
    static uint8_t body[RECORD_MAX + 1];
    static struct members_orders orders;
    static struct members table, *m = &table;
    orders.has = false;
    orders.standing.n = orders.coming.n = 0;
    table = (struct members){.orders = &orders, .n = 1, .at[0] = self};
    struct records *r = records_new(&identity, m);
    struct input in = {data, n};
    expect(records_sign_self(r, (struct instant){1}) == 0);
    for (uint64_t now = 1000000; in.left; now += 1000000) {
        const size_t length = input_u8(&in) + 256u * (input_u8(&in) % 64), own = length % 2;
        size_t size = RECORD_HEAD;
        memset(body, 0, RECORD_HEAD);
        body[RECORD_HEAD - 4] = (uint8_t)length; /* its age */
        if (own) {                               /* one that speaks of a member */
            memcpy(body + size, prefix, sizeof prefix - 1);
            size += sizeof prefix - 1;
        }
        size += input_bytes(&in, body + size, length < sizeof body - size ? length : sizeof body - size);
        take(r, body, size, (struct instant){now});
    }
    records_free(r);
    return 0;
}
