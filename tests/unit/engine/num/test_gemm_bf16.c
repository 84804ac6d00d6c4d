/* SPDX-License-Identifier: MIT
 *
 * Products of factors rounded to bf16: the CPU's instructions against plain twins, bit by bit; the
 * four ways there are of multiplying (AMX, the instruction for vectors, f32 tiles, OpenBLAS)
 * against f64 loops over what rounding leaves, for every stored type; and the same bits whatever
 * the rows, the threads and the tiles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/bits.h"
#include "num/gemm.h"
#include "num/kernels.h"
#include "num/packed.h"
#include "num/rng.h"
#include "tests/lib/draw.h"
#include "tests/lib/isas.h"

/* The linker puts these in place of what isa.c would choose. All NULL: OpenBLAS multiplies. */
struct way {
    const struct packed_kernels *f32, *bf16, *amx;
};
static struct way way;

const struct packed_kernels *__real_isa_pick_packed(void);
const struct packed_kernels *__real_isa_pick_packed_bf16(void);
const struct packed_kernels *__real_isa_pick_packed_amx(void);
const struct packed_kernels *__wrap_isa_pick_packed(void);
const struct packed_kernels *__wrap_isa_pick_packed_bf16(void);
const struct packed_kernels *__wrap_isa_pick_packed_amx(void);

const struct packed_kernels *__wrap_isa_pick_packed(void)
{
    return way.f32;
}

const struct packed_kernels *__wrap_isa_pick_packed_bf16(void)
{
    return way.bf16;
}

const struct packed_kernels *__wrap_isa_pick_packed_amx(void)
{
    return way.amx;
}

/* All that this CPU can go. First those whose tiles have the same bits, which are *ret_tiles; then
 * AMX, if there is; OpenBLAS is the last. */
enum { WAYS_MOST = ISAS_MOST + 3 };
static size_t ways(struct way all[WAYS_MOST], size_t *ret_tiles)
{
    const struct packed_kernels *f32[ISAS_MOST];
    size_t n = 0;
    way.f32 = __real_isa_pick_packed();
    for (size_t tables = isas_packed(f32); n < tables; n++)
        all[n] = (struct way){f32[n], NULL, NULL};
    if (__real_isa_pick_packed_bf16())
        all[n++] = (struct way){way.f32, __real_isa_pick_packed_bf16(), NULL};
    *ret_tiles = n;
    if (__real_isa_pick_packed_amx())
        all[n++] = (struct way){way.f32, NULL, __real_isa_pick_packed_amx()};
    all[n++] = (struct way){NULL, NULL, NULL};
    return n;
}

static struct num *unit(struct way how, int threads)
{
    struct num *num = NULL;
    way = how;
    assert_int_equal(num_new(&num, threads, NULL), 0);
    num_set_compute(num, NUM_BF16);
    return num;
}

static const struct packed_kernels *instruction(void)
{
    const struct packed_kernels *k = __real_isa_pick_packed_bf16();
    if (!k) {
        puts("this CPU has no instruction for bf16: nothing to check");
        skip();
    }
    return k;
}

