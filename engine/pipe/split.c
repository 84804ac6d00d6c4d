/* SPDX-License-Identifier: MIT
 *
 * Cuts a model's layers into stages. Owns nothing beyond its scratch. Pure: the same request gives
 * the same split on every node. Called when a job is planned, loaded and started, from any
 * thread. */
#include "pipe/split.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPLIT_MAX = 4096 }; /* stages, and layers */

/* Prefix sums over the layers, so that the weight of a share costs two look-ups. Slot (s, i) of the
 * tables stands for stages s … stages−1 holding layers i … layers−1. */
struct split_search {
    const struct split_request *req;
    double *cost;  /* [layers + 1] */
    size_t *bytes; /* [stages][layers + 1] */
    size_t *lacks; /* same shape; NULL: no matter */
    double limit;  /* what a share may cost in the second search */
    double *worst; /* [stages + 1][layers + 1] least possible largest share, INFINITY = does not fit */
    struct split_rank *best; /* same shape: within the limit */
};

/* Of splits within the limit the least is the best: fewest bytes to come, then the least sum of
 * squared counts. */
struct split_rank {
    size_t lacks;
    uint64_t uneven; /* UINT64_MAX = impossible */
};

static size_t at(const struct split_search *x, size_t s, size_t i)
{
    return s * (x->req->layers + 1) + i;
}

