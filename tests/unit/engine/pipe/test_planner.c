/* SPDX-License-Identifier: MIT
 *
 * The planner, against a look at every split with every schedule where there are few, and its time
 * where there are many. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "pipe/plan.h"
#include "pipe/planner.h"
#include "pipe/planner_impl.h"
#include "tests/unit/engine/pipe/every_split.h"

enum { MOST_UNITS = 102, MOST_CUTS = 4 };

struct world {
    struct sched_cost cost[MOST_CUTS][PLANNER_MAX_RANKS * MOST_UNITS];
    struct sched_link link[2 * PLANNER_MAX_RANKS];
    size_t slot[MOST_UNITS], activations[MOST_UNITS], held[PLANNER_MAX_RANKS * MOST_UNITS],
        memory[PLANNER_MAX_RANKS];
    struct planner_cut cut[MOST_CUTS];
    struct planner_request req;
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static double between(uint64_t *state, double low, double high)
{
    return low + (high - low) * (double)(next_random(state) >> 11) / 9007199254740992.0;
}

/* Nodes of unlike speed, a head worth some layers, and cuts into m, m/2, … microbatches. */
static void make_world(struct world *w, size_t ranks, size_t layers, size_t m, size_t cuts, uint64_t *seed)
{
    const size_t units = layers + 2;
    *w = (struct world){.req = {.ranks = ranks, .layers = layers, .cuts = cuts, .cut = w->cut}};
    for (size_t r = 0; r < ranks; r++) {
        const double slow = between(seed, 1, 4);
        w->link[2 * r] = w->link[2 * r + 1] = (struct sched_link){between(seed, 0, 0.2), 0.01};
        for (size_t u = 0; u < units; u++) {
            const double layer = u == 0 ? 0.01 : u == units - 1 ? 2.5 : 1, f = slow * layer;
            for (size_t c = 0; c < cuts; c++)
                w->cost[c][r * units + u] = (struct sched_cost){f * (1 + 0.9 * (double)((1U << c) - 1)),
                                                                f * (double)(1U << c), 0.03 * f, f, 0};
        }
    }
    for (size_t i = 0; i < ranks * units; i++)
        w->held[i] = 100;
    for (size_t u = 0; u < units; u++) {
        w->slot[u] = 1;
        w->activations[u] = 10;
    }
    for (size_t c = 0; c < cuts; c++)
        w->cut[c] = (struct planner_cut){.microbatches = m >> c,
                                         .cost = w->cost[c],
                                         .link = w->link,
                                         .held = w->held,
                                         .slot = w->slot,
                                         .activations = w->activations};
}

/* --- every split there is --------------------------------------------------------------------- */

static struct planner_score brute_force(const struct planner_request *req)
{
    struct planner_score best = {INFINITY, INFINITY, INFINITY};
    for (const char *const *name = sched_names(); *name; name++) {
        const struct sched_info *info = sched_info(*name);
        for (size_t chunks = info->min_chunks; chunks <= info->max_chunks && chunks <= 2; chunks++)
            for (size_t cut = 0; info->in_order && cut < req->cuts; cut++) {
                struct every x = {.best = best};
                struct err err;
                const size_t stages = req->ranks * chunks;
                x.found =
                    (struct planner_found){.schedule = *name, .chunks = chunks, .stages = stages, .cut = cut};
                x.found.first[stages] = req->layers;
                assert_int_equal(planner_sim_init(&x.sim, req, *name, chunks, cut, true, &err), 0);
                every_split(&x, 0);
                planner_sim_done(&x.sim);
                best = x.best;
            }
    }
    return best;
}

static void test_brute_force(void **state)
{
    uint64_t seed = 20250611;
    size_t exact = 0, all = 0;
    double worst = 1;
    (void)state;
    for (size_t k = 0; k < 12; k++) {
        static struct world w;
        struct planner_found best, second;
        struct err err;
        make_world(&w, 2 + k % 2, 4 + k % 3, 4, 1 + k % 2, &seed);
        assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
        const double ratio = best.seconds / brute_force(&w.req).main;
        worst = fmax(worst, ratio);
        exact += ratio < 1 + 1e-9;
        all++;
    }
    printf("%zu of %zu the best there is, the worst %.2f %% slower\n", exact, all, 100 * (worst - 1));
    assert_true(worst < 1.03);
    assert_true(2 * exact > all);
}

/* --- what is asked of it ---------------------------------------------------------------------- */

