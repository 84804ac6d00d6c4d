/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/nearest.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"

/* Cables between this node, which is the first of all members, and each: SIZE_MAX: none lead
 * there. */
static size_t *measure(const struct members *members, size_t n)
{
    size_t *far = xmalloc((n + 1) * sizeof *far);
    bool more = true;
    for (size_t i = 0; i < n; i++)
        far[i] = i ? SIZE_MAX : 0;
    while (more) {
        more = false;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < n && far[i] != SIZE_MAX; k++)
                if (far[k] > far[i] + 1 &&
                    members_linked(members, members_at(members, i)->id, members_at(members, k)->id)) {
                    far[k] = far[i] + 1;
                    more = true;
                }
    }
    return far;
}

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

size_t nearest(const struct members *members, const json_t *ids, uint8_t (*ret)[16], size_t most)
{
    const size_t n = members_count(members);
    size_t *far = measure(members, n), found = 0;
    bool *is_taken = xcalloc(n + 1, sizeof *is_taken);
    while (found < most) {
        size_t best = 0; /* this node itself is none */
        for (size_t i = 1; i < n; i++)
            if (!is_taken[i] && is_named(ids, members_at(members, i)->id) && (!best || far[i] < far[best]))
                best = i;
        if (!best)
            break;
        is_taken[best] = true;
        memcpy(ret[found++], members_at(members, best)->id, 16);
    }
    free(is_taken);
    free(far);
    return found;
}
