/* SPDX-License-Identifier: MIT
 *
 * Choosing the next token from logits. Pure; called by the last stage while it generates, and by
 * tests. Sums run in f64 and in order of ids, so every machine chooses alike. */
#include "text/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "num/rng.h"

/* First index of the maximum; NaN is never one. 0 if all are NaN. */
static uint32_t first_maximum(const float *logits, size_t vocab)
{
    size_t best = 0;
    bool found = false;
    for (size_t i = 0; i < vocab; i++)
        if (!isnan(logits[i]) && (!found || logits[i] > logits[best])) {
            best = i;
            found = true;
        }
    return (uint32_t)best;
}

/* exp((logit − max) / T), which is 1 for the maximum, also when that is infinite. NaN weighs
 * nothing. */
static float weight_of(float logit, float max, float temperature)
{
    if (logit == max)
        return 1;
    double w = exp(((double)logit - max) / temperature);
    return isfinite(w) ? (float)w : 0;
}

static int heavier_first(const void *a, const void *b)
{
    const struct sample_scratch *x = a, *y = b;
    if (x->p != y->p)
        return x->p < y->p ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Keeps the nucleus in scratch[0, n); returns how many. */
static size_t cut_nucleus(struct sample_scratch *scratch, size_t vocab, double sum, float top_p)
{
    /* All tokens below this together have less than 1 − top_p, so none of them is needed: spares
     * sorting them. (Where that is every token, top_p is less than the heaviest one's share, and
     * the caller falls back on that one.) */
    double least = vocab > 1 ? (1.0 - top_p) * sum / (double)(vocab - 1) : 0;
    size_t n = 0;
    for (size_t i = 0; i < vocab; i++)
        if (scratch[i].p >= least && scratch[i].p > 0)
            scratch[n++] = scratch[i];
    qsort(scratch, n, sizeof *scratch, heavier_first);
    double mass = 0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || mass < top_p * sum))
        mass += scratch[kept++].p;
    return kept;
}

uint32_t sample_token(const float *logits, size_t vocab, const struct sample_params *params, uint64_t index,
                      struct sample_scratch *scratch)
{
    uint32_t best = first_maximum(logits, vocab);
    if (!(params->temperature > 0) || vocab == 0 || !(logits[best] > -INFINITY))
        return best;
    double sum = 0;
    for (size_t i = 0; i < vocab; i++) {
        scratch[i] =
            (struct sample_scratch){weight_of(logits[i], logits[best], params->temperature), (uint32_t)i};
        sum += scratch[i].p;
    }
    size_t n = vocab;
    if (params->top_p < 1)
        n = cut_nucleus(scratch, vocab, sum, params->top_p > 0 ? params->top_p : 0);
    double mass = 0;
    for (size_t i = 0; i < n; i++)
        mass += scratch[i].p;
    struct rng rng = rng_for(params->seed, "sample");
    rng.next = index; /* a block of its own for each token */
    double left = rng_uniform(&rng) * mass;
    for (size_t i = 0; i < n; i++) {
        if (left < scratch[i].p)
            return scratch[i].id;
        left -= scratch[i].p;
    }
    return best; /* rounding left a rest */
}