/* To nearest, to even between two. */
static float rounded(float x)
{
    const uint32_t u = bits_of(x);
    return isnan(x) ? x : float_of((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000);
}

static float *rounded_all(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = rounded(x[i]);
    return x;
}

static bool is_same(float a, float b)
{
    return (isnan(a) && isnan(b)) || bits_of(a) == bits_of(b);
}

/* --- the instruction -------------------------------------------------------------------------- */

/* Its sign stays. */
static float flushed(float x)
{
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

/* acc plus the odd product, then the even one, each sum rounded once; what is subnormal is 0,
 * before and after. */
static float twin(float acc, uint32_t a, uint32_t b)
{
    const float a1 = flushed(float_of(a & 0xffff0000)), b1 = flushed(float_of(b & 0xffff0000));
    const float a0 = flushed(float_of(a << 16)), b0 = flushed(float_of(b << 16));
    acc = flushed(fmaf(a1, b1, flushed(acc)));
    return flushed(fmaf(a0, b0, acc));
}

/* How exponents are drawn. */
enum kind { ANY, NEAR_ONE, TINY, HUGE_ONES, CANCELLING, KINDS };

static uint32_t pair_of(struct rng *rng, enum kind kind, bool second)
{
    static const uint16_t mask[KINDS] = {0xffff, 0x83ff, 0x83ff, 0x83ff, 0x83ff};
    static const uint16_t base[KINDS][2] = {
        {0, 0}, {0x3c00, 0x3c00}, {0x2000, 0x1c00}, {0x5c00, 0x6000}, {0x3c00, 0x3c00}};
    const uint32_t r = (uint32_t)rng_below(rng, UINT64_C(1) << 32);
    return (r & (mask[kind] * 0x10001u)) | base[kind][second] * 0x10001u;
}

/* One tile of random cells; of CANCELLING the second half is the first with other signs, and a
 * little is left. */
static void check_tile(const struct packed_kernels *k, struct rng *rng, enum kind kind, size_t depth)
{
    float *a = calloc(depth * k->mr, sizeof *a), *b = calloc(depth * k->nr, sizeof *b);
    float *c = calloc(k->mr * k->nr, sizeof *c);
    assert_true(a && b && c);
    for (size_t p = 0; p < depth; p++) {
        const bool again = kind == CANCELLING && p >= depth / 2 && p >= depth - depth / 2;
        const size_t first = p - depth / 2;
        for (size_t i = 0; i < k->mr; i++) {
            const uint32_t bits = again ? bits_of(a[first * k->mr + i]) : pair_of(rng, kind, false);
            memcpy(&a[p * k->mr + i], &bits, sizeof bits);
        }
        for (size_t j = 0; j < k->nr; j++) {
            const uint32_t bits =
                again ? bits_of(b[first * k->nr + j]) ^ 0x80008000u : pair_of(rng, kind, true);
            memcpy(&b[p * k->nr + j], &bits, sizeof bits);
        }
    }
    k->tile(
        &(struct packed_tile){.c = c, .ldc = k->nr, .a = a, .b = b, .k = depth, .next_a = a, .next_c = c});
    for (size_t i = 0; i < k->mr; i++)
        for (size_t j = 0; j < k->nr; j++) {
            float want = 0;
            for (size_t p = 0; p < depth; p++)
                want = twin(want, bits_of(a[p * k->mr + i]), bits_of(b[p * k->nr + j]));
            if (!is_same(c[i * k->nr + j], want))
                fail_msg("kind %d, depth %zu at [%zu, %zu]: %08x, the twin has %08x", kind, depth, i, j,
                         bits_of(c[i * k->nr + j]), bits_of(want));
        }
    free(a), free(b), free(c);
}

static void instruction_is_its_twin(void **state)
{
    (void)state;
    const struct packed_kernels *const wide = instruction(), *const tables[] = {wide, wide->narrow};
    struct rng rng = rng_for(1, "pairs");
    for (enum kind kind = 0; kind < KINDS; kind++)
        for (size_t depth = 1; depth <= 40; depth++)
            for (size_t t = 0; t < 2; t++)
                check_tile(tables[t], &rng, kind, depth);
}

/* What AMX makes of 32 numbers of k: even and odd ones each in a sum, then both. */
static float amx_twin(float acc, const float *a, const float *b, size_t b_apart)
{
    float even = 0, odd = 0;
    for (size_t p = 0; p < 16; p++) {
        const uint32_t x = bits_of(a[p]), y = bits_of(b[p * b_apart]);
        even = flushed(fmaf(flushed(float_of(x << 16)), flushed(float_of(y << 16)), even));
        odd = flushed(fmaf(flushed(float_of(x & 0xffff0000)), flushed(float_of(y & 0xffff0000)), odd));
    }
    return flushed(flushed(acc) + flushed(even + odd));
}

static float cell_of(struct rng *rng, enum kind kind, bool second)
{
    return float_of(pair_of(rng, kind, second));
}

/* One tile of random cells, added to what C has. */
static void check_amx_tile(const struct packed_kernels *k, struct rng *rng, enum kind kind, size_t depth)
{
    float *a = calloc(depth * k->mr, sizeof *a), *b = calloc(depth * k->nr, sizeof *b);
    float *was = random_floats(k->mr * k->nr, "c"), *c = random_floats(k->mr * k->nr, "c");
    assert_true(a && b);
    for (size_t i = 0; i < depth * k->mr; i++)
        a[i] = cell_of(rng, kind, false);
    for (size_t i = 0; i < depth * k->nr; i++)
        b[i] = cell_of(rng, kind, true);
    k->begin();
    k->tile(&(struct packed_tile){
        .c = c, .ldc = k->nr, .a = a, .b = b, .k = depth, .accumulate = true, .next_a = a, .next_c = c});
    k->end();
    for (size_t i = 0; i < k->mr; i++)
        for (size_t j = 0; j < k->nr; j++) {
            float want = was[i * k->nr + j];
            for (size_t p = 0; p < depth; p += 16)
                want = amx_twin(want, a + i * depth + p, b + p * k->nr + j, k->nr);
            if (!is_same(c[i * k->nr + j], want))
                fail_msg("kind %d, depth %zu at [%zu, %zu]: %08x, the twin has %08x", kind, depth, i, j,
                         bits_of(c[i * k->nr + j]), bits_of(want));
        }
    free(a), free(b), free(c), free(was);
}

static void amx_is_its_twin(void **state)
{
    (void)state;
    const struct packed_kernels *k = __real_isa_pick_packed_amx();
    if (!k)
        skip();
    struct rng rng = rng_for(1, "pairs");
    for (enum kind kind = 0; kind < KINDS; kind++)
        for (size_t depth = k->deep; depth <= 5 * k->deep; depth += k->deep)
            check_amx_tile(k, &rng, kind, depth);
}

/* --- rounding --------------------------------------------------------------------------------- */

/* The number of k from packed cells: those of one number have the two of a pair the other way
 * round. */
static float from_cells(const struct packed_kernels *k, const float *cells, size_t i, size_t n)
{
    if (k->per == 1)
        return cells[(i ^ 1) < n ? i ^ 1 : i];
    const uint32_t pair = bits_of(cells[i / 2]);
    return float_of(i % 2 ? pair & 0xffff0000 : pair << 16);
}

static void check_rounding(const struct packed_kernels *k, struct rng *rng, size_t n)
{
    float src[80] = {0}, dst[82];
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)rng_below(rng, UINT64_C(1) << 32);
        if (i % 3 == 0)
            bits = (bits & 0xffff0000) | 0x8000; /* halfway */
        if (i % 7 == 0)
            bits |= 0x7f800000; /* infinities and NaNs, one that a carry would make a number */
        if (i % 14 == 0)
            bits = i % 28 ? 0x7fffffff : 0x7f800000;
        src[i] = float_of(bits);
    }
    const size_t cells = (n + k->per - 1) / k->per;
    dst[cells] = 5;
    k->round(dst, src, n);
    assert_true(dst[cells] == 5);
    for (size_t i = 0; i < n; i++) {
        const float want = rounded(src[i]), got = from_cells(k, dst, i, n);
        if (!is_same(got, want) && !(k->per == 2 && is_same(flushed(src[i]), got)))
            fail_msg("%08x of %zu of %zu becomes %08x", bits_of(src[i]), i, n, bits_of(got));
    }
    if (k->per == 2 && n % 2)
        assert_int_equal(bits_of(dst[n / 2]) >> 16, 0);
    k->round(src, src, n);
    assert_memory_equal(src, dst, cells * sizeof *dst);
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    struct way all[WAYS_MOST];
    size_t tiles;
    struct rng rng = rng_for(2, "round");
    const size_t blas = ways(all, &tiles) - 1;
    for (size_t t = 0; t < blas; t++)
        for (size_t n = 0; n <= 80; n++)
            check_rounding(all[t].amx ? all[t].amx : all[t].bf16 ? all[t].bf16 : all[t].f32, &rng, n);
}

