/* SPDX-License-Identifier: MIT
 *
 * Owns nothing beyond a search. Pure; called by the stage process that plans a job, on its one
 * thread. */
#include "pipe/planner.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/plan.h"
#include "pipe/planner_impl.h"
#include "pipe/split.h"

/* Effort, in tasks stepped on paper: a second or two's worth in all. */
enum { EFFORT = 4000000, CLIMBED = 6 /* candidates whose split is improved */ };

/* A later candidate must be so much better: plain orders come first, and what is alike on paper
 * is. */
static const double WORTH = 0.999;

struct candidate {
    const struct sched_info *info;
    size_t chunks, cut;
    struct planner_found found;
    struct planner_score score;
};

/* --- beginnings ------------------------------------------------------------------------------- */

static double work_of(const struct planner_request *req, size_t cut, size_t node, size_t unit)
{
    const struct sched_cost *c = &req->cut[cut].cost[node * (req->layers + 2) + unit];
    return c->f + c->i + c->w;
}

/* How fast a node is with all of the model, the layers counting; 1 where nothing costs anything. */
static double speed_of(const struct planner_request *req, size_t cut, size_t node)
{
    double sum = 0;
    for (size_t u = 1; u <= req->layers; u++)
        sum += work_of(req, cut, node, u);
    return sum > 0 ? 1 / sum : 1;
}

/* Of a place in the pipeline; of several replicas the node that is slowest with its share. */
static double speed_for(const struct planner_request *req, const struct candidate *c, size_t rank)
{
    const struct planner_cut *cut = &req->cut[c->cut];
    double least = speed_of(req, c->cut, planner_node(&c->found, req->ranks, rank));
    for (size_t d = 0; d < req->replicas && cut->own; d++) {
        const double speed =
            speed_of(req, c->cut, d * req->ranks + rank) * (double)cut->microbatches / (double)cut->own[d];
        least = !d || speed < least ? speed : least;
    }
    return least;
}

/* The slowest stage as fast as can be: best where there are many microbatches. */
static int balanced(size_t *ret_first, const struct planner_request *req, const struct candidate *c,
                    struct err *err)
{
    double speed[PLANNER_MAX_STAGES], *cost = calloc(req->layers + 2, sizeof *cost);
    const size_t stages = req->ranks * c->chunks, head = c->found.start;
    if (!cost)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t u = 0; u < req->layers + 2; u++)
        cost[u] = work_of(req, c->cut, head, u) * speed_of(req, c->cut, head);
    for (uint32_t s = 0; s < stages; s++) {
        const size_t rank = sched_place(c->info->placement, req->ranks, s);
        speed[s] = speed_for(req, c, rank) / speed_of(req, c->cut, head);
    }
    struct split_request split = {.stages = stages, .layers = req->layers, .unit_cost = cost, .speed = speed};
    int e = split_layers(ret_first, &split, err);
    free(cost);
    return e;
}

static int even(size_t *ret_first, const struct planner_request *req, const struct candidate *c,
                struct err *err)
{
    struct split_request split = {.stages = req->ranks * c->chunks, .layers = req->layers};
    return split_layers(ret_first, &split, err);
}

/* --- one candidate ---------------------------------------------------------------------------- */

static int begin(struct candidate *c, struct planner_sim *sim, const struct planner_request *req,
                 struct err *err)
{
    struct planner_found other = {.schedule = c->info->name,
                                  .chunks = c->chunks,
                                  .stages = req->ranks * c->chunks,
                                  .cut = c->cut,
                                  .start = c->found.start,
                                  .mirrored = c->found.mirrored};
    struct planner_score score;
    c->found = other;
    planner_sim_turn(sim, other.start, other.mirrored);
    if (req->first)
        memcpy(c->found.first, req->first, (other.stages + 1) * sizeof *req->first);
    int e = req->first ? 0 : balanced(c->found.first, req, c, err);
    if (!e)
        e = planner_sim_score(&c->score, &c->found, sim, err);
    if (e || req->first)
        return e;
    e = even(other.first, req, c, err);
    if (!e)
        e = planner_sim_score(&score, &other, sim, err);
    if (!e && planner_score_is_less(&score, &c->score, 1)) {
        c->found = other;
        c->score = score;
    }
    return e;
}

