/* SPDX-License-Identifier: MIT
 *
 * The best of all splits that there are, which a search is held against. */
#ifndef TESTS_EVERY_SPLIT_H
#define TESTS_EVERY_SPLIT_H

#include "pipe/planner_impl.h"

struct every {
    struct planner_sim sim;
    struct planner_found found;
    struct planner_score best;
};

static void every_split(struct every *x, size_t stage)
{
    struct planner_found *f = &x->found;
    if (stage == f->stages) {
        struct planner_score score;
        struct err err;
        assert_int_equal(planner_sim_score(&score, f, &x->sim, &err), 0);
        if (planner_score_is_less(&score, &x->best, 1))
            x->best = score;
        return;
    }
    f->first[stage] = stage ? f->first[stage - 1] : 0;
    for (; f->first[stage] <= x->sim.req->layers && (stage || !f->first[0]); f->first[stage]++)
        every_split(x, stage + 1);
}

#endif
