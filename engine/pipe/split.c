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

enum { SPLIT_MAX = 4096 }; /* stages, and layers */

/* Prefix sums over the layers, so that the weight of a share costs two look-ups. Slot (s, i) of the
 * tables stands for stages s … stages−1 holding layers i … layers−1. */
struct split_search {
    const struct split_request *req;
    double *cost;     /* [layers + 1] */
    size_t *bytes;    /* [stages][layers + 1] */
    double *worst;    /* [stages + 1][layers + 1] least possible largest share, INFINITY = does not fit */
    uint64_t *uneven; /* same shape: least sum of squared counts within the overall worst, UINT64_MAX =
                         impossible */
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

static size_t share_bytes(const struct split_search *x, size_t s, size_t from, size_t to)
{
    const struct split_request *req = x->req;
    const size_t until = x->bytes[at(x, s, to)];
    size_t sum = until == SIZE_MAX ? SIZE_MAX : until - x->bytes[at(x, s, from)];
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

/* What a share may cost in the second search. Shares that are equal on paper differ in their last
 * bits, as differences of sums do; a billionth makes them equal again. */
static double tolerated(const struct split_search *x)
{
    return x->worst[at(x, 0, 0)] * (1.0 + 1e-9);
}

static void find_even(struct split_search *x)
{
    size_t stages = x->req->stages, layers = x->req->layers;
    double limit = tolerated(x);
    for (size_t i = 0; i <= layers; i++)
        x->uneven[at(x, stages, i)] = i == layers ? 0 : UINT64_MAX;
    for (size_t s = stages; s-- > 0;)
        for (size_t i = 0; i <= layers; i++) {
            uint64_t best = UINT64_MAX;
            for (size_t j = i; j <= layers && fits(x, s, i, j) && share_cost(x, s, i, j) <= limit; j++) {
                uint64_t rest = x->uneven[at(x, s + 1, j)];
                if (rest != UINT64_MAX && rest + (j - i) * (j - i) < best)
                    best = rest + (j - i) * (j - i);
            }
            x->uneven[at(x, s, i)] = best;
        }
}

/* Reads the split off the table; where several are equally even, the earlier stage takes more. */
static void trace(const struct split_search *x, size_t *ret_first)
{
    size_t stages = x->req->stages, layers = x->req->layers, from = 0;
    double limit = tolerated(x);
    for (size_t s = 0; s < stages; s++) {
        size_t to = from;
        for (size_t j = from; j <= layers && fits(x, s, from, j) && share_cost(x, s, from, j) <= limit; j++) {
            uint64_t rest = x->uneven[at(x, s + 1, j)];
            if (rest != UINT64_MAX && rest + (j - from) * (j - from) == x->uneven[at(x, s, from)])
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
    find_even(x);
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
    x->uneven = calloc(cells, sizeof *x->uneven);
    if (!x->cost || !x->bytes || !x->worst || !x->uneven)
        return -ENOMEM;
    for (size_t i = 0; i < req->layers; i++)
        x->cost[i + 1] = x->cost[i] + layer_cost(req, i + 1);
    for (size_t s = 0; s < req->stages; s++)
        for (size_t i = 0; i < req->layers; i++)
            x->bytes[at(x, s, i + 1)] = add_bytes(x->bytes[at(x, s, i)], unit_bytes(req, s, i + 1));
    return 0;
}

int split_layers(size_t *ret_first, const struct split_request *req, struct err *err)
{
    int rc = check_request(req, err);
    if (rc < 0)
        return rc;
    struct split_search x;
    size_t *first = calloc(req->stages + 1, sizeof *first);
    rc = search_init(&x, req);
    if (rc < 0 || !first) {
        rc = err_set(err, -ENOMEM, "no memory to split %zu layers over %zu stages", req->layers, req->stages);
        goto out;
    }
    find_worst(&x);
    if (isinf(x.worst[at(&x, 0, 0)])) {
        rc = refuse_memory(&x, first, err);
        goto out;
    }
    find_even(&x);
    trace(&x, ret_first);
out:
    free(first);
    free(x.cost);
    free(x.bytes);
    free(x.worst);
    free(x.uneven);
    return rc;
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
