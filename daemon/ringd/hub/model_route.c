/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/model_route.h"

#include <stdint.h>

#include "net/ring.h"

/* The neighbours of a node that a cable leads to; of two nodes each is the other's only one. */
static size_t neighbours(const struct route_node *nodes, size_t n, size_t i, size_t ret[ROUTE_SOURCES])
{
    const size_t before = (i + n - 1) % n, after = (i + 1) % n;
    size_t k = 0;
    if (n > 1 && nodes[before].joined)
        ret[k++] = before;
    if (n > 1 && nodes[i].joined && !(k && ret[0] == after))
        ret[k++] = after;
    return k;
}

/* How many cables lie between each node and the nearest that is marked with 0. */
static void spread(const struct route_node *nodes, size_t n, size_t far[RING_MAX_NODES])
{
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            size_t by[ROUTE_SOURCES];
            for (size_t k = neighbours(nodes, n, i, by); k--;)
                if (far[by[k]] != SIZE_MAX && far[by[k]] + 1 < far[i]) {
                    far[i] = far[by[k]] + 1;
                    more = true;
                }
        }
    }
}

static void take(const struct route_node *nodes, size_t n, size_t i, const size_t far[RING_MAX_NODES],
                 struct route_step *ret)
{
    size_t by[ROUTE_SOURCES];
    ret->way = ROUTE_TAKES;
    for (size_t k = neighbours(nodes, n, i, by); k--;)
        if (far[by[k]] < far[i])
            ret->from[ret->nfrom++] = by[k];
}

/* The first that the hub has not refused pulls for all whom cables join to it. Where it has refused
 * them all, each tries again, and says why it cannot. */
static void pull(const struct route_node *nodes, size_t n, size_t i, size_t far[RING_MAX_NODES],
                 struct route_step *ret)
{
    ret[i].way = ROUTE_PULLS;
    if (nodes[i].cannot)
        return;
    size_t joined[RING_MAX_NODES];
    for (size_t k = 0; k < n; k++)
        joined[k] = k == i ? 0 : SIZE_MAX;
    spread(nodes, n, joined);
    for (size_t k = 0; k < n; k++)
        if (k != i && joined[k] != SIZE_MAX) {
            ret[k] = (struct route_step){.way = ROUTE_WAITS, .from = {i}, .nfrom = 1};
            far[k] = joined[k];
        }
}

void model_route(const struct route_node *nodes, size_t n, struct route_step *ret)
{
    size_t far[RING_MAX_NODES];
    for (size_t i = 0; i < n; i++)
        far[i] = nodes[i].has ? 0 : SIZE_MAX;
    spread(nodes, n, far);
    for (size_t i = 0; i < n; i++) {
        ret[i] = (struct route_step){.way = ROUTE_HAS};
        if (far[i] && far[i] != SIZE_MAX)
            take(nodes, n, i, far, &ret[i]);
    }
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < n; i++)
            if (far[i] == SIZE_MAX && nodes[i].cannot == (turn == 1)) {
                far[i] = 0;
                pull(nodes, n, i, far, ret);
            }
}
