/* SPDX-License-Identifier: MIT
 *
 * What a token costs a model: the bytes of weights that it is multiplied with one by one, and the
 * operations of a prompt. Counted from the tensors of the family, so of any. */
#ifndef TESTS_BENCH_WORK_H
#define TESTS_BENCH_WORK_H

#include "model/family.h"
#include "model/stored.h"
#include "num/quant.h"

struct bench_bytes {
    const struct config *config;
    size_t bits; /* that weights were quantized to; 0: they are as stored */
    double sum;
};

/* Of experts those that a token chooses. */
static inline int bench_bytes_add(void *arg, const struct tensor_def *def)
{
    struct bench_bytes *b = arg;
    const struct config *c = b->config;
    const double share = def->cold ? (double)c->moe.chosen / (double)c->moe.experts : 1;
    const bool is_fp4 = def->cold && c->experts_fp4, is_packed = def->cold && def->linear && c->compressed;
    double each = (double)dtype_size(c->dtype);
    if (is_fp4)
        each = 0.5 + 1.0 / QUANT_FP4_GROUP;
    else if (is_packed)
        each = (double)c->quant_bits / 8 + 2.0 / (double)c->quant_group;
    else if (b->bits && stored_is_quantizable(def))
        each = (double)b->bits / 8 + 2.0 * 2 / QUANT_GROUP;
    b->sum += share * each * (double)def->rows * (double)def->cols;
    return 0;
}

/* Of the matrices of all layers and the head. */
static inline double bench_token_bytes(const struct config *c, size_t bits)
{
    const struct family *f = family_find(c->family);
    struct bench_bytes b = {.config = c, .bits = bits};
    for (size_t u = c->tied ? 0 : 1; u < c->layers + 2; u++)
        family_tensors(f, c, u, bench_bytes_add, &b);
    return b.sum;
}

/* GFLOP of a token of a prompt of so many, in all layers. */
static inline double bench_prompt_gflop(const struct config *c, size_t tokens)
{
    const struct family *f = family_find(c->family);
    double sum = 0;
    for (size_t u = 1; u <= c->layers; u++)
        sum += 2e-9 * family_cost(f, c, u, tokens);
    return sum;
}

#endif
