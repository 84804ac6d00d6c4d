/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/push_route.h"

#include <stdint.h>

#include "daemon/ringd/hub/hops.h"

struct push_map {
    size_t n;
    size_t far[RING_MAX_NODES][RING_MAX_NODES]; /* cables between two nodes; SIZE_MAX: none lead there */
    size_t to_source[RING_MAX_NODES];           /* to the nearest that has it */
};

static void measure(struct push_map *m, const bool *joined, size_t n, const enum push_part *parts)
{
    m->n = n;
    for (size_t i = 0; i < n; i++) {
        hops_from(joined, n, i, m->far[i]);
        m->to_source[i] = SIZE_MAX;
        for (size_t k = 0; k < n; k++)
            if (parts[k] == PUSH_HAS && m->far[i][k] < m->to_source[i])
                m->to_source[i] = m->far[i][k];
    }
}

static bool is_on_the_way(const struct push_map *m, size_t i, size_t k)
{
    return m->to_source[k] < m->to_source[i] && m->far[i][k] == m->to_source[i] - m->to_source[k];
}

static void choose(const struct push_map *m, const enum push_part *parts, size_t i, struct push_step *ret)
{
    size_t nearest = SIZE_MAX;
    for (size_t k = 0; k < m->n; k++)
        if (parts[k] != PUSH_PASSES && is_on_the_way(m, i, k) && m->far[i][k] < nearest)
            nearest = m->far[i][k];
    for (size_t k = 0; k < m->n && ret->n < PUSH_SOURCES; k++)
        if (parts[k] != PUSH_PASSES && is_on_the_way(m, i, k) && m->far[i][k] == nearest)
            ret->from[ret->n++] = k;
}

void push_route(const bool *joined, size_t n, const enum push_part *parts, struct push_step *ret)
{
    struct push_map m;
    measure(&m, joined, n, parts);
    for (size_t i = 0; i < n; i++) {
        ret[i] = (struct push_step){.n = 0};
        if (parts[i] == PUSH_TAKES && m.to_source[i] != SIZE_MAX)
            choose(&m, parts, i, &ret[i]);
        for (size_t k = 0; k < n && parts[i] == PUSH_TAKES && !ret[i].n; k++)
            if (parts[k] == PUSH_HAS)
                ret[i].from[ret[i].n++] = k;
    }
}
