/* SPDX-License-Identifier: MIT
 *
 * Ring order against brute force over all orders of random small graphs, and what must hold for
 * large ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net/ring.h"

enum { SEED = 20240607, GRAPHS = 2000, BRUTE_MAX = 7 };

static uint32_t next_random(uint32_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 17;
    *s ^= *s << 5;
    return *s;
}

static void join(struct ring_graph *g, size_t a, size_t b)
{
    g->edge[a][b].linked = g->edge[b][a].linked = true;
}

static void join_random(struct ring_graph *g, size_t a, size_t b, uint32_t *seed)
{
    static const uint32_t classes[] = {0, 100, 1000, 2500, 5000, 10000, 20000, 40000};

    join(g, a, b);
    g->edge[a][b].class_mbps = classes[next_random(seed) % 8];
    g->edge[b][a].class_mbps =
        g->edge[a][b].class_mbps; /* one end may have measured less, or know of others */
    if (next_random(seed) % 4 == 0)
        g->edge[b][a].class_mbps = classes[next_random(seed) % 8];
    g->edge[a][b].shared = next_random(seed) % 3 == 0;
}

/* Random ids, so that order of ids and order in the graph differ; links with `percent`
 * probability. */
static void random_graph(struct ring_graph *g, size_t n, unsigned percent, uint32_t *seed)
{
    memset(g, 0, sizeof *g);
    g->n = n;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < 16; k++)
            g->id[i][k] = (uint8_t)next_random(seed);
        g->edge[i][i].linked = next_random(seed) % 2; /* must not matter */
        for (size_t k = 0; k < i; k++)
            if (next_random(seed) % 100 < percent)
                join_random(g, i, k, seed);
    }
}

static bool linked(const struct ring_graph *g, const size_t *at, size_t i, size_t k)
{
    return g->edge[at[i]][at[k]].linked;
}

static bool is_path(const struct ring_graph *g, const size_t *at)
{
    for (size_t i = 0; i + 1 < g->n; i++)
        if (!linked(g, at, i, i + 1))
            return false;
    return true;
}

struct value {
    uint32_t slowest;
    size_t shared;
    uint64_t total;
};

/* What the issue asks of a ring, hop by hop. */
static struct value value_of(const struct ring_graph *g, const size_t *at, bool closed)
{
    struct value v = {.slowest = UINT32_MAX};

    for (size_t i = 0; i + (closed && g->n > 2 ? 0 : 1) < g->n; i++) {
        const struct ring_edge *a = &g->edge[at[i]][at[(i + 1) % g->n]];
        const struct ring_edge *b = &g->edge[at[(i + 1) % g->n]][at[i]];
        uint32_t mbps = a->class_mbps < b->class_mbps ? a->class_mbps : b->class_mbps;

        v.slowest = mbps < v.slowest ? mbps : v.slowest;
        v.shared += a->shared || b->shared;
        v.total += mbps;
    }
    return v;
}

/* Negative: a is to be preferred. */
static int compare_orders(const struct ring_graph *g, const size_t *a, const size_t *b, bool closed)
{
    struct value x = value_of(g, a, closed), y = value_of(g, b, closed);

    if (x.slowest != y.slowest)
        return x.slowest > y.slowest ? -1 : 1;
    if (x.shared != y.shared)
        return x.shared < y.shared ? -1 : 1;
    if (x.total != y.total)
        return x.total > y.total ? -1 : 1;
    for (size_t i = 0; i < g->n; i++) {
        int c = memcmp(g->id[a[i]], g->id[b[i]], 16);

        if (c != 0)
            return c;
    }
    return 0;
}

struct brute {
    bool has_cycle, has_path;
    size_t cycle[RING_MAX_NODES], path[RING_MAX_NODES];
};

static void try_orders(struct brute *best, const struct ring_graph *g, size_t *at, size_t fixed)
{
    if (fixed < g->n) {
        for (size_t i = fixed; i < g->n; i++) {
            size_t t = at[fixed];

            at[fixed] = at[i];
            at[i] = t;
            try_orders(best, g, at, fixed + 1);
            at[i] = at[fixed];
            at[fixed] = t;
        }
        return;
    }
    if (!is_path(g, at))
        return;
    if (!best->has_path || compare_orders(g, at, best->path, false) < 0)
        memcpy(best->path, at, sizeof best->path);
    best->has_path = true;
    if (!linked(g, at, g->n - 1, 0))
        return;
    if (!best->has_cycle || compare_orders(g, at, best->cycle, true) < 0)
        memcpy(best->cycle, at, sizeof best->cycle);
    best->has_cycle = true;
}

