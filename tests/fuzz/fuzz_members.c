/* SPDX-License-Identifier: MIT
 *
 * Records of a few nodes, in any order and of any lives: whatever is taken in can be told on, and
 * the ring can be computed. Input: (u8 who, life ‖ u8 sequence ‖ u8 its links ‖ u8 its job)*. */
#include "tests/fuzz/lib/input.h"

#include "daemon/ringd/cluster/members_impl.h" /* emptied, not made anew, for each run */

enum { NODES = 7, RECORDS = 32 };

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
    static const struct member self = {.id = {1}, .name = "self", .version = "1", .boot = 1, .seq = 1};
    static struct members_orders orders;
    static struct members table, *m = &table;
    struct input in = {data, n};
    uint64_t now = 1;
    orders.has = false;
    orders.standing.n = orders.coming.n = 0;
    table = (struct members){.orders = &orders, .n = 1, .at[0] = self};
    members_set_patience(m, 20000000);
    for (int i = 0; i < RECORDS && in.left; i++) {
        const uint8_t who = input_u8(&in), links = input_u8(&in);
        struct member news = {.id = {1 + who % NODES},
                              .name = "n",
                              .version = "1",
                              .boot = 1 + who / NODES % 4,
                              .seq = links % 16};
        const uint8_t neighbours = input_u8(&in), job = input_u8(&in);
        for (unsigned k = 0; k < NODES; k++)
            if (neighbours >> k & 1)
                news.links[news.nlinks++] =
                    (struct member_link){.id = {1 + k}, .class_mbps = links / 16 * 100};
        news.nstages = job % 3;
        for (size_t k = 0; k < news.nstages; k++)
            news.stages[k] = (struct member_stage){.job = 1 + job % 7, .head = {job % 7}};
        if (job > 250)
            snprintf(news.ring, sizeof news.ring, "self,n,%c", 'a' + job % 2);
        json_t *record = member_encode(&news);
        (void)members_learn(m, record, (struct instant){now += job * 10000});
        json_decref(record);
        (void)members_expire(m, (struct instant){now});
        (void)members_settle(m, (struct instant){now});
    }
    look_at(m);
    return 0;
}
