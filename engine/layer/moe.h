/* SPDX-License-Identifier: MIT
 *
 * Mixture of experts (Shazeer et al. 2017): which experts a token goes to and with what weight, and
 * moving rows to and from them. The experts themselves are linears, computed on the rows of their
 * tokens. Conventions as in layer.h. */
#ifndef LAYER_MOE_H
#define LAYER_MOE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/num.h"

/* --- the router ------------------------------------------------------------------------------- */
struct moe_route {
    size_t experts, chosen;       /* chosen ≤ experts */
    size_t groups, groups_chosen; /* equal runs of experts; only those of the best groups can be chosen. A
                                     group counts by its best expert, with a bias by the sum of its best two */
    bool sigmoid;                 /* score = σ(logit), else softmax over all experts */
    bool norm;                    /* weights of a token are divided by their sum */
    float scale;                  /* of the weights */
};
/* score [T, experts] holds logits and then scores. The experts with the largest score + bias (bias
 * [experts] or NULL) are chosen, in ascending order of their numbers: chosen [T, chosen]; weight
 * [T, chosen] comes from the score alone. Of equals the first is taken. */
void moe_route_forward(struct num *num, uint32_t *chosen, float *weight, float *score, const float *bias,
                       struct moe_route route, size_t tokens);
/* dlogits [T, experts] from dweight [T, chosen]; the choice itself has no gradient, nor has the
 * bias. */
void moe_route_backward_x(struct num *num, float *dlogits, const float *dweight, const uint32_t *chosen,
                          const float *score, struct moe_route route, size_t tokens);

/* --- rows by expert --------------------------------------------------------------------------- */
/* Rows start[e] … start[e+1]−1 are expert e's, in the order of tokens; row r serves choice pick[r]
 * = t·chosen + j. */
struct moe_groups {
    uint32_t *start; /* [experts + 1] */
    uint32_t *pick;  /* [T·chosen] */
};
void moe_group(const struct moe_groups *g, const uint32_t *chosen, struct moe_route route, size_t tokens);

/* Rows of one expert: its picks, and how many experts a token has. */
struct moe_rows {
    const uint32_t *pick;
    size_t n, chosen;
};
/* rows [n, dim] = x [T, dim] of their tokens, times weight [T, chosen] where given. */
void moe_gather(struct num *num, float *rows, const float *x, const float *weight, struct moe_rows r,
                size_t dim);
/* y [T, dim] += rows, times weight where given. */
void moe_scatter_add(struct num *num, float *y, const float *rows, const float *weight, struct moe_rows r,
                     size_t dim);
/* dweight of the picks = rows of d · rows of a [n, width] */
void moe_weight_back(struct num *num, float *dweight, const float *d, const float *a, struct moe_rows r,
                     size_t width);
/* dweight of the picks += rows of d · bias [width] */
void moe_bias_back(struct num *num, float *dweight, const float *d, const float *bias, struct moe_rows r,
                   size_t width);
/* rows [n, width] *= weight */
void moe_scale(struct num *num, float *rows, const float *weight, struct moe_rows r, size_t width);

/* --- a gate of the shared experts ------------------------------------------------------------- */
/* score [T] holds logits and then σ of them; y [T, dim] = score·x. */
void moe_gate_forward(struct num *num, float *y, float *score, const float *x, size_t tokens, size_t dim);
/* dx, and the gradient of the logits, from dy. */
void moe_gate_backward_x(struct num *num, float *dx, float *dlogits, const float *dy, const float *score,
                         const float *x, size_t tokens, size_t dim);

#endif