static void check_value(const struct ring_graph *g, const struct ring_order *order)
{
    struct value v = value_of(g, order->at, order->shape == RING_CLOSED);

    assert_int_equal(order->class_mbps, v.slowest);
    assert_int_equal(order->shared, v.shared);
    assert_int_equal(order->total_mbps, v.total);
}

/* As on a switch: what is linked is linked alike. */
static void make_alike(struct ring_graph *g)
{
    for (size_t a = 0; a < g->n; a++)
        for (size_t b = 0; b < g->n; b++)
            if (g->edge[a][b].linked)
                g->edge[a][b] = (struct ring_edge){.linked = true, .shared = true, .class_mbps = 1000};
}

static void test_against_brute_force(void **state)
{
    uint32_t seed = SEED;
    size_t shapes[4] = {0};

    (void)state;
    for (int i = 0; i < GRAPHS; i++) {
        size_t at[RING_MAX_NODES] = {0}, n = 2 + (size_t)i % (BRUTE_MAX - 1);
        struct brute best = {0};
        struct ring_graph g;
        struct ring_order order;
        enum ring_shape want;

        random_graph(&g, n, 20 + (unsigned)i % 60, &seed);
        if (i % 3 == 0)
            make_alike(&g);
        for (size_t k = 0; k < n; k++)
            at[k] = k;
        try_orders(&best, &g, at, 0);
        want = best.has_cycle ? RING_CLOSED : best.has_path ? RING_CHAIN : RING_BROKEN;
        ring_compute(&order, &g);
        if (order.shape != want ||
            (want != RING_BROKEN &&
             compare_orders(&g, order.at, best.has_cycle ? best.cycle : best.path, best.has_cycle)))
            fail_msg("graph %d of seed %d", i, SEED);
        if (want != RING_BROKEN)
            check_value(&g, &order);
        assert_int_equal(order.n, want == RING_BROKEN ? 0 : n);
        shapes[order.shape]++;
    }
    assert_true(shapes[RING_CLOSED] > 20 && shapes[RING_CHAIN] > 20 && shapes[RING_BROKEN] > 20);
}

/* Every node numbers the others in its own way; all must see the same ring. */
static void test_agreement(void **state)
{
    uint32_t seed = SEED;

    (void)state;
    for (int i = 0; i < 60; i++) {
        size_t n = i < 55 ? 2 + (size_t)i % 11 : 16 + (size_t)i % 16, perm[RING_MAX_NODES];
        struct ring_graph g, h;
        struct ring_order a, b;

        random_graph(&g, n, 40, &seed);
        for (size_t k = 0; k < n; k++) {
            size_t j = next_random(&seed) % (k + 1);

            perm[k] = perm[j];
            perm[j] = k;
            if (j == k)
                perm[k] = k;
        }
        memset(&h, 0, sizeof h);
        h.n = n;
        for (size_t x = 0; x < n; x++) {
            memcpy(h.id[perm[x]], g.id[x], 16);
            for (size_t y = 0; y < n; y++)
                h.edge[perm[x]][perm[y]] = g.edge[x][y];
        }
        ring_compute(&a, &g);
        ring_compute(&b, &h);
        assert_int_equal(a.shape, b.shape);
        for (size_t k = 0; k < a.n; k++)
            assert_int_equal(perm[a.at[k]], b.at[k]);
    }
}

static void test_special_graphs(void **state)
{
    struct ring_graph g = {0};
    struct ring_order order;

    (void)state;
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_ALONE);
    assert_int_equal(order.n, 0);
    g.n = 1;
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_ALONE);
    assert_int_equal(order.n, 1);
    g.n = 2;
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_BROKEN);
    g.edge[0][1].linked = true; /* one end's word is not enough */
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_BROKEN);
    g.edge[1][0].linked = true;
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_CLOSED);
    g.n = RING_MAX_NODES + 1;
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_BROKEN);
    assert_string_equal(ring_shape_name(RING_CHAIN), "chain");
    assert_string_equal(ring_shape_name((enum ring_shape)9), "unknown");
}

