/* SPDX-License-Identifier: MIT
 *
 * First every layout with a plain order and a balanced split; then the most promising one of each
 * number of replicas and places with all orders; then the best of these once more, with more
 * effort. Owns nothing beyond a search. Pure. */
#include "pipe/parallel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/planner_impl.h"

enum {
    MOST_SETS = 16, /* sets of so many nodes each: the fastest */
    TRIED = 12,     /* layouts that are looked at with all orders */
    SOME = 200000,  /* tasks stepped to improve the splits of one */
    REFINED = 2,    /* with the planner's usual effort */
};
/* Of two that are alike on paper the one with fewer nodes is better. */
static const double WORTH = 0.999;

struct look {
    struct parallel_layout layout;
    struct planner_found found;
    struct planner_score score;
    bool taken;
};
struct parallel_search {
    const struct parallel_request *req;
    struct look *at; /* owned */
    size_t n, room;
    struct err why; /* the last layout that could not be */
};

/* --- one layout ------------------------------------------------------------------------------- */

static void keep(struct parallel_found *ret, const struct look *look)
{
    const struct parallel_layout *l = &look->layout;
    *ret = (struct parallel_found){.replicas = l->replicas,
                                   .slices = l->slices,
                                   .places = l->places,
                                   .mirrored = l->mirrored,
                                   .mask = l->mask,
                                   .plan = look->found};
    memcpy(ret->node, l->node, sizeof ret->node);
    memcpy(ret->share, l->share[look->found.cut], sizeof ret->share);
    ret->plan.cut = l->cut[look->found.cut]; /* of the request */
}

/* In short: one plain order, where it has the chunks that are asked for, and no layer moves. */
static int look_shortly(struct look *look, const struct parallel_request *req, struct err *err)
{
    struct parallel_question q;
    struct planner_found second;
    int e = parallel_ask(&q, &look->layout, req, err);
    q.req.effort = 1;
    q.req.schedule = req->schedule || req->chunks > 1 ? req->schedule : "1f1b";
    e = e ? e : planner_search(&look->found, &second, &q.req, err);
    if (!e)
        planner_judge(&look->score, &look->found, &q.req);
    parallel_question_done(&q);
    return e;
}

/* A group more or fewer for a replica is as good a guess. */
static int deal_again(struct look *look, const struct parallel_request *req, struct err *err)
{
    const size_t replicas = look->layout.replicas;
    int e = 0;
    for (size_t from = 0; from < replicas && !e; from++)
        for (size_t to = 0; to < replicas && !e; to++) {
            struct look tried = *look;
            size_t *share = tried.layout.share[tried.found.cut];
            if (from == to || share[from] < 2)
                continue;
            share[from]--;
            share[to]++;
            e = look_shortly(&tried, req, err);
            if (!e && planner_score_is_less(&tried.score, &look->score, 1 - 1e-9))
                *look = tried;
        }
    return e;
}

static int look_again(struct look *look, const struct parallel_request *req, struct planner_found *ret_second,
                      size_t effort, struct err *err)
{
    struct parallel_question q;
    int e = parallel_ask(&q, &look->layout, req, err);
    q.req.effort = effort;
    e = e ? e : planner_search(&look->found, ret_second, &q.req, err);
    if (!e)
        planner_judge(&look->score, &look->found, &q.req);
    parallel_question_done(&q);
    return e;
}

/* --- all of them ------------------------------------------------------------------------------ */

static int add(struct parallel_search *x, const struct look *look, struct err *err)
{
    if (x->n == x->room) {
        const size_t room = x->room ? 2 * x->room : 64;
        struct look *at = realloc(x->at, room * sizeof *at);
        if (!at)
            return err_set(err, -ENOMEM, "out of memory");
        x->at = at;
        x->room = room;
    }
    x->at[x->n++] = *look;
    return 0;
}

static double speed_of(const struct parallel_request *req, uint32_t mask)
{
    double sum = 0;
    for (size_t n = 0; n < req->nodes; n++) {
        double work = 0;
        for (size_t u = 0; u < req->layers + 2; u++) {
            const struct sched_cost *c = &req->cut[0].cost[n * (req->layers + 2) + u];
            work += c->f + c->i + c->w;
        }
        sum += mask >> n & 1 && work > 0 ? 1 / work : 0;
    }
    return sum;
}

/* Sets of so many nodes with the head's in them, the fastest first; returns how many. */
static size_t list_sets(uint32_t ret[MOST_SETS], const struct parallel_request *req, size_t ranks)
{
    size_t n = 0;
    for (uint32_t mask = 1; mask < 1u << req->nodes; mask += 2) {
        if ((size_t)__builtin_popcount(mask) != ranks)
            continue;
        const double speed = speed_of(req, mask);
        size_t at = n;
        for (; at > 0 && speed > speed_of(req, ret[at - 1]); at--)
            if (at < MOST_SETS)
                ret[at] = ret[at - 1];
        if (at < MOST_SETS)
            ret[at] = mask;
        n += n < MOST_SETS;
    }
    return n;
}

