/* SPDX-License-Identifier: MIT
 *
 * Records of nodes, as JSON from a neighbour with a bug: one per line. Whatever is taken in can be told on, and
 * the ring can be computed. */
#include "tests/fuzz/fuzz.h"

#include "daemon/members.h"

static void look_at(const struct members *m)
{
    struct members_ring ring;
    char text[512];
    members_ring(m, NULL, &ring);
    expect(ring.n <= members_count(m) && members_count(m) <= RING_MAX_NODES);
    members_describe(m, text, sizeof text);
    expect(memchr(text, '\0', sizeof text) != NULL);
    for (size_t i = 0; i < members_count(m); i++) {
        const struct member *who = members_at(m, i);
        json_t *record = member_encode(who);
        char *line = record ? json_dumps(record, JSON_COMPACT) : NULL;
        expect(line && who->nlinks <= RING_MAX_NODES && members_find(m, who->id) == who);
        free(line);
        json_decref(record);
        (void)members_next_hop(m, who->id);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct member self = {.id = {1}, .name = "self", .version = "1", .boot = 1, .seq = 1};
    struct members *m = members_new(&self);
    uint64_t now = 1;
    expect(m != NULL);
    while (n > 0) {
        const uint8_t *end = memchr(data, '\n', n);
        const size_t line = end ? (size_t)(end - data) : n;
        json_t *record = json_loadb((const char *)data, line, 0, NULL);
        if (record)
            (void)members_learn(m, record, (struct instant){now += 1000000});
        json_decref(record);
        data += line + (end != NULL);
        n -= line + (end != NULL);
    }
    look_at(m);
    members_free(m);
    return 0;
}
