/* SPDX-License-Identifier: MIT
 *
 * Several adapters out of one job: "sweep" of its spec names options and the values each is to
 * have, and every combination is an adapter of its own, trained on the same weights. PURE. Called
 * by the head while it plans. */
#ifndef DAEMON_STAGE_SWEEP_H
#define DAEMON_STAGE_SWEEP_H

#include <jansson.h>
#include <stddef.h>

#include "daemon/common/job_plan.h"
#include "daemon/common/job_spec.h"

enum { SWEEP_NAME = 128 };

struct sweep_one {
    char name[SWEEP_NAME]; /* "lr-1e-4-rank-8"; "" where there is no sweep */
    json_t *
        spec; /* owned by whoever called: the job without its sweep and with these values, its result in a folder of that
                              name within adapter_out */
};
struct sweep {
    size_t n; /* 1 where there is no sweep */
    struct sweep_one one[JOB_MAX_ADAPTERS];
};

/* asked->sweep: ["lr=1e-4,3e-4", "rank=8,16"]. −EINVAL with a sentence; ret then has what was
 * made so far. */
int sweep_read(struct sweep *ret, const struct job_spec *asked, struct err *err);

#endif
