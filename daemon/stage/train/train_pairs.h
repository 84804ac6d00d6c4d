/* SPDX-License-Identifier: MIT
 *
 * Training on pairs of answers (--loss dpo, orpo): what the model without adapter says of them, and
 * the figures of a step. The reference of a pair is computed when a step first needs it, alone in a
 * microbatch: so it has the same bits whichever pairs a step has, and a run that goes on makes the
 * same again instead of keeping it. Main thread of rank 0. */
#ifndef DAEMON_STAGE_TRAIN_PAIRS_H
#define DAEMON_STAGE_TRAIN_PAIRS_H

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/stage_runner.h"
#include "daemon/stage/train/train_batch.h"

/* Of a set of pairs, with --loss dpo; else all NULL. */
struct pair_refs {
    const struct stage_data *set; /* borrowed */
    double *logp;                 /* [rows] owned: log p of each answer without adapter, */
    bool *is_known;               /* [pairs] owned: where it is known */
};
/* −ENOMEM; pair_refs_done frees what there is. */
int pair_refs_init(struct pair_refs *refs, const struct stage_data *set);
void pair_refs_done(struct pair_refs *refs);
/* Computes those of n packs that are not known yet, in rounds of their own. Uses the batch, whose
 * content is lost. */
int pair_refs_find(struct pair_refs *refs, const struct head *h, struct runner *r, struct batch *batch,
                   const size_t *packs, size_t n, struct err *err);
/* A pair's log p(chosen) − log p(rejected). */
double pair_refs_of(const struct pair_refs *refs, size_t pack);

/* Sums over pairs, named as TRL names their means. */
struct pair_sums {
    size_t n;
    double loss, nll, chosen, rejected, accuracies, margins, logps_chosen, logps_rejected;
};
/* Adds those of n packs, which begin with the batch's microbatch `first`. refs: of the set, or all
 * NULL. */
void pair_sums_add(struct pair_sums *to, const struct stage_data *set, const struct pair_refs *refs,
                   const struct pair_loss *how, const struct batch *batch, size_t first, const size_t *packs,
                   size_t n);
/* Adds {"rewards/chosen": …} to `to`, with `prefix` before each name: "", or "valid_". */
void pair_sums_encode(json_t *to, const char *prefix, const struct pair_sums *sums,
                      const struct pair_loss *how);

#endif
