/* SPDX-License-Identifier: MIT
 *
 * The kernels of integer.h, in GCC's vector extensions on vectors of 32 bytes whatever the CPU's are. Compiled once per
 * instruction set with -DINTEGERS=int_kernels_X and without contraction. Any thread, no state. */
#include "num/integer.h"

#include <float.h>
#include <math.h>
#include <string.h>
#if defined __SSE2__
#include <immintrin.h>
#endif

#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 8,
    TOP_FEW = 32767,
    TOP_MANY4 = 127,
    TOP_MANY8 = 63,
    BLOCK = 64 /* steps whose scales are multiplied at once */
};
typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef uint16_t vh __attribute__((vector_size(32)));
typedef float v4 __attribute__((vector_size(16)));

/* acc plus, in each lane, the sum of the two products of 16 bits. */
INLINE vi add_products(vi acc, vh a, vh b)
{
#if defined __AVX512VNNI__
    return (vi)_mm256_dpwssd_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
#elif defined __AVX2__
    return acc + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined __SSE2__
    __m128i p[2], q[2];
    vi sum;
    memcpy(p, &a, sizeof p);
    memcpy(q, &b, sizeof q);
    p[0] = _mm_madd_epi16(p[0], q[0]);
    p[1] = _mm_madd_epi16(p[1], q[1]);
    memcpy(&sum, p, sizeof sum);
    return acc + sum;
#else
    const vi a_even = (vi)a << 16 >> 16, b_even = (vi)b << 16 >> 16;
    return acc + a_even * b_even + ((vi)a >> 16) * ((vi)b >> 16);
#endif
}

INLINE vf splat(float x)
{
    return x - (vf){0};
}

INLINE vh load16(const void *p)
{
    vh v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE vf load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE float sum_of(vf v)
{
    const v4 q = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
    return (q[0] + q[2]) + (q[1] + q[3]);
}

/* --- x --- */

/* Two numbers of 16 bits, `apart` apart, from place `at` of the n at q on. */
INLINE uint32_t two(const int16_t *q, size_t at, size_t apart)
{
    return (uint32_t)(uint16_t)q[at] | (uint32_t)(uint16_t)q[at + apart] << 16;
}

/* Of each 32 bytes those at even places, then those at odd. */
INLINE void order8(int16_t *to, const int16_t *q)
{
    uint32_t half[2 * LANES];
    for (size_t i = 0; i < INT_STEP; i += 4 * LANES, to += 4 * LANES, q += 4 * LANES) {
        for (size_t j = 0; j < LANES; j++) {
            half[j] = two(q, 4 * j, 2);
            half[LANES + j] = two(q, 4 * j + 1, 2);
        }
        memcpy(to, half, sizeof half);
    }
}

/* A nibble of each 16 bits, from the lowest to the highest. */
INLINE void order4(int16_t *to, const int16_t *q)
{
    uint32_t all[4 * LANES];
    for (size_t j = 0; j < LANES; j++)
        for (size_t k = 0; k < 4; k++)
            all[k * LANES + j] = two(q, 8 * j + k, 4);
    memcpy(to, all, sizeof all);
}

/* The largest magnitude; what is not finite is larger than all that is. */
INLINE float most_of(const float *x, size_t n)
{
    vi most = {0};
    for (size_t i = 0; i < n; i += LANES) {
        const vi size = (vi)load(x + i) & 0x7fffffff, more = size > most;
        most = (size & more) | (most & ~more);
    }
    int32_t all = 0;
    for (int k = 0; k < LANES; k++)
        all = most[k] > all ? most[k] : all;
    float ret;
    memcpy(&ret, &all, sizeof ret);
    return ret;
}

/* The whole numbers of a group of n elements, up to ±top; *ret_sum of what they stand for. Returns their scale. */
INLINE float group_levels(int16_t *q, const float *x, size_t n, const float top, float *ret_sum)
{
    const float most = most_of(x, n), magic = 0x1.8p23f; /* adding and subtracting it rounds to an integer */
    if (!(most > 1e-30f && most <= FLT_MAX)) { /* nearly nothing, which has no inverse, or not finite */
        memset(q, 0, n * sizeof *q);
        return *ret_sum = most > 1e-30f || isnan(most) ? NAN : 0;
    }
    const float scale = most / top, inverse = top / most;
    int32_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        q[i] = (int16_t)((x[i] * inverse + magic) - magic);
        sum += q[i];
    }
    *ret_sum = (float)sum * scale;
    return scale;
}

