/* SPDX-License-Identifier: MIT
 *
 * Products of quantized weights with few rows of x, a step of 64 columns and INT_ROWS rows of W at
 * a time. Included by integer.c only. */
#ifndef NUM_INTEGER_FEW_H
#define NUM_INTEGER_FEW_H

#include "num/integer.h"
#include "num/integer_simd.h"

enum {
    BLOCK = 64, /* steps whose scales are multiplied at once */
    /* Bytes ahead of each row, of 4 and of 8 bits: arithmetic fills the CPU's window, so that it
     * sees too few of the lines to come. As far as helped, on CPUs of two generations. */
    FETCH_4 = PAIRS ? 2048 : 512,
    FETCH_8 = PAIRS ? 2048 : 256,
};

/* What one tile has: the rows of W it takes, and of x. */
struct few_tile {
    float product[INT_ROWS][2][2 * BLOCK]; /* of the scales of W and x */
    vf acc[INT_ROWS][2];
};

/* --- scales and biases: eight at a time, converted on the way --- */

INLINE vf widen_f16(v8h h)
{
#if defined __F16C__
    return (vf)_mm256_cvtph_ps((__m128i)h);
#else
    /* Exponent and fraction move up 13 bits; multiplying by 2^112 mends the bias, exactly. */
    const vu u = __builtin_convertvector(h, vu), sign = (u & 0x8000u) << 16, mag = (u & 0x7fffu) << 13;
    const vu special = (vu)(mag >= 0x0f800000u) & 0x7f800000u;
    return (vf)((vu)((vf)mag * 0x1p112f) | special | sign);
#endif
}