static void test_slow_node_is_left_out(void **state)
{
    uint64_t seed = 7;
    static struct world w;
    struct planner_found best, second;
    struct err err;
    (void)state;
    make_world(&w, 3, 6, 8, 1, &seed);
    for (size_t r = 0; r < 3; r++)
        for (size_t u = 0; u < 8; u++) {
            const double f = u && u < 7 ? (r == 1 ? 50 : 1) : 0;
            w.cost[0][r * 8 + u] = (struct sched_cost){f, f, 0, f, 0};
        }
    w.req.schedule = "1f1b";
    assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
    assert_int_equal(best.first[1], best.first[2]);
    assert_int_equal(best.first[0], 0);
    assert_int_equal(best.first[3], 6);
}

static void test_memory(void **state)
{
    uint64_t seed = 11;
    static struct world w;
    struct planner_found quick, small, second;
    struct err err;
    (void)state;
    make_world(&w, 4, 12, 16, 1, &seed);
    assert_int_equal(planner_search(&quick, &second, &w.req, &err), 0);
    w.req.objective = PLANNER_MEMORY;
    assert_int_equal(planner_search(&small, &second, &w.req, &err), 0);
    size_t most[2] = {0};
    for (size_t r = 0; r < 4; r++) {
        most[0] = quick.bytes[r] > most[0] ? quick.bytes[r] : most[0];
        most[1] = small.bytes[r] > most[1] ? small.bytes[r] : most[1];
    }
    assert_true(most[1] < most[0]);
    assert_true(small.seconds > quick.seconds);
    assert_non_null(second.schedule);

    /* A rank short of memory gets fewer layers, or does forwards again; one too small for all is
     * told. */
    w.req.objective = PLANNER_TIME;
    w.req.again = PLANNER_AGAIN_AUTO;
    for (size_t r = 0; r < 4; r++)
        w.memory[r] = r == 1 ? 330 : 4000;
    w.req.memory = w.memory;
    assert_int_equal(planner_search(&quick, &second, &w.req, &err), 0);
    assert_true(quick.fits);
    assert_true(quick.bytes[1] <= 330);
    for (size_t r = 0; r < 4; r++)
        w.memory[r] = 50;
    assert_int_equal(planner_search(&quick, &second, &w.req, &err), 0);
    assert_false(quick.fits);
}

/* A node that has most of a unit already holds as many as one with more memory. */
static void test_what_a_node_has_already(void **state)
{
    uint64_t seed = 11;
    static struct world w;
    struct planner_found apart, there, second;
    struct err err;
    (void)state;
    make_world(&w, 4, 12, 16, 1, &seed);
    w.req.schedule = "1f1b";
    w.req.chunks = 1;
    for (size_t i = 0; i < 4 * 14; i++)
        w.cost[0][i] = (struct sched_cost){1, 1, 0, 1, 0};
    for (size_t r = 0; r < 4; r++)
        w.memory[r] = r == 1 ? 330 : 4000;
    w.req.memory = w.memory;
    assert_int_equal(planner_search(&apart, &second, &w.req, &err), 0);
    for (size_t u = 0; u < 14; u++)
        w.held[14 + u] = 1;
    assert_int_equal(planner_search(&there, &second, &w.req, &err), 0);
    assert_true(there.fits);
    assert_true(there.first[2] - there.first[1] > apart.first[2] - apart.first[1]);
    assert_true(there.seconds < apart.seconds);
}

static size_t lacks_of(const struct planner_found *f, const size_t *const *lacks, size_t ranks, size_t layers)
{
    const struct sched_info *info = sched_info(f->schedule);
    size_t sum = 0;
    for (uint32_t s = 0; s < f->stages; s++) {
        const size_t *its = lacks[planner_node(f, ranks, sched_place(info->placement, ranks, s))];
        for (size_t l = f->first[s]; l < f->first[s + 1]; l++)
            sum += its[l + 1];
        sum += (s ? 0 : its[0]) + (s + 1 == f->stages ? its[layers + 1] : 0);
    }
    return sum;
}

