/* SPDX-License-Identifier: MIT
 *
 * The search for replicas, places, nodes, order and split against a look at all there are, on ten
 * small clusters; stages that nodes share; and what it is asked to leave as it is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pipe/parallel.h"
#include "pipe/planner_impl.h"
#include "tests/unit/engine/pipe/every_split.h"

enum { LAYERS = 4, UNITS = LAYERS + 2, NODES = 4, CUTS = 2, ROWS = 8 };

struct cluster {
    const char *name;
    size_t nodes;
    double speed[NODES];
    double byte, latency; /* of every cable, against a layer's forward of 1 */
    double slow_cable;    /* the last one, so many times */
    double trained;       /* bytes of a layer's gradients */
    size_t memory[NODES]; /* 0: enough for all */
};
/* A layer takes 100 bytes, and 10 more for each microbatch that is in flight. */
static const struct cluster clusters[] = {
    {"two alike", 2, {1, 1}, 0.0001, 0.01, 1, 10, {0}},
    {"two, a slow cable", 2, {1, 1}, 0.02, 0.5, 1, 400, {0}},
    {"two, one twice as fast", 2, {2, 1}, 0.0001, 0.01, 1, 10, {0}},
    {"three alike", 3, {1, 1, 1}, 0.001, 0.02, 1, 10, {0}},
    {"three, one weak", 3, {3, 3, 0.4}, 0.001, 0.05, 1, 50, {0}},
    {"three that hold a half", 3, {1, 2, 1}, 0.001, 0.02, 1, 10, {400, 400, 400}},
    {"four alike", 4, {1, 1, 1, 1}, 0.0005, 0.02, 1, 10, {0}},
    {"four, two fast", 4, {2, 1, 2, 1}, 0.001, 0.05, 1, 50, {0}},
    {"four, a slow cable", 4, {1, 1, 1.5, 1}, 0.001, 0.02, 30, 100, {0}},
    {"four, large gradients", 4, {1, 1, 1, 1}, 0.002, 0.02, 1, 1000, {0, 450, 450, 0}},
};

struct world {
    struct sched_cost cost[CUTS][NODES * UNITS];
    size_t slot[CUTS][UNITS], activations[CUTS][UNITS], held[NODES * UNITS], grads[UNITS], memory[NODES];
    struct parallel_way way[NODES * NODES];
    struct parallel_cut cut[CUTS];
    struct parallel_request req;
};

/* Microbatches of one row, and of two that take a little less than twice as long. */
static void make_world(struct world *w, const struct cluster *of)
{
    *w = (struct world){.req = {.nodes = of->nodes,
                                .layers = LAYERS,
                                .cut = w->cut,
                                .cuts = CUTS,
                                .way = w->way,
                                .grads = w->grads,
                                .memory = w->memory,
                                .again = PLANNER_AGAIN_AUTO,
                                .mirror = true}};
    for (size_t n = 0; n < of->nodes; n++) {
        w->memory[n] = of->memory[n] ? of->memory[n] : SIZE_MAX;
        for (size_t to = 0; to < of->nodes; to++) {
            const size_t away = n > to ? n - to : to - n,
                         hops = away < of->nodes - away ? away : of->nodes - away;
            const bool is_slow = n + to == of->nodes - 1 && n != to && (!n || !to);
            w->way[n * of->nodes + to] = (struct parallel_way){of->byte * (is_slow ? of->slow_cable : 1),
                                                               0.01, of->latency * (double)hops};
        }
        for (size_t c = 0; c < CUTS; c++)
            for (size_t u = 0; u < UNITS; u++) {
                const double layer = u == 0           ? 0.02
                                     : u == UNITS - 1 ? 0.7
                                                      : 1,
                             f = layer * (c ? 1.9 : 1) / of->speed[n];
                w->cost[c][n * UNITS + u] = (struct sched_cost){f, 0.9 * f, 0.8 * f, 0.9 * f, 0.1 * layer};
                w->slot[c][u] = 1 + c;
                w->activations[c][u] = 9 * (1 + c);
                w->held[n * UNITS + u] = u == 0 ? 20 : 100;
                w->grads[u] = u && u < UNITS - 1 ? (size_t)of->trained : 0;
            }
    }
    for (size_t c = 0; c < CUTS; c++)
        w->cut[c] = (struct parallel_cut){.microbatches = ROWS >> c,
                                          .groups = 4,
                                          .message = 50 * (double)(1 + c),
                                          .cost = w->cost[c],
                                          .held = w->held,
                                          .slot = w->slot[c],
                                          .activations = w->activations[c]};
}

