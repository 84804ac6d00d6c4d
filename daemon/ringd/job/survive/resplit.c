/* SPDX-License-Identifier: MIT
 *
 * A node's nominal speed is the one that it is planned with when nothing was learned of it. What is
 * measured is compared with that, in proportion to the other nodes: a step that is longer for all
 * of them has other rows. */
#include "daemon/ringd/job/survive/resplit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/pipe/split.h"

#define FAR 1.6   /* so many times longer than planned is slow: small models alone are off by 1.4 */
#define SAVED 0.1 /* at least this share of a step is saved */
#define WORTH 4.0 /* so many times what a move costs is saved in all */

struct shares {
    double cost[JOB_MAX_RANKS]; /* of all units there */
    size_t layers[JOB_MAX_RANKS];
};

static struct shares share_out(const struct resplit_request *req, const size_t *first)
{
    const struct job_plan *p = req->plan;
    const size_t layers = p->first[p->stages];
    struct shares s = {0};
    for (size_t i = 0; i < p->stages; i++) {
        const size_t rank = p->place[i];
        s.layers[rank] += first[i + 1] - first[i];
        for (size_t layer = first[i]; layer < first[i + 1]; layer++)
            s.cost[rank] += req->unit_cost[layer + 1];
    }
    s.cost[p->place[0]] += req->unit_cost[0];
    s.cost[p->place[p->stages - 1]] += req->unit_cost[layers + 1];
    return s;
}

static bool is_measured(const struct resplit_request *req, const struct shares *now, size_t rank)
{
    return now->layers[rank] && now->cost[rank] > 0 && req->computes[rank] > 0;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* [ranks] costs a second, as measured, and by how much they are below the nominal speed of the
 * node. False: nothing is measured. */
static bool measure(double *ret_speed, double *ret_slowness, const struct resplit_request *req,
                    const struct shares *now)
{
    double share[JOB_MAX_RANKS], sorted[JOB_MAX_RANKS];
    size_t n = 0;
    for (size_t r = 0; r < req->plan->ranks; r++) {
        const double nominal = req->speed[r] * req->slowness[r];
        share[r] = is_measured(req, now, r) ? now->cost[r] / req->computes[r] / nominal : 0;
        if (share[r] > 0)
            sorted[n++] = share[r];
    }
    if (!n)
        return false;
    qsort(sorted, n, sizeof *sorted, by_size);
    const double usual = sorted[n / 2]; /* of two nodes the faster: the other one has become slow */
    for (size_t r = 0; r < req->plan->ranks; r++) {
        ret_slowness[r] = share[r] > 0 ? usual / share[r] : req->is_tried ? 1 : req->slowness[r];
        ret_speed[r] = req->speed[r] * req->slowness[r] / ret_slowness[r] * usual;
    }
    return true;
}

/* A node is faster than planned if it was slow before. */
static void find_cause(struct resplit *ret, const struct resplit_request *req, const struct shares *now)
{
    for (size_t r = 0; r < req->plan->ranks; r++) {
        const double off = ret->slowness[r] / req->slowness[r], times = off > 1 ? off : 1 / off;
        if (times <= ret->times || (off <= 1 && req->slowness[r] <= 1))
            continue;
        ret->rank = r;
        ret->times = times;
        ret->cause = !is_measured(req, now, r) ? RESPLIT_TRIED : off > 1 ? RESPLIT_SLOWER : RESPLIT_FASTER;
    }
}

/* A microbatch passes all ranks, then the slowest of them does the others of the step. */
static double step_of(const struct resplit_request *req, const struct shares *s, const double *speed)
{
    double sum = 0, most = 0;
    for (size_t r = 0; r < req->plan->ranks; r++) {
        sum += s->cost[r] / speed[r];
        most = fmax(most, s->cost[r] / speed[r]);
    }
    return sum + (double)(req->plan->microbatches - 1) * most;
}

/* What a layer takes at most where it is now: planning weighs it exactly. */
static size_t layer_bytes(const struct job_plan *p, const struct shares *now)
{
    size_t most = 0;
    for (size_t r = 0; r < p->ranks; r++)
        if (now->layers[r] && p->bytes[r] / now->layers[r] > most)
            most = p->bytes[r] / now->layers[r];
    return most;
}

/* As planning will share them out. Room is only looked at for more layers than there are now. */
static bool split_by(size_t *ret_first, const struct resplit_request *req, const struct shares *now,
                     const double *speed)
{
    const struct job_plan *p = req->plan;
    const size_t layers = p->first[p->stages], each = layer_bytes(p, now);
    double by_stage[JOB_MAX_STAGES];
    const size_t *unit_bytes[JOB_MAX_STAGES];
    size_t memory[JOB_MAX_STAGES], chunks[JOB_MAX_RANKS] = {0};
    size_t *bytes = calloc(layers + 2, sizeof *bytes);
    struct err quiet;
    for (size_t u = 1; bytes && u <= layers; u++)
        bytes[u] = each;
    for (size_t s = 0; s < p->stages; s++)
        chunks[p->place[s]]++;
    for (size_t s = 0; s < p->stages; s++) {
        const size_t r = p->place[s];
        const uint64_t least = now->layers[r] * each,
                       has = req->available[r] > least ? req->available[r] : least;
        by_stage[s] = speed[r];
        unit_bytes[s] = bytes;
        memory[s] = req->available[r] ? has / chunks[r] : SIZE_MAX;
    }
    const struct split_request split = {.stages = p->stages,
                                        .layers = layers,
                                        .unit_cost = req->unit_cost,
                                        .unit_bytes = unit_bytes,
                                        .speed = by_stage,
                                        .memory = memory};
    const bool is_split = bytes && !split_layers(ret_first, &split, &quiet);
    free(bytes);
    return is_split;
}

bool resplit_pays(struct resplit *ret, const struct resplit_request *req)
{
    const struct job_plan *p = req->plan;
    const struct shares now = share_out(req, p->first);
    double speed[JOB_MAX_RANKS];
    size_t first[JOB_MAX_STAGES + 1];
    struct resplit found = {0};
    if (!measure(speed, found.slowness, req, &now))
        return false;
    find_cause(&found, req, &now);
    if (found.times < FAR || !split_by(first, req, &now, speed))
        return false;
    const struct shares then = share_out(req, first);
    const double is = step_of(req, &now, speed), would = step_of(req, &then, speed);
    /* What a step takes beyond computing stays, whatever the split. */
    found.step = req->step > is ? req->step - is + would : req->step * would / is;
    const double saved = req->step - found.step;
    if (saved < SAVED * req->step || saved * (double)req->left < WORTH * req->restart)
        return false;
    *ret = found;
    return true;
}