/* Whatever is on which nodes: less comes, and the step is not longer than it may be. */
static void test_what_need_not_travel(void **state)
{
    uint64_t seed = 4711;
    size_t spared_any = 0;
    (void)state;
    for (size_t k = 0; k < 24; k++) {
        static struct world w;
        static size_t lacks[4][MOST_UNITS];
        const size_t *of[4] = {lacks[0], lacks[1], lacks[2], lacks[3]};
        struct planner_found best, second, near;
        struct err err;
        size_t spared;
        const size_t ranks = 2 + k % 3, layers = 6 + k % 5;
        const double slack = k % 2 ? 0.02 : 0.3;
        make_world(&w, ranks, layers, 4, 1, &seed);
        w.req.mirror = k % 4 == 3;
        assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
        for (size_t r = 0; r < ranks; r++)
            for (size_t u = 0; u < layers + 2; u++)
                lacks[r][u] = next_random(&seed) % 3 ? 0 : 1000;
        near = best;
        assert_int_equal(planner_prefer(&near, &spared, of, slack, &w.req, &err), 0);
        assert_true(near.seconds <= best.seconds * (1 + slack));
        assert_int_equal(lacks_of(&best, of, ranks, layers) - lacks_of(&near, of, ranks, layers), spared);
        if (!spared)
            assert_memory_equal(near.first, best.first, (best.stages + 1) * sizeof *best.first);
        spared_any += spared > 0;
        w.req.objective = PLANNER_MEMORY;
        near = best;
        assert_int_equal(planner_prefer(&near, &spared, of, slack, &w.req, &err), 0);
        assert_int_equal(spared, 0);
    }
    assert_true(spared_any > 4);
}

static void test_recompute_is_paid_for(void **state)
{
    uint64_t seed = 3;
    static struct world w;
    struct planner_found kept, again, second;
    struct err err;
    (void)state;
    make_world(&w, 4, 8, 8, 1, &seed);
    w.req.schedule = "1f1b";
    assert_int_equal(planner_search(&kept, &second, &w.req, &err), 0);
    w.req.again = PLANNER_AGAIN_ALL;
    assert_int_equal(planner_search(&again, &second, &w.req, &err), 0);
    assert_true(again.seconds > kept.seconds);
    assert_true(again.bytes[0] < kept.bytes[0]);
    assert_true(again.again[0]);
}

/* Two nodes with a layer of 1 s forward and 1 s back, two microbatches: 6 s, in which node 1 begins
 * after 1 s. A layer's copy has 100 bytes. */