bool planner_move(struct planner_found *f, size_t from, size_t to, size_t n)
{
    if (f->first[from + 1] - f->first[from] < n)
        return false;
    for (size_t s = from + 1; s <= to; s++)
        f->first[s] -= n;
    for (size_t s = to + 1; s <= from; s++)
        f->first[s] += n;
    return true;
}

/* All pairs of stages, n layers at a time; 1: something was better and is kept. */
static int improve(struct candidate *c, size_t n, struct planner_sim *sim, size_t effort, struct err *err)
{
    int better = 0;
    for (size_t from = 0; from < c->found.stages; from++)
        for (size_t to = 0; to < c->found.stages && sim->stepped < effort; to++) {
            struct planner_found tried = c->found;
            struct planner_score score;
            if (from == to || !planner_move(&tried, from, to, n))
                continue;
            int e = planner_sim_score(&score, &tried, sim, err);
            if (e)
                return e;
            if (!planner_score_is_less(&score, &c->score, 1 - 1e-9))
                continue;
            c->found = tried;
            c->score = score;
            better = 1;
        }
    return better;
}

/* Layers move between stages as long as that helps: many at a time, then fewer. */
static int climb(struct candidate *c, const struct planner_request *req, size_t effort, size_t *stepped,
                 struct err *err)
{
    struct planner_sim sim;
    int e = planner_sim_init(&sim, req, c->found.schedule, c->chunks, c->cut, false, err);
    if (!e)
        planner_sim_turn(&sim, c->found.start, c->found.mirrored);
    size_t most = req->layers / (2 * c->found.stages);
    for (size_t n = most > 1 ? most : 1; n && e >= 0; n /= 2)
        while ((e = improve(c, n, &sim, effort, err)) > 0 && sim.stepped < effort)
            ;
    *stepped += sim.stepped;
    planner_sim_done(&sim);
    return e < 0 ? e : 0;
}

/* Tasks that may be stepped to improve one candidate. */
static size_t effort_of(const struct planner_request *req)
{
    return (req->effort ? req->effort : EFFORT) / CLIMBED;
}

/* --- all of them ------------------------------------------------------------------------------ */

struct planner_search {
    const struct planner_request *req;
    struct candidate *at; /* owned */
    size_t n, room;
    size_t stepped;
};

/* Where nothing else is asked for, an order whose backwards descend is not looked at: looped-bfs
 * takes as long as interleaved-1f1b, and keeps all microbatches. */
static bool is_wanted(const struct planner_request *req, const struct sched_info *info, size_t chunks)
{
    const size_t stages = req->ranks * chunks;
    if (req->schedule && strcmp(req->schedule, info->name) != 0)
        return false;
    if (!req->schedule &&
        (!info->in_order || (chunks > 1 && stages > req->layers + 2) ||
         (req->ranks == 1 && strcmp(info->name, "1f1b") != 0) || (chunks == 1 && info->max_chunks > 1)))
        return false;
    return req->chunks ? chunks == req->chunks : chunks <= PLANNER_MAX_CHUNKS || req->schedule;
}

/* What could not be compiled need not be looked at: a job compiles rounds of a step of each adapter
 * at once. */
static bool is_too_large(const struct planner_request *req, size_t chunks, size_t cut)
{
    const size_t adapters = req->adapters ? req->adapters : 1;
    return req->cut[cut].microbatches > PLAN_MAX_CELLS / (req->ranks * chunks * adapters);
}

