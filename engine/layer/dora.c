/* SPDX-License-Identifier: MIT */
#include "layer/dora.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "num/kernels.h"

enum {
    COLUMNS = 128, /* of the magnitudes' gradient that one thread owns at a time */
    SMALL = 1 << 14,
};

void dora_norms(struct num *num, float *norm, const struct linear *lin)
{
    const struct kernels *k = num_kernels(num);
    const struct lora *lora = lin->lora;
    const size_t cols = lin->w.cols;
    assert(cols <= num_lane(num, 0).floats);
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t r = 0; r < lin->w.rows; r++) {
        float *row = num_lane(num, omp_get_thread_num()).data;
        gemm_rows(num, row, lin->w, r, 1);
        for (size_t i = 0; i < lora->rank; i++)
            k->axpy(row, lora->scale * lora->b[r * lora->rank + i], lora->a + i * cols, cols);
        norm[r] = (float)sqrt(k->sumsq(row, cols));
    }
}

void dora_gains(float *inv, float *gain, const float *norm, const float *m, size_t out)
{
    for (size_t r = 0; r < out; r++) {
        gain[r] = norm[r] > 0 ? m[r] / norm[r] : 0;
        inv[r] = norm[r] > 0 ? 1 / norm[r] : 0;
    }
}

void dora_scale(struct num *num, float *y, float *xa, const struct linear *lin, size_t tokens)
{
    const size_t out = lin->w.rows;
    const float *gain = lin->lora->gain;
    float *before = xa ? xa + tokens * lin->lora->rank : NULL;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * out > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++) {
        float *row = y + t * out;
        if (before)
            memcpy(before + t * out, row, out * sizeof *row);
        for (size_t r = 0; r < out; r++)
            row[r] *= gain[r];
    }
}

const float *dora_back(struct num *num, float *dyb, const float *dy, const struct linear *lin, size_t tokens)
{
    const size_t out = lin->w.rows;
    const float *gain = lin->lora->gain;
    float *to = dyb + tokens * lin->lora->rank;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * out > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++)
        for (size_t r = 0; r < out; r++)
            to[t * out + r] = gain[r] * dy[t * out + r];
    return to;
}

void dora_backward_m(struct num *num, float *dm, const float *dy, const float *xa, const struct linear *lin,
                     size_t tokens)
{
    const struct kernels *k = num_kernels(num);
    const size_t out = lin->w.rows;
    const float *before = xa + tokens * lin->lora->rank;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * out > SMALL && num_threads(num) > 1)
    for (size_t c = 0; c < out; c += COLUMNS) {
        const size_t n = out - c < COLUMNS ? out - c : COLUMNS;
        float sum[COLUMNS] = {0};
        for (size_t t = 0; t < tokens; t++)
            k->mul_add(sum, dy + t * out + c, before + t * out + c, n);
        k->mul_add(dm + c, sum, lin->lora->inv + c, n);
    }
}
