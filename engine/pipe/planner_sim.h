/* SPDX-License-Identifier: MIT
 *
 * What planner.c thinks of one split: the step on paper, and the bytes of every rank. */
#ifndef PIPE_PLANNER_SIM_H
#define PIPE_PLANNER_SIM_H

#include "pipe/planner.h"

struct planner_sim {
    const struct planner_request *req; /* borrowed */
    const struct planner_cut *cut;     /* borrowed */
    struct sched *plain, *again; /* owned: as it is; with an R before every backward that would want one */
    size_t *in_flight, *at_once; /* [stages] owned: most slots; areas, where the stage recomputes */
    struct sched_cost *sum;      /* [ranks · (layers + 3)] owned: cost of the units before */
    size_t stepped;              /* tasks, so far */
};
int planner_sim_init(struct planner_sim *sim, const struct planner_request *req, const char *schedule,
                     size_t chunks, size_t cut, struct err *err);
void planner_sim_done(struct planner_sim *sim);

struct planner_score {
    double missing;     /* bytes there are not */
    double main, other; /* what is to be small; what decides between equals */
};
/* Fills in all of `found` but its schedule, chunks, stages, cut and first. */
int planner_sim_score(struct planner_score *ret, struct planner_found *found, struct planner_sim *sim,
                      struct err *err);
/* a < b · worth */
bool planner_score_is_less(const struct planner_score *a, const struct planner_score *b, double worth);

#endif