/* Sixteen nodes with a hidden cycle, or two halves with nothing between them: the worst for a plain
 * search.
 */
static void test_sixteen(void **state)
{
    uint32_t seed = SEED;
    struct ring_order order;
    struct ring_graph g;

    (void)state;
    random_graph(&g, 16, 0, &seed);
    for (size_t i = 0; i < 16; i++)
        join(&g, i, (i + 1) % 16);
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_CLOSED);
    assert_true(is_path(&g, order.at));
    assert_true(memcmp(g.id[order.at[1]], g.id[order.at[15]], 16) <
                0); /* the smaller neighbour gives the direction */
    for (size_t i = 1; i < 16; i++)
        assert_true(memcmp(g.id[order.at[0]], g.id[order.at[i]], 16) < 0);

    random_graph(&g, 16, 0, &seed);
    for (size_t i = 0; i < 16; i++)
        for (size_t k = 0; k < i; k++)
            if (i / 8 == k / 8)
                join(&g, i, k);
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_BROKEN);
    join(&g, 3, 12);
    ring_compute(&order, &g);
    assert_int_equal(order.shape, RING_CHAIN);
    assert_true(is_path(&g, order.at));
}

static void test_class(void **state)
{
    static const struct {
        uint32_t measured, current, want;
    } cases[] = {
        {0, 0, 0},
        {3, 0, 100},
        {940, 0, 1000},
        {799, 0, 100},
        {9400, 0, 10000},
        {11000, 0, 10000},
        {16500, 0, 20000},
        {90000, 0, 40000},
        {0, 10000, 0},
        {7500, 10000, 10000},
        {6900, 10000, 5000},
        {17000, 10000, 10000},
        {18000, 10000, 20000},
        {700, 10000, 1000},
        {850, 100, 100},
        {900, 100, 1000},
        {30, 100, 100},
        {UINT32_MAX, 1, 40000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ring_class(cases[i].measured, cases[i].current), cases[i].want);
        assert_int_equal(ring_class(cases[i].want, 0), cases[i].want); /* a class is of its own class */
        assert_int_equal(ring_class(cases[i].want, cases[i].want), cases[i].want);
    }
    /* ten percent of wobble around any rate never changes a class twice */
    for (uint32_t rate = 50; rate < 50000; rate += 37) {
        uint32_t class = ring_class(rate, 0), down = ring_class(rate - rate / 20, class);

        for (uint32_t k = 0; k < 4; k++)
            assert_int_equal(ring_class(k % 2 ? rate : rate + rate / 20, ring_class(rate, down)),
                             ring_class(rate + rate / 20, down));
    }
}

/* Cables of a square of 10 Gb/s with a 1 Gb/s switch under all, and a side of it replaced. */
static void test_prefers_cables(void **state)
{
    struct ring_graph g = {.n = 4};
    struct ring_order order;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        g.id[i][0] = (uint8_t)i;
        for (size_t k = 0; k < 4; k++)
            g.edge[i][k] = (struct ring_edge){.linked = i != k, .shared = true, .class_mbps = 1000};
    }
    for (size_t i = 0; i < 4; i++) {
        static const size_t square[] = {0, 2, 1, 3};
        size_t a = square[i], b = square[(i + 1) % 4];

        g.edge[a][b] = g.edge[b][a] = (struct ring_edge){.linked = true, .class_mbps = 10000};
    }
    assert_int_equal(ring_compute(&order, &g), 0);
    assert_memory_equal(order.at, ((size_t[]){0, 2, 1, 3}), sizeof(size_t) * 4);
    assert_int_equal(order.class_mbps, 10000);
    g.edge[3][0] = (struct ring_edge){.linked = true, .shared = true, .class_mbps = 1000};
    assert_int_equal(ring_compute(&order, &g),
                     0); /* that cable out: the switch takes its place, only there */
    assert_memory_equal(order.at, ((size_t[]){0, 2, 1, 3}), sizeof(size_t) * 4);
    assert_int_equal(order.class_mbps, 1000);
    assert_int_equal(order.shared, 1);
    assert_int_equal(order.total_mbps, 31000);
}

