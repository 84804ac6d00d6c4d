/* SPDX-License-Identifier: MIT
 *
 * Rotary position embedding from a table of cosines and sines, computed once in f64. Owns the
 * tables; called by blocks, on the computing thread. */
#include "layer/layer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "num/kernels.h"

enum { SMALL = 1 << 14 };

int rope_init(struct rope *rope, const double *inv_freq, size_t positions, size_t width,
              enum rope_pairs pairs, double mscale, struct err *err)
{
    if (width == 0 || width % 2)
        return err_set(err, -EINVAL, "head width %zu: rotary embedding turns pairs, so it must be even",
                       width);
    const size_t half = width / 2;
    size_t bytes;
    if (__builtin_mul_overflow(positions, half * sizeof(float), &bytes))
        return err_set(err, -EOVERFLOW,
                       "%zu positions: too many for a rotary table, lower the context length", positions);
    float *cosines = malloc(bytes ? bytes : 1), *sines = malloc(bytes ? bytes : 1);
    if (!cosines || !sines) {
        free(cosines);
        free(sines);
        return err_set(err, -ENOMEM,
                       "no memory for rotary tables of %zu positions (%zu MiB): lower the context length",
                       positions, bytes >> 19);
    }
    for (size_t p = 0; p < positions; p++)
        for (size_t i = 0; i < half; i++) {
            const double angle = (double)p * inv_freq[i];
            cosines[p * half + i] = (float)(mscale * cos(angle));
            sines[p * half + i] = (float)(mscale * sin(angle));
        }
    *rope =
        (struct rope){.cos = cosines, .sin = sines, .positions = positions, .width = width, .pairs = pairs};
    return 0;
}

void rope_done(struct rope *rope)
{
    if (!rope)
        return;
    free(rope->cos);
    free(rope->sin);
    *rope = (struct rope){0};
}

void rope_apply(struct num *num, float *x, const uint32_t *pos, const struct rope *rope, size_t tokens,
                size_t heads, size_t head, bool inverse)
{
    const struct kernels *k = num_kernels(num);
    const size_t width = rope->width, half = width / 2;
    void (*const rotate)(float *, const float *, const float *, size_t, bool) =
        rope->pairs == ROPE_HALVES ? k->rope : k->rope_neighbours;
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * heads * width > SMALL && num_threads(num) > 1)
    for (size_t t = 0; t < tokens; t++) {
        const float *c = rope->cos + pos[t] * half, *s = rope->sin + pos[t] * half;
        for (size_t h = 0; h < heads; h++)
            rotate(x + (t * heads + h) * head, c, s, half, inverse);
    }
}
