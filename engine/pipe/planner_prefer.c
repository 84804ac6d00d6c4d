/* SPDX-License-Identifier: MIT
 *
 * A split that is nearly as fast as the best, for which less has to come. Pure. */
#include <errno.h>

#include "pipe/planner_impl.h"
#include "pipe/split.h"

/* Tasks stepped on paper: a few hundredths of a second. */
enum { EFFORT = 100000 };

struct preference {
    const struct split_request split; /* what each stage's node lacks */
    struct planner_sim *sim;
    double slowest; /* seconds of a step, at most */
    double missing; /* bytes of memory, at most */
};

static bool is_good_enough(const struct preference *p, const struct planner_score *score,
                           const struct planner_found *found)
{
    return score->missing <= p->missing && found->seconds <= p->slowest;
}

/* The layer whose move spares most comes first; 1: one has moved. */
static int spare_one(struct preference *p, struct planner_found *found, struct err *err)
{
    size_t least = split_lacks(found->first, &p->split);
    struct planner_found best = *found;
    for (size_t from = 0; from < found->stages; from++)
        for (size_t to = 0; to < found->stages && p->sim->stepped < EFFORT; to++) {
            struct planner_found tried = *found;
            struct planner_score score;
            if (from == to || !planner_move(&tried, from, to, 1))
                continue;
            const size_t lacks = split_lacks(tried.first, &p->split);
            const int e = lacks < least ? planner_sim_score(&score, &tried, p->sim, err) : 0;
            if (e)
                return e;
            if (lacks >= least || !is_good_enough(p, &score, &tried))
                continue;
            least = lacks;
            best = tried;
        }
    const bool has_moved = least < split_lacks(found->first, &p->split);
    *found = best;
    return has_moved;
}

int planner_prefer(struct planner_found *found, size_t *ret_spared, const size_t *const *lacks, double slack,
                   const struct planner_request *req, struct err *err)
{
    const struct sched_info *info = sched_info(found->schedule);
    const size_t *of_stage[PLANNER_MAX_STAGES];
    struct planner_found near = *found;
    struct planner_score score;
    struct planner_sim sim;
    *ret_spared = 0;
    if (!info || req->objective != PLANNER_TIME)
        return 0;
    for (uint32_t s = 0; s < found->stages; s++)
        of_stage[s] = lacks[planner_node(found, req->ranks, sched_place(info->placement, req->ranks, s))];
    struct preference p = {.split = {.stages = found->stages, .layers = req->layers, .unit_lacks = of_stage},
                           .sim = &sim};
    const size_t before = split_lacks(found->first, &p.split);
    if (!before)
        return 0;
    int e = planner_sim_init(&sim, req, found->schedule, found->chunks, found->cut, req->adapters > 1, err);
    if (!e)
        planner_sim_turn(&sim, found->start, found->mirrored);
    e = e ? e : planner_sim_score(&score, &near, &sim, err);
    p.slowest = near.seconds * (1 + slack);
    p.missing = score.missing;
    while (!e && (e = spare_one(&p, &near, err)) > 0)
        e = 0;
    planner_sim_done(&sim);
    if (e)
        return e;
    *ret_spared = before - split_lacks(near.first, &p.split);
    if (*ret_spared)
        *found = near;
    return 0;
}
