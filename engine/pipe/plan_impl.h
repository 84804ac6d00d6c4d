/* SPDX-License-Identifier: MIT
 *
 * A plan being built, shared by plan.c (tasks, slots, requests), plan_train.c (a training step) and plan_other.c
 * (all other programs). */
#ifndef PIPE_PLAN_IMPL_H
#define PIPE_PLAN_IMPL_H

#include "pipe/plan.h"

/* Tasks are appended to the rank of their stage; running out of memory is remembered and told once, at the end,
 * so that the programs read as what they do. */
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
/* The forward of a program that ends in a loss: labels go straight to the last stage, the loss comes back. */
struct task *build_forward_loss(struct build *b, uint32_t stage, uint32_t mb, bool keep);
void build_loss(struct build *b, uint32_t mb);

int build_train(struct build *b, struct err *err); /* plan_train.c */
void build_score(struct build *b);                 /* plan_other.c: FORWARD, */
void build_decode(struct build *b);
void build_params(struct build *b, bool save); /* whose plan counts ranks as stages */

#endif
