/* SPDX-License-Identifier: MIT
 *
 * Kernels on quantized weights (quant.h): a row in f32, and products with a few rows of x that read the weights as they lie.
 * Included by kernels.c only. A product adds q · x within a group first and scales the sum, then adds what the biases give:
 * Σ bias · Σ x of the group. Sums run in an order that depends on the vector width alone. */
#ifndef NUM_SIMD_QUANT_H
#define NUM_SIMD_QUANT_H

#include "num/kernels.h"
#include "num/quant.h"
#include "num/simd.h"

#if defined __clang__
#define UNROLL_QUANT _Pragma("unroll")
#else
#define UNROLL_QUANT _Pragma("GCC unroll 16")
#endif

enum { NIBBLES = 8, STRIDE4 = NIBBLES * VL /* elements in a vector of words */ };

/* VL bytes. */
INLINE vf widen_q8(const uint8_t *p)
{
#if defined __AVX512F__
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined __AVX2__
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
    vi u;
    for (int i = 0; i < VL; i++)
        u[i] = p[i];
    return __builtin_convertvector(u, vf);
#endif
}

/* n words, 0 behind them. */
INLINE vu load_words(const uint8_t *p, size_t n)
{
    vu w = {0};
    memcpy(&w, p, n >= VL ? sizeof w : n * sizeof(uint32_t));
    return w;
}

/* The first m of VL bytes. */
INLINE vf widen_some_q8(const uint8_t *p, size_t m)
{
    if (m == VL)
        return widen_q8(p);
    uint8_t last[VL] = {0};
    memcpy(last, p, m);
    return widen_q8(last);
}

/* Where the group that begins at `at` ends: the last of a row may be shorter. */
INLINE size_t group_end(size_t at, size_t group, size_t n)
{
    return n - at < group ? n : at + group;
}

/* --- rows in f32 --- */

static inline void quant8_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias,
                                 size_t group, size_t n)
{
    for (size_t at = 0, end; at < n; at = end, scale++, bias++) {
        end = group_end(at, group, n);
        for (size_t i = at, m; i < end; i += m) {
            m = end - i < VL ? end - i : VL;
            store_m(dst + i, widen_some_q8(w + i, m) * *scale + *bias, m);
        }
    }
}

/* Elements i … i+m−1, of the words they lie in; m is VL, or as many as one word has. */
INLINE vu nibbles_at(const uint8_t *w, size_t i, size_t m)
{
    vu word, shift;
    for (uint32_t k = 0; k < VL; k++)
        shift[k] = 4 * ((uint32_t)(i + k) % NIBBLES);
    uint32_t first;
    memcpy(&first, w + i / NIBBLES * sizeof first, sizeof first);
    word = (vu){0} + first;
    if ((int)VL > (int)NIBBLES && m > NIBBLES) {
        uint32_t second;
        memcpy(&second, w + (i / NIBBLES + 1) * sizeof second, sizeof second);
        for (uint32_t k = NIBBLES; k < VL; k++)
            word[k] = second;
    }
    return word >> shift & 15u;
}

static inline void quant4_to_f32(float *dst, const uint8_t *w, const float *scale, const float *bias,
                                 size_t group, size_t n)
{
    for (size_t at = 0, end; at < n; at = end, scale++, bias++) {
        end = group_end(at, group, n);
        for (size_t i = at, m; i < end; i += m) {
            m = end - i < VL ? end - i : VL;
            store_m(dst + i, __builtin_convertvector((vi)nibbles_at(w, i, m), vf) * *scale + *bias, m);
        }
    }
}

/* --- products --- */

/* x as the kernels of 4 bits want it: of each vector of words the lowest nibbles' elements, then those of the next, … A nibble is
 * masked where it lies and so comes out 16^k times too large, which x makes good; the highest is shifted. */
static inline void nibble_order(float *dst, const float *x, size_t cols)
{
    for (size_t at = 0; at < cols; at += STRIDE4, dst += STRIDE4) {
        float factor = 1;
        for (size_t k = 0; k < NIBBLES; k++, factor *= 0x1p-4f)
            for (size_t lane = 0; lane < VL; lane++) {
                const size_t i = at + lane * NIBBLES + k;
                dst[k * VL + lane] = i >= cols ? 0 : k == NIBBLES - 1 ? x[i] : x[i] * factor;
            }
    }
}

static inline void quant_x(float *ordered, float *sum, const float *x, size_t cols, size_t bits, size_t group)
{
    if (bits == 4)
        nibble_order(ordered, x, cols);
    else
        memcpy(ordered, x, cols * sizeof *x);
    for (size_t at = 0, end; at < cols; at = end) {
        vf acc = {0};
        end = group_end(at, group, cols);
        EACH(i, m, end - at)
        acc += load_m(x + at + i, m);
        *sum++ = sum_of(acc);
    }
}

/* The scales of the groups that a vector of words lies in, `lanes` words each. */
INLINE vf word_scales(const float *scale, size_t word, size_t lanes, size_t words)
{
    vf s = splat(scale[word / lanes]);
    if (lanes >= VL)
        return s;
    if (lanes >= VL / 2) {
        vi is_second = {0};
        for (int k = VL / 2; k < VL; k++)
            is_second[k] = -1;
        return word + VL / 2 < words ? blend(is_second, splat(scale[(word + VL / 2) / lanes]), s) : s;
    }
    for (size_t k = lanes; k < VL && word + k < words; k++)
        s[k] = scale[(word + k) / lanes];
    return s;
}