static void test_missing(void **state)
{
    struct ring_pair pair[RING_MAX_NODES];
    uint32_t seed = SEED;
    struct ring_graph g;
    struct ring_order order;

    (void)state;
    for (int i = 0; i < 200; i++) {
        int n, none;

        random_graph(&g, 2 + (size_t)i % 10, 10 + (unsigned)i % 25, &seed);
        assert_int_equal(ring_compute(&order, &g), 0);
        n = ring_missing(&g, &order, pair, RING_MAX_NODES);
        assert_int_equal(order.shape == RING_CLOSED, n == 0);
        assert_true(order.shape != RING_CHAIN || n == 1);
        none = ring_missing(&g, &order, NULL, 0);
        assert_int_equal(none, n);
        for (int k = 0; k < n; k++) { /* not closed before the last is plugged in */
            assert_int_not_equal(order.shape, RING_CLOSED);
            join(&g, pair[k].a, pair[k].b);
            assert_int_equal(ring_compute(&order, &g), 0);
        }
        assert_int_equal(order.shape, RING_CLOSED);
    }
}

static void test_verify(void **state)
{
    struct ring_graph g = {.n = 4};
    struct ring_order order = {.n = 77};
    size_t at = 99;

    (void)state;
    join(&g, 0, 1);
    join(&g, 1, 2);
    join(&g, 2, 3);
    assert_int_equal(ring_verify(&order, &g, (size_t[]){3, 2, 1, 0}, 4, &at), 0);
    assert_int_equal(order.shape, RING_CHAIN);
    assert_int_equal(order.at[0], 3); /* as it was given */
    join(&g, 0, 3);
    assert_int_equal(ring_verify(&order, &g, (size_t[]){2, 1, 0, 3}, 4, &at), 0);
    assert_int_equal(order.shape, RING_CLOSED);
    order.n = 77;
    assert_int_equal(ring_verify(&order, &g, (size_t[]){2, 1, 2, 3}, 4, &at), -EINVAL);
    assert_int_equal(at, 2);
    assert_int_equal(ring_verify(&order, &g, (size_t[]){2, 4, 2, 3}, 4, &at), -EINVAL);
    assert_int_equal(at, 1);
    assert_int_equal(ring_verify(&order, &g, (size_t[]){0, 1, 2}, 3, &at), -ENOENT);
    assert_int_equal(at, 3);
    assert_int_equal(ring_verify(&order, &g, (size_t[]){0, 1, 3, 2}, 4, &at), -EHOSTUNREACH);
    assert_int_equal(at, 1);
    assert_int_equal(order.n, 77);
}

/* Beyond the exact size: a real ring, the same from everyone's numbers, and no step away from a
 * better one where the best is known. */
static void test_large(void **state)
{
    uint32_t seed = SEED;
    size_t closed = 0;

    (void)state;
    for (int i = 0; i < 24; i++) {
        size_t n = 17 + (size_t)i % 16, hidden[RING_MAX_NODES];
        struct ring_graph g;
        struct ring_order order;

        random_graph(&g, n, (unsigned)i % 12 * 2, &seed);
        for (size_t k = 0; k < n; k++) {
            size_t j = next_random(&seed) % (k + 1);

            hidden[k] = k;
            hidden[k] = hidden[j];
            hidden[j] = k;
        }
        for (size_t k = 0; k < n; k++) {
            struct ring_edge e = {.linked = true, .class_mbps = 40000};

            g.edge[hidden[k]][hidden[(k + 1) % n]] = g.edge[hidden[(k + 1) % n]][hidden[k]] = e;
        }
        assert_int_equal(ring_compute(&order, &g), 0);
        assert_int_not_equal(order.shape, RING_BROKEN);
        assert_true(is_path(&g, order.at));
        check_value(&g, &order);
        closed += order.shape == RING_CLOSED && order.class_mbps == 40000;
    }
    print_message("%zu of 24 hidden rings of the fastest class found\n", closed);
    assert_true(closed >= 20);
}

