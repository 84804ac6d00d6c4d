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
    struct plan_shape shape;   /* of the pipelines; moves count ranks as stages */
    size_t pipeline;           /* TRAIN, FORWARD, DECODE: the one being built, */
    const struct sched *sched; /* its order, borrowed; FORWARD: NULL */
    size_t first, own;         /* and its microbatches of a step */
    uint32_t last;             /* stage */
    bool no_memory;
    struct task spare; /* where appends go once there is no memory */
};

uint32_t build_rank(const struct build *b, uint32_t stage);
/* Of which replica the pipeline is a slice, and of which number. */
size_t build_replica(const struct build *b);
size_t build_slice(const struct build *b);
size_t build_places(const struct build *b); /* ranks of the pipeline */
/* Of a request, whatever its program. */
size_t request_pipelines(const struct plan_request *req);
size_t request_slices(const struct plan_request *req);   /* pipelines of a replica */
size_t request_replicas(const struct plan_request *req); /* and how many replicas there are */
struct plan_shape request_shape(const struct plan_request *req);
size_t request_stages(const struct plan_request *req);
/* Which step one of the schedule's microbatches is of; and how many of each the pipeline has. */
uint32_t build_step(const struct build *b, uint32_t mb);
size_t build_step_microbatches(const struct build *b);
struct task *build_add(struct build *b, enum task_kind kind, uint32_t stage, uint32_t mb);
/* What passes between two stages of one rank is handed over in place and is no message. */
void build_need(const struct build *b, struct task *task, enum msg_kind kind, uint32_t mb,
                uint32_t from_stage);
void build_emit(const struct build *b, struct task *task, enum msg_kind kind, uint32_t mb, uint32_t to_stage);
/* The same between pipelines: the message goes to that stage, on another rank. */
void build_need_from(struct task *task, enum msg_kind kind, uint32_t mb, uint32_t rank);
void build_emit_to(struct task *task, enum msg_kind kind, uint32_t mb, uint32_t rank);

/* `keep`: the backward pass will want what this forward leaves in its slot. */
struct task *build_forward(struct build *b, uint32_t stage, uint32_t mb, bool keep);
/* The forward of a program that ends in a loss: labels go straight to the last stage, the loss
 * comes back. */
struct task *build_forward_loss(struct build *b, uint32_t stage, uint32_t mb, bool keep);
void build_loss(struct build *b, uint32_t mb);

int build_train(struct build *b, struct err *err); /* plan_train.c: one pipeline */

/* --- plan_replicas.c: what passes between pipelines ------------------------------------------- */

/* Of FORWARD's n microbatches the first of a replica; that of the replica behind the last is n. */
size_t forward_first(const struct plan_request *req, size_t replica, size_t n);
void build_score_end(struct build *b); /* behind all of a pipeline's FORWARD: its losses */
void build_rows(struct build *b);      /* before all else of a pipeline */
/* Before the stage's NORM; `after`: position of its last backward, */
void build_shares(struct build *b, uint32_t step, uint32_t stage, uint32_t after);
void build_squares(struct build *b, uint32_t step, uint32_t stage); /* behind that; */
void build_values(struct build *b, uint32_t step, uint32_t stage);  /* behind its UPDATE */
bool build_is_divided(const struct build *b);
void build_losses(struct build *b, uint32_t step); /* before stage 0's, */
bool build_gives_losses(const struct build *b);    /* its NORM of stage 0 does, */
void build_tell(struct build *b, uint32_t step);   /* and behind it */
int check_replicas(const struct plan_request *req, struct err *err);
int check_slices(const struct plan_request *req, struct err *err);

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
