/* SPDX-License-Identifier: MIT
 *
 * Losses of pairs of answers to one prompt, of which people chose one and rejected the other. They
 * follow from the answers' log-probabilities alone, so a pair's gradient is that of the −log p of
 * its tokens, times one number for each answer. Called by the last stage and by rank 0. PURE. */
#ifndef LAYER_PREFERENCE_H
#define LAYER_PREFERENCE_H

#include <stddef.h>

enum loss_kind {
    LOSS_NLL,  /* −log p of each supervised token: no pairs */
    LOSS_DPO,  /* Rafailov et al. 2023, eq. 7 */
    LOSS_ORPO, /* Hong et al. 2024, eq. 6 and 7 */
};
struct pair_loss {
    enum loss_kind kind; /* DPO or ORPO */
    double beta;         /* DPO's β, ORPO's λ: TRL calls both beta */
};

enum { PAIR_CHOSEN, PAIR_REJECTED, PAIR_ANSWERS };
struct pair_answer {
    double logp; /* Σ log p of its supervised tokens, */
    size_t n;    /* and how many those are: ≥ 1 */
};

/* Loss of a pair: with h = (log p(c) − log p(r)) − ref and means a = log p(c)/n(c), b likewise
 *   DPO   −log σ(β h)
 *   ORPO  −a − λ log σ(log odds(a) − log odds(b)), where log odds(a) = a − log(1 − exp a)
 * ref: the reference's log p(c) − log p(r), of DPO alone. ret_weight [PAIR_ANSWERS]: what the
 * gradient of each token's −log p is multiplied by in the gradient of this loss. */
double preference_loss(const struct pair_loss *how, const struct pair_answer *pair, double ref,
                       double *ret_weight);
/* TRL's reward of an answer: β (log p − log p of the reference), of ORPO β times its mean log p. */
double preference_reward(const struct pair_loss *how, const struct pair_answer *answer, double ref);

#endif
