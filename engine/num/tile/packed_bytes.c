/* SPDX-License-Identifier: MIT
 *
 * Tiles of products of bytes (packed.h), and how numbers become bytes, in GCC's vector extensions.
 * Compiled once per instruction set with -DBYTES=packed_bytes_X and without contraction. Sums of
 * whole numbers are exact, and each is scaled in one order: all tables give the same bits. Any
 * thread, no state.
 *
 * Behind the cells of k a panel of A has MR scales and then MR sums, one of B has NR scales. Where
 * the CPU multiplies unsigned bytes with signed ones, B's are 128 more: the sums of A say what to
 * take away again. */
#include "num/packed.h"

#include <float.h>
#include <math.h>

#include "num/integer_isa.h"
#include "num/simd.h"
#include "num/tile/packed_trans.h"
#if defined __AMX_INT8__
#include "num/tile/amx.h"
#endif

#if defined __AMX_INT8__
enum { MR = 32, FOURS = 0, NC = 512, DEEP = AMX_CELLS, IN_ROWS = 1 };
#elif defined __AVX512VNNI__
enum { MR = 12, FOURS = 1, NC = 256, DEEP = 1, IN_ROWS = 0 };
#elif defined __AVXVNNI__
enum { MR = 6, FOURS = 1, NC = 128, DEEP = 1, IN_ROWS = 0 };
#else
enum { MR = 6, FOURS = 0, NC = 128, DEEP = 1, IN_ROWS = 0 };
#endif
enum {
    VECTORS = 2,
    NR = VECTORS * VL,
    PER = 4,
    TAIL = 2,
    STEPS = 8,          /* of cells, for each of which a line is fetched */
    TOP = 127,          /* the largest whole number */
    MORE = 128,         /* that B's bytes are more, where FOURS */
    MAGIC = 0x4b400000, /* the bits of 1.5 · 2²³: adding it leaves a whole number in the lowest bits */
};

/* --- multiplying --- */

/* What sums of whole numbers stand for. */
INLINE void add_scaled(float *to, vi sums, vf scale, bool accumulate)
{
    const vf y = __builtin_convertvector(sums, vf) * scale;
    store(to, accumulate ? load(to) + y : y);
}

#if defined __AMX_INT8__
/* Two by two tiles of sums. Of A a row's cells lie together, as of B a step's do. */
static void tile(const struct packed_tile *t)
{
    _Alignas(AMX_BYTES) vi sums[MR][VECTORS];
    const float *a = t->a, *b = t->b, *by_a = a + t->k * MR, *by_b = b + t->k * NR, *next = t->next_c;
    const size_t k = t->k, ldc = t->ldc, apart = k * PER, row = sizeof *sums, fetched = MR * DEEP / k;
    const bool accumulate = t->accumulate;
    float *c = t->c;
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (size_t p = 0; p < k; p += DEEP, a += DEEP, b += DEEP * NR, next += fetched * ldc) {
        AMX_LOAD(4, a, apart);
        AMX_LOAD(6, b, row);
        AMX_SIGNED(0, 4, 6);
        AMX_LOAD(7, b + VL, row);
        AMX_SIGNED(1, 4, 7);
        AMX_LOAD(5, a + AMX_ROWS * k, apart);
        AMX_SIGNED(2, 5, 6);
        AMX_SIGNED(3, 5, 7);
        amx_fetch(next, ldc, fetched);
    }
    AMX_STORE(&sums[0][0], 0, row);
    AMX_STORE(&sums[0][1], 1, row);
    AMX_STORE(&sums[AMX_ROWS][0], 2, row);
    AMX_STORE(&sums[AMX_ROWS][1], 3, row);
    const vf columns[VECTORS] = {load(by_b), load(by_b + VL)};
    for (size_t i = 0; i < MR; i++, c += ldc)
        UNROLL
    for (size_t j = 0; j < VECTORS; j++)
        add_scaled(c + j * VL, sums[i][j], columns[j] * splat(by_a[i]), accumulate);
}
#else
INLINE vi splat_cell(const float *p)
{
    int32_t bits; /* as a float it may be a NaN, which arithmetic would change */
    memcpy(&bits, p, sizeof bits);
    return bits - (vi){0};
}