/* --- all there are ---------------------------------------------------------------------------- */

static void every_order(struct planner_score *best, const struct parallel_layout *l,
                        const struct parallel_request *req, size_t cut)
{
    struct parallel_question q;
    struct err err;
    assert_int_equal(parallel_ask(&q, l, req, &err), 0);
    for (const char *const *name = sched_names(); *name; name++) {
        const struct sched_info *info = sched_info(*name);
        for (size_t chunks = info->min_chunks; chunks <= info->max_chunks && chunks <= 2; chunks++) {
            struct every x = {.best = *best};
            const size_t stages = l->places * chunks;
            if (!info->in_order || (l->places == 1 && strcmp(*name, "1f1b") != 0))
                continue;
            x.found =
                (struct planner_found){.schedule = *name, .chunks = chunks, .stages = stages, .cut = cut};
            x.found.first[stages] = LAYERS;
            assert_int_equal(planner_sim_init(&x.sim, &q.req, *name, chunks, cut, true, &err), 0);
            every_split(&x, 0);
            planner_sim_done(&x.sim);
            *best = x.best;
        }
    }
    parallel_question_done(&q);
}

static void every_share(struct planner_score *best, struct parallel_layout *l,
                        const struct parallel_request *req, size_t cut, size_t replica, size_t left)
{
    size_t *share = l->share[cut];
    if (replica + 1 == l->replicas) {
        share[replica] = left;
        every_order(best, l, req, cut);
        return;
    }
    for (size_t mine = 1; mine + (l->replicas - 1 - replica) <= left; mine++) {
        share[replica] = mine;
        every_share(best, l, req, cut, replica + 1, left - mine);
    }
}

static void every_layout(struct planner_score *best, const struct parallel_request *req, uint32_t mask,
                         size_t replicas, size_t slices)
{
    const size_t ranks = (size_t)__builtin_popcount(mask);
    struct parallel_layout l;
    if (ranks % (replicas * slices) || !parallel_can_run(replicas, slices) ||
        (slices > 1 && (!req->sharing || !req->sharing->cut[slices])))
        return;
    for (int way = 0; way < (ranks < 3 ? 1 : 2); way++) {
        if (!parallel_layout_make(&l, req, mask, replicas, slices, way == 1))
            continue;
        for (size_t cut = 0; cut < l.cuts; cut++)
            every_share(best, &l, req, cut, 0, req->cut[l.cut[cut]].groups);
    }
}

static struct planner_score brute_force(const struct parallel_request *req)
{
    struct planner_score best = {INFINITY, INFINITY, INFINITY};
    for (uint32_t mask = 1; mask < 1u << req->nodes; mask += 2)
        for (size_t replicas = 1; replicas <= req->nodes; replicas++)
            for (size_t slices = 1; slices * replicas <= req->nodes; slices++)
                every_layout(&best, req, mask, replicas, slices);
    return best;
}

static void it_is_as_good_as_a_look_at_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof clusters / sizeof *clusters; i++) {
        static struct world w;
        struct parallel_found found[PARALLEL_MOST_FOUND];
        struct err err = {""};
        size_t n;
        make_world(&w, &clusters[i]);
        if (parallel_search(found, &n, &w.req, &err))
            fail_msg("%s: %s", clusters[i].name, err.text);
        const struct planner_score best = brute_force(&w.req);
        const struct planner_parts *p = &found[0].parts;
        printf("%-24s dp=%zu,pp=%zu %s of %zu, step %.3f, the best there is %.3f\n", clusters[i].name,
               found[0].replicas, found[0].places, found[0].plan.schedule, found[0].plan.chunks,
               found[0].plan.seconds, best.main);
        assert_int_equal(found[0].plan.fits, !(best.missing > 0));
        assert_true(found[0].plan.seconds <= 1.05 * best.main);
        assert_true(found[0].is_unlike || found[0].plan.seconds >= best.main * (1 - 1e-9));
        for (size_t k = 0; k < n; k++) {
            p = &found[k].parts;
            assert_float_equal(p->work + p->bubble + p->cables + p->sums + p->update, found[k].plan.seconds,
                               1e-9 * found[k].plan.seconds);
            assert_true(!k || found[k].plan.seconds > 0.998 * found[k - 1].plan.seconds ||
                        !found[k].plan.fits);
        }
    }
}

