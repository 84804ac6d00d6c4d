/* SPDX-License-Identifier: MIT
 *
 * The ring as JSON: shape, order, what its slowest hop can do, what was set by hand, what is
 * missing. */
#include "daemon/ringd/api/api_ring.h"

#include "daemon/ringd/api/api_reply.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/api/api_impl.h"

json_t *api_ring_encode(const struct members *m)
{
    struct members_ring ring;
    struct members_gap gap[RING_MAX_NODES];
    char text[1500], by_hand[MEMBER_RING_TEXT], trouble[400];
    json_t *names = json_array(), *missing = json_array();
    members_ring(m, NULL, &ring);
    members_describe(m, text, sizeof text);
    members_override(m, by_hand, trouble, sizeof trouble);
    size_t gaps = members_missing(m, gap, RING_MAX_NODES);
    for (size_t i = 0; i < ring.n; i++)
        json_array_append_new(names, json_string(ring.at[i]->name));
    for (size_t i = 0; i < gaps && i < RING_MAX_NODES; i++)
        json_array_append_new(missing, json_pack("[s,s]", gap[i].a->name, gap[i].b->name));
    return json_pack("{s:s s:o s:s s:I s:I s:s s:b s:s s:o}", "state", ring_shape_name(ring.shape), "nodes",
                     names, "text", text, "class_mbps", (json_int_t)ring.class_mbps, "shared_hops",
                     (json_int_t)ring.shared, "override", by_hand, "by_hand", (int)ring.by_hand, "trouble",
                     trouble, "missing", missing);
}

void api_get_ring(struct api *api, struct http_call *call)
{
    api_reply(call, 200, api_ring_encode(api->setup.members));
}
