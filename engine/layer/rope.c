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

static void fill(struct rope *rope, size_t first, const double *inv_freq, size_t positions, double mscale)
{
    const size_t half = rope->width / 2;
    for (size_t p = 0; p < positions; p++)
        for (size_t i = 0; i < half; i++) {
            const double angle = (double)p * inv_freq[i];
            rope->cos[(first + p) * half + i] = (float)(mscale * cos(angle));
            rope->sin[(first + p) * half + i] = (float)(mscale * sin(angle));
        }
}

int rope_extend(struct rope *rope, const double *inv_freq, size_t positions, double mscale, struct err *err)
{
    const size_t half = rope->width / 2;
    size_t rows, bytes;
    if (__builtin_add_overflow(rope->positions, positions, &rows) ||
        __builtin_mul_overflow(rows, half * sizeof(float), &bytes))
        return err_set(err, -EOVERFLOW,
                       "%zu positions: too many for a rotary table, lower the context length", positions);
    float *cosines = realloc(rope->cos, bytes ? bytes : 1);
    if (cosines)
        rope->cos = cosines;
    float *sines = realloc(rope->sin, bytes ? bytes : 1);
    if (sines)
        rope->sin = sines;
    if (!cosines || !sines)
        return err_set(err, -ENOMEM,
                       "no memory for rotary tables of %zu positions (%zu MiB): lower the context length",
                       rows, bytes >> 19);
    fill(rope, rope->positions, inv_freq, positions, mscale);
    rope->positions = rows;
    return 0;
}

void rope_scale_row(struct rope *rope, size_t row, double factor)
{
    const size_t half = rope->width / 2;
    for (size_t i = row * half; i < (row + 1) * half; i++) {
        rope->cos[i] = (float)(factor * (double)rope->cos[i]);
        rope->sin[i] = (float)(factor * (double)rope->sin[i]);
    }
}

int rope_init(struct rope *rope, const double *inv_freq, size_t positions, size_t width,
              enum rope_pairs pairs, double mscale, struct err *err)
{
    if (width == 0 || width % 2)
        return err_set(err, -EINVAL, "head width %zu: rotary embedding turns pairs, so it must be even",
                       width);
    *rope = (struct rope){.width = width, .pairs = pairs};
    const int r = rope_extend(rope, inv_freq, positions, mscale, err);
    if (r)
        rope_done(rope);
    return r;
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