INLINE vf widen_bf16(v8h h)
{
#if defined __AVX2__
    return (vf)((vu)_mm256_cvtepu16_epi32((__m128i)h) << 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

/* Numbers i … i+m−1, and zeros behind them where m is less than a vector. */
INLINE vf load_sides(const void *p, size_t i, size_t m, const enum dtype t)
{
    if (t == DTYPE_F32)
        return load_some(row_of(p, i * sizeof(float)), m);
    v8h h = {0};
    memcpy(&h, row_of(p, i * sizeof(uint16_t)), m < LANES ? m * sizeof(uint16_t) : sizeof h);
    return t == DTYPE_BF16 ? widen_bf16(h) : widen_f16(h);
}

INLINE size_t at_most(size_t n, size_t most)
{
    return n < most ? n : most;
}

/* Of one row of W and one of x, n groups of x from the g-th on: of W there are `groups`. */
struct int_sides {
    const void *scale, *bias;
    const float *x_scale, *x_sum;
    size_t g, n, groups;
};

/* Products of the scales of W and x, and acc with what the biases give: bias · Σ x of a group of x
 * goes to lane g of acc, modulo lanes. `per` groups of x to one of W; the last step's second group
 * may be beyond the row, and x is 0 there. Whole vectors first: most rows are nothing else. */
INLINE void sides_as(float *product, vf *acc, const struct int_sides *s, const size_t per, const enum dtype t)
{
    const size_t n = s->n, whole = per == 1 ? at_most(n, s->groups - s->g) : 0;
    vf sum = *acc;
    size_t i = 0;
    for (; i + LANES <= whole; i += LANES) {
        const vf by = load_sides(s->scale, s->g + i, LANES, t) * load(s->x_scale + s->g + i);
        memcpy(product + i, &by, sizeof by);
        sum += load_sides(s->bias, s->g + i, LANES, t) * load(s->x_sum + s->g + i);
    }
    for (; i < n; i += LANES) {
        const size_t first = (s->g + i) / per, left = s->groups > first ? s->groups - first : 0,
                     m = at_most(n - i, LANES);
        vf scale = load_sides(s->scale, first, at_most(left, LANES / per), t),
           bias = load_sides(s->bias, first, at_most(left, LANES / per), t);
        if (per == 2) {
            scale = __builtin_shufflevector(scale, scale, 0, 0, 1, 1, 2, 2, 3, 3);
            bias = __builtin_shufflevector(bias, bias, 0, 0, 1, 1, 2, 2, 3, 3);
        }
        scale *= load_some(s->x_scale + s->g + i, m);
        memcpy(product + i, &scale, sizeof scale);
        sum += bias * load_some(s->x_sum + s->g + i, m);
    }
    *acc = sum;
}

static void sides_any(float *product, vf *acc, const struct int_sides *s, size_t per, enum dtype t)
{
    switch (t * 2 + (per == 2)) {
    case DTYPE_F32 * 2: sides_as(product, acc, s, 1, DTYPE_F32); break;
    case DTYPE_F32 * 2 + 1: sides_as(product, acc, s, 2, DTYPE_F32); break;
    case DTYPE_BF16 * 2: sides_as(product, acc, s, 1, DTYPE_BF16); break;
    case DTYPE_BF16 * 2 + 1: sides_as(product, acc, s, 2, DTYPE_BF16); break;
    case DTYPE_F16 * 2: sides_as(product, acc, s, 1, DTYPE_F16); break;
    default: sides_as(product, acc, s, 2, DTYPE_F16); break;
    }
}

/* Those of steps at … at+n−1. What is quantized here has groups of a step and BF16, for which it
 * pays to write the code out once more. */
INLINE void tile_sides(struct few_tile *t, const struct int_dots *d, size_t j, size_t at, size_t n,
                       const int nr, const int nx)
{
    const size_t in_step = INT_STEP / int_group(d->group), groups = (d->cols + d->group - 1) / d->group;
    for (int r = 0; r < nr; r++)
        for (int k = 0; k < nx; k++) {
            const size_t x_at = (j + (size_t)k) * d->x_bytes;
            const struct int_sides s = {row_of(d->scale, (size_t)r * d->side_apart),
                                        row_of(d->bias, (size_t)r * d->side_apart),
                                        row_of(d->x.scale, x_at),
                                        row_of(d->x.sum, x_at),
                                        at * in_step,
                                        n * in_step,
                                        groups};
            if (d->group == INT_STEP && d->side == DTYPE_BF16)
                sides_as(t->product[r][k], &t->acc[r][k], &s, 1, DTYPE_BF16);
            else
                sides_any(t->product[r][k], &t->acc[r][k], &s, d->group > INT_STEP ? 2 : 1, d->side);
        }
}

/* --- weights --- */

/* What a kernel is written out for: the bits of W, and bytes of x in place of 16 bits. */
struct int_kind {
    size_t bits;
    bool bytes, narrow; /* narrow: groups of less than a step */
};

/* A step of x: four vectors of 16 bits, or as many of bytes that count 256 and of the rest, or two
 * of bytes. */
struct x_step {
    vh v[4];
};

INLINE struct x_step load_x(const struct int_dots *d, size_t j, size_t step, const struct int_kind kind)
{
    if (kind.bytes) {
        const int8_t *at = row_of(d->x.bytes + step * INT_STEP, j * d->x_bytes);
        return (struct x_step){.v = {load16(at), load16(at + 32)}};
    }
    const int16_t *at = row_of(d->x.q + step * INT_STEP, j * d->x_bytes);
    return (struct x_step){.v = {load16(at), load16(at + 16), load16(at + 32), load16(at + 48)}};
}

/* Sums of products with a step of W: in 4 bits, in 8, and with half of one in 8. */
#if defined __AVX512VNNI__ || defined __AVXVNNI__
INLINE vi numbers4(vh w, const struct x_step *x)
{
    const vb even = (vb)w & 15, odd = (vb)(w >> 4) & 15;
    return (add_nibbles(even, (vb)x->v[0], odd, (vb)x->v[1]) << 8) +
           add_nibbles(even, (vb)x->v[2], odd, (vb)x->v[3]);
}

INLINE vi half8(const uint8_t *from, const struct x_step *x, const size_t half)
{
    const vb w = (vb)load16(from + half * 32);
    return (add_fours((vi){0}, w, (vb)x->v[half]) << 8) + add_fours((vi){0}, w, (vb)x->v[2 + half]);
}

INLINE vi whole8(const uint8_t *from, const struct x_step *x)
{
    const vb a = (vb)load16(from), b = (vb)load16(from + 32);
    const vi high = add_fours(add_fours((vi){0}, a, (vb)x->v[0]), b, (vb)x->v[1]);
    return (high << 8) + add_fours(add_fours((vi){0}, a, (vb)x->v[2]), b, (vb)x->v[3]);
}
#else
INLINE vi numbers4(vh w, const struct x_step *x)
{
    const vi a = add_products(add_products((vi){0}, w & 15, x->v[0]), w >> 4 & 15, x->v[1]);
    const vi b = add_products(add_products((vi){0}, w >> 8 & 15, x->v[2]), w >> 12, x->v[3]);
    return a + b;
}

INLINE vi half8(const uint8_t *from, const struct x_step *x, const size_t half)
{
    const vh w = load16(from + half * 32);
    return add_products(add_products((vi){0}, w & 255, x->v[2 * half]), w >> 8, x->v[2 * half + 1]);
}

INLINE vi whole8(const uint8_t *from, const struct x_step *x)
{
    return half8(from, x, 0) + half8(from, x, 1);
}
#endif

INLINE vi whole4(const uint8_t *from, const struct x_step *x, const bool bytes)
{
    const vh w = load16(from);
    return bytes ? add_nibbles((vb)w & 15, (vb)x->v[0], (vb)(w >> 4) & 15, (vb)x->v[1]) : numbers4(w, x);
}

/* A step's scales in 4 bits, of the lanes. */
INLINE vf scales_of(const float *scale, const struct int_kind kind)
{
    const vf by = splat(scale[0]);
    return kind.narrow ? __builtin_shufflevector(by, splat(scale[1]), 0, 1, 2, 3, 12, 13, 14, 15) : by;
}

/* acc + the step's sums times its scales: one, or two where groups are of 32. */
INLINE vf step_add(vf acc, const uint8_t *w, const struct x_step *x, const float *scale,
                   const struct int_kind kind)
{
    if (kind.bits == 8) {
        if (!kind.narrow)
            return acc + __builtin_convertvector(whole8(w, x), vf) * splat(scale[0]);
        acc += __builtin_convertvector(half8(w, x, 0), vf) * splat(scale[0]);
        return acc + __builtin_convertvector(half8(w, x, 1), vf) * splat(scale[1]);
    }
    return acc + __builtin_convertvector(whole4(w, x, kind.bytes), vf) * scales_of(scale, kind);
}

#if defined __AVX512VNNI__
struct x_pair {
    wb v[4];
};

INLINE wi add_nibbles_wide(wb v, wb x, wb w, wb y)
{
    return add_bytes(add_bytes((wi){0}, v, x), w, y);
}

INLINE struct x_pair load_x_pair(const struct int_dots *d, size_t j, size_t step, const struct int_kind kind)
{
    const struct x_step a = load_x(d, j, step, kind), b = load_x(d, j, step + 1, kind);
    struct x_pair x;
    UNROLL
    for (int i = 0; i < 4; i++)
        x.v[i] = (wb)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)a.v[i]), (__m256i)b.v[i], 1);
    return x;
}

