/* SPDX-License-Identifier: MIT
 *
 * Whether what other nodes sent fits what this one has. A decoder only says that bytes can be read.
 * Here a plan is held against the model of this node and what is compiled from it, GO against the
 * plan, a compiled round against what was allocated, and what messages hold against the model. A
 * member that was taken over may send anything; so nothing is mapped, allocated or written before.
 * Every refusal is −EBADMSG with a sentence that names the sender and the field. Called by
 * attempt.c before it says "ready", by the runner, and by the tasks that take such messages.
 * PURE. */
#ifndef DAEMON_STAGE_PLAN_ADMIT_H
#define DAEMON_STAGE_PLAN_ADMIT_H

#include "daemon/common/job_plan.h"
#include "daemon/stage/stage_go.h"

/* A plan that job_plan_decode let through, before anything is opened. `config`: of the model here.
 * `rank`: which one this node is told to be; only the node that planned the job (`is_head`) is rank
 * 0. Holds dim, vocab, layers, type, what is trained, all counts and the slots of every stage
 * against config, against each other, and against a step (of a job that does not train, a round)
 * that is compiled for it. Also refuses as round_compile does. */
int plan_admit(const struct job_plan *plan, const struct config *config, uint32_t rank, bool is_head,
               struct err *err);

/* The part of it that looks at the model alone: of a plan whose layers are not shared out yet, with
 * which a head asks what units take here. */
int plan_admit_model(const struct job_plan *plan, const struct config *config, struct err *err);

/* What the longest sequence of a plan takes by itself, in tables and caches of one layer, against
 * the memory of this machine in bytes (0: not known). Of an admitted model, also before layers are
 * shared out. */
int plan_admit_positions(const struct job_plan *plan, const struct config *config, size_t machine,
                         struct err *err);
/* What an admitted plan makes this rank allocate, all but mapped weights, against the same; and
 * what it says that the rank maps against what it does. */
int plan_admit_memory(const struct job_plan *plan, const struct config *config, uint32_t rank, size_t machine,
                      struct err *err);

/* A GO that go_decode let through, from rank `from`, against an admitted plan: a program that jobs
 * of this type have, adapters, steps and microbatches that the plan has room for, flags that the
 * program has, positions that the caches have, no sequence that is empty or too long. */
int plan_admit_go(const struct job_plan *plan, const struct go *go, uint32_t from, struct err *err);

/* A round as it was compiled: each task on the rank where the plan puts its stage, and in no more
 * slots and buffers than the stage has. */
int plan_admit_compiled(const struct job_plan *plan, const struct plan *compiled, struct err *err);

/* TARGET of microbatch `mb` from rank `from`: each of the n labels below the vocabulary, or
 * LABEL_NONE. */
int plan_admit_labels(const struct job_plan *plan, const int32_t *labels, size_t n, uint32_t mb,
                      uint32_t from, struct err *err);

/* TOKEN, or one of the likeliest that come with LOSS: `what` says which, "a token". */
int plan_admit_token(const struct job_plan *plan, uint32_t token, const char *what, uint32_t from,
                     struct err *err);

#endif
