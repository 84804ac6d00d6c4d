/* SPDX-License-Identifier: MIT
 *
 * Owns nothing beyond a question. Pure. */
#include "pipe/unlike.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/planner_impl.h"

enum {
    MOST_COUNTED = 7, /* nodes: beyond, only one size and one other are tried */
    MOST_DEALT = 16,  /* groups that move from one replica to another */
    SOME = 200000,    /* tasks stepped to improve the splits of the best */
};
/* What is as good with fewer nodes is better. */
static const double WORTH = 0.999;

/* --- one layout ------------------------------------------------------------------------------- */

static size_t first_rank(const struct unlike_found *f, size_t replica)
{
    size_t n = 0;
    for (size_t d = 0; d < replica; d++)
        n += f->size[d];
    return n;
}

/* As plan_shape_rank has it. */
static size_t rank_at(const struct unlike_found *f, size_t replica, size_t place)
{
    const size_t first = first_rank(f, replica);
    return replica % 2 ? first + f->size[replica] - 1 - place : first + place;
}

static size_t node_at(const struct unlike_found *f, size_t replica, size_t place)
{
    return f->node[rank_at(f, replica, place)];
}

void unlike_layout(struct unlike_found *ret, const struct parallel_request *req, uint32_t mask,
                   const size_t *size, size_t replicas, bool mirrored)
{
    size_t ranks = 0;
    *ret = (struct unlike_found){.replicas = replicas, .mirrored = mirrored, .mask = mask};
    memcpy(ret->size, size, replicas * sizeof *size);
    for (size_t i = 0; i < req->nodes; i++) {
        const size_t node = mirrored ? (req->nodes - i) % req->nodes : i;
        if (mask >> node & 1)
            ret->node[ranks++] = node;
    }
}

static double rate_of(const struct parallel_request *req, size_t cut, size_t node)
{
    double work = 0;
    for (size_t u = 0; u < req->layers + 2; u++) {
        const struct sched_cost *c = &req->cut[cut].cost[node * (req->layers + 2) + u];
        work += c->f + c->i + c->w;
    }
    return work > 0 ? 1 / work : 1;
}

static void deal_out(struct unlike_found *f, const struct parallel_request *req)
{
    double speed[PLAN_MAX_REPLICAS] = {0};
    for (size_t d = 0; d < f->replicas; d++)
        for (size_t p = 0; p < f->size[d]; p++)
            speed[d] += rate_of(req, f->cut, node_at(f, d, p));
    parallel_deal_out(f->share, speed, f->replicas, req->cut[f->cut].groups);
}

/* A byte of gradients on its way from a node to the other replicas and back. Which of their nodes
 * has its layer is not known: all count alike. */
static struct sched_link sum_at(const struct unlike_found *f, const struct parallel_request *req,
                                size_t replica, size_t place)
{
    const size_t sums = parallel_most_sums(f->share, f->replicas, req->cut[f->cut].groups);
    struct sched_link sum = {0};
    for (size_t e = 0; e < f->replicas; e++)
        for (size_t p = 0; p < f->size[e] && e != replica; p++) {
            const struct parallel_way *way =
                &req->way[node_at(f, replica, place) * req->nodes + node_at(f, e, p)];
            sum.transfer += way->byte * (double)(sums + 1) / (double)f->replicas / (double)f->size[e];
            sum.latency = fmax(sum.latency, 2 * (way->latency + way->message));
        }
    return sum;
}

static size_t own_microbatches(const struct unlike_found *f, const struct parallel_cut *cut, size_t replica)
{
    size_t group = 0;
    for (size_t d = 0; d < replica; d++)
        group += f->share[d];
    return plan_group_first(group + f->share[replica], cut->microbatches, cut->groups) -
           plan_group_first(group, cut->microbatches, cut->groups);
}

/* The question about one pipeline. */
static int ask(struct parallel_question *q, const struct unlike_found *f, const struct parallel_request *req,
               size_t replica, struct err *err)
{
    struct parallel_layout l = {
        .replicas = 1, .slices = 1, .places = f->size[replica], .cuts = 1, .cut = {f->cut}};
    l.share[0][0] = req->cut[f->cut].groups;
    for (size_t p = 0; p < l.places; p++)
        l.node[p] = node_at(f, replica, p);
    int e = parallel_ask(q, &l, req, err);
    if (e)
        return e;
    q->own[0][0] = q->cut[0].microbatches = own_microbatches(f, &req->cut[f->cut], replica);
    const size_t sums = parallel_most_sums(f->share, f->replicas, req->cut[f->cut].groups);
    for (size_t p = 0; p < l.places; p++) {
        q->sum[0][p] = sum_at(f, req, replica, p);
        q->handling[0][p] = req->handling ? req->handling[l.node[p]] * parallel_sent(sums, f->replicas) : 0;
    }
    for (size_t p = 0; p < l.places && req->copied; p++) /* the next rank may be of another replica */
        q->copy[p] = parallel_copy(req, f->node, first_rank(f, f->replicas), rank_at(f, replica, p));
    q->cut[0].sum = q->sum[0];
    q->cut[0].handling = q->handling[0];
    q->req.grads = req->grads;
    q->req.chunks = 1;
    q->req.schedule = f->schedule;
    return 0;
}

