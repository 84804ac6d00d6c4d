/* SPDX-License-Identifier: MIT
 *
 * The vector kernels of every layer, in plain C on GCC's vector extensions. Compiled once per
 * instruction set with -DKERNELS=kernels_X; exports that one table (kernels.h says what each entry
 * computes). Any thread, no state. Sums run in a fixed order that depends on the vector width
 * alone, never on where a row lies or who computes it. */
#include "num/kernels.h"

#include <math.h>

#include "num/block_load.h"
#include "num/dots.h"
#include "num/simd.h"
#include "num/simd_quant.h"
#include "num/simd_row8.h"
#include "num/simd_stored.h"

/* --- stored types --- */

static void f32_to_f32(float *dst, const void *src, size_t n)
{
    memcpy(dst, src, n * sizeof *dst);
}

/* Whole vectors first: a test for the last one in every turn costs as much as the turn. */
INLINE void widen_all(float *dst, const void *src, size_t n, const enum dtype t)
{
    size_t i = 0;
    for (; i + 4 * VL <= n; i += 4 * VL) {
        UNROLL
        for (size_t k = 0; k < 4; k++)
            store(dst + i + k * VL, load_as(src, i + k * VL, VL, t));
    }
    for (; i + VL <= n; i += VL)
        store(dst + i, load_as(src, i, VL, t));
    if (i < n)
        store_m(dst + i, load_as(src, i, n - i, t), n - i);
}

#if defined __AVX512F__
/* A line at a time: one shuffle moves a number to where it is the upper half of a float. */
static void bf16_to_f32(float *dst, const void *src, size_t n)
{
    const __m512i low = _mm512_slli_epi32(
                      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), 16),
                  high = _mm512_add_epi32(low, _mm512_set1_epi32(16 << 16));
    size_t i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        const __m512i line = _mm512_loadu_si512((const uint16_t *)src + i);
        _mm512_storeu_si512(dst + i, _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, low, line));
        _mm512_storeu_si512(dst + i + VL, _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, high, line));
    }
    widen_all(dst + i, (const uint16_t *)src + i, n - i, DTYPE_BF16);
}
#else
static void bf16_to_f32(float *dst, const void *src, size_t n)
{
    widen_all(dst, src, n, DTYPE_BF16);
}
#endif

static void f16_to_f32(float *dst, const void *src, size_t n)
{
    widen_all(dst, src, n, DTYPE_F16);
}

static void f8_to_f32(float *dst, const void *src, size_t n)
{
    widen_all(dst, src, n, DTYPE_F8_E4M3);
}

/* --- tiles of attention: register blocks of TILE_ROWS rows by two vectors --- */

enum { TILE_ROWS = VL == 16 ? 12 : 6 };

INLINE void tile_block(const struct tile *t, size_t i0, size_t j0, const int mr, const int nv)
{
    vf acc[TILE_ROWS][2] = {0};
    const float *a = t->a + i0 * t->ai, *b = t->b + j0;
    float *c = t->c + i0 * t->ldc + j0;
    if (t->accumulate)
        for (int i = 0; i < mr; i++)
            for (int j = 0; j < nv; j++)
                acc[i][j] = load(c + (size_t)i * t->ldc + j * VL);
    const size_t ai = t->ai, ak = t->ak, ldb = t->ldb;
    UNROLL_FOUR
    for (size_t p = 0, k = t->k; p < k; p++, a += ak, b += ldb) {
        vf b0 = load(b), b1 = nv > 1 ? load(b + VL) : b0;
        UNROLL
        for (int i = 0; i < mr; i++) {
            vf x = splat(a[(size_t)i * ai]);
            add_product(&acc[i][0], x, b0);
            if (nv > 1)
                add_product(&acc[i][1], x, b1);
        }
    }
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < nv; j++)
            store(c + (size_t)i * t->ldc + j * VL, acc[i][j]);
}

INLINE void tile_strip(const struct tile *t, size_t j, const int nv)
{
    size_t i = 0;
    for (; i + TILE_ROWS <= t->m; i += TILE_ROWS)
        tile_block(t, i, j, TILE_ROWS, nv);
    for (; i + 4 <= t->m; i += 4)
        tile_block(t, i, j, 4, nv);
    for (; i < t->m; i++)
        tile_block(t, i, j, 1, nv);
}

static void tile(const struct tile *t)
{
    size_t j = 0;
    for (; j + 2 * VL <= t->n; j += 2 * VL)
        tile_strip(t, j, 2);
    for (; j < t->n; j += VL)
        tile_strip(t, j, 1);
}

