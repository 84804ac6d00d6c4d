/* SPDX-License-Identifier: MIT */
#include "layer/preference.h"

#include <math.h>

/* log(1 + exp x) without overflow: −log σ(−x). */
static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

/* A model that is sure of an answer has odds without end: its mean is kept a little below 0. */
static double mean_of(const struct pair_answer *a)
{
    const double mean = a->logp / (double)a->n;
    return mean > -1e-9 ? -1e-9 : mean; /* not fmin: what is no number stays none */
}

static double log_odds(double mean)
{
    return mean - log(-expm1(mean));
}

static double dpo(double beta, const struct pair_answer *pair, double ref, double *ret_weight)
{
    const double h = beta * (pair[PAIR_CHOSEN].logp - pair[PAIR_REJECTED].logp - ref);
    ret_weight[PAIR_CHOSEN] = beta * sigmoid(-h);
    ret_weight[PAIR_REJECTED] = -ret_weight[PAIR_CHOSEN];
    return softplus(-h);
}

/* d log odds(a) / da = 1 / (1 − exp a) */
static double orpo(double lambda, const struct pair_answer *pair, double *ret_weight)
{
    const double a = mean_of(&pair[PAIR_CHOSEN]), b = mean_of(&pair[PAIR_REJECTED]),
                 z = log_odds(a) - log_odds(b), pull = lambda * sigmoid(-z);
    ret_weight[PAIR_CHOSEN] = (1 + pull / -expm1(a)) / (double)pair[PAIR_CHOSEN].n;
    ret_weight[PAIR_REJECTED] = -pull / -expm1(b) / (double)pair[PAIR_REJECTED].n;
    return -a + lambda * softplus(-z);
}

double preference_loss(const struct pair_loss *how, const struct pair_answer *pair, double ref,
                       double *ret_weight)
{
    return how->kind == LOSS_ORPO ? orpo(how->beta, pair, ret_weight) : dpo(how->beta, pair, ref, ret_weight);
}

double preference_reward(const struct pair_loss *how, const struct pair_answer *answer, double ref)
{
    return how->kind == LOSS_ORPO ? how->beta * mean_of(answer) : how->beta * (answer->logp - ref);
}