/* acc + the first step's sums times its scales, then the second's. */
INLINE vf pair_add(vf acc, const uint8_t *from, const struct x_pair *x, const float *scale,
                   const struct int_kind kind)
{
    wh w;
    memcpy(&w, from, sizeof w);
    const wb even = (wb)w & 15, odd = (wb)(w >> 4) & 15;
    wi sum = add_nibbles_wide(even, x->v[0], odd, x->v[1]);
    if (!kind.bytes)
        sum = (sum << 8) + add_nibbles_wide(even, x->v[2], odd, x->v[3]);
    const __m512 all = _mm512_cvtepi32_ps((__m512i)sum);
    const vf first = (vf)_mm512_castps512_ps256(all), second = (vf)_mm512_extractf32x8_ps(all, 1);
    acc += first * scales_of(scale, kind);
    return acc + second * scales_of(scale + (kind.narrow ? 2 : 1), kind);
}
#else
struct x_pair {
    struct x_step step[2];
};

INLINE struct x_pair load_x_pair(const struct int_dots *d, size_t j, size_t step, const struct int_kind kind)
{
    return (struct x_pair){{load_x(d, j, step, kind), load_x(d, j, step + 1, kind)}};
}

INLINE vf pair_add(vf acc, const uint8_t *from, const struct x_pair *x, const float *scale,
                   const struct int_kind kind)
{
    acc = step_add(acc, from, &x->step[0], scale, kind);
    return step_add(acc, from + INT_STEP / 2, &x->step[1], scale + (kind.narrow ? 2 : 1), kind);
}
#endif

