/* SPDX-License-Identifier: MIT
 *
 * The kernels of integer.h, in GCC's vector extensions: those of many rows here, x in whole numbers
 * in integer_x.h, those of few rows in integer_few.h and integer_block.h. Compiled once per
 * instruction set with -DINTEGERS=int_kernels_X and without contraction. Any thread, no state. */
#include "num/integer.h"

#include "num/integer_block.h"
#include "num/integer_few.h"
#include "num/integer_isa.h"
#include "num/integer_simd.h"
#include "num/integer_x.h"

/* --- products with many rows: register blocks of INT_TILE rows of x by two vectors of rows of W
 *  --- */

enum { TALL = 2 * WIDE, EIGHT = 8 /* columns at once */ };
INLINE wf load_wide(const float *p)
{
    wf v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Eight numbers of a row, of `bits` bits each. */
INLINE void eight(uint32_t to[2], const uint8_t *p, const size_t bits)
{
    uint64_t all = 0;
    memcpy(&all, p, bits);
    if (bits == 4) {
        all = (all | all << 16) & 0x0000ffff0000ffffu;
        all = (all | all << 8) & 0x00ff00ff00ff00ffu;
        all = (all | all << 4) & 0x0f0f0f0f0f0f0f0fu;
    }
    to[0] = (uint32_t)all;
    to[1] = (uint32_t)(all >> 32);
}

INLINE void pack_any(uint32_t *to, const uint8_t *w, size_t row_bytes, size_t rows, size_t row_cols,
                     size_t col, size_t n, const size_t bits)
{
    for (size_t c = 0; c < n; c += EIGHT, to += 2 * TALL)
        for (size_t r = 0; r < TALL; r++) {
            uint32_t two_fours[2] = {0};
            if (r < rows && col + c < row_cols)
                eight(two_fours, w + r * row_bytes + (col + c) * bits / 8, bits);
            to[r] = two_fours[0];
            to[TALL + r] = two_fours[1];
        }
}

static void pack(uint32_t *to, const uint8_t *w, size_t row_bytes, size_t rows, size_t row_cols, size_t col,
                 size_t n, size_t bits)
{
    if (bits == 8)
        pack_any(to, w, row_bytes, rows, row_cols, col, n, 8);
    else
        pack_any(to, w, row_bytes, rows, row_cols, col, n, 4);
}

/* One group of x: the sums of its products, exact, then scaled and added to y. */
INLINE void tile_group(wf y[INT_TILE][2], const struct int_tile *t, size_t g, const int n)
{
    const size_t each = int_group(t->group), wg = g * each / t->group;
    const uint32_t *w = t->panel.w + g * each / 4 * TALL;
    const int8_t *x = t->x.bytes + g * each;
    wi acc[INT_TILE][2] = {0};
    for (size_t p = 0; p < each; p += 4, w += TALL) {
        wb w0, w1;
        memcpy(&w0, w, sizeof w0);
        memcpy(&w1, w + WIDE, sizeof w1);
        UNROLL
        for (int i = 0; i < n; i++) {
            int32_t four;
            memcpy(&four, row_of(x + p, (size_t)i * t->x_bytes), sizeof four);
            const wb a = (wb)(four - (wi){0});
            acc[i][0] = add_bytes(acc[i][0], w0, a);
            acc[i][1] = add_bytes(acc[i][1], w1, a);
        }
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        const float *by = row_of(t->x.scale + g, (size_t)i * t->x_bytes),
                    *sum = row_of(t->x.sum + g, (size_t)i * t->x_bytes);
        UNROLL
        for (int k = 0; k < 2; k++) {
            const size_t at = wg * TALL + (size_t)k * WIDE;
            y[i][k] += __builtin_convertvector(acc[i][k], wf) * (load_wide(t->panel.scale + at) * *by);
            y[i][k] += load_wide(t->panel.bias + at) * *sum;
        }
    }
}

INLINE void tile_rows(const struct int_tile *t, size_t i, const int n)
{
    struct int_tile at = *t;
    float rows[INT_TILE][TALL] = {0};
    wf y[INT_TILE][2];
    at.x.bytes = (int8_t *)row_of(t->x.bytes, i * t->x_bytes);
    at.x.scale = (float *)row_of(t->x.scale, i * t->x_bytes);
    at.x.sum = (float *)row_of(t->x.sum, i * t->x_bytes);
    at.y += i * t->ldy;
    for (int k = 0; k < n && t->accumulate; k++)
        memcpy(rows[k], at.y + (size_t)k * t->ldy, t->rows * sizeof(float));
    memcpy(y, rows, sizeof y);
    for (size_t g = 0; g < t->groups; g++)
        tile_group(y, &at, g, n);
    memcpy(rows, y, sizeof y);
    for (int k = 0; k < n; k++)
        memcpy(at.y + (size_t)k * t->ldy, rows[k], t->rows * sizeof(float));
}

static void tile(const struct int_tile *t)
{
    if (t->n == INT_TILE)
        tile_rows(t, 0, INT_TILE);
    for (size_t i = 0; t->n < INT_TILE && i < t->n; i++)
        tile_rows(t, i, 1);
}

extern const struct int_kernels INTEGERS;
const struct int_kernels INTEGERS = {
    .isa = INTEGER_ISA,
    .fours = FOURS,
    .tall = TALL,
    .quantize = quantize,
    .dots = dots,
    .block_quantize = block_quantize,
    .block_dots = block_dots,
    .pack = pack,
    .tile = tile,
};