/* --- products --------------------------------------------------------------------------------- */

enum form { F32, F32_SHIFTED, BF16, BF16_SHIFTED, F16, FP8, QUANT8, QUANT4, FORMS };

struct weight {
    struct mat mat;
    struct quant quant;
    char *raw;
    float *sides; /* scales and biases */
    float *f;     /* what they stand for, rounded */
};

static void quantize(struct num *num, struct weight *w, struct mat from, size_t bits)
{
    const size_t groups = from.rows * quant_groups(QUANT_GROUP, from.cols);
    w->quant = (struct quant){
        .bits = bits, .group = QUANT_GROUP, .side = DTYPE_F32, .scale = w->sides, .bias = w->sides + groups};
    assert_int_equal(gemm_quantize(num, (uint32_t *)(void *)w->raw, w->sides, w->sides + groups, from, 0,
                                   from.rows, bits, QUANT_GROUP),
                     0);
    w->mat.quant = &w->quant;
}

static void weight_new(struct num *num, struct weight *w, enum form form, size_t rows, size_t cols)
{
    static const enum dtype types[FORMS] = {
        [BF16] = DTYPE_BF16, [BF16_SHIFTED] = DTYPE_BF16, [F16] = DTYPE_F16, [FP8] = DTYPE_F8_E4M3};
    const size_t n = rows * cols, shift = form == F32_SHIFTED || form == BF16_SHIFTED ? 2 : 0;
    float *drawn = random_floats(n, "w");
    *w = (struct weight){.raw = malloc(4 * n + 8), .sides = random_floats(2 * n, "s"), .f = malloc(4 * n)};
    assert_true(w->raw && w->f);
    w->mat = (struct mat){
        .data = w->raw + shift, .dtype = types[form], .rows = rows, .cols = cols, .scale = w->sides};
    for (size_t i = 0; i < n; i++) {
        const uint16_t half = (uint16_t)(bits_of(drawn[i]) >> 16 & (form == F16 ? 0xbfff : 0xffff));
        const size_t size = dtype_size(types[form]);
        if (form == FP8)
            w->raw[i] = (char)(half >> 8 & 0xbf);
        else
            memcpy(w->raw + shift + i * size, size == 4 ? (const void *)&drawn[i] : &half, size);
    }
    if (form >= QUANT8)
        quantize(num, w, (struct mat){.data = drawn, .dtype = DTYPE_F32, .rows = rows, .cols = cols},
                 form == QUANT8 ? 8 : 4);
    gemm_rows(num, w->f, w->mat, 0, rows);
    rounded_all(w->f, n);
    free(drawn);
}

