/* SPDX-License-Identifier: MIT
 *
 * Ring order by dynamic programming over sets of nodes: exact, and quick to 16 nodes. Pure; called by the
 * daemon's coordinator on the loop. Every node must get the same answer from the same records, so nodes are
 * put in order of their ids first and every choice takes the smallest that can still be completed. */
#include "ring.h"

#include <errno.h>
#include <string.h>

struct sorted {
    size_t n;
    size_t index[RING_MAX_NODES];  /* rank by id → index in the caller's graph */
    uint16_t near[RING_MAX_NODES]; /* neighbours of a rank, as a set of ranks */
};

static void sort_graph(struct sorted *s, const struct ring_graph *g)
{
    *s = (struct sorted){.n = g->n};
    for (size_t i = 0; i < g->n; i++) {
        size_t at = i;

        for (; at > 0 && memcmp(g->id[i], g->id[s->index[at - 1]], sizeof g->id[i]) < 0; at--)
            s->index[at] = s->index[at - 1];
        s->index[at] = i;
    }
    for (size_t a = 0; a < s->n; a++)
        for (size_t b = 0; b < s->n; b++) {
            size_t i = s->index[a], k = s->index[b];

            if (a != b && g->linked[i][k] && g->linked[k][i])
                s->near[a] |= (uint16_t)(1u << b);
        }
}

/* starts[S] = the nodes of set S from which a path runs through all of S and ends in a node of `ends`. */
static void find_starts(uint16_t *starts, const struct sorted *s, uint16_t ends)
{
    for (size_t set = 1; set < (size_t)1 << s->n; set++) {
        starts[set] = 0;
        for (size_t v = 0; v < s->n; v++) {
            size_t rest = set & ~((size_t)1 << v);

            if (rest == set)
                continue;
            if (rest == 0 ? ends >> v & 1 : (s->near[v] & starts[rest]) != 0)
                starts[set] |= (uint16_t)(1u << v);
        }
    }
}

/* Follows the smallest node that can still be completed. `from` = allowed first nodes, `set` = nodes to
 * visit. */
static bool walk(struct ring_order *ret, const struct sorted *s, const uint16_t *starts, uint16_t from,
                 size_t set)
{
    while (set != 0) {
        uint16_t choice = from & starts[set];
        size_t v = 0;

        if (choice == 0)
            return false;
        while (!(choice >> v & 1))
            v++;
        ret->at[ret->n++] = s->index[v];
        set &= ~((size_t)1 << v);
        from = s->near[v];
    }
    return true;
}

void ring_compute(struct ring_order *ret, const struct ring_graph *graph)
{
    uint16_t starts[1 << RING_MAX_NODES]; /* 128 KiB: the loop's thread has it to spare */
    struct sorted s;
    size_t all;

    *ret = (struct ring_order){.shape = RING_BROKEN};
    if (graph->n > RING_MAX_NODES)
        return;
    sort_graph(&s, graph);
    all = ((size_t)1 << s.n) - 1;
    if (s.n <= 1) {
        ret->shape = RING_ALONE;
        ret->n = s.n;
        return;
    }
    find_starts(starts, &s, s.near[0]);
    ret->at[ret->n++] = s.index[0];
    if (walk(ret, &s, starts, s.near[0], all & ~(size_t)1)) {
        ret->shape = RING_CLOSED;
        return;
    }
    ret->n = 0;
    find_starts(starts, &s, (uint16_t)all);
    if (walk(ret, &s, starts, (uint16_t)all, all)) {
        ret->shape = RING_CHAIN;
        return;
    }
    *ret = (struct ring_order){.shape = RING_BROKEN};
}

const char *ring_shape_name(enum ring_shape shape)
{
    switch (shape) {
    case RING_ALONE: return "alone";
    case RING_CLOSED: return "closed";
    case RING_CHAIN: return "chain";
    case RING_BROKEN: return "broken";
    }
    return "unknown";
}

int ring_rotate(struct ring_order *ret, const struct ring_order *ring, size_t head)
{
    struct ring_order turned = {.shape = ring->shape, .n = ring->n};
    size_t at = 0;

    while (at < ring->n && ring->at[at] != head)
        at++;
    if (at == ring->n)
        return -ENOENT;
    if (ring->shape == RING_CHAIN && at != 0) {
        /* a chain has two ends and can only be read from either */
        if (at != ring->n - 1)
            return -EHOSTUNREACH;
        for (size_t i = 0; i < ring->n; i++)
            turned.at[i] = ring->at[ring->n - 1 - i];
    } else {
        for (size_t i = 0; i < ring->n; i++)
            turned.at[i] = ring->at[(at + i) % ring->n];
    }
    *ret = turned;
    return 0;
}

int ring_next_hop(const struct ring_graph *graph, size_t from, size_t to)
{
    struct sorted s;
    uint16_t target = 0, source = 0, seen, edge;

    if (graph->n > RING_MAX_NODES || from >= graph->n || to >= graph->n || from == to)
        return -1;
    sort_graph(&s, graph);
    for (size_t v = 0; v < s.n; v++) {
        target |= s.index[v] == to ? (uint16_t)(1u << v) : 0;
        source |= s.index[v] == from ? (uint16_t)v : 0;
    }
    /* circles grow around the target until one touches the source: the touching neighbours are on shortest
     * paths */
    for (seen = edge = target; edge != 0;) {
        uint16_t touching = s.near[source] & edge, next = 0;

        for (size_t v = 0; v < s.n; v++) {
            if (touching >> v & 1)
                return (int)s.index[v];
            if (edge >> v & 1)
                next |= s.near[v];
        }
        edge = next & (uint16_t)~seen;
        seen |= edge;
    }
    return -1;
}
