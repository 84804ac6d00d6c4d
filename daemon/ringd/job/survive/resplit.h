/* SPDX-License-Identifier: MIT
 *
 * Whether other layers on the same nodes would make up for a node that computes at another speed
 * than it was planned with. Pure. */
#ifndef DAEMON_RESPLIT_H
#define DAEMON_RESPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"

struct resplit_request {
    const struct job_plan *plan; /* borrowed, as all below */
    const double *unit_cost;     /* [layers + 2] what a unit costs, in any unit */
    const double *speed;         /* [ranks] with which it was planned: costs in any unit of time */
    const double *slowness;      /* [ranks] by which that speed is below the node's own, as learned before */
    const uint64_t *available;   /* [ranks] bytes each had for its stage; 0: not known */
    const double *computes;      /* [ranks] seconds that a microbatch computes there now; 0: not known */
    double step;                 /* seconds that a step takes now */
    uint64_t left;               /* so many steps are left */
    double restart;              /* seconds that a move costs */
    bool is_tried;               /* ranks without a layer are taken as fast as they once were */
};

/* Of all ranks, this one is furthest from what was planned. */
enum resplit_cause { RESPLIT_SLOWER, RESPLIT_FASTER, RESPLIT_TRIED };

struct resplit {
    enum resplit_cause cause;
    size_t rank;
    double times;                   /* so many times slower, or faster */
    double step;                    /* seconds that a step would take */
    double slowness[JOB_MAX_RANKS]; /* by rank: as in the request, from what is measured now */
};

/* False: the speeds are much as planned, or too little would be saved; ret is then not filled. */
bool resplit_pays(struct resplit *ret, const struct resplit_request *req);

#endif