/* dst[c·ldd + r] = src[r·lds + c] */
static void transpose(float *dst, size_t ldd, const float *src, size_t lds, size_t rows, size_t cols)
{
    const size_t rows4 = rows / 4 * 4, cols4 = cols / 4 * 4;
    for (size_t r = 0; r < rows4; r += 4)
        for (size_t c = 0; c < cols4; c += 4)
            transpose4(dst + c * ldd + r, ldd, src + r * lds + c, lds);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = r < rows4 ? cols4 : 0; c < cols; c++)
            dst[c * ldd + r] = src[r * lds + c];
}

/* --- vectors --- */

static void add(float *y, const float *a, const float *b, size_t n)
{
    EACH(i, m, n)
    store_m(y + i, load_m(a + i, m) + load_m(b + i, m), m);
}

static void axpy(float *y, float alpha, const float *x, size_t n)
{
    EACH(i, m, n)
    store_m(y + i, load_m(y + i, m) + alpha * load_m(x + i, m), m);
}

static void mul_add(float *y, const float *a, const float *b, size_t n)
{
    EACH(i, m, n)
    store_m(y + i, load_m(y + i, m) + load_m(a + i, m) * load_m(b + i, m), m);
}

static void scale(float *y, float alpha, size_t n)
{
    EACH(i, m, n)
    store_m(y + i, load_m(y + i, m) * alpha, m);
}

/* Sixteen f64 partial sums whatever the width, so that every instruction set adds in the same
 * order. */
static double sumsq(const float *x, size_t n)
{
    double acc[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            acc[j] += (double)x[i + (size_t)j] * x[i + (size_t)j];
    for (int j = 0; i < n; i++, j++)
        acc[j] += (double)x[i] * x[i];
    for (int w = 8; w; w /= 2)
        for (int j = 0; j < w; j++)
            acc[j] += acc[j + w];
    return acc[0];
}

static float dot(const float *a, const float *b, size_t n)
{
    vf acc = {0};
    EACH(i, m, n)
    acc += load_m(a + i, m) * load_m(b + i, m);
    return sum_of(acc);
}

/* --- softmax --- */

/* The first m lanes of v, the others −∞. */
INLINE vf or_minus_inf(vf v, size_t m)
{
    if (m < VL)
        for (size_t i = m; i < VL; i++)
            v[i] = -INFINITY;
    return v;
}

static float row_max(const float *x, size_t n)
{
    vf best = splat(-INFINITY);
    EACH(i, m, n)
    best = vmax(best, or_minus_inf(load_m(x + i, m), m));
    return max_of(best);
}

/* Partial sums of a few thousand terms in f32, then f64: a vocabulary has hundreds of thousands of
 * terms. */
static double logsumexp(const float *x, size_t n)
{
    enum { RUN = 4096 };
    const float top = row_max(x, n);
    if (isinf(top))
        return top;
    double total = 0;
    for (size_t at = 0; at < n; at += RUN) {
        const size_t len = n - at < RUN ? n - at : RUN;
        vf acc = {0};
        EACH(i, m, len)
        acc += vexp(or_minus_inf(load_m(x + at + i, m), m) - top);
        total += (double)sum_of(acc);
    }
    return (double)top + log(total);
}

static void exp_minus(float *x, size_t n, float minus, float factor)
{
    EACH(i, m, n)
    store_m(x + i, vexp(load_m(x + i, m) - minus) * factor, m);
}

static float softmax_online(float *s, size_t n, float *max, float *sum)
{
    const float top = row_max(s, n), now = top > *max ? top : *max;
    vf acc = {0};
    EACH(i, m, n)
    {
        vf e = vexp(or_minus_inf(load_m(s + i, m), m) - now);
        store_m(s + i, e, m);
        acc += e;
    }
    const float rescale = expf(*max - now);
    *sum = *sum * rescale + sum_of(acc);
    *max = now;
    return rescale;
}

static void softmax_columns(float *s, size_t ld, size_t keys, size_t n, float *max, float *sum,
                            float *rescale)
{
    EACH(i, m, n)
    {
        const vf was = load_m(max + i, m);
        vf top = was, acc = {0};
        for (size_t c = 0; c < keys; c++)
            top = vmax(top, load_m(s + c * ld + i, m));
        for (size_t c = 0; c < keys; c++) {
            const vf e = vexp(load_m(s + c * ld + i, m) - top);
            store_m(s + c * ld + i, e, m);
            acc += e;
        }
        const vf by = vexp(was - top);
        store_m(max + i, top, m);
        store_m(sum + i, load_m(sum + i, m) * by + acc, m);
        store_m(rescale + i, by, m);
    }
}

static void softmax_back(float *p, float *dp, const float *lse, const float *delta, size_t n)
{
    EACH(i, m, n)
    {
        const vf e = vexp(load_m(p + i, m) - load_m(lse + i, m));
        store_m(p + i, e, m);
        store_m(dp + i, e * (load_m(dp + i, m) - load_m(delta + i, m)), m);
    }
}

/* --- layers --- */

static float rmsnorm(float *y, const float *x, const float *w, size_t n, float eps)
{
    const float rstd = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    EACH(i, m, n)
    store_m(y + i, load_m(x + i, m) * rstd * load_m(w + i, m), m);
    return rstd;
}

static void rmsnorm_back(float *dx, const float *dy, const float *x, const float *w, size_t n, float rstd)
{
    vf acc = {0};
    EACH(i, m, n)
    acc += load_m(dy + i, m) * load_m(w + i, m) * load_m(x + i, m);
    const float pull = rstd * rstd * (sum_of(acc) / (float)n);
    EACH(i, m, n)
    {
        vf direct = load_m(dy + i, m) * load_m(w + i, m);
        store_m(dx + i, rstd * (direct - load_m(x + i, m) * pull), m);
    }
}

static void rmsnorm_dw(float *dw, const float *dy, const float *x, size_t n, float rstd)
{
    EACH(i, m, n)
    store_m(dw + i, load_m(dw + i, m) + load_m(dy + i, m) * (load_m(x + i, m) * rstd), m);
}

static void rope(float *x, const float *cos, const float *sin, size_t half, bool inverse)
{
    const float sign = inverse ? -1.0f : 1.0f;
    EACH(i, m, half)
    {
        vf a = load_m(x + i, m), b = load_m(x + half + i, m);
        vf c = load_m(cos + i, m), s = load_m(sin + i, m) * sign;
        store_m(x + i, a * c - b * s, m);
        store_m(x + half + i, b * c + a * s, m);
    }
}

static void rope_neighbours(float *x, const float *cos, const float *sin, size_t half, bool inverse)
{
    const float sign = inverse ? -1.0f : 1.0f;
    for (size_t i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1], s = sin[i] * sign;
        x[2 * i] = a * cos[i] - b * s;
        x[2 * i + 1] = b * cos[i] + a * s;
    }
}