/* Of one replica of a node and one of two: every share, order and split. */
static double every_unlike(const struct parallel_request *req)
{
    static const size_t sizes[][2] = {{1, 2}, {2, 1}};
    static const char *const names[] = {"1f1b", "gpipe", "eager-1f1b", "zb-h1", "zb-h2"};
    double best = INFINITY;
    struct err err;
    for (size_t i = 0; i < 2 * 2 * CUTS * 5; i++) {
        const size_t cut = i / 4 % CUTS, *size = sizes[i % 2];
        struct parallel_request one = *req;
        one.cut += cut;
        one.cuts = 1;
        one.schedule = names[i / 4 / CUTS];
        for (size_t share = 1; share < one.cut->groups; share++)
            for (size_t layers = 0; layers <= LAYERS; layers++) {
                const size_t alone[] = {0, LAYERS}, pair[] = {0, layers, LAYERS};
                const size_t *const first[] = {size[0] == 1 ? alone : pair, size[0] == 1 ? pair : alone};
                struct unlike_found found;
                unlike_layout(&found, &one, 7, size, 2, i / 2 % 2);
                found.share[0] = share;
                found.share[1] = one.cut->groups - share;
                assert_int_equal(unlike_judge(&found, &one, true, first, 1, &err), 0);
                best = fmin(best, found.missing > 0 ? INFINITY : found.seconds);
            }
    }
    return best;
}

/* A node that holds all of the model, and two that hold a part: these are a replica together. */
static void unlike_replicas_are_found(void **state)
{
    (void)state;
    static const struct cluster strong_and_weak = {
        "a strong node, two weak", 3, {2, 1, 1}, 0.001, 0.01, 1, 10, {0, 480, 480}};
    static struct world w;
    static struct parallel_found found[PARALLEL_MOST_FOUND];
    struct err err = {""};
    size_t n;
    make_world(&w, &strong_and_weak);
    if (parallel_search(found, &n, &w.req, &err))
        fail_msg("%s", err.text);
    assert_true(found[0].is_unlike);
    assert_int_equal(found[0].replicas, 2);
    assert_int_equal(found[0].unlike.size[0], 1);
    assert_int_equal(found[0].unlike.size[1], 2);
    assert_true(n > 1 && !found[1].is_unlike && found[1].plan.seconds > found[0].plan.seconds);
    const struct planner_parts *p = &found[0].parts;
    assert_float_equal(p->work + p->bubble + p->cables + p->sums + p->update, found[0].plan.seconds, 1e-9);
    const double best = every_unlike(&w.req);
    assert_true(found[0].plan.seconds <= 1.02 * best && found[0].plan.seconds >= best * (1 - 1e-9));
    w.req.replicas = 3;
    assert_int_equal(parallel_search(found, &n, &w.req, &err), 0);
    for (size_t i = 0; i < n; i++)
        assert_false(found[i].is_unlike);
}

/* --- copies of what is trained ---------------------------------------------------------------- */

/* Seconds of a step as replicas of one node and of two, the third node of four left out; with
 * `from` and `to` the way between these two nodes is so slow that nothing else counts. */
static double with_copies(size_t from, size_t to, bool mirrored)
{
    static const size_t size[] = {1, 2}, copied[UNITS] = {0, 100, 100, 100, 100, 0};
    static const struct cluster four = {"four", 4, {1, 1, 1, 1}, 0.0001, 0.01, 1, 0, {0}};
    static struct world w;
    struct unlike_found found;
    struct err err = {""};
    make_world(&w, &four);
    w.req.copied = copied;
    if (from != to)
        w.way[from * NODES + to].byte = 1;
    unlike_layout(&found, &w.req, 1 | 2 | 8, size, 2, mirrored);
    if (unlike_judge(&found, &w.req, false, NULL, 1, &err))
        fail_msg("%s", err.text);
    return found.seconds;
}