static size_t add_bytes(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static double layer_cost(const struct split_request *req, size_t unit)
{
    if (!req->unit_cost)
        return unit == 0 || unit == req->layers + 1 ? 0.0 : 1.0;
    return req->unit_cost[unit];
}

static size_t unit_bytes(const struct split_request *req, size_t s, size_t unit)
{
    return req->unit_bytes ? req->unit_bytes[s][unit] : 0;
}

/* Time of stage s with layers from … to−1. */
static double share_cost(const struct split_search *x, size_t s, size_t from, size_t to)
{
    const struct split_request *req = x->req;
    double sum = x->cost[to] - x->cost[from];
    if (s == 0)
        sum += layer_cost(req, 0);
    if (s + 1 == req->stages)
        sum += layer_cost(req, req->layers + 1);
    return req->speed ? sum / req->speed[s] : sum;
}

static size_t between(const struct split_search *x, const size_t *sums, size_t s, size_t from, size_t to)
{
    const size_t until = sums[at(x, s, to)];
    return until == SIZE_MAX ? SIZE_MAX : until - sums[at(x, s, from)];
}

static size_t share_bytes(const struct split_search *x, size_t s, size_t from, size_t to)
{
    const struct split_request *req = x->req;
    size_t sum = between(x, x->bytes, s, from, to);
    if (s == 0)
        sum = add_bytes(sum, unit_bytes(req, s, 0));
    if (s + 1 == req->stages)
        sum = add_bytes(sum, unit_bytes(req, s, req->layers + 1));
    return sum;
}

static bool fits(const struct split_search *x, size_t s, size_t from, size_t to)
{
    return !x->req->memory || share_bytes(x, s, from, to) <= x->req->memory[s];
}

/* Longer shares only cost more and weigh more, so both searches stop at the first that is too
 * much. */
static void find_worst(struct split_search *x)
{
    size_t stages = x->req->stages, layers = x->req->layers;
    for (size_t i = 0; i <= layers; i++)
        x->worst[at(x, stages, i)] = i == layers ? 0.0 : INFINITY;
    for (size_t s = stages; s-- > 0;)
        for (size_t i = 0; i <= layers; i++) {
            double best = INFINITY;
            for (size_t j = i; j <= layers && fits(x, s, i, j); j++) {
                double mine = share_cost(x, s, i, j);
                if (mine >= best)
                    break;
                best = fmin(best, fmax(mine, x->worst[at(x, s + 1, j)]));
            }
            x->worst[at(x, s, i)] = best;
        }
}

/* Shares that are equal on paper differ in their last bits, as differences of sums do; a billionth
 * makes them equal again. */
static double tolerated(const struct split_search *x, double slack)
{
    return x->worst[at(x, 0, 0)] * (1.0 + fmax(slack, 1e-9));
}

/* Of a split of the rest with layers from … to−1 on stage s. */
static struct split_rank rank_of(const struct split_search *x, size_t s, size_t from, size_t to)
{
    struct split_rank rank = x->best[at(x, s + 1, to)];
    if (rank.uneven == UINT64_MAX)
        return rank;
    rank.uneven += (to - from) * (to - from);
    if (x->lacks)
        rank.lacks = add_bytes(rank.lacks, between(x, x->lacks, s, from, to));
    return rank;
}

static bool is_less(struct split_rank a, struct split_rank b)
{
    if (a.uneven == UINT64_MAX || b.uneven == UINT64_MAX)
        return a.uneven < b.uneven;
    return a.lacks < b.lacks || (a.lacks == b.lacks && a.uneven < b.uneven);
}

static void find_best(struct split_search *x)
{
    size_t stages = x->req->stages, layers = x->req->layers;
    for (size_t i = 0; i <= layers; i++)
        x->best[at(x, stages, i)] = (struct split_rank){0, i == layers ? 0 : UINT64_MAX};
    for (size_t s = stages; s-- > 0;)
        for (size_t i = 0; i <= layers; i++) {
            struct split_rank best = {0, UINT64_MAX};
            for (size_t j = i; j <= layers && fits(x, s, i, j) && share_cost(x, s, i, j) <= x->limit; j++)
                if (is_less(rank_of(x, s, i, j), best))
                    best = rank_of(x, s, i, j);
            x->best[at(x, s, i)] = best;
        }
}

/* Reads the split off the table; where several are equally good, the earlier stage takes more. */
static void trace(const struct split_search *x, size_t *ret_first)
{
    size_t stages = x->req->stages, layers = x->req->layers, from = 0;
    for (size_t s = 0; s < stages; s++) {
        size_t to = from;
        for (size_t j = from; j <= layers && fits(x, s, from, j) && share_cost(x, s, from, j) <= x->limit;
             j++) {
            const struct split_rank rank = rank_of(x, s, from, j);
            if (rank.uneven != UINT64_MAX && !is_less(x->best[at(x, s, from)], rank))
                to = j;
        }
        ret_first[s] = from;
        from = to;
    }
    ret_first[stages] = layers;
}

static int check_request(const struct split_request *req, struct err *err)
{
    if (req->stages < 1 || req->stages > SPLIT_MAX || req->layers > SPLIT_MAX)
        return err_set(err, -EINVAL, "a split takes 1 to %d stages and at most %d layers, not %zu and %zu",
                       SPLIT_MAX, SPLIT_MAX, req->stages, req->layers);
    double all = 0.0, slowest = 1.0;
    for (size_t u = 0; req->unit_cost && u < req->layers + 2; u++) {
        all += req->unit_cost[u];
        if (!isfinite(req->unit_cost[u]) || req->unit_cost[u] < 0.0)
            return err_set(err, -EINVAL, "the cost of unit %zu is %g; it must be finite and not negative", u,
                           req->unit_cost[u]);
    }
    for (size_t s = 0; req->speed && s < req->stages; s++) {
        slowest = fmin(slowest, req->speed[s]);
        if (!isfinite(req->speed[s]) || req->speed[s] <= 0.0)
            return err_set(err, -EINVAL, "the speed of stage %zu is %g; it must be finite and above 0", s,
                           req->speed[s]);
    }
    if (!isfinite(all / slowest))
        return err_set(err, -EINVAL,
                       "the costs of the units are too large to add up; give them in a larger unit");
    return 0;
}

/* Nothing fits: says it with the split that would be made if memory were no object. */
static int refuse_memory(struct split_search *x, size_t *first, struct err *err)
{
    struct split_request unlimited = *x->req, *limited = &unlimited;
    const struct split_request *was = x->req;
    limited->memory = NULL;
    x->req = limited;
    find_worst(x);
    x->limit = tolerated(x, 0);
    find_best(x);
    trace(x, first);
    x->req = was;
    size_t s = 0;
    while (s + 1 < was->stages && fits(x, s, first[s], first[s + 1]))
        s++;
    size_t need = share_bytes(x, s, first[s], first[s + 1]), sum = 0, available = 0;
    for (size_t k = 0; k < was->stages; k++) {
        sum = add_bytes(sum, share_bytes(x, k, first[k], first[k + 1]));
        available = add_bytes(available, was->memory[k]);
    }
    const struct err_amounts here = err_amounts(need, was->memory[s]), all = err_amounts(sum, available);
    return err_set(
        err, -ENOSPC,
        "stage %zu cannot hold its share, %zu of %zu layers%s%s: it needs %s and has %s (all stages "
        "together: %s of %s); free memory there or add a node",
        s, first[s + 1] - first[s], was->layers, s == 0 ? " and the embedding" : "",
        s + 1 == was->stages ? " and the head" : "", here.need, here.have, all.need, all.have);
}

static int search_init(struct split_search *x, const struct split_request *req)
{
    size_t cells = (req->stages + 1) * (req->layers + 1);
    *x = (struct split_search){.req = req};
    x->cost = calloc(req->layers + 1, sizeof *x->cost);
    x->bytes = calloc(req->stages * (req->layers + 1), sizeof *x->bytes);
    x->worst = calloc(cells, sizeof *x->worst);
    x->best = calloc(cells, sizeof *x->best);
    if (!x->cost || !x->bytes || !x->worst || !x->best)
        return -ENOMEM;
    for (size_t i = 0; i < req->layers; i++)
        x->cost[i + 1] = x->cost[i] + layer_cost(req, i + 1);
    for (size_t s = 0; s < req->stages; s++)
        for (size_t i = 0; i < req->layers; i++)
            x->bytes[at(x, s, i + 1)] = add_bytes(x->bytes[at(x, s, i)], unit_bytes(req, s, i + 1));
    return 0;
}

static void search_done(struct split_search *x)
{
    free(x->cost);
    free(x->bytes);
    free(x->lacks);
    free(x->worst);
    free(x->best);
}

/* Another split that is nearly as fast, if less has to come for it. */
static int prefer_what_is_there(struct split_search *x, size_t *first)
{
    const struct split_request *req = x->req;
    size_t *other = calloc(req->stages + 1, sizeof *other);
    x->lacks = calloc(req->stages * (req->layers + 1), sizeof *x->lacks);
    if (!other || !x->lacks) {
        free(other);
        return -ENOMEM;
    }
    for (size_t s = 0; s < req->stages; s++)
        for (size_t i = 0; i < req->layers; i++)
            x->lacks[at(x, s, i + 1)] = add_bytes(x->lacks[at(x, s, i)], req->unit_lacks[s][i + 1]);
    x->limit = tolerated(x, req->slack);
    find_best(x);
    trace(x, other);
    if (split_lacks(other, req) < split_lacks(first, req))
        memcpy(first, other, (req->stages + 1) * sizeof *first);
    free(other);
    return 0;
}

static int search(struct split_search *x, size_t *ret_first, struct err *err)
{
    find_worst(x);
    if (isinf(x->worst[at(x, 0, 0)])) {
        size_t *first = calloc(x->req->stages + 1, sizeof *first);
        const int rc = first ? refuse_memory(x, first, err) : err_set(err, -ENOMEM, "out of memory");
        free(first);
        return rc;
    }
    x->limit = tolerated(x, 0);
    find_best(x);
    trace(x, ret_first);
    return x->req->unit_lacks && split_lacks(ret_first, x->req) ? prefer_what_is_there(x, ret_first) : 0;
}

int split_layers(size_t *ret_first, const struct split_request *req, struct err *err)
{
    int rc = check_request(req, err);
    if (rc < 0)
        return rc;
    struct split_search x;
    rc = search_init(&x, req);
    rc = rc < 0 ? rc : search(&x, ret_first, err);
    if (rc == -ENOMEM)
        err_set(err, rc, "no memory to split %zu layers over %zu stages", req->layers, req->stages);
    search_done(&x);
    return rc;
}

size_t split_lacks(const size_t *first, const struct split_request *req)
{
    size_t sum = 0;
    for (size_t s = 0; req->unit_lacks && s < req->stages; s++)
        for (size_t u = 0; u < req->layers + 2; u++) {
            const bool is_its = u == 0                 ? s == 0
                                : u == req->layers + 1 ? s + 1 == req->stages
                                                       : u > first[s] && u <= first[s + 1];
            sum = is_its ? add_bytes(sum, req->unit_lacks[s][u]) : sum;
        }
    return sum;
}

int split_check(const size_t *first, size_t stages, size_t layers, struct err *err)
{
    if (stages < 1 || !first)
        return err_set(err, -EINVAL, "a split has at least one stage");
    if (first[0] != 0)
        return err_set(err, -EINVAL,
                       "layers 0 to %zu are on no stage: stage 0 must begin at layer 0, not %zu",
                       first[0] - 1, first[0]);
    for (size_t s = 0; s < stages; s++) {
        if (first[s + 1] < first[s])
            return err_set(err, -EINVAL,
                           "stage %zu ends at layer %zu before it begins at layer %zu, so layers would lie "
                           "on two stages",
                           s, first[s + 1], first[s]);
        if (first[s + 1] > layers)
            return err_set(err, -EINVAL, "stage %zu ends at layer %zu, but the model has %zu layers", s,
                           first[s + 1], layers);
    }
    if (first[stages] != layers)
        return err_set(err, -EINVAL,
                       "layers %zu to %zu are on no stage: the last stage must end at layer %zu",
                       first[stages], layers - 1, layers);
    return 0;
}

/* Where the next cut is, of the splits that have one more; false: none has. */
static bool next_cut(size_t *ret, const size_t *const *first, const size_t *stages, uint32_t *const *place,
                     size_t at, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const size_t next = place[i][at] + 1;
        if (next < stages[i] && (!any || first[i][next] < *ret)) {
            *ret = first[i][next];
            any = true;
        }
    }
    return any;
}

size_t split_refine(size_t *ret_first, uint32_t *const *ret_place, const size_t *const *first,
                    const size_t *stages, size_t n)
{
    size_t at = 0, cut = 0;
    ret_first[0] = 0;
    for (size_t i = 0; i < n; i++)
        ret_place[i][0] = 0;
    for (; next_cut(&cut, first, stages, ret_place, at, n); at++) {
        ret_first[at + 1] = cut;
        for (size_t i = 0; i < n; i++) {
            const uint32_t place = ret_place[i][at];
            ret_place[i][at + 1] = place + (place + 1 < stages[i] && first[i][place + 1] == cut);
        }
    }
    ret_first[at + 1] = first[0][stages[0]];
    return at + 1;
}
