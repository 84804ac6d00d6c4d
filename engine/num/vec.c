/* SPDX-License-Identifier: MIT
 *
 * Whole vectors over the threads: fixed chunks, so that neither elements nor sums depend on how
 * many threads there are. Called by layers and the trainer, on the computing thread. */
#include "num/vec.h"

#include "num/kernels.h"

enum {
    CHUNK = 1 << 14,     /* floats a thread takes at once: fits the first caches */
    SUMS_AT_ONCE = 2048, /* partial sums kept on the stack before they are added in order */
    SUMS_OF_ONE = 2 * CHUNK / VEC_SUM_CHUNK, /* no more are worth a second thread */
};

static size_t chunks_of(size_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

static size_t length(size_t n, size_t chunk)
{
    return n - chunk * CHUNK < CHUNK ? n - chunk * CHUNK : CHUNK;
}

void vec_add(struct num *num, float *y, const float *a, const float *b, size_t n)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (n > 2 * CHUNK && num_threads(num) > 1)
    for (size_t c = 0; c < chunks_of(n); c++)
        k->add(y + c * CHUNK, a + c * CHUNK, b + c * CHUNK, length(n, c));
}

void vec_scale(struct num *num, float *y, float alpha, size_t n)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (n > 2 * CHUNK && num_threads(num) > 1)
    for (size_t c = 0; c < chunks_of(n); c++)
        k->scale(y + c * CHUNK, alpha, length(n, c));
}

void vec_chunks_sumsq(struct num *num, double *sums, const float *x, size_t n)
{
    const struct kernels *k = num_kernels(num);
    const size_t count = vec_sum_chunks(n);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (count > SUMS_OF_ONE && num_threads(num) > 1)
    for (size_t c = 0; c < count; c++) {
        const size_t at = c * VEC_SUM_CHUNK;
        sums[c] = k->sumsq(x + at, n - at < VEC_SUM_CHUNK ? n - at : VEC_SUM_CHUNK);
    }
}

double vec_sumsq(struct num *num, const float *x, size_t n)
{
    const size_t most = (size_t)SUMS_AT_ONCE * VEC_SUM_CHUNK;
    double sums[SUMS_AT_ONCE], total = 0;
    for (size_t at = 0; at < n; at += most) {
        const size_t part = n - at < most ? n - at : most;
        vec_chunks_sumsq(num, sums, x + at, part);
        for (size_t c = 0; c < vec_sum_chunks(part); c++)
            total += sums[c];
    }
    return total;
}