/* acc plus, in each lane, the sum of the four products of a byte of b and one of a. */
INLINE void add_fours(vi *acc, vi b, vi a)
{
#if defined __AVX512VNNI__
    __asm__("vpdpbusd %2, %1, %0" : "+v"(*acc) : "v"(b), "v"(a));
#elif defined __AVXVNNI__
    *acc = (vi)_mm256_dpbusd_avx_epi32((__m256i)*acc, (__m256i)b, (__m256i)a);
#elif defined __AVX2__
    const __m256i twos =
        _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)b), _mm256_sign_epi8((__m256i)a, (__m256i)b));
    *acc += (vi)_mm256_madd_epi16(twos, _mm256_set1_epi16(1));
#else
    for (int i = 0; i < 4; i++)
        *acc += ((vi)((vu)a << (24 - 8 * i)) >> 24) * ((vi)((vu)b << (24 - 8 * i)) >> 24);
#endif
}

/* One cell of each row and column. */
INLINE void step(vi acc[MR][VECTORS], const float *a, const float *b)
{
    vi columns[VECTORS];
    memcpy(columns, b, sizeof columns);
    UNROLL
    for (size_t i = 0; i < MR; i++) {
        const vi x = splat_cell(a + i);
        UNROLL
        for (size_t j = 0; j < VECTORS; j++)
            add_fours(&acc[i][j], columns[j], x);
    }
}

static void tile(const struct packed_tile *t)
{
    const float *a = t->a, *b = t->b, *next_a = t->next_a, *next_c = t->next_c;
    const float *by_a = a + t->k * MR, *by_b = b + t->k * NR;
    int32_t sum[MR];
    vi acc[MR][VECTORS];
    memcpy(sum, by_a + MR, sizeof sum);
    UNROLL
    for (size_t i = 0; i < MR; i++)
        UNROLL
    for (size_t j = 0; j < VECTORS; j++)
        acc[i][j] = (FOURS ? -MORE * sum[i] : 0) - (vi){0};
    size_t p = 0, turn = 0;
    for (; p + STEPS <= t->k; p += STEPS, turn++) {
        __builtin_prefetch(next_a);
        next_a += TRANS_LINE;
        for (size_t i = 0; i < NR && turn < MR; i += TRANS_LINE)
            __builtin_prefetch(next_c + i, 0, 2);
        next_c += t->ldc;
        UNROLL
        for (size_t q = 0; q < STEPS; q++)
            step(acc, a + (p + q) * MR, b + (p + q) * NR);
    }
    for (; p < t->k; p++)
        step(acc, a + p * MR, b + p * NR);
    vf columns[VECTORS];
    memcpy(columns, by_b, sizeof columns);
    UNROLL
    for (size_t i = 0; i < MR; i++)
        UNROLL
    for (size_t j = 0; j < VECTORS; j++)
        add_scaled(t->c + i * t->ldc + j * VL, acc[i][j], columns[j] * splat(by_a[i]), t->accumulate);
}
#endif

/* --- numbers in bytes --- */

typedef uint8_t vb __attribute__((vector_size(VL)));
typedef int8_t vs __attribute__((vector_size(VL)));

INLINE vi larger(vi a, vi b)
{
#if defined __AVX512F__
    return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined __AVX2__
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    const vi more = a > b;
    return (a & more) | (b & ~more);
#endif
}

/* The bits of magnitudes: those of what is not finite are larger than all others. */
INLINE vi magnitude(vf x)
{
    return (vi)x & 0x7fffffff;
}

/* What numbers up to `most` are multiplied by, and the scale: nearly nothing has no inverse. */
INLINE float scale_of(float most, float *inverse)
{
    const bool is_some = most > 1e-30f && most <= FLT_MAX;
    *inverse = is_some ? TOP / most : 0;
    return is_some ? most / TOP : most <= 1e-30f ? 0 : NAN;
}