static int judge_one(struct unlike_found *f, struct planner_found *plan, const struct parallel_request *req,
                     size_t replica, const size_t *first, size_t effort, struct err *err)
{
    struct parallel_question q;
    struct planner_found second;
    struct planner_score score;
    int e = ask(&q, f, req, replica, err);
    q.req.effort = effort;
    q.req.first = first;
    e = e ? e : planner_search(plan, &second, &q.req, err);
    if (!e) {
        struct unlike_replica *to = &f->replica[replica];
        planner_judge(&score, plan, &q.req);
        f->missing += score.missing;
        f->schedule = plan->schedule;
        memcpy(to->first, plan->first, (plan->stages + 1) * sizeof *to->first);
        memcpy(to->cost, plan->cost, plan->stages * sizeof *to->cost);
        memcpy(to->again, plan->again, plan->stages * sizeof *to->again);
        memcpy(to->bytes, plan->bytes, f->size[replica] * sizeof *to->bytes);
        to->own = q.cut[0].microbatches;
        to->seconds = plan->seconds;
        if (plan->seconds > f->seconds) {
            f->seconds = plan->seconds;
            f->sums = plan->sums;
            f->slowest = replica;
            e = planner_explain(&f->parts, plan, &q.req, err);
        }
    }
    parallel_question_done(&q);
    return e;
}

/* The deepest chooses the schedule, if nobody has. */
static int judge_shares(struct unlike_found *f, const struct parallel_request *req,
                        const size_t *const *first, size_t effort, struct err *err)
{
    struct planner_found *plan = malloc(sizeof *plan);
    size_t deepest = 0, nodes = 0;
    double work = 0;
    f->schedule = req->schedule;
    f->seconds = f->missing = 0;
    for (size_t d = 1; d < f->replicas; d++)
        deepest = f->size[d] > f->size[deepest] ? d : deepest;
    int e = plan ? judge_one(f, plan, req, deepest, first ? first[deepest] : NULL, effort, err)
                 : err_set(err, -ENOMEM, "out of memory");
    for (size_t d = 0; d < f->replicas && !e; d++)
        if (d != deepest)
            e = judge_one(f, plan, req, d, first ? first[d] : NULL, effort, err);
    free(plan);
    for (size_t d = 0; d < f->replicas && !e; d++, nodes += f->size[d - 1])
        for (size_t p = 0; p < f->size[d]; p++) {
            const struct unlike_replica *of = &f->replica[d];
            const struct sched_cost *c = &of->cost[p];
            work += (c->f + c->i + c->w + (of->again[p] ? c->r : 0)) * (double)of->own;
        }
    f->bubble = f->seconds > 0 && !e ? fmax(0, 1 - work / (double)nodes / f->seconds) : 0;
    return e;
}

static bool is_better(const struct unlike_found *a, const struct unlike_found *b, double worth)
{
    if (!b->schedule || a->missing > 0 || b->missing > 0)
        return !b->schedule || a->missing < b->missing;
    return a->seconds < b->seconds * worth;
}

/* A group of the slowest goes to another, as long as that helps. */
static int deal_again(struct unlike_found *f, const struct parallel_request *req, size_t effort,
                      struct err *err)
{
    int e = 0;
    bool helps = true;
    for (size_t k = 0; k < MOST_DEALT && helps && !e; k++) {
        struct unlike_found best = *f;
        helps = false;
        for (size_t to = 0; to < f->replicas && !e && f->share[f->slowest] > 1; to++) {
            struct unlike_found tried = *f;
            if (to == f->slowest)
                continue;
            tried.share[f->slowest]--;
            tried.share[to]++;
            e = judge_shares(&tried, req, NULL, effort, err);
            if (!e && is_better(&tried, &best, 1 - 1e-9)) {
                best = tried;
                helps = true;
            }
        }
        *f = best;
    }
    return e;
}