static bool is_wanted(const struct parallel_request *req, uint32_t mask, size_t replicas, size_t slices)
{
    const size_t ranks = (size_t)__builtin_popcount(mask);
    const size_t pipelines = replicas * slices;
    return ranks % pipelines == 0 && parallel_can_run(replicas, slices) &&
           (replicas == 1 || !(mask & req->apart)) &&
           (slices == 1 || (req->sharing && req->sharing->cut[slices] && !(mask & req->sharing->apart))) &&
           (!req->replicas || req->replicas == replicas) && (!req->slices || req->slices == slices) &&
           (!req->places || req->places == ranks / pipelines);
}

/* Either way round the ring. */
static int add_shape(struct parallel_search *x, uint32_t mask, size_t ranks, size_t replicas, size_t slices,
                     struct err *err)
{
    int e = 0;
    for (size_t way = 0; way < (x->req->mirror && ranks > 2 ? 2 : 1) && !e; way++) {
        struct look look = {0};
        if (parallel_layout_make(&look.layout, x->req, mask, replicas, slices, way == 1) &&
            !look_shortly(&look, x->req, &x->why))
            e = add(x, &look, err);
    }
    return e;
}

static int add_set(struct parallel_search *x, uint32_t mask, size_t ranks, struct err *err)
{
    int e = 0;
    for (size_t replicas = 1; replicas <= PLAN_MAX_REPLICAS && replicas <= ranks && !e; replicas++)
        for (size_t slices = 1; slices <= PARALLEL_MOST_SLICES && !e; slices++)
            if (is_wanted(x->req, mask, replicas, slices))
                e = add_shape(x, mask, ranks, replicas, slices, err);
    return e;
}

static int add_all(struct parallel_search *x, struct err *err)
{
    int e = 0;
    for (size_t ranks = 1; ranks <= x->req->nodes && !e; ranks++) {
        uint32_t sets[MOST_SETS];
        const size_t n = list_sets(sets, x->req, ranks);
        for (size_t i = 0; i < n && !e; i++)
            e = add_set(x, sets[i], ranks, err);
    }
    if (e || x->n)
        return e;
    return *x->why.text
               ? err_set(err, -EINVAL, "%s", x->why.text)
               : err_set(err, -EINVAL,
                         "no number of replicas suits %zu nodes and the groups of a step's microbatches: "
                         "raise --batch-size or --grad-groups",
                         x->req->nodes);
}

static bool is_same_shape(const struct look *a, const struct look *b)
{
    return a->layout.replicas == b->layout.replicas && a->layout.slices == b->layout.slices &&
           a->layout.places == b->layout.places;
}

/* The best that was not taken; with `shapes`, of a shape of which none was. NULL: there is none. */
static struct look *best_of(struct parallel_search *x, bool shapes)
{
    struct look *best = NULL;
    for (size_t i = 0; i < x->n; i++) {
        struct look *look = &x->at[i];
        bool is_free = !look->taken;
        for (size_t k = 0; k < x->n && is_free && shapes; k++)
            is_free = !x->at[k].taken || !is_same_shape(look, &x->at[k]);
        if (is_free && (!best || planner_score_is_less(&look->score, &best->score, WORTH)))
            best = look;
    }
    return best;
}

/* --- what is left of them --------------------------------------------------------------------- */

static bool is_same_plan(const struct look *a, const struct look *b)
{
    return is_same_shape(a, b) && !strcmp(a->found.schedule, b->found.schedule) &&
           a->found.chunks == b->found.chunks && a->layout.cut[a->found.cut] == b->layout.cut[b->found.cut];
}

/* Into a list whose best comes first, of which no two are the same plan. */
static void put(struct look *list, size_t *n, const struct look *look)
{
    size_t at = *n;
    for (size_t i = 0; i < *n; i++)
        if (is_same_plan(&list[i], look)) {
            if (!planner_score_is_less(&look->score, &list[i].score, 1))
                return;
            memmove(list + i, list + i + 1, (--*n - i) * sizeof *list);
            at = *n;
            break;
        }
    while (at && planner_score_is_less(&look->score, &list[at - 1].score, WORTH))
        at--;
    if (at == PARALLEL_MOST_FOUND)
        return;
    *n -= *n == PARALLEL_MOST_FOUND;
    memmove(list + at + 1, list + at, ((*n)++ - at) * sizeof *list);
    list[at] = *look;
}

