/* SPDX-License-Identifier: MIT
 *
 * What planner.c asks planner_sim.c of one split: the step on paper, and the bytes of every rank.
 * */
#ifndef PIPE_PLANNER_IMPL_H
#define PIPE_PLANNER_IMPL_H

#include "pipe/plan.h"
#include "pipe/planner.h"

/* What is run on paper: a step; or a round of several adapters, where it is looked at closely.
 * Where many are looked at, a round of few turns and one of half as many, from which what more
 * turns add to it is known. */
struct planner_run {
    size_t turns;                /* 0: there is no such run */
    struct sched *plain, *again; /* owned: as it is; with an R before every backward that would want one */
};
struct planner_order {
    size_t own; /* microbatches of the replicas that have this order */
    struct planner_run run[2];
};
struct planner_sim {
    const struct planner_request *req; /* borrowed */
    const struct planner_cut *cut;     /* borrowed */
    size_t adapters, turns;            /* of a round */
    size_t replicas, orders;
    struct planner_order order[PLAN_MAX_REPLICAS]; /* the first is that of the replica with most */
    size_t order_of[PLAN_MAX_REPLICAS];            /* by replica */
    size_t like[PLAN_MAX_REPLICAS]; /* by replica: the first one whose runs on paper are the same */
    size_t *in_flight,
        *at_once;           /* [stages] owned: most slots; buffers for activations, where it recomputes */
    struct sched_cost *sum; /* [nodes · (layers + 3)] owned: cost of the units before */
    size_t stepped;         /* tasks, so far */
    bool has_free_cables;   /* messages take no time */
    size_t node[PLANNER_MAX_RANKS];                /* by rank, of each replica in turn */
    struct sched_link link[2 * PLANNER_MAX_RANKS]; /* as in sched_costs, of each replica in turn */
};
static inline size_t planner_replicas(const struct planner_request *req)
{
    return req->replicas ? req->replicas : 1;
}
/* closely: the round as a job has it, to the last turn. */
int planner_sim_init(struct planner_sim *sim, const struct planner_request *req, const char *schedule,
                     size_t chunks, size_t cut, bool closely, struct err *err);
/* With that node as rank 0, one way round or the other; after init it is node 0 and the next. */
void planner_sim_turn(struct planner_sim *sim, size_t start, bool mirrored);
void planner_sim_done(struct planner_sim *sim);

struct planner_score {
    double missing;     /* bytes there are not */
    double main, other; /* what is to be small; what decides between equals */
};
/* Fills in all of `found` but its schedule, chunks, stages, cut, start, mirrored and first. */
int planner_sim_score(struct planner_score *ret, struct planner_found *found, struct planner_sim *sim,
                      struct err *err);
/* The same of what was found before. */
void planner_judge(struct planner_score *ret, const struct planner_found *found,
                   const struct planner_request *req);
/* planner.c. `n` layers go from one stage to another; those between keep their number. False: there
 * are not so many. */
bool planner_move(struct planner_found *f, size_t from, size_t to, size_t n);
/* a < b · worth */
bool planner_score_is_less(const struct planner_score *a, const struct planner_score *b, double worth);

#endif
