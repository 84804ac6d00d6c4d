/* SPDX-License-Identifier: MIT
 *
 * A schedule: which abstract task each rank does in which order within one training step. Knows stages and
 * microbatches, not bytes, links or transformers. */
#ifndef PIPE_SCHED_H
#define PIPE_SCHED_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum sched_op {
    OP_F, /* forward */
    OP_I, /* backward to the input */
    OP_W, /* backward to the weights */
    OP_B, /* I then W, as one task */
    OP_COUNT
};
const char *sched_op_name(enum sched_op op); /* "F", "I", "W", "B" */

enum {
    SCHED_MAX_RANKS = 256,
    SCHED_MAX_CELLS =
        1 << 18, /* ranks · microbatches: keeps a plan small and its dry run below a second or two */
};

struct sched_task {
    enum sched_op op;
    uint32_t stage, mb;
};
struct sched_list {
    struct sched_task *tasks; /* owned */
    size_t n;
};
struct sched {
    size_t ranks, stages, microbatches;
    uint32_t *rank_of_stage; /* [stages], owned */
    struct sched_list *rank; /* [ranks], owned */
};
/* "1F3": stage, kind, microbatch. buf of at least 24 bytes; returned. */
char *sched_task_name(char *buf, size_t n, const struct sched_task *task);

/* "naive", "gpipe", "1f1b": one stage per rank. Orders are those of TRAINING's §1.3: naive = F,B per
 * microbatch; gpipe = all F then all B, both ascending; 1f1b = min(m, p−1−r) forwards, then F,B pairs, then
 * the remaining B. An unknown name is refused with the list of known ones. */
int sched_make(struct sched **ret, const char *name, size_t ranks, size_t microbatches, struct err *err);
void sched_free(struct sched *sched);
const char *const *sched_names(void); /* NULL-terminated */

/* Unit-cost simulation with free communication: what the published figures are given in. Costs in any unit,
 * per stage. Refuses a schedule that cannot run, naming rank, position, task and what each rank was waiting
 * for. */
struct sched_costs {
    double f, i, w;
};
struct sched_sim {
    double makespan, bubble; /* bubble = 1 − work / (ranks·makespan) */
    double *span, *idle;     /* [ranks], owned by the caller through sched_sim_done */
    size_t *peak;            /* [ranks] microbatch·stages in flight: from F to the end of W */
    double *start;           /* when each task begins, rank after rank in the order of the lists */
};
int sched_simulate(struct sched_sim *ret, const struct sched *sched, struct sched_costs costs,
                   struct err *err);
void sched_sim_done(struct sched_sim *sim);

#endif