/* Not by the nodes that lie between: of ranks, the neighbours. */
static void copies_go_to_the_farther_neighbour(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        const double quick = with_copies(0, 0, way);
        assert_true(with_copies(0, 1, way) >= 400);
        assert_true(with_copies(0, 3, way) >= 400);
        assert_true(quick < 100);
        for (size_t node = 0; node < NODES; node++) {
            assert_float_equal(with_copies(node, 2, way), quick, 1e-9);
            assert_float_equal(with_copies(2, node, way), quick, 1e-9);
        }
        assert_true(with_copies(1, 0, way) > quick && with_copies(3, 0, way) > quick);
    }
}

/* --- stages that nodes share ------------------------------------------------------------------ */

/* A slice of two is 0.55 of a layer, and so on; each gathering takes as long as is said. */
struct shared_world {
    struct world w;
    struct sched_cost cost[NODES + 1][CUTS][NODES * UNITS];
    struct parallel_cut cut[NODES + 1][CUTS];
    struct parallel_sharing sharing;
    double gather;
};

static struct sched_cost gathering(const void *owner, size_t slices, size_t cut, size_t unit,
                                   const size_t *node)
{
    const struct shared_world *s = owner;
    for (size_t a = 0; a < slices; a++)
        for (size_t b = 0; b < a; b++)
            assert_int_not_equal(node[a], node[b]);
    const double once = unit && unit < UNITS - 1 ? s->gather * (double)(1 + cut) : 0;
    return (struct sched_cost){4 * once, 7 * once, 0, 4 * once, 0};
}

static void make_shared(struct shared_world *s, const struct cluster *of, double gather)
{
    make_world(&s->w, of);
    s->gather = gather;
    s->sharing = (struct parallel_sharing){.gathering = gathering, .owner = s};
    for (size_t n = 2; n <= of->nodes; n++) {
        const double part = 0.1 + 0.9 / (double)n;
        for (size_t c = 0; c < CUTS; c++) {
            for (size_t i = 0; i < of->nodes * UNITS; i++) {
                const struct sched_cost *whole = &s->w.cost[c][i];
                s->cost[n][c][i] = (struct sched_cost){part * whole->f, part * whole->i, part * whole->w,
                                                       part * whole->r, whole->u};
            }
            s->cut[n][c] = s->w.cut[c];
            s->cut[n][c].cost = s->cost[n][c];
        }
        s->sharing.cut[n] = s->cut[n];
    }
    s->w.req.sharing = &s->sharing;
}

/* In a pipeline of all nodes but the third, and in one of slices. */
static void copies_of_equal_replicas_do_too(void **state)
{
    (void)state;
    static const size_t copied[UNITS] = {0, 1, 1, 1, 1, 0};
    static struct shared_world s;
    const double handling[NODES] = {1, 2, 3, 4};
    struct parallel_layout l;
    struct parallel_question q;
    struct err err;
    make_shared(&s, &clusters[6], 0);
    s.w.req.copied = copied;
    s.w.req.handling = handling;
    for (size_t i = 0; i < NODES * NODES; i++)
        s.w.way[i].byte = (double)(10 * (i / NODES) + i % NODES);
    assert_true(parallel_layout_make(&l, &s.w.req, 1 | 2 | 8, 1, 1, false));
    assert_int_equal(parallel_ask(&q, &l, &s.w.req, &err), 0);
    const double far[] = {3, 13, 31}, cpu[] = {1, 2, 4};
    for (size_t p = 0; p < 3; p++) {
        assert_float_equal(q.cut[0].copy[p].cable, far[p], 0);
        assert_float_equal(q.cut[0].copy[p].cpu, cpu[p], 0);
    }
    parallel_question_done(&q);

    /* Nodes 0 and 3 are the first place: the farther of each is 3 and 32. */
    assert_true(parallel_layout_make(&l, &s.w.req, 15, 1, 2, false));
    assert_int_equal(parallel_ask(&q, &l, &s.w.req, &err), 0);
    assert_float_equal(q.cut[0].copy[0].cable, 32, 0);
    assert_float_equal(q.cut[0].copy[0].cpu, 4, 0);
    assert_float_equal(q.cut[0].copy[1].cable, 23, 0);
    parallel_question_done(&q);

    assert_true(parallel_layout_make(&l, &s.w.req, 1, 1, 1, false));
    assert_int_equal(parallel_ask(&q, &l, &s.w.req, &err), 0);
    assert_float_equal(q.cut[0].copy[0].cable + q.cut[0].copy[0].cpu, 0, 0);
    parallel_question_done(&q);
}