INLINE vf sigmoid(vf x)
{
    return 1.0f / (1.0f + vexp(-x));
}

static void swiglu(float *y, const float *g, const float *u, size_t n, float limit)
{
    (void)limit;
    EACH(i, m, n)
    {
        vf gate = load_m(g + i, m);
        store_m(y + i, gate * sigmoid(gate) * load_m(u + i, m), m);
    }
}

/* Everything is loaded before anything is stored: the outputs may lie on the inputs. */
static void swiglu_back(float *dg, float *du, const float *dy, const float *g, const float *u, size_t n,
                        float limit)
{
    (void)limit;
    EACH(i, m, n)
    {
        vf d = load_m(dy + i, m), gate = load_m(g + i, m), up = load_m(u + i, m), s = sigmoid(gate);
        store_m(dg + i, d * up * s * (1.0f + gate * (1.0f - s)), m);
        store_m(du + i, d * gate * s, m);
    }
}

/* x·σ(2z), for tanh(z) = 2σ(2z) − 1; the slope of 2z is beside it. */
INLINE vf gelu_sigmoid(vf x, vf *slope)
{
    const float twice = 2 * 0.79788456080286535588f, cube = 0.044715f;
    const vf square = x * x;
    *slope = twice * (1.0f + 3.0f * cube * square);
    return sigmoid(twice * x * (1.0f + cube * square));
}

static void geglu(float *y, const float *g, const float *u, size_t n, float limit)
{
    (void)limit;
    EACH(i, m, n)
    {
        vf gate = load_m(g + i, m), slope;
        store_m(y + i, gate * gelu_sigmoid(gate, &slope) * load_m(u + i, m), m);
    }
}

static void geglu_back(float *dg, float *du, const float *dy, const float *g, const float *u, size_t n,
                       float limit)
{
    (void)limit;
    EACH(i, m, n)
    {
        vf d = load_m(dy + i, m), gate = load_m(g + i, m), up = load_m(u + i, m), slope;
        const vf s = gelu_sigmoid(gate, &slope);
        /* where the gate is far out, its cube may be infinite, and s·(1 − s) is 0 */
        const vf bent = gate * (s * (1.0f - s)) * vmin(splat(1e4f), slope);
        store_m(dg + i, d * up * (s + bent), m);
        store_m(du + i, d * gate * s, m);
    }
}

