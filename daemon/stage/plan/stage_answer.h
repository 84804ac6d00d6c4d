/* SPDX-License-Identifier: MIT
 *
 * --parallel auto of a generation: on which nodes of the ring, how many of them sharing each stage,
 * its answer is there first. For stage_take.c, in the stage process of rank 0; main thread. */
#ifndef DAEMON_STAGE_ANSWER_H
#define DAEMON_STAGE_ANSWER_H

#include "daemon/stage/plan/stage_head.h"

/* Nodes of the ring as stages, each shared by so many of them, and what the answer then takes. */
struct answer_layout {
    uint32_t mask;
    size_t slices, places;
    double prompt, token, seconds; /* seconds; INFINITY: it cannot be, or nothing was timed */
};
enum {
    ANSWER_MOST_LAYOUTS = 64, /* a plan of each is made */
    ANSWER_MOST_SETS = 4,     /* of so many nodes each: the best ones */
};

/* Those to be tried, on nodes out of `all`: first the best set of every shape. Returns how many. */
size_t answer_list(struct answer_layout ret[ANSWER_MOST_LAYOUTS], const struct head *h, const json_t *all);
/* Of the n in the list those that can be, the best first, with their times. Of none, why the first
 * cannot: −ENOSPC, −EINVAL. Anything else ends it: what went wrong may do so again. */
int answer_try(struct answer_layout *list, size_t *n, struct head *h, json_t *all, struct err *err);
/* Gives the job these nodes, as so many slices. */
void answer_take(struct head *h, json_t *all, const struct answer_layout *layout);
/* The best of each shape, a few: a list for the plan. Owned by the caller. */
json_t *answer_show(const struct answer_layout *list, size_t n, const json_t *all);

#endif
