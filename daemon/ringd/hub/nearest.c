/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/nearest.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/hops.h"

static bool is_named(const json_t *ids, const uint8_t id[16])
{
    size_t i;
    json_t *text;
    uint8_t read[16];
    json_array_foreach (ids, i, text)
        if (json_is_string(text) && !id_parse(read, json_string_value(text)) && !memcmp(read, id, 16))
            return true;
    return false;
}

/* This node is the first of all members, and none that is looked for. */
size_t nearest(const struct members *members, const json_t *ids, bool parts, uint8_t (*ret)[16], size_t most)
{
    const size_t n = members_count(members);
    size_t *far = xmalloc((n + 1) * sizeof *far), *places = xmalloc((most + 1) * sizeof *places);
    bool *joined = xcalloc(n * n + 1, sizeof *joined), *named = xcalloc(n + 1, sizeof *named);
    for (size_t i = 0; i < n; i++) {
        named[i] = i && is_named(ids, members_at(members, i)->id);
        for (size_t k = 0; k < n; k++)
            joined[i * n + k] =
                members_linked(members, members_at(members, i)->id, members_at(members, k)->id);
    }
    hops_from(joined, n, 0, far);
    const size_t found = hops_sources(far, named, n, !parts, places, most);
    for (size_t i = 0; i < found; i++)
        memcpy(ret[i], members_at(members, places[i])->id, 16);
    free(named);
    free(joined);
    free(places);
    free(far);
    return found;
}