static const float clamped_steep = 1.702f;

static void clamped(float *y, const float *g, const float *u, size_t n, float limit)
{
    EACH(i, m, n)
    {
        const vf gate = vmin(splat(limit), load_m(g + i, m)); /* NaN stays NaN */
        const vf up = vmax(splat(-limit), vmin(splat(limit), load_m(u + i, m)));
        store_m(y + i, (up + 1.0f) * (gate * sigmoid(clamped_steep * gate)), m);
    }
}

/* What was cut off has no slope; at the limit itself it has one, as in the reference. */
static void clamped_back(float *dg, float *du, const float *dy, const float *g, const float *u, size_t n,
                         float limit)
{
    const vf none = {0}, most = splat(limit), least = splat(-limit);
    EACH(i, m, n)
    {
        const vf d = load_m(dy + i, m), raw = load_m(g + i, m), wide = load_m(u + i, m);
        const vf gate = vmin(most, raw), up = vmax(least, vmin(most, wide));
        const vf s = sigmoid(clamped_steep * gate);
        const vf slope = s * (1.0f + clamped_steep * gate * (1.0f - s));
        store_m(dg + i, blend(raw <= most, d * (up + 1.0f) * slope, none), m);
        store_m(du + i, blend((wide <= most) & (wide >= least), d * gate * s, none), m);
    }
}

static void gated(float *y, const float *g, const float *u, size_t n, float limit)
{
    (void)limit;
    EACH(i, m, n)
    store_m(y + i, sigmoid(load_m(g + i, m)) * load_m(u + i, m), m);
}

static void gated_back(float *dg, float *du, const float *dy, const float *g, const float *u, size_t n,
                       float limit)
{
    (void)limit;
    EACH(i, m, n)
    {
        vf d = load_m(dy + i, m), up = load_m(u + i, m), s = sigmoid(load_m(g + i, m));
        store_m(dg + i, d * up * s * (1.0f - s), m);
        store_m(du + i, d * s, m);
    }
}

/* --- the delta rule: a few vectors of columns at a time, which stay in the first cache between
 * reading and writing them --- */

INLINE void delta_columns(const struct delta_step *t, size_t i, const int nv, size_t m)
{
    vf y[4] = {0}, o[4] = {0}, u[4];
    float *s = t->s + i;
    for (size_t p = 0; p < t->keys; p++, s += t->n)
        for (int j = 0; j < nv; j++) {
            const vf is = load_m(s + j * VL, m);
            y[j] += t->k[p] * is;
            o[j] += t->q[p] * is;
        }
    for (int j = 0; j < nv; j++) {
        const size_t at = i + (size_t)j * VL;
        u[j] = t->beta * (load_m(t->v + at, m) - t->decay * y[j]);
        store_m(t->o + at, t->decay * o[j] + t->qk * u[j], m);
    }
    s = t->s + i;
    for (size_t p = 0; p < t->keys; p++, s += t->n)
        for (int j = 0; j < nv; j++)
            store_m(s + j * VL, t->decay * load_m(s + j * VL, m) + t->k[p] * u[j], m);
}

static void delta(const struct delta_step *t)
{
    size_t i = 0;
    for (; i + 4 * VL <= t->n; i += 4 * VL)
        delta_columns(t, i, 4, VL);
    for (; i + VL <= t->n; i += VL)
        delta_columns(t, i, 1, VL);
    if (i < t->n)
        delta_columns(t, i, 1, t->n - i);
}

static void adamw(float *w, float *m1, float *v2, const float *g, size_t n, const struct adamw_consts *c)
{
    EACH(i, m, n)
    {
        vf grad = load_m(g + i, m) * c->gscale, wd = load_m(w + i, m) * c->decay;
        vf mom = load_m(m1 + i, m) * c->beta1 + grad * c->rest1;
        vf var = load_m(v2 + i, m) * c->beta2 + grad * grad * c->rest2;
        vf denom = vsqrt(var) / c->root_bias2 + c->eps;
        store_m(m1 + i, mom, m);
        store_m(v2 + i, var, m);
        store_m(w + i, wd - c->step_size * (mom / denom), m);
    }
}

/* --- dropout: VL Philox blocks at a time, the same numbers as rng.c's one --- */

INLINE void mul_wide(vu a, uint32_t by, vu *hi, vu *lo)
{
    const vu64 k = (vu64){0} + by, low_half = (vu64){0} + 0xffffffffu;
    vu64 even = mul_even((vu64)a, k), odd = mul_even((vu64)a >> 32, k);
    *lo = (vu)((even & low_half) | (odd << 32));
    *hi = (vu)((even >> 32) | (odd & ~low_half));
}

