/* SPDX-License-Identifier: MIT
 *
 * Whole vectors over the threads: fixed chunks, so that neither elements nor sums depend on how
 * many threads there are. Called by layers and the trainer, on the computing thread. */
#include "num/vec.h"

#include "num/kernels.h"

enum {
    CHUNK = 1 << 14,    /* floats a thread takes at once: fits the first caches */
    SUMS_AT_ONCE = 256, /* partial sums kept on the stack before they are added in order */
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

double vec_sumsq(struct num *num, const float *x, size_t n)
{
    const struct kernels *k = num_kernels(num);
    double total = 0;
    for (size_t first = 0; first < chunks_of(n); first += SUMS_AT_ONCE) {
        double sums[SUMS_AT_ONCE];
        const size_t left = chunks_of(n) - first, count = left < SUMS_AT_ONCE ? left : SUMS_AT_ONCE;
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (count > 2 && num_threads(num) > 1)
        for (size_t c = 0; c < count; c++)
            sums[c] = k->sumsq(x + (first + c) * CHUNK, length(n, first + c));
        for (size_t c = 0; c < count; c++)
            total += sums[c];
    }
    return total;
}