static void weight_done(struct weight *w)
{
    free(w->raw), free(w->sides), free(w->f);
}

/* Beside f64 sums of the rounded factors: √k · 2 roundings of Σ |a·b|, as in f32. down: dy · W. */
static void check_shape(struct way how, int threads, enum form form, size_t n, size_t rows, size_t cols,
                        bool down)
{
    struct num *num = unit(how, threads);
    struct weight w;
    weight_new(num, &w, form, rows, cols);
    const size_t in = down ? rows : cols, out = down ? cols : rows;
    float *x = random_floats(n * in, "x"), *xr = rounded_all(random_floats(n * in, "x"), n * in);
    float *y = random_floats(n * out, "y"), *was = random_floats(n * out, "y");
    (down ? gemm_xw : gemm_xwt)(num, y, x, w.mat, n, true);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < out; j++) {
            double sum = (double)was[i * out + j], size = fabs(sum);
            for (size_t p = 0; p < in; p++) {
                const double term =
                    (double)xr[i * in + p] * (double)(down ? w.f[p * cols + j] : w.f[j * cols + p]);
                sum += term;
                size += fabs(term);
            }
            const double off = fabs((double)y[i * out + j] - sum);
            if (!(off <= 1.2e-7 * (2 + sqrt((double)in)) * size))
                fail_msg("%scells of %zu, form %d, %zu x %zu x %zu%s at [%zu, %zu]: off by %g",
                         how.amx ? "AMX, " : "",
                         how.amx    ? how.amx->per
                         : how.bf16 ? how.bf16->per
                         : how.f32  ? how.f32->per
                                    : 0,
                         form, n, rows, cols, down ? ", down," : "", i, j, off);
        }
    weight_done(&w);
    free(x), free(xr), free(y), free(was);
    num_free(num);
}

static void sums_are_those_of_rounded_factors(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{17, 1, 1},     {40, 37, 129}, {33, 66, 64}, {61, 33, 1002},
                                       {25, 270, 776}, {200, 16, 96}, {700, 40, 8}, {1200, 18, 1602}};
    struct way all[WAYS_MOST];
    size_t tiles;
    const size_t n = ways(all, &tiles);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (enum form form = 0; form < FORMS; form++)
            for (size_t k = 0; k < n; k++)
                for (int down = 0; down < 2; down++)
                    if (form < QUANT8 || shapes[i][2] % 8 == 0)
                        check_shape(all[k], (int)(i + form) % 3 + 1, form, shapes[i][0], shapes[i][1],
                                    shapes[i][2], down);
}