INLINE vi nearest(vf x, vf inverse)
{
    return (vi)(x * inverse + splat(0x1.8p23f)) - MAGIC;
}

INLINE vi wide_bytes(const uint8_t *p)
{
#if defined __AVX512F__
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
#elif defined __AVX2__
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
    vb v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, vi);
#endif
}

/* The lowest bytes. */
INLINE void put(int8_t *to, vi n)
{
#if defined __AVX512F__
    _mm_storeu_si128((__m128i *)to, _mm512_cvtepi32_epi8((__m512i)n));
#else
    const vs bytes = __builtin_convertvector(n, vs);
    memcpy(to, &bytes, sizeof bytes);
#endif
}

/* Where a number is at least −127, 128 more is positive: cut off, it is rounded down. What is added
 * is 128 + (noise + ½) / 256, put together as the bits of that float. No number is off 127 by so
 * much that it would become 128. */
INLINE vi drawn(vf x, vf inverse, const uint8_t *noise)
{
    enum { MORE_AND_HALF = 0x43000080 };
    const vf more = (vf)((wide_bytes(noise) << 8) | MORE_AND_HALF);
    return __builtin_convertvector(x * inverse + more, vi) - MORE;
}

INLINE int32_t largest(vi v)
{
#if defined __AVX512F__
    return _mm512_reduce_max_epi32((__m512i)v);
#else
    int32_t best = v[0];
    for (int i = 1; i < VL; i++)
        best = v[i] > best ? v[i] : best;
    return best;
#endif
}

/* Fetches what comes next. */
INLINE float most_of(const float *src, size_t n, const float *next)
{
    vi most = {0};
    size_t i = 0;
    for (; i + TRANS_LINE <= n; i += TRANS_LINE) {
        UNROLL
        for (size_t j = 0; j < TRANS_LINE; j += VL)
            most = larger(most, magnitude(load(src + i + j)));
        __builtin_prefetch(next + i);
    }
    for (; i < n; i += VL)
        most = larger(most, magnitude(load_m(src + i, n - i < VL ? n - i : VL)));
    const int32_t best = largest(most);
    float ret;
    memcpy(&ret, &best, sizeof ret);
    return ret;
}

/* How a row becomes bytes: multiplied by what, rounded by what (NULL: to nearest), and `more` than
 * the whole numbers. */
struct rounding {
    float inverse;
    const uint8_t *noise;
    int more;
};

INLINE vi level(vf x, const struct rounding *r, size_t at, const bool is_drawn)
{
    return is_drawn ? drawn(x, splat(r->inverse), r->noise + at) : nearest(x, splat(r->inverse));
}

/* Returns the sum of the whole numbers. Beyond the last, up to whole steps of cells, bytes are 0. A
 * row may become bytes where it lies: what is read last is written last. */
INLINE int32_t put_row(int8_t *to, const float *src, size_t n, const struct rounding *r, const bool is_drawn)
{
    const size_t all = (n + PER * DEEP - 1) / (PER * DEEP) * (PER * DEEP), fours = (n + PER - 1) / PER * PER;
    vi sum = {0};
    size_t i = 0;
    for (; r->inverse > 0 && i + VL <= n; i += VL) {
        const vi q = level(load(src + i), r, i, is_drawn);
        sum += q;
        put(to + i, q + r->more);
    }
    if (r->inverse > 0 && i < n) {
        uint8_t noise[VL] = {0};
        int8_t bytes[VL];
        memcpy(noise, is_drawn ? r->noise + i : noise, is_drawn ? n - i : 0);
        const struct rounding last = {r->inverse, noise, r->more};
        const vi q = level(load_m(src + i, n - i), &last, 0, is_drawn);
        sum += q;
        put(bytes, q + r->more);
        memcpy(to + i, bytes, fours - i);
    }
    if (!(r->inverse > 0))
        memset(to, r->more, fours);
    memset(to + fours, 0, all - fours);
    int32_t ret = 0;
    for (int k = 0; FOURS && k < VL; k++)
        ret += sum[k];
    return ret;
}