/* One microbatch, which replicas and pipelines cannot share. */
static void one_row(struct shared_world *s)
{
    s->w.cut[0].microbatches = s->w.cut[0].groups = s->w.req.cuts = 1;
    for (size_t n = 2; n <= NODES; n++)
        s->cut[n][0].microbatches = s->cut[n][0].groups = 1;
}

static void nodes_share_what_nothing_else_divides(void **state)
{
    (void)state;
    static struct shared_world s;
    static struct parallel_found found[PARALLEL_MOST_FOUND];
    struct err err = {""};
    size_t n;
    for (int is_dear = 0; is_dear < 2; is_dear++) {
        make_shared(&s, &clusters[0], is_dear ? 0.2 : 0.005);
        one_row(&s);
        if (parallel_search(found, &n, &s.w.req, &err))
            fail_msg("%s", err.text);
        assert_int_equal(found[0].slices, is_dear ? 1 : 2);
        assert_int_equal(found[0].replicas, 1);
        bool is_there = false;
        for (size_t i = 0; i < n; i++) {
            const struct planner_parts *p = &found[i].parts;
            assert_float_equal(p->work + p->bubble + p->cables + p->gather + p->sums + p->update,
                               found[i].plan.seconds, 1e-9 * found[i].plan.seconds);
            /* Eleven times in each of four layers. */
            if (found[i].slices == 2)
                assert_float_equal(p->gather, 44 * s.gather, 1e-9);
            else
                assert_float_equal(p->gather, 0, 1e-12);
            is_there = is_there || found[i].slices == 2;
        }
        assert_true(is_there);
    }
}

/* The slowest of the nodes decides, and the memory of the smallest. */
static void nodes_that_share_are_as_good_as_the_worst(void **state)
{
    (void)state;
    static struct shared_world s;
    static struct parallel_found found[PARALLEL_MOST_FOUND];
    struct err err;
    size_t n;
    double seconds[2];
    for (size_t slow = 0; slow < 2; slow++) {
        make_shared(&s, &clusters[slow ? 2 : 0], 0.005);
        one_row(&s);
        s.w.req.slices = 2;
        assert_int_equal(parallel_search(found, &n, &s.w.req, &err), 0);
        seconds[slow] = found[0].plan.seconds;
        for (size_t i = 0; i < n; i++)
            assert_int_equal(found[i].slices, 2);
        assert_true(found[0].plan.fits);
    }
    assert_float_equal(seconds[0], seconds[1], 1e-9); /* beside a node twice as fast */
    s.w.memory[1] = 300;
    assert_int_equal(parallel_search(found, &n, &s.w.req, &err), 0);
    assert_false(found[0].plan.fits);
}

/* Gatherings at which nodes share some stages, and not all. */
static void a_look_at_all_with_shared_stages_finds_nothing_better(void **state)
{
    (void)state;
    static const size_t of[] = {0, 2, 4, 6, 8};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        static struct shared_world s;
        static struct parallel_found found[PARALLEL_MOST_FOUND];
        struct err err = {""};
        size_t n;
        make_shared(&s, &clusters[of[i]], 0.01);
        if (i % 2)
            one_row(&s);
        if (parallel_search(found, &n, &s.w.req, &err))
            fail_msg("%s: %s", clusters[of[i]].name, err.text);
        const struct planner_score best = brute_force(&s.w.req);
        printf("%-24s dp=%zu,tp=%zu,pp=%zu, step %.3f, the best there is %.3f\n", clusters[of[i]].name,
               found[0].replicas, found[0].slices, found[0].places, found[0].plan.seconds, best.main);
        assert_true(found[0].plan.seconds <= 1.05 * best.main);
        assert_true(found[0].is_unlike || found[0].plan.seconds >= best.main * (1 - 1e-9));
    }
}

/* Two replicas of a stage that two share: of each layer a slice has half of the gradients. */
static void a_slice_sends_only_its_own_gradients(void **state)
{
    (void)state;
    static struct shared_world s;
    size_t half[UNITS];
    struct parallel_layout l;
    struct parallel_question q;
    struct err err;
    make_shared(&s, &clusters[9], 0);
    for (size_t u = 0; u < UNITS; u++)
        half[u] = s.w.grads[u] / 2;
    for (size_t own = 0; own < 2; own++) {
        s.sharing.grads[2] = own ? half : NULL;
        for (size_t slices = 1; slices <= 2; slices++) {
            assert_true(parallel_layout_make(&l, &s.w.req, 15, 2, slices, false));
            assert_int_equal(parallel_ask(&q, &l, &s.w.req, &err), 0);
            for (size_t u = 0; u < UNITS; u++)
                assert_int_equal(q.req.grads[u], own && slices == 2 ? half[u] : s.w.grads[u]);
            parallel_question_done(&q);
        }
    }
    assert_true(half[1] > 0);
}