static int add(struct planner_search *x, const struct candidate *like, struct err *err)
{
    struct planner_sim sim;
    const struct candidate made = *like; /* which may lie in the list that grows */
    if (x->n == x->room) {
        size_t room = x->room ? 2 * x->room : 64;
        struct candidate *at = realloc(x->at, room * sizeof *at);
        if (!at)
            return err_set(err, -ENOMEM, "out of memory");
        x->at = at;
        x->room = room;
    }
    struct candidate *c = &x->at[x->n];
    *c = made;
    int e = planner_sim_init(&sim, x->req, c->info->name, c->chunks, c->cut, x->req->first != NULL, err);
    if (!e)
        e = begin(c, &sim, x->req, err);
    x->stepped += sim.stepped;
    planner_sim_done(&sim);
    x->n += !e;
    return e;
}

static int add_all(struct planner_search *x, struct err *err)
{
    const struct planner_request *req = x->req;
    static const char *const plain[] = {"1f1b", NULL}; /* first: it wins where others are no better */
    bool any = false;
    for (size_t pass = 0; pass < 2; pass++)
        for (const char *const *name = pass ? sched_names() : plain; *name; name++) {
            const struct sched_info *info = sched_info(*name);
            if (pass && !strcmp(*name, plain[0]))
                continue;
            for (size_t chunks = info->min_chunks; chunks <= info->max_chunks; chunks++)
                for (size_t cut = 0; cut < req->cuts; cut++) {
                    if (!is_wanted(req, info, chunks))
                        continue;
                    any = true;
                    if (is_too_large(req, chunks, cut))
                        continue;
                    const struct candidate c = {.info = info,
                                                .chunks = chunks,
                                                .cut = cut,
                                                .found.mirrored = req->first && req->mirror};
                    int e = add(x, &c, err);
                    if (e)
                        return e;
                }
        }
    if (!x->n && any)
        return err_set(err, -EINVAL,
                       "a step of %zu microbatches is too large for a plan: cut it into fewer with "
                       "--microbatches, or take a smaller "
                       "--batch-size",
                       req->cut[0].microbatches);
    return x->n ? 0
                : err_set(err, -EINVAL,
                          "there is no schedule with %zu chunks for %zu ranks: leave --chunks out",
                          req->chunks, req->ranks);
}

/* The best of those not looked at yet; their order decides between equals. */
static struct candidate *best_of(const struct planner_search *x, const bool *taken, double worth)
{
    struct candidate *best = NULL;
    for (size_t i = 0; i < x->n; i++)
        if (!taken[i] && (!best || planner_score_is_less(&x->at[i].score, &best->score, worth)))
            best = &x->at[i];
    return best;
}

/* The most promising, the other way round. */
static int add_mirrored(struct planner_search *x, struct err *err)
{
    const size_t n = x->n;
    bool *taken = calloc(n, sizeof *taken);
    int e = taken ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t k = 0; k < CLIMBED && k < n && !e; k++) {
        const struct planner_search some = {.at = x->at, .n = n};
        const struct candidate *best = best_of(&some, taken, 1);
        taken[best - x->at] = true;
        struct candidate c = *best;
        c.found.mirrored = true;
        e = add(x, &c, err);
    }
    free(taken);
    return e;
}

static int climb_best(struct planner_search *x, bool *taken, struct err *err)
{
    for (size_t k = 0; k < CLIMBED && k < x->n; k++) {
        struct candidate *c = best_of(x, taken, 1);
        int e = climb(c, x->req, effort_of(x->req), &x->stepped, err);
        if (e)
            return e;
        taken[c - x->at] = true;
    }
    return 0;
}

/* What was looked at in short, as a job would run it. */
static int look_closely(struct planner_search *x, struct candidate *c, struct err *err)
{
    struct planner_sim sim;
    if (!c || x->req->adapters < 2 || x->req->first)
        return 0;
    int e = planner_sim_init(&sim, x->req, c->info->name, c->chunks, c->cut, true, err);
    planner_sim_turn(&sim, c->found.start, c->found.mirrored);
    if (!e)
        e = planner_sim_score(&c->score, &c->found, &sim, err);
    x->stepped += sim.stepped;
    planner_sim_done(&sim);
    return e;
}