static void test_time(void **state)
{
    static const size_t sizes[] = {8, 12, 16, 24, 32};
    uint32_t seed = SEED;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct timespec before, after;
        struct ring_graph g;
        struct ring_order order;

        random_graph(&g, sizes[i], 60, &seed);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        assert_int_equal(ring_compute(&order, &g), 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        print_message("%zu nodes: %.1f ms of processor, %s\n", sizes[i],
                      (double)(after.tv_sec - before.tv_sec) * 1e3 +
                          (double)(after.tv_nsec - before.tv_nsec) / 1e6,
                      ring_shape_name(order.shape));
        make_alike(&g);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        assert_int_equal(ring_compute(&order, &g), 0);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        print_message("    all links alike: %.1f ms\n", (double)(after.tv_sec - before.tv_sec) * 1e3 +
                                                            (double)(after.tv_nsec - before.tv_nsec) / 1e6);
    }
}

static void test_rotate(void **state)
{
    struct ring_order ring = {.shape = RING_CLOSED, .n = 4, .at = {2, 0, 3, 1}}, turned = {0},
                      untouched = {0};
    struct ring_order chain = {.shape = RING_CHAIN, .n = 3, .at = {0, 1, 2}};

    (void)state;
    assert_int_equal(ring_rotate(&turned, &ring, 3), 0);
    assert_int_equal(turned.shape, RING_CLOSED);
    assert_memory_equal(turned.at, ((size_t[]){3, 1, 2, 0}), 4 * sizeof(size_t));
    assert_int_equal(ring_rotate(&untouched, &ring, 9), -ENOENT);
    assert_int_equal(untouched.n, 0);
    assert_int_equal(ring_rotate(&ring, &ring, 1), 0); /* in place */
    assert_memory_equal(ring.at, ((size_t[]){1, 2, 0, 3}), 4 * sizeof(size_t));
    assert_int_equal(ring_rotate(&turned, &chain, 0), 0);
    assert_memory_equal(turned.at, chain.at, 3 * sizeof(size_t));
    assert_int_equal(ring_rotate(&turned, &chain, 2), 0);
    assert_memory_equal(turned.at, ((size_t[]){2, 1, 0}), 3 * sizeof(size_t));
    assert_int_equal(ring_rotate(&turned, &chain, 1), -EHOSTUNREACH);
}

/* Shortest distances by relaxation, as an oracle. */
static void distances(const struct ring_graph *g, size_t d[RING_MAX_NODES][RING_MAX_NODES])
{
    for (size_t i = 0; i < g->n; i++)
        for (size_t k = 0; k < g->n; k++)
            d[i][k] = i == k ? 0 : g->edge[i][k].linked ? 1 : 1000;
    for (size_t m = 0; m < g->n; m++)
        for (size_t i = 0; i < g->n; i++)
            for (size_t k = 0; k < g->n; k++)
                if (d[i][m] + d[m][k] < d[i][k])
                    d[i][k] = d[i][m] + d[m][k];
}

static void test_next_hop(void **state)
{
    size_t d[RING_MAX_NODES][RING_MAX_NODES];
    uint32_t seed = SEED;
    struct ring_graph g;

    (void)state;
    for (int i = 0; i < 60; i++) {
        random_graph(&g, 1 + (size_t)i % 16, 15 + (unsigned)i % 30, &seed);
        distances(&g, d);
        for (size_t from = 0; from < g.n; from++)
            for (size_t to = 0; to < g.n; to++) {
                int best = -1;

                for (size_t v = 0; v < g.n; v++)
                    if (from != to && v != from && g.edge[from][v].linked && d[from][to] < 1000 &&
                        d[v][to] + 1 == d[from][to] && (best < 0 || memcmp(g.id[v], g.id[best], 16) < 0))
                        best = (int)v;
                assert_int_equal(ring_next_hop(&g, from, to), best);
            }
    }
    assert_int_equal(ring_next_hop(&g, 0, g.n), -1);
    assert_int_equal(ring_next_hop(&g, g.n, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_brute_force),
        cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_special_graphs),
        cmocka_unit_test(test_sixteen),
        cmocka_unit_test(test_class),
        cmocka_unit_test(test_prefers_cables),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_rotate),
        cmocka_unit_test(test_next_hop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
