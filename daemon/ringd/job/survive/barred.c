/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/barred.h"

#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/members.h"

static size_t find(const struct barred *b, const uint8_t id[16])
{
    size_t i = 0;
    while (i < b->n && memcmp(b->id[i], id, 16) != 0)
        i++;
    return i;
}

bool barred_has(const struct barred *b, const struct member *node)
{
    const size_t i = find(b, node->id);
    return i < b->n && b->boot[i] == node->boot;
}

static bool add(struct barred *b, const struct member *node)
{
    const size_t i = find(b, node->id);
    if (i == RING_MAX_NODES)
        return false;
    memcpy(b->id[i], node->id, 16);
    b->boot[i] = node->boot;
    b->n += i == b->n;
    return true;
}

size_t barred_add(struct barred *b, const struct job_nodes *offered, const struct job_nodes *ran,
                  const struct members *m, char *names, size_t size)
{
    size_t added = 0, len = 0;
    *names = '\0';
    for (size_t r = 0; r < offered->n && ran->n; r++) {
        const struct member *node = members_find(m, offered->id[r]);
        if (!node || job_nodes_find(ran, node->id) < ran->n || !add(b, node))
            continue;
        if (len < size)
            len += (size_t)snprintf(names + len, size - len, "%s%s", added ? ", " : "", offered->name[r]);
        added++;
    }
    return added;
}