/* The best, and the best of what is another plan than that; itself the other way round is none. */
static int choose(struct planner_search *x, struct planner_found *ret_best, struct planner_found *ret_second,
                  struct err *err)
{
    bool *taken = calloc(x->n, sizeof *taken);
    if (!taken)
        return err_set(err, -ENOMEM, "out of memory");
    struct candidate *best = best_of(x, taken, WORTH);
    for (size_t i = 0; i < x->n; i++)
        taken[i] =
            x->at[i].info == best->info && x->at[i].chunks == best->chunks && x->at[i].cut == best->cut;
    struct candidate *second = best_of(x, taken, WORTH);
    free(taken);
    int e = look_closely(x, best, err);
    e = e ? e : look_closely(x, second, err);
    if (e)
        return e;
    const bool swap = second && planner_score_is_less(&second->score, &best->score, WORTH);
    *ret_best = swap ? second->found : best->found;
    *ret_second = swap ? best->found : second ? second->found : (struct planner_found){0};
    ret_best->stepped = x->stepped;
    return 0;
}

static int check(const struct planner_request *req, struct err *err)
{
    const size_t replicas = planner_replicas(req);
    if (req->ranks < 1 || replicas > PLAN_MAX_REPLICAS || req->ranks * replicas > PLANNER_MAX_RANKS ||
        req->layers < 1 || !req->cuts)
        return err_set(err, -EINVAL, "a plan is for 1 to %d nodes and at least one layer, not %zu and %zu",
                       PLANNER_MAX_RANKS, req->ranks * replicas, req->layers);
    return req->schedule && !sched_info(req->schedule)
               ? err_set(err, -EINVAL, "there is no schedule \"%s\"", req->schedule)
               : 0;
}

int planner_search(struct planner_found *ret_best, struct planner_found *ret_second,
                   const struct planner_request *req, struct err *err)
{
    struct planner_search x = {.req = req};
    bool *taken = NULL;
    int e = check(req, err);
    if (!e)
        e = add_all(&x, err);
    if (!e && req->mirror && req->ranks > 2 && !req->first)
        e = add_mirrored(&x, err);
    if (!e && !(taken = calloc(x.n, sizeof *taken)))
        e = err_set(err, -ENOMEM, "out of memory");
    if (!e && !req->first)
        e = climb_best(&x, taken, err);
    if (!e)
        e = choose(&x, ret_best, ret_second, err);
    free(taken);
    free(x.at);
    return e;
}

int planner_turn(struct planner_found *ret, const struct planner_found *found,
                 const struct planner_request *req, struct err *err)
{
    struct planner_search x = {.req = req};
    const struct candidate like = {
        .info = sched_info(found->schedule), .chunks = found->chunks, .cut = found->cut};
    const size_t starts = planner_replicas(req) > 1 ? 0 : req->ranks;
    int e = like.info ? check(req, err) : err_set(err, -EINVAL, "there is no schedule to turn");
    for (size_t start = 0; start < starts && !e; start++)
        for (size_t way = 0; way < (req->ranks > 2 ? 2 : 1) && !e && start != found->start; way++) {
            struct candidate c = like;
            c.found.start = start;
            c.found.mirrored = way == 1;
            e = add(&x, &c, err);
        }
    *ret = (struct planner_found){0};
    if (!e && x.n) {
        bool *taken = calloc(x.n, sizeof *taken);
        struct candidate *best = taken ? best_of(&x, taken, 1) : NULL;
        e = best ? climb(best, req, effort_of(req), &x.stepped, err) : err_set(err, -ENOMEM, "out of memory");
        if (!e)
            e = look_closely(&x, best, err);
        if (!e)
            *ret = best->found;
        ret->stepped = x.stepped;
        free(taken);
    }
    free(x.at);
    return e;
}