static void test_copies(void **state)
{
    static const size_t first[] = {0, 1, 2}, copied[] = {0, 100, 100, 0};
    static const struct {
        struct planner_copy copy[2];
        double more;
    } known[] = {{{{0.01, 0}, {0, 0}}, 1},        /* it computes from the beginning */
                 {{{0, 0}, {0.01, 0}}, 0},        /* it waits as long */
                 {{{0, 0}, {0.015, 0}}, 0.5},     /* and not longer */
                 {{{0, 0.03}, {0, 0.08}}, 8 - 6}, /* seconds of a cable, which bound the step */
                 {{{0.01, 0.03}, {0.01, 0.05}}, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint64_t seed = 5;
        static struct world w;
        struct planner_found found, second;
        struct planner_parts parts;
        struct err err;
        make_world(&w, 2, 2, 2, 1, &seed);
        for (size_t k = 0; k < 2 * 4; k++) {
            const double f = k % 4 == 1 || k % 4 == 2 ? 1 : 0;
            w.cost[0][k] = (struct sched_cost){f, f, 0, f, 0};
        }
        w.cut[0].link = NULL;
        w.cut[0].copy = known[i].copy;
        w.req.copied = copied;
        w.req.schedule = "1f1b";
        w.req.chunks = 1;
        w.req.first = first;
        assert_int_equal(planner_search(&found, &second, &w.req, &err), 0);
        assert_float_equal(found.seconds, 6 + known[i].more, 1e-9);
        assert_float_equal(found.sums, 0, 1e-9);
        assert_int_equal(planner_explain(&parts, &found, &w.req, &err), 0);
        assert_float_equal(parts.update, known[i].more, 1e-9);
        assert_float_equal(parts.sums, 0, 1e-9);
    }
}

/* Two replicas of one node, with a microbatch of two layers each: 4 s, and the cable between them
 * carries both what they copy and what they add up. */
static void test_copies_of_replicas(void **state)
{
    static const size_t first[] = {0, 2}, copied[] = {0, 100, 100, 0}, grads[] = {0, 50, 50, 0},
                        own[] = {1, 1};
    static const struct planner_copy copy[2] = {{0, 0.02}, {0, 0.03}};
    static const struct sched_link sum[] = {{0.01, 0}};
    uint64_t seed = 5;
    static struct world w;
    struct planner_found found, second;
    struct err err;
    (void)state;
    make_world(&w, 2, 2, 2, 1, &seed);
    for (size_t k = 0; k < 2 * 4; k++) {
        const double f = k % 4 == 1 || k % 4 == 2 ? 1 : 0;
        w.cost[0][k] = (struct sched_cost){f, f, 0, f, 0};
    }
    w.cut[0].link = NULL;
    w.cut[0].own = own;
    w.cut[0].copy = copy;
    w.cut[0].sum = sum;
    w.req.ranks = 1;
    w.req.replicas = 2;
    w.req.copied = copied;
    w.req.grads = grads;
    w.req.schedule = "1f1b";
    w.req.chunks = 1;
    w.req.first = first;
    assert_int_equal(planner_search(&found, &second, &w.req, &err), 0);
    assert_float_equal(found.seconds, 200 * 0.03 + 100 * 0.01, 1e-9);
}

static void test_refusals(void **state)
{
    uint64_t seed = 5;
    static struct world w;
    struct planner_found best, second;
    struct err err;
    (void)state;
    make_world(&w, 2, 4, 4, 1, &seed);
    w.req.schedule = "best";
    assert_int_equal(planner_search(&best, &second, &w.req, &err), -EINVAL);
    w.req.schedule = "zbv";
    w.req.chunks = 3;
    assert_int_equal(planner_search(&best, &second, &w.req, &err), -EINVAL);
    w.req.ranks = 0;
    assert_int_equal(planner_search(&best, &second, &w.req, &err), -EINVAL);
}

/* Steps that no plan could be compiled of are not what is found. */
static void test_large_steps(void **state)
{
    uint64_t seed = 6;
    static struct world w;
    struct planner_found best, second;
    struct err err;
    (void)state;
    make_world(&w, 2, 4, PLAN_MAX_CELLS / 16, 2, &seed);
    for (size_t u = 0; u < 2 * 6; u++) /* the larger step would be the faster one */
        w.cost[1][u] = (struct sched_cost){3 * w.cost[0][u].f, 3 * w.cost[0][u].i, 3 * w.cost[0][u].w, 0, 0};
    w.req.schedule = "1f1b";
    w.req.adapters = 16;
    assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
    assert_int_equal(best.cut, 1);
    w.req.cuts = 1;
    assert_int_equal(planner_search(&best, &second, &w.req, &err), -EINVAL);
    assert_non_null(strstr(err.text, "a step of 16384 microbatches is too large for a plan"));
}

static void plan_hundred_layers(size_t adapters)
{
    uint64_t seed = 20260101;
    static struct world w;
    struct planner_found best, second, turned;
    struct err err;
    struct timespec a, b;
    make_world(&w, 8, 100, 32, MOST_CUTS, &seed);
    w.req.mirror = true;
    w.req.adapters = adapters;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
    assert_int_equal(planner_turn(&turned, &best, &w.req, &err), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    const double took = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    printf("100 layers, 8 nodes, %zu at once: %.2f s, %.1f million tasks; %s, %zu chunks, %zu microbatches, "
           "step %.1f, then %s with %.1f; begun at node %zu %.1f\n",
           adapters, took, 1e-6 * (double)(best.stepped + turned.stepped), best.schedule, best.chunks,
           w.cut[best.cut].microbatches, best.seconds, second.schedule, second.seconds, turned.start,
           turned.seconds);
    assert_true(best.seconds <= second.seconds * 1.001);
    assert_true(best.stepped + turned.stepped < 8000000); /* some 5 million a second on a CPU of 2020 */
}

static void test_hundred_layers_on_eight_nodes(void **state)
{
    (void)state;
    plan_hundred_layers(1);
    plan_hundred_layers(4);
}

/* Of several adapters the round is what counts: found is about as good a split and order as there
 * is, no pause is left, and told is what the whole round takes although few turns of it were run on
 * the way. */
static void test_several_adapters(void **state)
{
    uint64_t seed = 29;
    static struct world w;
    struct planner_found alone, best, second, again;
    struct err err;
    (void)state;
    for (size_t k = 0; k < 4; k++) {
        make_world(&w, 2 + k % 2, 4, 4, 1, &seed);
        w.req.adapters = 2;
        assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
        assert_true(best.seconds < 1.03 * brute_force(&w.req).main);
        assert_true(best.turns > 1);
        assert_true(best.seconds <= second.seconds * 1.001);
    }
    make_world(&w, 4, 24, 8, 2, &seed);
    assert_int_equal(planner_search(&alone, &second, &w.req, &err), 0);
    assert_int_equal(alone.turns, 1);
    w.req.adapters = 2;
    assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
    assert_true(best.turns >= 19);
    assert_true(best.seconds < alone.seconds);
    w.req.schedule = best.schedule;
    w.req.chunks = best.chunks;
    w.req.first = best.first;
    struct planner_cut only[] = {w.cut[best.cut]};
    w.req.cut = only;
    w.req.cuts = 1;
    assert_int_equal(planner_search(&again, &second, &w.req, &err), 0);
    assert_true(fabs(again.seconds - best.seconds) < 1e-12 * best.seconds);
    assert_int_equal(again.turns, best.turns);

    /* What must wait for all others does so. */
    w.req.first = NULL;
    w.req.schedule = "gpipe";
    assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
    assert_int_equal(best.turns, 1);
}

/* A slow cable beside the head and a fast node behind it: the other way round is better, and
 * found. */
static void test_mirrored(void **state)
{
    uint64_t seed = 17;
    static struct world w, other;
    struct planner_found plain, best, second, again;
    struct err err;
    (void)state;
    make_world(&w, 4, 12, 8, 1, &seed);
    w.req.schedule = "1f1b";
    assert_int_equal(planner_search(&plain, &second, &w.req, &err), 0);
    assert_false(plain.mirrored);
    w.req.mirror = true;
    assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
    assert_true(best.seconds <= plain.seconds * (1 + 1e-9));
    assert_null(second.schedule); /* the same the other way round is no other plan */

    /* The same ring numbered the other way: what was found there is found here, with each node's
     * costs, cables and memory. */
    other = w;
    other.req.cut = other.cut;
    other.cut[0].cost = other.cost[0];
    other.cut[0].link = other.link;
    for (size_t n = 0; n < 4; n++) {
        const size_t is = (4 - n) % 4;
        memcpy(&other.cost[0][n * 14], &w.cost[0][is * 14], 14 * sizeof w.cost[0][0]);
        other.link[2 * n] = w.link[2 * is + 1];
        other.link[2 * n + 1] = w.link[2 * is];
    }
    other.req.mirror = false;
    assert_int_equal(planner_search(&again, &second, &other.req, &err), 0);
    assert_true(fabs(fmin(plain.seconds, again.seconds) - best.seconds) < 1e-9 * best.seconds);
    assert_int_equal(best.mirrored, again.seconds < plain.seconds * 0.999);
}

static void test_other_beginnings(void **state)
{
    uint64_t seed = 23;
    static struct world w;
    struct planner_found best, second, turned;
    struct err err;
    (void)state;
    make_world(&w, 3, 9, 8, 1, &seed);
    for (size_t u = 0; u < 11;
         u++) { /* the head is expensive, and node 2, fast, is last only if node 0 begins */
        w.cost[0][u] = (struct sched_cost){1, 1, 0, 1, 0};
        w.cost[0][11 + u] = (struct sched_cost){3, 3, 0, 3, 0};
        w.cost[0][22 + u] = (struct sched_cost){0.5, 0.5, 0, 0.5, 0};
    }
    w.req.schedule = "1f1b";
    assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
    assert_int_equal(planner_turn(&turned, &best, &w.req, &err), 0);
    assert_true(turned.start != 0 && turned.start < 3);
    assert_string_equal(turned.schedule, best.schedule);
    assert_int_equal(planner_node(&turned, 3, 0), turned.start);
    const struct planner_found back = {.start = 1, .mirrored = true};
    assert_int_equal(planner_node(&back, 4, 0), 1);
    assert_int_equal(planner_node(&back, 4, 1), 0);
    assert_int_equal(planner_node(&back, 4, 2), 3);

    make_world(&w, 1, 4, 4, 1, &seed);
    assert_int_equal(planner_search(&best, &second, &w.req, &err), 0);
    assert_int_equal(planner_turn(&turned, &best, &w.req, &err), 0);
    assert_null(turned.schedule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_slow_node_is_left_out),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_what_need_not_travel),
        cmocka_unit_test(test_recompute_is_paid_for),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_copies_of_replicas),
        cmocka_unit_test(test_what_a_node_has_already),
        cmocka_unit_test(test_large_steps),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_mirrored),
        cmocka_unit_test(test_several_adapters),
        cmocka_unit_test(test_other_beginnings),
        cmocka_unit_test(test_hundred_layers_on_eight_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