/* Replicas whose stages are shared cannot run yet, whatever they would save. */
static void what_cannot_run_is_not_found(void **state)
{
    (void)state;
    static struct shared_world s;
    static struct parallel_found found[PARALLEL_MOST_FOUND];
    struct err err;
    size_t n;
    make_shared(&s, &clusters[6], 0);
    assert_int_equal(parallel_search(found, &n, &s.w.req, &err), 0);
    for (size_t i = 0; i < n; i++)
        assert_true(parallel_can_run(found[i].replicas, found[i].slices));
    s.sharing.cut[2] = s.sharing.cut[3] = s.sharing.cut[4] = NULL;
    assert_int_equal(parallel_search(found, &n, &s.w.req, &err), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(found[i].slices, 1);
}

static void what_is_given_stays(void **state)
{
    (void)state;
    static const struct {
        size_t replicas, places, chunks;
        const char *schedule;
    } given[] = {{0, 0, 2, NULL}, {2, 0, 0, NULL}, {0, 2, 0, NULL}, {0, 0, 0, "gpipe"}, {2, 2, 1, NULL}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        static struct world w;
        struct parallel_found found[PARALLEL_MOST_FOUND];
        struct err err = {""};
        size_t n;
        make_world(&w, &clusters[6]);
        w.req.replicas = given[i].replicas;
        w.req.places = given[i].places;
        w.req.chunks = given[i].chunks;
        w.req.schedule = given[i].schedule;
        if (parallel_search(found, &n, &w.req, &err))
            fail_msg("question %zu: %s", i, err.text);
        assert_true(n > 0);
        for (size_t k = 0; k < n; k++) {
            assert_true(!given[i].replicas || found[k].replicas == given[i].replicas);
            assert_true(!given[i].places || found[k].places == given[i].places);
            assert_true(!given[i].chunks || found[k].plan.chunks == given[i].chunks);
            assert_true(!given[i].schedule || !strcmp(found[k].plan.schedule, given[i].schedule));
        }
    }
}

/* The fast nodes are in no plan of several replicas, whether these have as many nodes or not. */
static void nodes_apart_are_in_one_pipeline(void **state)
{
    (void)state;
    static const uint32_t apart[] = {1u << 2, 1u << 1 | 1u << 2};
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++) {
        static struct world w;
        struct parallel_found found[PARALLEL_MOST_FOUND];
        struct unlike_found unlike;
        struct err err = {""};
        size_t n, several = 0;
        make_world(&w, &clusters[7]);
        w.req.apart = apart[i];
        if (parallel_search(found, &n, &w.req, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0; k < n; k++) {
            several += found[k].replicas > 1;
            assert_true(found[k].replicas == 1 || !(found[k].mask & apart[i]));
        }
        assert_true(several > 0);
        assert_int_equal(unlike_search(&unlike, &w.req, &err), 0);
        assert_true(i ? !unlike.schedule : unlike.schedule && !(unlike.mask & apart[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unlike_replicas_are_found),
        cmocka_unit_test(copies_go_to_the_farther_neighbour),
        cmocka_unit_test(copies_of_equal_replicas_do_too),
        cmocka_unit_test(nodes_share_what_nothing_else_divides),
        cmocka_unit_test(nodes_that_share_are_as_good_as_the_worst),
        cmocka_unit_test(a_slice_sends_only_its_own_gradients),
        cmocka_unit_test(what_cannot_run_is_not_found),
        cmocka_unit_test(a_look_at_all_with_shared_stages_finds_nothing_better),
        cmocka_unit_test(what_is_given_stays),
        cmocka_unit_test(nodes_apart_are_in_one_pipeline),
        cmocka_unit_test(it_is_as_good_as_a_look_at_all),
    };
    return cmocka_run_group_tests_name("parallel", tests, NULL, NULL);
}
