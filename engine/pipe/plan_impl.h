/* SPDX-License-Identifier: MIT
 *
 * A plan being built, shared by plan.c (requests, slots), plan_build.c (tasks and
 * messages), plan_train.c (training), plan_ends.c (where its steps end) and plan_other.c (all other
 * programs). */
#ifndef PIPE_PLAN_IMPL_H
#define PIPE_PLAN_IMPL_H

#include "pipe/plan.h"

/* Tasks are appended to the rank of their stage; running out of memory is remembered and told once,
 * at the end, so that the programs read as what they do. */
struct build {
    const struct plan_request *req;
    struct plan *plan;
    const uint32_t *rank_of_stage; /* borrowed; NULL = stage s on rank s */
    uint32_t last;                 /* stage */
    bool no_memory;
    struct task spare; /* where appends go once there is no memory */
};

uint32_t build_rank(const struct build *b, uint32_t stage);
struct task *build_add(struct build *b, enum task_kind kind, uint32_t stage, uint32_t mb);
/* What passes between two stages of one rank is handed over in place and is no message. */
void build_need(const struct build *b, struct task *task, enum msg_kind kind, uint32_t mb,
                uint32_t from_stage);
void build_emit(const struct build *b, struct task *task, enum msg_kind kind, uint32_t mb, uint32_t to_stage);

/* `keep`: the backward pass will want what this forward leaves in its slot. */
struct task *build_forward(struct build *b, uint32_t stage, uint32_t mb, bool keep);
/* The forward of a program that ends in a loss: labels go straight to the last stage, the loss
 * comes back. */
struct task *build_forward_loss(struct build *b, uint32_t stage, uint32_t mb, bool keep);
void build_loss(struct build *b, uint32_t mb);

int build_train(struct build *b, struct err *err); /* plan_train.c */

/* --- plan_ends.c: NORM and UPDATE of each step ------------------------------------------------ */

struct ends;
struct ends *ends_new(struct build *b, const struct sched_sim *sim); /* NULL: no memory */
void ends_free(struct ends *ends);
/* The rank's list has come to its task `next`, which begins at `start` in a unit-cost run; that is
 * then added, and was: */
void ends_before(struct ends *ends, const struct sched_task *next, double start);
void ends_after(struct ends *ends, const struct sched_task *task);
/* Has all of that step gone back through stage 0? */
bool ends_is_back(const struct ends *ends, uint32_t step);
/* All lists are through. −EDEADLK: a step would begin before the one it follows has ended. */
int ends_finish(struct ends *ends, struct err *err);

void build_score(struct build *b); /* plan_other.c: FORWARD, */
void build_decode(struct build *b);
void build_moves(struct build *b); /* whose plan counts ranks as stages */

#endif