int unlike_judge(struct unlike_found *found, const struct parallel_request *req, bool has_shares,
                 const size_t *const *first, size_t effort, struct err *err)
{
    const struct unlike_found asked = *found;
    struct err why = {"there are fewer groups of microbatches than replicas: raise --grad-groups"};
    found->schedule = NULL;
    for (size_t c = 0; c < req->cuts; c++) {
        struct unlike_found it = asked;
        it.cut = c;
        if (req->cut[c].groups < it.replicas)
            continue;
        if (!has_shares)
            deal_out(&it, req);
        int e = judge_shares(&it, req, first, first || effort ? effort : 1, &why);
        if (!e && !has_shares && !effort)
            e = deal_again(&it, req, 1, &why);
        if (!e && !effort && !first)
            e = judge_shares(&it, req, NULL, SOME, &why);
        if (e == -ENOMEM)
            return err_set(err, e, "%s", why.text);
        if (!e && is_better(&it, found, WORTH))
            *found = it;
    }
    return found->schedule ? 0 : err_set(err, -EINVAL, "%s", why.text);
}

/* --- all of them ------------------------------------------------------------------------------ */

/* The fastest nodes that may be in it, with the head's among them; ranks: no more than there are
 * such nodes. */
static uint32_t fastest(const struct parallel_request *req, size_t ranks)
{
    uint32_t mask = 1;
    for (size_t n = 1; n < ranks; n++) {
        size_t best = 0;
        for (size_t node = 1; node < req->nodes; node++)
            if (!((mask | req->apart) >> node & 1) &&
                (!best || rate_of(req, 0, node) > rate_of(req, 0, best)))
                best = node;
        mask |= 1u << best;
    }
    return mask;
}

/* The sizes that `bits` cuts a row of nodes into, behind each node whose bit is set; 0: all alike,
 * or too many. */
static size_t sizes_of(size_t *ret, size_t ranks, uint32_t bits)
{
    size_t n = 0, run = 0;
    bool alike = true;
    for (size_t i = 0; i < ranks; i++) {
        run++;
        if (i + 1 < ranks && !(bits >> i & 1))
            continue;
        if (n == PLAN_MAX_REPLICAS)
            return 0;
        alike = alike && (!n || run == ret[0]);
        ret[n++] = run;
        run = 0;
    }
    return alike ? 0 : n;
}

/* Of many nodes only: so many of one size, then the rest as one. */
static bool is_looked_at(size_t ranks, const size_t *size, size_t n)
{
    for (size_t d = 1; d + 1 < n && ranks > MOST_COUNTED; d++)
        if (size[d] != size[0])
            return false;
    return true;
}

static int look_at(struct unlike_found *best, const struct parallel_request *req, uint32_t mask,
                   struct err *err)
{
    const size_t ranks = (size_t)__builtin_popcount(mask);
    struct unlike_found it;
    struct err quiet;
    for (uint32_t bits = 1; bits < 1u << (ranks - 1); bits++)
        for (size_t way = 0; way < (req->mirror && ranks > 2 ? 2 : 1); way++) {
            size_t size[PLAN_MAX_REPLICAS];
            const size_t n = sizes_of(size, ranks, bits);
            if (!n || !is_looked_at(ranks, size, n))
                continue;
            unlike_layout(&it, req, mask, size, n, way == 1);
            const int e = unlike_judge(&it, req, false, NULL, 1, &quiet);
            if (e == -ENOMEM)
                return err_set(err, e, "out of memory");
            if (!e && is_better(&it, best, WORTH))
                *best = it;
        }
    return 0;
}

static bool has_chunks(const struct parallel_request *req)
{
    return req->chunks > 1 || (req->schedule && sched_info(req->schedule)->min_chunks > 1);
}

int unlike_search(struct unlike_found *ret, const struct parallel_request *req, struct err *err)
{
    int e = 0;
    *ret = (struct unlike_found){.schedule = NULL};
    if (req->nodes < 3 || req->replicas || req->places || req->adapters > 1 || has_chunks(req) ||
        req->objective == PLANNER_MEMORY)
        return 0;
    const size_t most = req->nodes - (size_t)__builtin_popcount(req->apart);
    for (size_t ranks = 3; ranks <= most && !e; ranks++)
        e = look_at(ret, req, fastest(req, ranks), err);
    struct unlike_found closely = *ret;
    if (!e && ret->schedule && !unlike_judge(&closely, req, false, NULL, 0, err) &&
        is_better(&closely, ret, 1))
        *ret = closely;
    return e;
}
