/* SPDX-License-Identifier: MIT
 *
 * The rows of a round of training or evaluation, laid end to end as its microbatches. Main thread
 * of rank 0. */
#ifndef DAEMON_STAGE_TRAIN_BATCH_H
#define DAEMON_STAGE_TRAIN_BATCH_H

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/stage_round.h"

/* Microbatch by microbatch. */
struct batch {
    uint32_t *ids; /* all below owned */
    int32_t *labels;
    uint32_t *starts;
    struct seqs *seqs;
    struct head_mb *mb;
    double *logp; /* what the microbatches' logp point into */
    size_t n;
};

/* What rows came to. */
struct batch_sum {
    size_t tokens, supervised;
    size_t pairs; /* 0: the rows are none */
};

/* Room for a round of the plan. −ENOMEM; batch_done frees what there is. */
int batch_alloc(struct batch *b, const struct job_plan *p);
void batch_done(struct batch *b);
/* Appends n packs of the set to the batch, as microbatches of `each` packs. */
struct batch_sum batch_fill(struct batch *b, const struct head *h, const struct stage_data *d,
                            const size_t *packs, size_t n, size_t each);
/* Sum of the losses of microbatches [first, end). */
double batch_loss(const struct batch *b, size_t first, size_t end);

#endif