static float of_a(float *dst, const float *src, size_t n, const float *next, const uint8_t *noise,
                  int32_t *ret_sum)
{
    struct rounding r = {.noise = noise};
    const float scale = scale_of(most_of(src, n, next), &r.inverse);
    if (noise)
        *ret_sum = put_row((int8_t *)dst, src, n, &r, true);
    else
        *ret_sum = put_row((int8_t *)dst, src, n, &r, false);
    return scale;
}

static float of_b(float *dst, const float *src, size_t n, const float *next)
{
    struct rounding r = {.more = FOURS ? MORE : 0};
    const float scale = scale_of(most_of(src, n, next), &r.inverse);
    put_row((int8_t *)dst, src, n, &r, false);
    return scale;
}

INLINE vf row_of_b(const float *row, size_t n, size_t j, const bool whole)
{
    const size_t at = j * VL;
    return whole ? load(row + at) : at < n ? load_m(row + at, n - at < VL ? n - at : VL) : (vf){0};
}

/* Of each column its scale and its inverse. */
INLINE void column_scales(vf scale[VECTORS], vf inverse[VECTORS], const float *src, size_t lds, size_t k,
                          size_t n, const bool whole)
{
    vi most[VECTORS] = {0};
    for (size_t p = 0; p < k; p++)
        UNROLL
    for (size_t j = 0; j < VECTORS; j++)
        most[j] = larger(most[j], magnitude(row_of_b(src + p * lds, n, j, whole)));
    for (size_t j = 0; j < VECTORS; j++) {
        const vf x = (vf)most[j];
        const vi some = (x > 1e-30f) & (x <= FLT_MAX);
        inverse[j] = blend(some, (float)TOP / x, (vf){0});
        scale[j] = blend(some, x / (float)TOP, blend(x <= 1e-30f, (vf){0}, splat(NAN)));
    }
}

INLINE void columns(float *dst, const float *src, size_t lds, size_t k, size_t n, const bool whole)
{
    vf scale[VECTORS], inverse[VECTORS];
    column_scales(scale, inverse, src, lds, k, n, whole);
    const size_t cells = (k + PER * DEEP - 1) / (PER * DEEP) * DEEP;
    for (size_t p = 0; p < cells * PER; p += PER, dst += NR)
        for (size_t j = 0; j < VECTORS; j++) {
            vu cell = {0};
            UNROLL
            for (size_t q = 0; q < PER; q++) {
                const vi level =
                    p + q < k ? nearest(row_of_b(src + (p + q) * lds, n, j, whole), inverse[j]) : (vi){0};
                cell |= ((vu)level & 255u) << (unsigned)(8 * q);
            }
            cell ^= FOURS ? 0x80808080u : 0;
            memcpy(dst + j * VL, &cell, sizeof cell);
        }
    memcpy(dst, scale, sizeof scale);
}

static void by_k(float *dst, const float *src, size_t lds, size_t k, size_t n)
{
    if (n >= NR)
        columns(dst, src, lds, k, n, true);
    else
        columns(dst, src, lds, k, n, false);
}

/* --- the table --- */

static void pack_trans_mr(float *dst, const float *src, size_t lds, size_t k, const float *next)
{
    pack_trans(dst, src, lds, k, next, MR);
}

static void pack_trans_nr(float *dst, const float *src, size_t lds, size_t k, const float *next)
{
    pack_trans(dst, src, lds, k, next, NR);
}

static const struct packed_bytes bytes = {
    .isa = INTEGER_ISA,
    .of_a = of_a,
    .of_b = of_b,
    .by_k = by_k,
};

extern const struct packed_kernels BYTES;
const struct packed_kernels BYTES = {
    .mr = MR,
    .nr = NR,
    .per = PER,
    .tail = TAIL,
    .deep = DEEP,
    .nc = NC,
    .in_rows = IN_ROWS,
    .tile = tile,
#if defined __AMX_INT8__
    .begin = amx_begin_whole,
    .end = amx_end,
#endif
    .pack_trans_mr = pack_trans_mr,
    .pack_trans_nr = pack_trans_nr,
    .bytes = &bytes,
};