/* bits 0: bytes, in their own order. */
INLINE void quantize_any(const struct int_row *to, const float *x, size_t cols, const size_t bits,
                         size_t group, const float top)
{
    const size_t each = int_group(group);
    size_t g = 0;
    for (size_t at = 0; at < cols; at += INT_STEP) {
        int16_t q[INT_STEP];
        float padded[INT_STEP] = {0};
        const float *from = x + at;
        if (cols - at < INT_STEP) {
            memcpy(padded, from, (cols - at) * sizeof *x);
            from = padded;
        }
        for (size_t i = 0; i < INT_STEP; i += each, g++)
            to->scale[g] = group_levels(q + i, from + i, each, top, &to->sum[g]);
        if (bits == 8)
            order8(to->q + at, q);
        else if (bits == 4)
            order4(to->q + at, q);
        for (size_t i = 0; bits == 0 && i < INT_STEP; i++)
            to->bytes[at + i] = (int8_t)q[i];
    }
}

static void quantize(const struct int_row *to, const float *x, size_t cols, size_t bits, size_t group)
{
    if (bits == 8)
        quantize_any(to, x, cols, 8, group, TOP_FEW);
    else
        quantize_any(to, x, cols, 4, group, TOP_FEW);
}

static void quantize_bytes(const struct int_row *to, const float *x, size_t cols, size_t bits, size_t group)
{
    quantize_any(to, x, cols, 0, group, bits == 8 ? TOP_MANY8 : TOP_MANY4);
}

/* --- products with few rows --- */

/* What a step of W becomes: four vectors of 16 bits, in the order of x. */
INLINE void widen(vh w[4], const uint8_t *p, const size_t bits)
{
    const vh a = load16(p);
    if (bits == 8) {
        const vh b = load16(p + 32);
        w[0] = a & 255;
        w[1] = a >> 8;
        w[2] = b & 255;
        w[3] = b >> 8;
    } else {
        w[0] = a & 15;
        w[1] = a >> 4 & 15;
        w[2] = a >> 8 & 15;
        w[3] = a >> 12;
    }
}

/* acc + the step's sums times its scales: one, or two where groups are of 32. */
INLINE vf step_add(vf acc, const vh w[4], const int16_t *x, const float *scale, const size_t bits,
                   const bool narrow)
{
    vi s = add_products(add_products((vi){0}, w[0], load16(x)), w[1], load16(x + 16));
    if (narrow && bits == 8) {
        const vi t = add_products(add_products((vi){0}, w[2], load16(x + 32)), w[3], load16(x + 48));
        acc += __builtin_convertvector(s, vf) * splat(scale[0]);
        return acc + __builtin_convertvector(t, vf) * splat(scale[1]);
    }
    s = add_products(add_products(s, w[2], load16(x + 32)), w[3], load16(x + 48));
    vf by = splat(scale[0]);
    if (narrow)
        by = __builtin_shufflevector(by, splat(scale[1]), 0, 1, 2, 3, 12, 13, 14, 15);
    return acc + __builtin_convertvector(s, vf) * by;
}

struct tile {
    float product[INT_ROWS][2][2 * BLOCK]; /* of the scales of W and x */
    vf acc[INT_ROWS][2];
};

/* Of groups g … g+n−1 of x, `per` to a group of W. The last step's second group may be beyond the row: x is 0 there. */
INLINE void multiply_scales(float *to, const float *w, const float *x, size_t g, size_t n, size_t per,
                            size_t groups)
{
    if (per == 1 && g + n <= groups) {
        for (size_t i = 0; i < n; i++)
            to[i] = w[g + i] * x[g + i];
        return;
    }
    for (size_t i = 0; i < n; i++)
        to[i] = (g + i) / per < groups ? w[(g + i) / per] * x[g + i] : 0;
}