/* As many as a prompt has, or a chunk of it; the instruction gives the bits of f32 tiles. */
static void same_bits(const struct way all[], size_t tiles, struct mat mat, bool down)
{
    enum { N = 75 };
    if (!tiles)
        return;
    const size_t in = down ? mat.rows : mat.cols, out = down ? mat.cols : mat.rows;
    void (*const multiply)(struct num *, float *, const float *, struct mat, size_t, bool) =
        down ? gemm_xw : gemm_xwt;
    float *x = random_floats(N * in, "x"), *want = malloc(N * out * sizeof *want),
          *got = malloc(N * out * sizeof *got);
    struct num *one = unit(all[0], 1);
    assert_true(want && got);
    multiply(one, want, x, mat, N, false);
    for (int threads = 1; threads <= 4; threads++)
        for (size_t k = 0; k < tiles; k++) {
            struct num *num = unit(all[k], threads);
            multiply(num, got, x, mat, N, false);
            assert_memory_equal(got, want, N * out * sizeof *got);
            for (size_t from = 0, rows; from < N; from += rows) {
                rows = from ? 30 : 15; /* a narrow tile has them all */
                multiply(num, got + from * out, x + from * in, mat, rows, false);
            }
            assert_memory_equal(got, want, N * out * sizeof *got);
            num_free(num);
        }
    free(x), free(want), free(got);
    num_free(one);
}

static void rows_threads_and_tiles_change_no_bit(void **state)
{
    (void)state;
    enum { ROWS = 530, COLS = 1030 };
    struct way all[WAYS_MOST];
    size_t tiles;
    const size_t blas = ways(all, &tiles) - 1;
    if (!tiles)
        skip();
    struct num *one = unit(all[0], 1);
    for (enum form form = F32; form <= BF16; form++) {
        struct weight w;
        weight_new(one, &w, form, ROWS, COLS);
        for (int down = 0; down < 2; down++) {
            same_bits(all, tiles, w.mat, down);
            same_bits(all + tiles, blas - tiles, w.mat, down);
        }
        weight_done(&w);
    }
    num_free(one);
}

static void few_rows_are_not_rounded(void **state)
{
    (void)state;
    enum { N = 30, ROWS = 50, COLS = 70 };
    struct way all[WAYS_MOST];
    size_t tiles;
    const size_t n = ways(all, &tiles);
    for (size_t k = 0; k < n; k++) {
        struct num *num = unit(all[k], 2);
        float *x = random_floats(N * COLS, "x"), *w = random_floats(ROWS * COLS, "w");
        float f32[N * ROWS], y[N * ROWS];
        const struct mat mat = {.data = w, .dtype = DTYPE_F32, .rows = ROWS, .cols = COLS};
        num_set_compute(num, NUM_F32);
        gemm_xwt(num, f32, x, mat, N, false);
        num_set_compute(num, NUM_BF16);
        gemm_xwt(num, y, x, mat, N, false);
        assert_memory_not_equal(y, f32, sizeof y);
        num_set_compute(num, NUM_F32);
        gemm_xwt(num, f32, x, mat, 4, false);
        num_set_compute(num, NUM_BF16);
        gemm_xwt(num, y, x, mat, 4, false);
        assert_memory_equal(y, f32, 4 * ROWS * sizeof *y);
        free(x), free(w);
        num_free(num);
    }
}

/* --- the faster way --------------------------------------------------------------------------- */

static const struct packed_kernels *quick;

static void tile_slowly(const struct packed_tile *t)
{
    for (int i = 0; i < 20; i++)
        quick->tile(t);
}

/* A CPU may have the instruction, and be slower with it. */
static void slow_instruction_is_not_taken(void **state)
{
    (void)state;
    quick = __real_isa_pick_packed();
    if (!quick)
        skip();
    struct packed_kernels slow = *quick;
    slow.tile = tile_slowly;
    struct num *num = unit((struct way){.f32 = quick, .bf16 = &slow}, 1);
    assert_ptr_equal(num_packed_bf16(num), quick);
    assert_string_equal(num_isa_bf16(num), num_isa(num));
    num_free(num);
    num = unit((struct way){.f32 = &slow, .bf16 = quick}, 1);
    assert_ptr_equal(num_packed_bf16(num), quick);
    assert_ptr_equal(num_packed(num), &slow);
    assert_string_equal(num_isa_bf16(num), "avx512_bf16");
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruction_is_its_twin),
        cmocka_unit_test(amx_is_its_twin),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(sums_are_those_of_rounded_factors),
        cmocka_unit_test(rows_threads_and_tiles_change_no_bit),
        cmocka_unit_test(few_rows_are_not_rounded),
        cmocka_unit_test(slow_instruction_is_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
