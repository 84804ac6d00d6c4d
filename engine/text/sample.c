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

/* The same of logits in scratch. */
static uint32_t first_heaviest(const struct sample_scratch *scratch, size_t vocab)
{
    size_t best = 0;
    bool found = false;
    for (size_t i = 0; i < vocab; i++)
        if (!isnan(scratch[i].p) && (!found || scratch[i].p > scratch[best].p)) {
            best = i;
            found = true;
        }
    return (uint32_t)best;
}

/* Logits as they are after all adjustments, to scratch. */
static void adjusted_logits(const float *logits, size_t vocab, const struct sample_params *params,
                            struct sample_scratch *scratch)
{
    for (size_t i = 0; i < vocab; i++)
        scratch[i] = (struct sample_scratch){logits[i], (uint32_t)i};
    for (size_t i = 0; i < params->nadjust; i++) {
        const struct sample_adjust *a = &params->adjust[i];
        float *logit = &scratch[a->id].p;
        *logit = (*logit > 0 ? *logit / a->repeat : *logit * a->repeat) + a->add;
    }
    for (size_t i = 0; i < vocab && params->allowed; i++)
        if (!(params->allowed[i / 64] >> (i % 64) & 1))
            scratch[i].p = NAN; /* as one that has no logit */
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

/* Lets entry i sink to its place in a heap [k] whose root is the last one in the order. */
static void sink(struct sample_scratch *heap, size_t k, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < k; i = child) {
        if (child + 1 < k && heavier_first(&heap[child], &heap[child + 1]) < 0)
            child++;
        if (heavier_first(&heap[i], &heap[child]) > 0)
            return;
        const struct sample_scratch held = heap[i];
        heap[i] = heap[child];
        heap[child] = held;
    }
}

/* Keeps the k heaviest in scratch[0, k), in their order. k < vocab. */
static void cut_heaviest(struct sample_scratch *scratch, size_t vocab, size_t k)
{
    for (size_t i = k / 2; i-- > 0;)
        sink(scratch, k, i);
    for (size_t i = k; i < vocab; i++)
        if (heavier_first(&scratch[i], &scratch[0]) < 0) {
            scratch[0] = scratch[i];
            sink(scratch, k, 0);
        }
    qsort(scratch, k, sizeof *scratch, heavier_first);
}

/* Keeps what weighs at least this; the heaviest weighs 1. */
static size_t cut_light(struct sample_scratch *scratch, size_t n, float least)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (scratch[i].p >= least)
            scratch[kept++] = scratch[i];
    return kept;
}

static double sum_of(const struct sample_scratch *scratch, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += scratch[i].p;
    return sum;
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

/* Leaves in scratch the weights that are chosen from; returns how many. */
static size_t cut(struct sample_scratch *scratch, size_t vocab, const struct sample_params *params)
{
    size_t n = vocab;
    if (params->top_k > 0 && params->top_k < n) {
        n = params->top_k;
        cut_heaviest(scratch, vocab, n);
    }
    if (params->top_p < 1)
        n = cut_nucleus(scratch, n, sum_of(scratch, n), params->top_p > 0 ? params->top_p : 0);
    return params->min_p > 0 ? cut_light(scratch, n, params->min_p) : n;
}

uint32_t sample_token(const float *logits, size_t vocab, const struct sample_params *params, uint64_t index,
                      struct sample_scratch *scratch)
{
    const bool is_greedy = !(params->temperature > 0);
    if (!vocab || (is_greedy && !params->nadjust && !params->allowed))
        return first_maximum(logits, vocab);
    adjusted_logits(logits, vocab, params, scratch);
    const uint32_t best = first_heaviest(scratch, vocab);
    const float max = scratch[best].p;
    if (is_greedy || !(max > -INFINITY))
        return best;
    for (size_t i = 0; i < vocab; i++)
        scratch[i].p = weight_of(scratch[i].p, max, params->temperature);
    const size_t n = cut(scratch, vocab, params);
    struct rng rng = rng_for(params->seed, "sample");
    rng.next = index; /* a block of its own for each token */
    double left = rng_uniform(&rng) * sum_of(scratch, n);
    for (size_t i = 0; i < n; i++) {
        if (left < scratch[i].p)
            return scratch[i].id;
        left -= scratch[i].p;
    }
    return best; /* rounding left a rest */
}
