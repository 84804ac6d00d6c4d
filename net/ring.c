/* SPDX-License-Identifier: MIT
 *
 * Ring order: which class of cable a ring can do with throughout, by bisection with one bit per
 * path; then the cheapest ring of such cables by dynamic programming over sets of nodes (Held and
 * Karp), walked so that equal rings are told apart by ids; where all cables are alike, the first
 * ring that is found in that order. Beyond RING_EXACT_NODES: nearest neighbour from every node,
 * improved by 2-opt and by moving short runs (net/ring_large.c). Pure; called by the daemon on its
 * loop.
 *
 * Every node must get the same answer from the same records, so nodes are put in order of their ids
 * first ("ranks") and every choice takes the smallest that is as good. */
#include "ring_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Worst to best; the place in this table is a cable's level. */
static const uint32_t classes[] = {0, 100, 1000, 2500, 5000, 10000, 20000, 40000};
enum { LEVELS = sizeof classes / sizeof *classes };

/* A cable reaches a class with 80 % of its name (10 Gb/s Ethernet carries 9.4, Thunderbolt less of
 * its own), falls out of it below 70 % and rises to the next at 90 % of that. */
static size_t level_of(uint32_t mbps, uint32_t percent)
{
    size_t level = mbps > 0;

    while (level > 0 && level + 1 < LEVELS && (uint64_t)mbps * 100 >= (uint64_t)classes[level + 1] * percent)
        level++;
    return level;
}

uint32_t ring_class(uint32_t measured_mbps, uint32_t current)
{
    size_t had = level_of(current, 80), level;

    if (measured_mbps == 0 || current == 0)
        return classes[level_of(measured_mbps, 80)];
    level = level_of(measured_mbps, 90);
    if (level > had)
        return classes[level];
    level = level_of(measured_mbps, 70);
    return classes[level < had ? level : had];
}

/* What both ends agree on. */
static struct ring_edge edge_of(const struct ring_graph *g, size_t i, size_t k)
{
    const struct ring_edge *there = &g->edge[i][k], *back = &g->edge[k][i];

    return (struct ring_edge){
        .linked = i != k && there->linked && back->linked,
        .shared = there->shared || back->shared,
        .class_mbps = there->class_mbps < back->class_mbps ? there->class_mbps : back->class_mbps,
    };
}

static void sort_graph(struct ring_sorted *s, const struct ring_graph *g)
{
    *s = (struct ring_sorted){.n = g->n};
    for (size_t i = 0; i < g->n; i++) {
        size_t at = i;

        for (; at > 0 && memcmp(g->id[i], g->id[s->index[at - 1]], sizeof g->id[i]) < 0; at--)
            s->index[at] = s->index[at - 1];
        s->index[at] = i;
    }
    for (size_t a = 0; a < s->n; a++)
        for (size_t b = 0; b < s->n; b++) {
            struct ring_edge e = edge_of(g, s->index[a], s->index[b]);
            size_t level = level_of(e.class_mbps, 80);

            s->linked[a] |= (uint32_t)e.linked << b;
            s->level[a][b] = (uint8_t)level;
            s->cost[a][b] =
                (uint32_t)e.shared * RING_SHARED_COST + (classes[LEVELS - 1] - classes[level]) / 100;
        }
}

static void allow_level(struct ring_sorted *s, size_t level)
{
    memset(s->near, 0, sizeof s->near);
    for (size_t a = 0; a < s->n; a++)
        for (size_t b = 0; b < s->n; b++)
            if (s->linked[a] >> b & 1 && s->level[a][b] >= level)
                s->near[a] |= UINT32_C(1) << b;
}

/* --- exact, over sets ------------------------------------------------------------------------- */

struct ring_work {
    uint16_t *starts; /* owned: [set] nodes of the set from which a path runs through all of it */
    uint32_t *cost;   /* owned: [set][node] of the cheapest such path */
};

enum { NEVER = UINT32_MAX / 2, EASY_STEPS = 2000 };

static void work_done(struct ring_work *w)
{
    free(w->starts);
    free(w->cost);
}

static int work_init(struct ring_work *w, size_t n)
{
    w->starts = malloc(sizeof *w->starts << n);
    w->cost = malloc((sizeof *w->cost << n) * n);
    if (w->starts && w->cost)
        return 0;
    work_done(w);
    return -ENOMEM;
}