static int put_searched(struct look *list, size_t *n, struct look *look, const struct parallel_request *req,
                        size_t effort, struct err *err)
{
    struct planner_found second;
    int e = look_again(look, req, &second, effort, err);
    if (e)
        return e;
    put(list, n, look);
    if (!second.schedule)
        return 0;
    struct look other = *look;
    struct parallel_question q;
    other.found = second;
    e = parallel_ask(&q, &other.layout, req, err);
    if (!e) {
        planner_judge(&other.score, &other.found, &q.req);
        put(list, n, &other);
    }
    parallel_question_done(&q);
    return e;
}

/* What nodes gather is what a step takes less if that took no time. */
static int explain(struct parallel_found *f, const struct look *look, const struct parallel_request *req,
                   struct err *err)
{
    struct parallel_question q;
    struct parallel_request free_gathers = *req;
    struct parallel_sharing sharing;
    if (look->layout.slices > 1) {
        sharing = *req->sharing;
        sharing.gathering = NULL;
        free_gathers.sharing = &sharing;
    }
    int e = parallel_ask(&q, &look->layout, &free_gathers, err);
    e = e ? e : planner_explain(&f->parts, &look->found, &q.req, err);
    parallel_question_done(&q);
    const struct planner_parts *p = &f->parts;
    if (!e && look->layout.slices > 1)
        f->parts.gather = f->plan.seconds - (p->work + p->bubble + p->cables + p->sums + p->update);
    return e;
}

static int choose(struct parallel_search *x, struct look *list, size_t *n, struct err *err)
{
    int e = 0;
    for (size_t k = 0; k < TRIED && !e; k++) {
        struct look *look = best_of(x, true);
        look = look ? look : best_of(x, false);
        if (!look)
            break;
        look->taken = true;
        e = deal_again(look, x->req, err);
        e = e ? e : put_searched(list, n, look, x->req, SOME, err);
    }
    for (size_t k = 0; k < REFINED && k < *n && !e; k++) {
        struct look again = list[k];
        e = put_searched(list, n, &again, x->req, 0, err);
    }
    return e;
}

/* Bytes are by place in what was found, and by rank here. */
static void keep_unlike(struct parallel_found *ret, const struct unlike_found *f)
{
    *ret = (struct parallel_found){.replicas = f->replicas,
                                   .slices = 1,
                                   .mirrored = f->mirrored,
                                   .mask = f->mask,
                                   .plan = {.schedule = f->schedule,
                                            .chunks = 1,
                                            .cut = f->cut,
                                            .turns = 1,
                                            .seconds = f->seconds,
                                            .bubble = f->bubble,
                                            .sums = f->sums,
                                            .fits = !(f->missing > 0)},
                                   .parts = f->parts,
                                   .is_unlike = true,
                                   .unlike = *f};
    memcpy(ret->node, f->node, sizeof ret->node);
    memcpy(ret->share, f->share, sizeof ret->share);
    for (size_t d = 0, rank = 0; d < f->replicas; rank += f->size[d++])
        for (size_t p = 0; p < f->size[d]; p++)
            ret->plan.bytes[rank + (d % 2 ? f->size[d] - 1 - p : p)] = f->replica[d].bytes[p];
}

/* Among what was found, where it belongs. */
static int add_unlike(struct parallel_found *list, size_t *n, const struct parallel_request *req,
                      struct err *err)
{
    struct unlike_found found = {0};
    const int e = req->slices > 1 ? 0 : unlike_search(&found, req, err);
    size_t at = 0;
    if (e || !found.schedule)
        return e;
    while (at < *n &&
           (found.missing > 0 ? list[at].plan.fits
                              : list[at].plan.fits && found.seconds >= list[at].plan.seconds * WORTH))
        at++;
    if (at == PARALLEL_MOST_FOUND)
        return 0;
    *n -= *n == PARALLEL_MOST_FOUND;
    memmove(list + at + 1, list + at, ((*n)++ - at) * sizeof *list);
    keep_unlike(&list[at], &found);
    return 0;
}

int parallel_search(struct parallel_found ret[PARALLEL_MOST_FOUND], size_t *ret_n,
                    const struct parallel_request *req, struct err *err)
{
    struct parallel_search x = {.req = req, .why = {""}};
    *ret_n = 0;
    if (req->nodes < 1 || req->nodes > PLANNER_MAX_RANKS || req->cuts < 1 || req->cuts > PARALLEL_MOST_CUTS)
        return err_set(err, -EINVAL, "a plan is for 1 to %d nodes, not %zu", PLANNER_MAX_RANKS, req->nodes);
    struct look *list = calloc(PARALLEL_MOST_FOUND + 1, sizeof *list);
    int e = list ? add_all(&x, err) : err_set(err, -ENOMEM, "out of memory");
    e = e ? e : choose(&x, list, ret_n, err);
    for (size_t i = 0; i < *ret_n && !e; i++) {
        keep(&ret[i], &list[i]);
        e = explain(&ret[i], &list[i], req, err);
    }
    free(list);
    free(x.at);
    return e ? e : add_unlike(ret, ret_n, req, err);
}