INLINE const void *row_of(const void *p, size_t bytes)
{
    return (const char *)p + bytes;
}

/* Steps first … first+n−1, all of them whole in W. */
INLINE void dots_steps(struct tile *t, const struct int_dots *d, size_t j, size_t first, size_t n,
                       const int nr, const int nx, const size_t bits, const bool narrow)
{
    const size_t bytes = INT_STEP * bits / 8, per = narrow ? 2 : 1;
    const uint8_t *w = d->w + first * bytes;
    const int16_t *x0 = row_of(d->x.q + first * INT_STEP, j * d->x_bytes), *x1 = row_of(x0, d->x_bytes);
    vf acc[INT_ROWS][2];
    UNROLL
    for (int r = 0; r < nr; r++)
        acc[r][0] = t->acc[r][0], acc[r][1] = t->acc[r][1];
    for (size_t i = 0; i < n; i++, w += bytes, x0 += INT_STEP, x1 += INT_STEP) {
        UNROLL
        for (int r = 0; r < nr; r++) {
            vh wide[4];
            widen(wide, w + (size_t)r * d->w_apart, bits);
            acc[r][0] = step_add(acc[r][0], wide, x0, t->product[r][0] + i * per, bits, narrow);
            if (nx > 1)
                acc[r][1] = step_add(acc[r][1], wide, x1, t->product[r][1] + i * per, bits, narrow);
        }
    }
    UNROLL
    for (int r = 0; r < nr; r++)
        t->acc[r][0] = acc[r][0], t->acc[r][1] = acc[r][1];
}

/* The last step of a row that ends within it. */
INLINE void dots_rest(struct tile *t, const struct int_dots *d, size_t j, size_t step, const int nr,
                      const int nx, const size_t bits, const bool narrow)
{
    uint8_t last[INT_ROWS][INT_STEP] = {0};
    struct int_dots rest = *d;
    const size_t at = step * INT_STEP;
    for (int r = 0; r < nr; r++)
        memcpy(last[r], d->w + (size_t)r * d->w_apart + at * bits / 8, (d->cols - at) * bits / 8);
    rest.w = last[0];
    rest.w_apart = INT_STEP;
    rest.x.q += at;
    dots_steps(t, &rest, j, 0, 1, nr, nx, bits, narrow);
}

/* What the biases give of row r: Σ bias · Σ x of the group. */
INLINE float bias_part(const struct int_dots *d, size_t j, size_t r)
{
    const float *bias = d->bias + r * d->side_apart, *sum = row_of(d->x.sum, j * d->x_bytes);
    const size_t per = d->group / int_group(d->group), n = (d->cols + d->group - 1) / d->group;
    vf acc = {0};
    size_t i = 0;
    if (per == 1)
        for (; i + LANES <= n; i += LANES)
            acc += load(bias + i) * load(sum + i);
    for (size_t k = 0; i < n; i++, k++)
        acc[k % LANES] += bias[i] * (per == 1                                   ? sum[i]
                                     : 2 * i + 1 < int_cols(d->cols) / INT_STEP ? sum[2 * i] + sum[2 * i + 1]
                                                                                : sum[2 * i]);
    return sum_of(acc);
}