/* Is there a path through all of `all` that begins and ends in nodes of `ends`? */
static bool path_exists(uint16_t *starts, const struct ring_sorted *s, size_t all, uint32_t ends)
{
    starts[0] = 0;
    for (size_t set = 1; set <= all; set++) {
        uint16_t from = 0;

        if (set & ~all)
            continue;
        for (size_t left = set; left != 0; left &= left - 1) {
            size_t v = (size_t)__builtin_ctzl(left), rest = set & ~((size_t)1 << v);

            if (rest == 0 ? ends >> v & 1 : (s->near[v] & starts[rest]) != 0)
                from |= (uint16_t)(1u << v);
        }
        starts[set] = from;
    }
    return (starts[all] & ends) != 0;
}

/* cost[set][v]: from v through all of the set, then from the last node to `home` (SIZE_MAX:
 * nowhere). */
static void find_costs(uint32_t *cost, const struct ring_sorted *s, size_t all, size_t home)
{
    for (size_t set = 1; set <= all; set++) {
        if (set & ~all)
            continue;
        for (size_t left = set; left != 0; left &= left - 1) {
            size_t v = (size_t)__builtin_ctzl(left), rest = set & ~((size_t)1 << v);
            uint32_t best = NEVER;

            if (rest == 0)
                best = home == SIZE_MAX ? 0 : s->near[v] >> home & 1 ? s->cost[v][home] : NEVER;
            for (size_t next = rest & s->near[v]; next != 0; next &= next - 1) {
                size_t u = (size_t)__builtin_ctzl(next);
                uint32_t c = s->cost[v][u] + cost[rest * s->n + u];

                best = c < best ? c : best;
            }
            cost[set * s->n + v] = best;
        }
    }
}

/* Follows the smallest rank that costs no more than it must. `from` = the node before, SIZE_MAX:
 * none. */
static void walk(size_t *ranks, const struct ring_sorted *s, const uint32_t *cost, size_t set, size_t from)
{
    for (; set != 0; ranks++) {
        uint32_t best = NEVER;

        for (size_t left = set & (from == SIZE_MAX ? set : s->near[from]); left != 0; left &= left - 1) {
            size_t v = (size_t)__builtin_ctzl(left);
            uint32_t c = cost[set * s->n + v] + (from == SIZE_MAX ? 0 : s->cost[from][v]);

            if (c < best) {
                best = c;
                *ranks = v;
            }
        }
        from = *ranks;
        set &= ~((size_t)1 << from);
    }
}

/* Whether all cables that are allowed cost the same, as on a switch whose ports are alike: then any
 * way is a best one. */
static bool is_uniform(const struct ring_sorted *s)
{
    uint32_t cost = NEVER;

    for (size_t a = 0; a < s->n; a++)
        for (uint32_t left = s->near[a]; left != 0; left &= left - 1) {
            uint32_t c = s->cost[a][__builtin_ctz(left)];

            if (cost != NEVER && c != cost)
                return false;
            cost = c;
        }
    return true;
}

struct easy {
    const struct ring_sorted *s;
    size_t *ranks;
    uint32_t ends; /* who may be last */
    unsigned left; /* steps before it is given up */
};

/* The first way in order of ids that goes on from ranks[n - 1] through all of `rest`. */
static bool go_on(struct easy *e, size_t n, uint32_t rest)
{
    if (rest == 0)
        return e->ends >> e->ranks[n - 1] & 1;
    for (uint32_t next = n > 0 ? rest & e->s->near[e->ranks[n - 1]] : rest; next != 0 && e->left > 0;
         next &= next - 1) {
        e->left--;
        e->ranks[n] = (size_t)__builtin_ctz(next);
        if (go_on(e, n + 1, rest & ~(UINT32_C(1) << e->ranks[n])))
            return true;
    }
    return false;
}

/* Among many cables a way is found in no time, and where they cost the same, the first is the best.
 * 1: found, 0: there is none, -1: it would take long. */
static int find_easy(size_t *ranks, const struct ring_sorted *s, bool closed)
{
    const uint32_t all = (UINT32_C(1) << s->n) - 1;
    struct easy e = {s, ranks, closed ? s->near[0] : all, EASY_STEPS};

    ranks[0] = 0;
    if (closed ? go_on(&e, 1, all & ~UINT32_C(1)) : go_on(&e, 0, all))
        return 1;
    return e.left > 0 ? 0 : -1;
}