/* q · x of one vector of words of each row. */
INLINE void quant4_sums(vf *sum, const vu *word, const float *x, const int nr)
{
    UNROLL_QUANT
    for (int k = 0; k < NIBBLES; k++) {
        const vf xk = load(x + k * VL);
        UNROLL_QUANT
        for (int r = 0; r < nr; r++) {
            const vu q = k == NIBBLES - 1 ? word[r] >> 28 : word[r] & (15u << (4 * k % 32));
            const vf f = __builtin_convertvector((vi)q, vf);
            sum[r] = k ? sum[r] + f * xk : f * xk;
        }
    }
}

/* is_wide: a vector of words lies in one group, and rows are whole vectors. */
INLINE void quant4_tile(const struct quant_dots *d, vf *acc, size_t row, size_t apart, const int nr,
                        const bool is_wide)
{
    const size_t words = d->cols / NIBBLES, groups = quant_groups(d->group, d->cols),
                 lanes = d->group / NIBBLES;
    const uint8_t *w = d->w + row * words * sizeof(uint32_t);
    const float *scale = d->scale + row * groups;
    for (size_t at = 0; at < words; at += VL) {
        vu word[4];
        vf sum[4];
        UNROLL_QUANT
        for (int r = 0; r < nr; r++)
            word[r] = load_words(w + ((size_t)r * apart * words + at) * sizeof(uint32_t),
                                 is_wide ? VL : words - at);
        quant4_sums(sum, word, d->x + at * NIBBLES, nr);
        UNROLL_QUANT
        for (int r = 0; r < nr; r++) {
            const float *of = scale + (size_t)r * apart * groups;
            acc[r] += sum[r] * (is_wide ? splat(of[at / lanes]) : word_scales(of, at, lanes, words));
        }
    }
}

/* A whole group of each row: two sums a row, so that no addition waits for the one before. */
INLINE void quant8_group(vf *acc, const struct quant_dots *d, const uint8_t *w, size_t apart,
                         const float *scale, size_t scale_apart, const float *x, const int nr)
{
    vf even[4] = {0}, odd[4] = {0};
    for (size_t i = 0; i < d->group; i += 2 * VL) {
        const vf x0 = load(x + i), x1 = load(x + i + VL);
        UNROLL_QUANT
        for (int r = 0; r < nr; r++) {
            even[r] += widen_q8(w + (size_t)r * apart + i) * x0;
            odd[r] += widen_q8(w + (size_t)r * apart + i + VL) * x1;
        }
    }
    UNROLL_QUANT
    for (int r = 0; r < nr; r++)
        acc[r] += (even[r] + odd[r]) * splat(scale[(size_t)r * scale_apart]);
}

INLINE void quant8_tile(const struct quant_dots *d, vf *acc, size_t row, size_t apart, const int nr)
{
    const size_t groups = quant_groups(d->group, d->cols), whole = d->cols / d->group;
    const uint8_t *w = d->w + row * d->cols;
    const float *scale = d->scale + row * groups;
    for (size_t g = 0; g < whole; g++)
        quant8_group(acc, d, w + g * d->group, apart * d->cols, scale + g, apart * groups,
                     d->x + g * d->group, nr);
    if (whole == groups)
        return;
    for (int r = 0; r < nr; r++) {
        vf sum = {0};
        EACH(i, m, d->cols - whole * d->group)
        {
            const size_t at = whole * d->group + i;
            sum += widen_some_q8(w + (size_t)r * apart * d->cols + at, m) * load_m(d->x + at, m);
        }
        acc[r] += sum * splat(scale[(size_t)r * apart * groups + whole]);
    }
}

INLINE float bias_part(const struct quant_dots *d, size_t row)
{
    const size_t groups = quant_groups(d->group, d->cols);
    const float *bias = d->bias + row * groups;
    vf acc = {0};
    EACH(i, m, groups)
    acc += load_m(bias + i, m) * load_m(d->sum + i, m);
    return sum_of(acc);
}

/* Rows row, row + apart, …: nr of them. */
INLINE void quant_rows(const struct quant_dots *d, size_t row, size_t apart, const int nr, const size_t bits,
                       const bool is_wide)
{
    vf acc[4] = {0};
    if (bits == 4)
        quant4_tile(d, acc, row, apart, nr, is_wide);
    else
        quant8_tile(d, acc, row, apart, nr);
    for (int r = 0; r < nr; r++) {
        const size_t at = row + (size_t)r * apart;
        const float y = sum_of(acc[r]) + bias_part(d, at);
        d->y[at] = d->accumulate ? d->y[at] + y : y;
    }
}

/* Four rows at a time, a quarter of the rows apart, as in dots_any. */
INLINE void quant_any(const struct quant_dots *d, const size_t bits, const bool is_wide)
{
    const size_t quarter = d->rows / 4;
    for (size_t r = 0; r < quarter; r++)
        quant_rows(d, r, quarter, 4, bits, is_wide);
    for (size_t r = 4 * quarter; r < d->rows; r++)
        quant_rows(d, r, 1, 1, bits, is_wide);
}

static inline void quant4_dots(const struct quant_dots *d)
{
    if (d->group >= STRIDE4 && d->cols % STRIDE4 == 0)
        quant_any(d, 4, true);
    else
        quant_any(d, 4, false);
}

static inline void quant8_dots(const struct quant_dots *d)
{
    quant_any(d, 8, true);
}

#endif