/* Steps first … first+n−1, all of them whole in W. */
INLINE void dots_steps(struct few_tile *t, const struct int_dots *d, size_t j, size_t first, size_t n,
                       const int nr, const int nx, const struct int_kind kind)
{
    const size_t bytes = INT_STEP * kind.bits / 8, per = kind.narrow ? 2 : 1,
                 fetch = kind.bits == 8 ? FETCH_8 : FETCH_4;
    const uint8_t *w = d->w + first * bytes;
    vf acc[INT_ROWS][2];
    UNROLL
    for (int r = 0; r < nr; r++)
        acc[r][0] = t->acc[r][0], acc[r][1] = t->acc[r][1];
    size_t i = 0;
    for (; PAIRS && kind.bits == 4 && i + 2 <= n; i += 2, w += 2 * bytes) {
        UNROLL
        for (int r = 0; r < nr; r++)
            __builtin_prefetch(w + (size_t)r * d->w_apart + fetch);
        UNROLL
        for (int k = 0; k < nx; k++) {
            const struct x_pair x = load_x_pair(d, j + (size_t)k, first + i, kind);
            UNROLL
            for (int r = 0; r < nr; r++)
                acc[r][k] =
                    pair_add(acc[r][k], w + (size_t)r * d->w_apart, &x, t->product[r][k] + i * per, kind);
        }
    }
    for (; i < n; i++, w += bytes) {
        UNROLL
        for (int r = 0; r < nr; r++)
            __builtin_prefetch(w + (size_t)r * d->w_apart + fetch);
        UNROLL
        for (int k = 0; k < nx; k++) {
            const struct x_step x = load_x(d, j + (size_t)k, first + i, kind);
            UNROLL
            for (int r = 0; r < nr; r++)
                acc[r][k] =
                    step_add(acc[r][k], w + (size_t)r * d->w_apart, &x, t->product[r][k] + i * per, kind);
        }
    }
    UNROLL
    for (int r = 0; r < nr; r++)
        t->acc[r][0] = acc[r][0], t->acc[r][1] = acc[r][1];
}

/* The last step of a row that ends within it; `first` is that of its block. */
static void dots_rest(struct few_tile *t, const struct int_dots *d, size_t j, size_t first, int nr, int nx,
                      struct int_kind kind)
{
    uint8_t last[INT_ROWS][INT_STEP] = {0};
    const size_t step = d->cols / INT_STEP, at = step * INT_STEP, bits = d->bits,
                 product = (step - first) * (INT_STEP / int_group(d->group));
    for (int r = 0; r < nr; r++)
        memcpy(last[r], d->w + (size_t)r * d->w_apart + at * bits / 8, (d->cols - at) * bits / 8);
    for (int k = 0; k < nx; k++)
        for (int r = 0; r < nr; r++) {
            const struct x_step x = load_x(d, j + (size_t)k, step, kind);
            t->acc[r][k] = step_add(t->acc[r][k], last[r], &x, t->product[r][k] + product, kind);
        }
}

INLINE void dots_tile(const struct int_dots *d, size_t j, const int nr, const int nx,
                      const struct int_kind kind)
{
    struct few_tile t;
    const size_t steps = int_cols(d->cols) / INT_STEP, whole = d->cols / INT_STEP;
    for (int r = 0; r < nr; r++)
        t.acc[r][0] = t.acc[r][1] = (vf){0};
    for (size_t at = 0, now; at < steps; at += now) {
        now = at_most(steps - at, BLOCK);
        tile_sides(&t, d, j, at, now, nr, nx);
        dots_steps(&t, d, j, at, at_most(now, whole - at), nr, nx, kind);
        if (at + now > whole)
            dots_rest(&t, d, j, at, nr, nx, kind);
    }
    for (int r = 0; r < nr; r++)
        for (int k = 0; k < nx; k++) {
            float *y = d->y + (j + (size_t)k) * d->ldy + (size_t)r * d->apart;
            const float s = sum_of(t.acc[r][k]);
            *y = d->accumulate ? *y + s : s;
        }
}

/* The rows of W, which stay in the first cache, with all of x. */
INLINE void dots_rows(const struct int_dots *d, const int nr, const struct int_kind kind)
{
    size_t j = 0;
    for (; j + 2 <= d->n; j += 2)
        dots_tile(d, j, nr, 2, kind);
    if (j < d->n)
        dots_tile(d, j, nr, 1, kind);
}

INLINE void dots_any(const struct int_dots *d, const struct int_kind kind)
{
    if (d->rows > 1)
        dots_rows(d, INT_ROWS, kind);
    else
        dots_rows(d, 1, kind);
}

static inline void dots(const struct int_dots *d)
{
    const bool narrow = d->group < INT_STEP;
    switch ((d->bits == 8 ? 4 : 0) + (d->form == INT_BYTES ? 2 : 0) + narrow) {
    case 0: dots_any(d, (struct int_kind){4, false, false}); break;
    case 1: dots_any(d, (struct int_kind){4, false, true}); break;
    case 2: dots_any(d, (struct int_kind){4, true, false}); break;
    case 3: dots_any(d, (struct int_kind){4, true, true}); break;
    case 4: dots_any(d, (struct int_kind){8, false, false}); break;
    default: dots_any(d, (struct int_kind){8, false, true}); break;
    }
}

#endif