/* What needs no search: in a ring of three and more everybody has two neighbours, in a chain all
 * but its ends. */
static bool has_too_few(const uint32_t *links, size_t n, bool closed)
{
    size_t ends = 0;

    for (size_t a = 0; a < n; a++) {
        if (links[a] == 0)
            return true;
        ends += (links[a] & (links[a] - 1)) == 0;
    }
    return n > 2 && ends > (closed ? 0 : 2);
}

/* Is there a way of the cables that are allowed? */
static bool way_exists(uint16_t *starts, const struct ring_sorted *s, bool closed)
{
    size_t all = ((size_t)1 << s->n) - 1, ranks[RING_EXACT_NODES];
    int easy;

    if (has_too_few(s->near, s->n, closed))
        return false;
    easy = find_easy(ranks, s, closed);
    if (easy >= 0)
        return easy;
    return closed ? path_exists(starts, s, all & ~(size_t)1, s->near[0])
                  : path_exists(starts, s, all, (uint32_t)all);
}

/* The highest level at which there is a way, or −1. */
static int best_level(uint16_t *starts, struct ring_sorted *s, bool closed)
{
    int low = -1, high = LEVELS - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;

        allow_level(s, (size_t)middle);
        if (way_exists(starts, s, closed))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* `ranks` gets the best way of that kind; false: there is none. */
static bool find_exact(size_t *ranks, struct ring_work *w, struct ring_sorted *s, bool closed)
{
    size_t all = ((size_t)1 << s->n) - 1, rest = closed ? all & ~(size_t)1 : all;
    int level = has_too_few(s->linked, s->n, closed) ? -1 : best_level(w->starts, s, closed);

    if (level < 0)
        return false;
    allow_level(s, (size_t)level);
    if (is_uniform(s) && find_easy(ranks, s, closed) > 0)
        return true;
    find_costs(w->cost, s, rest, closed ? 0 : SIZE_MAX);
    if (closed)
        *ranks++ = 0;
    walk(ranks, s, w->cost, rest, closed ? 0 : SIZE_MAX);
    return true;
}

static bool find_large(size_t *ranks, struct ring_sorted *s, bool closed)
{
    for (size_t level = LEVELS; level-- > 0;) {
        allow_level(s, level);
        if (ring_large_search(ranks, s, closed) == 0)
            return true;
    }
    return false;
}

/* --- the answer ------------------------------------------------------------------------------- */

static size_t hops(enum ring_shape shape, size_t n)
{
    return n < 2 ? 0 : shape == RING_CLOSED && n > 2 ? n : n - 1;
}

static void fill(struct ring_order *ret, const struct ring_graph *g, enum ring_shape shape, const size_t *at)
{
    uint32_t slowest = UINT32_MAX;

    *ret = (struct ring_order){.shape = shape, .n = g->n};
    memcpy(ret->at, at, g->n * sizeof *at);
    for (size_t i = 0; i < hops(shape, g->n); i++) {
        struct ring_edge e = edge_of(g, at[i], at[(i + 1) % g->n]);
        uint32_t mbps = ring_class(e.class_mbps, 0);

        slowest = mbps < slowest ? mbps : slowest;
        ret->total_mbps += mbps;
        ret->shared += e.shared;
    }
    ret->class_mbps = hops(shape, g->n) > 0 ? slowest : 0;
}

int ring_compute(struct ring_order *ret, const struct ring_graph *graph)
{
    static const enum ring_shape shape[] = {RING_CHAIN, RING_CLOSED};
    size_t ranks[RING_MAX_NODES], at[RING_MAX_NODES] = {0};
    struct ring_work w = {0};
    struct ring_sorted s;
    int r = 0;

    *ret = (struct ring_order){.shape = RING_BROKEN};
    if (graph->n > RING_MAX_NODES)
        return -E2BIG;
    if (graph->n <= 1) {
        fill(ret, &(struct ring_graph){.n = graph->n}, RING_ALONE, at);
        return 0;
    }
    sort_graph(&s, graph);
    if (s.n <= RING_EXACT_NODES && (r = work_init(&w, s.n)) < 0)
        return r;
    for (int closed = 1; closed >= 0; closed--) {
        if (!(s.n <= RING_EXACT_NODES ? find_exact(ranks, &w, &s, closed) : find_large(ranks, &s, closed)))
            continue;
        for (size_t i = 0; i < s.n; i++)
            at[i] = s.index[ranks[i]];
        fill(ret, graph, shape[closed], at);
        break;
    }
    work_done(&w);
    return 0;
}

/* The ring that needs the fewest new cables: where only a hop without one costs. */
static int find_cheapest_to_close(size_t *ranks, struct ring_sorted *s)
{
    const size_t rest = (((size_t)1 << s->n) - 1) & ~(size_t)1;
    struct ring_work w = {0};
    int r;

    if (s->n > RING_EXACT_NODES) {
        allow_level(s, 0);
        ring_large_search(ranks, s, true);
        return 0;
    }
    if ((r = work_init(&w, s->n)) < 0)
        return r;
    for (size_t a = 0; a < s->n; a++) {
        s->near[a] = (UINT32_C(1) << s->n) - 1;
        for (size_t b = 0; b < s->n; b++)
            s->cost[a][b] = !(s->linked[a] >> b & 1);
    }
    find_costs(w.cost, s, rest, 0);
    ranks[0] = 0;
    walk(ranks + 1, s, w.cost, rest, 0);
    work_done(&w);
    return 0;
}

int ring_missing(const struct ring_graph *graph, const struct ring_order *order, struct ring_pair *ret,
                 size_t cap)
{
    size_t ranks[RING_MAX_NODES] = {0}, count = 0;
    struct ring_sorted s;
    int r;

    if (graph->n > RING_MAX_NODES)
        return -E2BIG;
    if (order->shape == RING_CHAIN && cap > 0)
        *ret = (struct ring_pair){order->at[0], order->at[order->n - 1]};
    if (order->shape != RING_BROKEN || graph->n < 2)
        return order->shape == RING_CHAIN;
    sort_graph(&s, graph);
    if ((r = find_cheapest_to_close(ranks, &s)) < 0)
        return r;
    for (size_t i = 0; i < hops(RING_CLOSED, s.n); i++) {
        size_t a = ranks[i], b = ranks[(i + 1) % s.n];

        if (s.linked[a] >> b & 1)
            continue;
        if (count < cap)
            ret[count] = (struct ring_pair){s.index[a], s.index[b]};
        count++;
    }
    return (int)count;
}

int ring_verify(struct ring_order *ret, const struct ring_graph *graph, const size_t *list, size_t n,
                size_t *ret_at)
{
    bool seen[RING_MAX_NODES] = {false};

    if (graph->n > RING_MAX_NODES)
        return -E2BIG;
    for (size_t i = 0; i < n; i++) {
        *ret_at = i;
        if (list[i] >= graph->n || seen[list[i]])
            return -EINVAL;
        seen[list[i]] = true;
    }
    for (size_t i = 0; i < graph->n; i++)
        if (!seen[i]) {
            *ret_at = i;
            return -ENOENT;
        }
    for (size_t i = 0; i + 1 < n; i++)
        if (!edge_of(graph, list[i], list[i + 1]).linked) {
            *ret_at = i;
            return -EHOSTUNREACH;
        }
    if (n <= 1)
        fill(ret, graph, RING_ALONE, list);
    else
        fill(ret, graph, edge_of(graph, list[n - 1], list[0]).linked ? RING_CLOSED : RING_CHAIN, list);
    return 0;
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
    struct ring_order turned = *ring;
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
    struct ring_sorted s;
    uint32_t target = 0, seen, edge;
    size_t source = 0;

    if (graph->n > RING_MAX_NODES || from >= graph->n || to >= graph->n || from == to)
        return -1;
    sort_graph(&s, graph);
    for (size_t v = 0; v < s.n; v++) {
        target |= s.index[v] == to ? UINT32_C(1) << v : 0;
        source = s.index[v] == from ? v : source;
    }
    /* circles grow around the target until one touches the source: the touching neighbours are on
     * shortest paths */
    for (seen = edge = target; edge != 0;) {
        uint32_t touching = s.linked[source] & edge, next = 0;

        for (size_t v = 0; v < s.n; v++) {
            if (touching >> v & 1)
                return (int)s.index[v];
            if (edge >> v & 1)
                next |= s.linked[v];
        }
        edge = next & ~seen;
        seen |= edge;
    }
    return -1;
}
