/* SPDX-License-Identifier: MIT
 *
 * The end of a stage that has the head: losses of tokens and of pairs of answers, and the gradient
 * that goes back from there. Nothing is allocated here. Called on the computing thread. */
#include <string.h>

#include "model/stage_impl.h"
#include "num/vec.h"

/* hn: what the head multiplies. */
static void begin_loss(struct stage *s, const struct slot *slot)
{
    rmsnorm_forward(s->num, s->hn, s->rstd, slot->in.x[s->layers], s->head->block.weights.vec[0],
                    stage_head_dims(s, slot->tokens));
    stage_scale_logits(s, s->hn, slot->tokens);
}

static void gather_rows(void *owner, float *all, const float *own, size_t rows, size_t width)
{
    struct stage *s = owner;
    part_gather_columns(&(struct block_ctx){.gather = &s->gather}, all, own, rows, width, SLICE_ANY);
}

static double pass(struct stage *s, const struct slot *slot, float *dh, float *dw, const struct xent *xent)
{
    const struct config *c = &s->spec.config;
    const struct slice_rows in = slice_rows(s->spec.slice, c->dim, SLICE_ANY);
    const struct xent_shared shared = {.whole = s->whole_head,
                                       .first = slice_rows(s->spec.slice, c->vocab, SLICE_ANY).first,
                                       .input = in.first,
                                       .inputs = in.n,
                                       .own = s->own_logits,
                                       .owner = s,
                                       .gather = gather_rows};
    struct xent own = *xent;
    own.shared = stage_gather(s) ? &shared : NULL;
    return xent_forward(s->num, dh, dw, s->hn, s->head_w, &own, slot->tokens);
}

/* The pass over the logits. dh is written, and the head's weights get their gradient. */
static double loss_and_gradient(struct stage *s, const struct slot *slot, const struct xent *xent)
{
    stage_set_noise(s, slot);
    unit_add_to_group(s->head, s->num, slot->group);
    float *dw = s->spec.config.tied ? s->head->lent_g : s->head->block.grads.full[1];
    return pass(s, slot, s->dh, dw, xent);
}

/* From dh to the gradient of the last layer's output. */
static void end_loss(struct stage *s, const struct slot *slot)
{
    const float *x = slot->in.x[s->layers];
    const struct rmsnorm_dims dims = stage_head_dims(s, slot->tokens);
    stage_scale_logits(s, s->dh, slot->tokens);
    if (s->head->block.grads.full[0])
        rmsnorm_backward_w(s->num, s->head->block.grads.full[0], s->dh, s->rstd, x, dims);
    rmsnorm_backward_x(s->num, slot->dtop, s->dh, s->rstd, x, s->head->block.weights.vec[0], dims);
}

double stage_loss(struct stage *s, size_t at, const struct xent *xent)
{
    const struct slot *slot = &s->slot[at];
    struct xent own = *xent;
    own.softcap = (float)s->spec.config.logit_softcap;
    begin_loss(s, slot);
    if (own.dscale == 0)
        return pass(s, slot, NULL, NULL, &own);
    const double loss = loss_and_gradient(s, slot, &own);
    end_loss(s, slot);
    return loss;
}

/* --- pairs of answers ------------------------------------------------------------------------- */

static struct pair_answer answer_of(const struct stage *s, const struct slot *slot, const int32_t *labels,
                                    size_t seq)
{
    struct pair_answer a = {0};
    for (size_t t = slot->start[seq]; t < slot->start[seq + 1]; t++) {
        a.logp += (double)s->logprob[t];
        a.n += labels[t] >= 0;
    }
    return a;
}

/* Sum of the pairs' losses; weight [tokens]: those of their tokens. */
static double weigh_pairs(const struct stage *s, const struct slot *slot, const struct stage_pairs *pairs)
{
    double sum = 0;
    for (size_t i = 0; i + 1 < slot->seqs.n; i += PAIR_ANSWERS) {
        struct pair_answer pair[PAIR_ANSWERS];
        double weight[PAIR_ANSWERS];
        for (size_t k = 0; k < PAIR_ANSWERS; k++) {
            pair[k] = answer_of(s, slot, pairs->labels, i + k);
            pairs->logp[i + k] = pair[k].logp;
        }
        sum += preference_loss(&pairs->how, pair, pairs->ref ? pairs->ref[i / PAIR_ANSWERS] : 0, weight);
        for (size_t k = 0; k < PAIR_ANSWERS; k++)
            for (size_t t = slot->start[i + k]; t < slot->start[i + k + 1]; t++)
                s->weight[t] = (float)(weight[k] * pairs->dscale);
    }
    return sum;
}

/* A pair's weights are known when all its logits are. The gradient of the head's input is linear in
 * them, so one pass is enough where the head itself is frozen. */
double stage_loss_pairs(struct stage *s, size_t at, const struct stage_pairs *pairs)
{
    const struct slot *slot = &s->slot[at];
    const bool is_frozen = s->spec.tune.kind != TUNE_FULL;
    const size_t dim = s->spec.config.dim;
    struct xent xent = {.labels = pairs->labels,
                        .dscale = pairs->dscale != 0 && is_frozen,
                        .logprob = s->logprob,
                        .softcap = (float)s->spec.config.logit_softcap};
    begin_loss(s, slot);
    if (xent.dscale != 0)
        loss_and_gradient(s, slot, &xent);
    else
        pass(s, slot, NULL, NULL, &xent);
    const double loss = weigh_pairs(s, slot, pairs);
    if (pairs->dscale == 0)
        return loss;
    if (is_frozen) {
        for (size_t t = 0; t < slot->tokens; t++)
            vec_scale(s->num, s->dh + t * dim, s->weight[t], dim);
    } else {
        xent.dscale = 1;
        xent.weight = s->weight;
        xent.logprob = NULL;
        loss_and_gradient(s, slot, &xent);
    }
    end_loss(s, slot);
    return loss;
}
