/* SPDX-License-Identifier: MIT
 *
 * Products of quantized weights with many rows (struct int_tiles of integer.h), in GCC's vector
 * extensions. Compiled once per instruction set with -DTILES=int_tiles_X and without contraction.
 * Any thread, no state. */
#include "num/integer.h"

#include "num/integer_isa.h"
#include "num/integer_simd.h"
#if defined __AVX512VNNI__
#include "num/tile/turn16.h"
#endif
#if defined __AMX_INT8__
#include "num/tile/amx.h"
#endif

enum { TALL = 2 * WIDE };

INLINE wf load_wide(const float *p)
{
    wf v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* --- a panel ---------------------------------------------------------------------------------- */

#if defined __AVX512VNNI__
/* Sixteen cells of a row from `p` on, of which the first n numbers are there. */
INLINE __m512 cells(const uint8_t *p, size_t n, const size_t bits)
{
    const size_t left = n < INT_STEP ? n : INT_STEP;
    const __mmask64 some = left ? ~(uint64_t)0 >> (INT_STEP - left) : 0;
    if (bits == 8)
        return (__m512)_mm512_maskz_loadu_epi8(some, p);
    const __mmask32 half = left ? ~(uint32_t)0 >> (INT_STEP - left) / 2 : 0;
    const __m512i wide = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(half, p));
    return (__m512)_mm512_and_si512(_mm512_or_si512(wide, _mm512_slli_epi16(wide, 4)), _mm512_set1_epi8(15));
}

/* Sixteen rows at a time, of sixteen cells each: n is whole steps. */
INLINE void pack_any(uint32_t *to, const uint8_t *w, size_t row_bytes, size_t rows, size_t row_cols,
                     size_t col, size_t n, const size_t bits)
{
    for (size_t c = 0; c < n; c += INT_STEP, to += INT_STEP / 4 * TALL)
        for (size_t r = 0; r < TALL; r += WIDE) {
            const size_t at = col + c, left = at < row_cols ? row_cols - at : 0;
            const uint8_t *from = w + r * row_bytes + at * bits / 8;
            __m512 v[WIDE];
            UNROLL
            for (size_t i = 0; i < WIDE; i++)
                v[i] = cells(from + i * row_bytes, r + i < rows ? left : 0, bits);
            turn16(v);
            UNROLL
            for (size_t i = 0; i < WIDE; i++)
                _mm512_storeu_ps(to + i * TALL + r, v[i]);
        }
}
#else
enum { EIGHT = 8 /* columns at once */ };

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
#endif

static void pack(uint32_t *to, const uint8_t *w, size_t row_bytes, size_t rows, size_t row_cols, size_t col,
                 size_t n, size_t bits)
{
    if (bits == 8)
        pack_any(to, w, row_bytes, rows, row_cols, col, n, 8);
    else
        pack_any(to, w, row_bytes, rows, row_cols, col, n, 4);
}

/* --- a tile ----------------------------------------------------------------------------------- */

#if defined __AMX_INT8__
enum { MANY = AMX_ROWS };

/* Sums of one group of x with sixteen rows of W. */
INLINE void group_sums(wi sums[MANY], const struct int_tile *t, size_t g, size_t row)
{
    const size_t each = int_group(t->group);
    AMX_ZERO(0);
    AMX_LOAD(1, t->x.bytes + g * each, t->x_bytes);
    AMX_LOAD(2, t->panel.w + g * each / 4 * TALL + row, TALL * sizeof(uint32_t));
    AMX_SIGNED_UNSIGNED(0, 1, 2);
    AMX_STORE(sums, 0, sizeof *sums);
}

/* They are scaled and added to y. */
INLINE void add_group(wf y[MANY], const wi sums[MANY], const struct int_tile *t, size_t g, size_t row,
                      const size_t n)
{
    const size_t at = g * int_group(t->group) / t->group * TALL + row;
    const wf scale = load_wide(t->panel.scale + at), bias = load_wide(t->panel.bias + at);
    UNROLL
    for (size_t i = 0; i < n; i++) {
        const float *by = row_of(t->x.scale + g, i * t->x_bytes), *sum = row_of(t->x.sum + g, i * t->x_bytes);
        y[i] += __builtin_convertvector(sums[i], wf) * (scale * *by);
        y[i] += bias * *sum;
    }
}

/* The sums of the next group are made while those of one are added: they come out of the tile
 * late. */
INLINE void tile_half(const struct int_tile *t, size_t row, const size_t n)
{
    const size_t cols = t->rows - row < WIDE ? t->rows - row : WIDE;
    const __mmask16 some = (__mmask16)((1u << cols) - 1);
    _Alignas(AMX_BYTES) wi sums[2][MANY];
    wf y[MANY] = {0};
    UNROLL
    for (size_t i = 0; i < n; i++)
        y[i] = t->accumulate ? (wf)_mm512_maskz_loadu_ps(some, t->y + i * t->ldy + row) : (wf){0};
    group_sums(sums[0], t, 0, row);
    for (size_t g = 0; g < t->groups; g++) {
        if (g + 1 < t->groups)
            group_sums(sums[(g + 1) % 2], t, g + 1, row);
        add_group(y, sums[g % 2], t, g, row, n);
    }
    UNROLL
    for (size_t i = 0; i < n; i++)
        _mm512_mask_storeu_ps(t->y + i * t->ldy + row, some, (__m512)y[i]);
}

static void tile(const struct int_tile *t)
{
    for (size_t row = 0; row < t->rows; row += WIDE)
        if (t->n == MANY)
            tile_half(t, row, MANY);
        else
            tile_half(t, row, t->n);
}

/* Of tiles 1 and 2 there is as much as a group of x has. */
static void begin(size_t group)
{
    const size_t each = int_group(group);
    struct amx_shape shape = amx_shape();
    shape.bytes[1] = (uint16_t)each;
    shape.rows[2] = (uint8_t)(each / 4);
    amx_begin(&shape);
}
#else
enum { MANY = 6 };

/* One group of x: the sums of its products, exact, then scaled and added to y. */
INLINE void tile_group(wf y[MANY][2], const struct int_tile *t, size_t g, const int n)
{
    const size_t each = int_group(t->group), wg = g * each / t->group;
    const uint32_t *w = t->panel.w + g * each / 4 * TALL;
    const int8_t *x = t->x.bytes + g * each;
    wi acc[MANY][2] = {0};
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
    float rows[MANY][TALL] = {0};
    wf y[MANY][2];
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
    if (t->n == MANY)
        tile_rows(t, 0, MANY);
    for (size_t i = 0; t->n < MANY && i < t->n; i++)
        tile_rows(t, i, 1);
}
#endif

extern const struct int_tiles TILES;
const struct int_tiles TILES = {
    .isa = INTEGER_ISA,
    .tall = TALL,
    .many = MANY,
    .pack = pack,
#if defined __AMX_INT8__
    .begin = begin,
    .end = amx_end,
#endif
    .tile = tile,
};