INLINE void dots_tile(const struct int_dots *d, size_t j, const int nr, const int nx, const size_t bits,
                      const bool narrow)
{
    struct tile t;
    const size_t each = int_group(d->group), in_step = INT_STEP / each, steps = int_cols(d->cols) / INT_STEP;
    const size_t groups = (d->cols + d->group - 1) / d->group, whole = d->cols / INT_STEP;
    for (int r = 0; r < nr; r++)
        t.acc[r][0] = t.acc[r][1] = (vf){0};
    for (size_t at = 0, now; at < steps; at += now) {
        now = steps - at < BLOCK ? steps - at : BLOCK;
        for (int r = 0; r < nr; r++)
            for (int k = 0; k < nx; k++)
                multiply_scales(t.product[r][k], d->scale + (size_t)r * d->side_apart,
                                row_of(d->x.scale, (j + (size_t)k) * d->x_bytes), at * in_step, now * in_step,
                                d->group / each, groups);
        if (at == whole) {
            dots_rest(&t, d, j, at, nr, nx, bits, narrow);
            break;
        }
        now = now < whole - at ? now : whole - at;
        dots_steps(&t, d, j, at, now, nr, nx, bits, narrow);
    }
    for (int r = 0; r < nr; r++)
        for (int k = 0; k < nx; k++) {
            float *y = d->y + (j + (size_t)k) * d->ldy + (size_t)r * d->apart;
            const float s = sum_of(t.acc[r][k]) + bias_part(d, j + (size_t)k, (size_t)r);
            *y = d->accumulate ? *y + s : s;
        }
}

/* The rows of W, which stay in the first cache, with all of x. */
INLINE void dots_any(const struct int_dots *d, const int nr, const size_t bits, const bool narrow)
{
    size_t j = 0;
    for (; j + 2 <= d->n; j += 2)
        dots_tile(d, j, nr, 2, bits, narrow);
    if (j < d->n)
        dots_tile(d, j, nr, 1, bits, narrow);
}

static void dots(const struct int_dots *d)
{
    const bool narrow = d->group < INT_STEP;
    switch ((d->rows > 1 ? 4 : 0) + (d->bits == 8 ? 2 : 0) + narrow) {
    case 0: dots_any(d, 1, 4, false); break;
    case 1: dots_any(d, 1, 4, true); break;
    case 2: dots_any(d, 1, 8, false); break;
    case 3: dots_any(d, 1, 8, true); break;
    case 4: dots_any(d, INT_ROWS, 4, false); break;
    case 5: dots_any(d, INT_ROWS, 4, true); break;
    case 6: dots_any(d, INT_ROWS, 8, false); break;
    default: dots_any(d, INT_ROWS, 8, true); break;
    }
}

/* --- products with many rows: register blocks of INT_TILE rows of x by two vectors of rows of W --- */

#if defined __AVX512VNNI__
enum { WIDE = 16 };
#else
enum { WIDE = LANES };
#endif
enum { TALL = 2 * WIDE, EIGHT = 8 /* columns at once */ };
typedef float wf __attribute__((vector_size(WIDE * 4)));
typedef int32_t wi __attribute__((vector_size(WIDE * 4)));

/* acc plus, in each lane, the sum of its four products of a byte of w and a signed one of x. */
INLINE wi add_bytes(wi acc, wi w, wi x)
{
#if defined __AVX512VNNI__
    return (wi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)x);
#elif defined __AVX2__
    const __m256i twos = _mm256_maddubs_epi16((__m256i)w, (__m256i)x);
    return acc + (wi)_mm256_madd_epi16(twos, _mm256_set1_epi16(1));
#else
    typedef int16_t signed_h __attribute__((vector_size(32)));
    const vh even = (vh)((signed_h)((vh)x << 8) >> 8), odd = (vh)((signed_h)x >> 8);
    return add_products(add_products(acc, (vh)w & 255, even), (vh)w >> 8, odd);
#endif
}

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
        wi w0, w1;
        memcpy(&w0, w, sizeof w0);
        memcpy(&w1, w + WIDE, sizeof w1);
        UNROLL
        for (int i = 0; i < n; i++) {
            int32_t four;
            memcpy(&four, row_of(x + p, (size_t)i * t->x_bytes), sizeof four);
            const wi a = four - (wi){0};
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
#if defined __AVX512VNNI__
    .isa = "vnni",
#elif defined __AVX2__
    .isa = "avx2",
#else
    .isa = "base",
#endif
    .tall = TALL,
    .quantize = quantize,
    .dots = dots,
    .quantize_bytes = quantize_bytes,
    .pack = pack,
    .tile = tile,
};