/* out[w] = word w of blocks counter … counter+VL−1. */
INLINE void philox_blocks(vu out[4], uint64_t counter, const uint32_t key[2])
{
    vu lane, k0 = (vu){0} + key[0], k1 = (vu){0} + key[1];
    for (uint32_t i = 0; i < VL; i++)
        lane[i] = i;
    const uint32_t first = (uint32_t)counter;
    vu c0 = lane + first, c1 = (uint32_t)(counter >> 32) - (vu)(c0 < first), c2 = {0}, c3 = {0};
    for (int round = 0; round < 10; round++) {
        vu hi0, lo0, hi1, lo1;
        mul_wide(c0, 0xD2511F53u, &hi0, &lo0);
        mul_wide(c2, 0xCD9E8D57u, &hi1, &lo1);
        c0 = hi1 ^ c1 ^ k0;
        c1 = lo1;
        c2 = hi0 ^ c3 ^ k1;
        c3 = lo0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

static void dropout(float *y, const float *x, size_t groups, uint64_t group, const struct dropout_consts *c)
{
    for (size_t g = 0; g < groups; g++, x += DROPOUT_GROUP, y += DROPOUT_GROUP)
        for (size_t b = 0; b < DROPOUT_BLOCKS; b += VL) {
            vu draw[4];
            philox_blocks(draw, c->counter + (group + g) * DROPOUT_BLOCKS + b, c->key);
            for (size_t w = 0; w < 4; w++) {
                const size_t at = w * DROPOUT_BLOCKS + b;
                vi kept = (vi)(draw[w] >= c->threshold);
                store(y + at, blend(kept, load(x + at) * c->keep, (vf){0}));
            }
        }
}

typedef uint8_t vbytes __attribute__((vector_size(VL)));

static void noise(uint8_t *to, size_t groups, uint64_t group, const uint32_t key[2])
{
    for (size_t g = 0; g < groups; g++, to += NOISE_GROUP)
        for (size_t b = 0; b < DROPOUT_BLOCKS; b += VL) {
            vu draw[4];
            philox_blocks(draw, (group + g) * DROPOUT_BLOCKS + b, key);
            for (size_t i = 0; i < 16; i++) {
                const vbytes bytes = __builtin_convertvector(draw[i / 4] >> (unsigned)(i % 4 * 8), vbytes);
                memcpy(to + i * DROPOUT_BLOCKS + b, &bytes, sizeof bytes);
            }
        }
}

extern const struct kernels KERNELS;
const struct kernels KERNELS = {
    .isa = KERNELS_ISA,
    .to_f32 = {[DTYPE_F32] = f32_to_f32,
               [DTYPE_F16] = f16_to_f32,
               [DTYPE_BF16] = bf16_to_f32,
               [DTYPE_F8_E4M3] = f8_to_f32},
    .dots =
        {[DTYPE_F32] = dots_f32, [DTYPE_F16] = dots_f16, [DTYPE_BF16] = dots_bf16, [DTYPE_F8_E4M3] = dots_f8},
    .block_to_f32 = load_blocks,
    .quant_to_f32 = {[2] = quant2_to_f32,
                     [3] = quant3_to_f32,
                     [4] = quant4_to_f32,
                     [5] = quant5_to_f32,
                     [6] = quant6_to_f32,
                     [8] = quant8_to_f32},
    .fp4_to_f32 = fp4_to_f32,
    .row8_to_f32 = row8_to_f32,
    .tile = tile,
    .transpose = transpose,
    .add = add,
    .axpy = axpy,
    .mul_add = mul_add,
    .scale = scale,
    .sumsq = sumsq,
    .dot = dot,
    .logsumexp = logsumexp,
    .exp_minus = exp_minus,
    .softmax_online = softmax_online,
    .softmax_columns = softmax_columns,
    .softmax_back = softmax_back,
    .rmsnorm = rmsnorm,
    .rmsnorm_back = rmsnorm_back,
    .rmsnorm_dw = rmsnorm_dw,
    .rope = rope,
    .rope_neighbours = rope_neighbours,
    .glu = {[GLU_SILU] = swiglu, [GLU_GELU_TANH] = geglu, [GLU_CLAMPED] = clamped, [GLU_SIGMOID] = gated},
    .glu_back = {[GLU_SILU] = swiglu_back,
                 [GLU_GELU_TANH] = geglu_back,
                 [GLU_CLAMPED] = clamped_back,
                 [GLU_SIGMOID] = gated_back},
    .delta = delta,
    .adamw = adamw,
    .dropout = dropout,
    .noise = noise,
};
