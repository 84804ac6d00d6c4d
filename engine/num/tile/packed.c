/* SPDX-License-Identifier: MIT
 *
 * The tiles of packed.h, in plain C on GCC's vector extensions. Compiled once per instruction set
 * that has them, with -DPACKED=packed_kernels_X. Any thread, no state. */
#include "num/packed.h"

#include "num/tile/packed_trans.h"
#include "num/simd.h"
#include "num/tile/packed_round.h"

/* 24 or 12 sums in registers, and as many as can be of the factors' numbers used twice and more. */
#if defined __AVX512F__
enum { MR = 12, NR = 32, NARROW = 16, NC = 256 };
#else
enum { MR = 6, NR = 16, NC = 128 };
#endif

#if defined __AVX512BF16__
enum { PER = 2 };
#else
enum { PER = 1 };
#endif

enum {
    STEPS = 8, /* of k in one turn of the loop */
    AHEAD =
        32, /* steps before the end at which C is fetched: any earlier, and A and B drive it out of the first cache again */
    LINE = 16, /* floats of a cache line */
};

/* What a tile has still to multiply and to fetch. a: elements of a row `along` apart, rows
 * `apart`. */
struct factors {
    const float *a;
    size_t along, apart;
    const float *b, *next_a, *next_c;
    size_t ldc;
    unsigned turn;
};

/* How large a tile is: constants wherever it is inlined. */
struct size {
    size_t mr, vectors;
    bool in_place;
};
enum { SUMS_MR = 16, SUMS_NR = PACKED_NR_MOST / VL };

INLINE vf splat_cell(const float *p)
{
#if defined __AVX512BF16__
    int32_t bits; /* as a float the pair may be a NaN, which arithmetic would change */
    memcpy(&bits, p, sizeof bits);
    return (vf)_mm512_set1_epi32(bits);
#else
    return splat(*p);
#endif
}

/* As add_product. */
INLINE void add_cells(vf *acc, vf x, vf y)
{
#if defined __AVX512BF16__
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(*acc) : "v"(x), "v"(y));
#else
    add_product(acc, x, y);
#endif
}

INLINE void step(vf acc[SUMS_MR][SUMS_NR], struct factors f, size_t p, const struct size size)
{
    vf b[SUMS_NR];
    UNROLL
    for (size_t j = 0; j < size.vectors; j++)
        b[j] = load(f.b + (p * size.vectors + j) * VL);
    UNROLL
    for (size_t i = 0; i < size.mr; i++) {
        vf x = splat_cell(&f.a[p * f.along + i * f.apart]);
        UNROLL
        for (size_t j = 0; j < size.vectors; j++)
            add_cells(&acc[i][j], x, b[j]);
    }
}

/* Once for STEPS of k: a line of A's next rows, or of every second of them where they lie, and a
 * row of C's next tile as long as there are some. */
INLINE void fetch_next(struct factors *f, const struct size size)
{
    if (size.in_place) {
        UNROLL
        for (size_t i = 0; i < size.mr; i += 2)
            __builtin_prefetch(f->next_a + (i + f->turn % 2) * f->apart);
        f->next_a += STEPS;
    } else {
        __builtin_prefetch(f->next_a);
        f->next_a += LINE;
    }
    if (f->turn++ < size.mr) {
        UNROLL
        for (size_t j = 0; j < size.vectors * VL; j += LINE)
            __builtin_prefetch(f->next_c + j, 0, 2);
        f->next_c += f->ldc;
    }
}

/* The next k steps. */
INLINE void steps(vf acc[SUMS_MR][SUMS_NR], struct factors *f, size_t k, const struct size size)
{
    for (; k >= STEPS; k -= STEPS) {
        fetch_next(f, size);
        UNROLL
        for (size_t p = 0; p < STEPS; p++)
            step(acc, *f, p, size);
        f->a += STEPS * f->along;
        f->b += STEPS * size.vectors * VL;
    }
    for (; k; k--) {
        step(acc, *f, 0, size);
        f->a += f->along;
        f->b += size.vectors * VL;
    }
}

INLINE void multiply(const struct packed_tile *t, size_t along, size_t apart, const struct size size)
{
    struct factors f = {t->a, along, apart, t->b, t->next_a, t->next_c, t->ldc, 0};
    vf acc[SUMS_MR][SUMS_NR] = {0};
    const size_t first = t->k > AHEAD ? (t->k - AHEAD) / STEPS * STEPS : 0;
    steps(acc, &f, first, size);
    UNROLL
    for (size_t i = 0; i < size.mr; i++)
        UNROLL
    for (size_t j = 0; j < size.vectors * VL; j += LINE)
        __builtin_prefetch(t->c + i * t->ldc + j, 1);
    steps(acc, &f, t->k - first, size);
    UNROLL
    for (size_t i = 0; i < size.mr; i++)
        UNROLL
    for (size_t j = 0; j < size.vectors; j++) {
        float *to = t->c + i * t->ldc + j * VL;
        store(to, t->accumulate ? load(to) + acc[i][j] : acc[i][j]);
    }
}

/* --- thin --- */

enum {
    THIN_VECTORS = PACKED_THIN / VL,
    THIN_TALL = 16 / THIN_VECTORS / THIN_VECTORS, /* rows whose sums are in registers */
    THIN_AHEAD = 2 * PACKED_THIN,                 /* floats ahead of those that are multiplied */
};

/* Sums stay in registers while X passes; as many rows of them as hide the latency of an
 * addition. */
INLINE void thin_rows(float *sums, const float *x, size_t ldx, const float *t, size_t k, bool begin,
                      bool fetch)
{
    vf acc[THIN_TALL][THIN_VECTORS] = {0};
    UNROLL
    for (size_t i = 0; i < THIN_TALL * THIN_VECTORS && !begin; i++)
        acc[i / THIN_VECTORS][i % THIN_VECTORS] = load(sums + i * VL);
    for (size_t p = 0; p < k; p++, x += ldx, t += PACKED_THIN) {
        if (fetch)
            __builtin_prefetch(x + THIN_AHEAD);
        vf b[THIN_VECTORS];
        UNROLL
        for (size_t j = 0; j < THIN_VECTORS; j++)
            b[j] = load(t + j * VL);
        UNROLL
        for (size_t i = 0; i < THIN_TALL; i++)
            UNROLL
        for (size_t j = 0; j < THIN_VECTORS; j++)
            add_product(&acc[i][j], splat(x[i]), b[j]);
    }
    UNROLL
    for (size_t i = 0; i < THIN_TALL * THIN_VECTORS; i++)
        store(sums + i * VL, acc[i / THIN_VECTORS][i % THIN_VECTORS]);
}

static void thin(float *sums, const float *x, size_t ldx, const float *t, size_t k, bool begin)
{
    for (size_t i = 0; i < PACKED_THIN; i += THIN_TALL)
        thin_rows(sums + i * PACKED_THIN, x + i, ldx, t, k, begin, i == 0);
}

/* --- laying out --- */

INLINE void pack_copy(float *dst, const float *src, size_t lds, size_t k, const size_t nr)
{
    for (size_t p = 0; p < k; p++)
        memcpy(dst + p * nr, src + p * lds, nr * sizeof *dst);
}

/* --- the tables --- */

static void pack_trans_mr(float *dst, const float *src, size_t lds, size_t k, const float *next)
{
    pack_trans(dst, src, lds, k, next, MR);
}

static void pack_trans_nr(float *dst, const float *src, size_t lds, size_t k, const float *next)
{
    pack_trans(dst, src, lds, k, next, NR);
}

static void pack_copy_mr(float *dst, const float *src, size_t lds, size_t k)
{
    pack_copy(dst, src, lds, k, MR);
}

static void pack_copy_nr(float *dst, const float *src, size_t lds, size_t k)
{
    pack_copy(dst, src, lds, k, NR);
}

static void tile(const struct packed_tile *t)
{
    multiply(t, MR, 1, (struct size){MR, NR / VL, false});
}

/* Rows from `row` on of a tile whose A lies where it is. */
INLINE void multiply_in_place(const struct packed_tile *t, size_t lda, size_t row, const struct size size)
{
    struct packed_tile part = *t;
    part.a += row * lda;
    part.c += row * t->ldc;
    part.next_a = part.a + size.mr * lda;
    part.next_c = part.c + size.mr * t->ldc;
    multiply(&part, 1, lda, size);
}

static void tile_in_place(const struct packed_tile *t, size_t lda)
{
    multiply_in_place(t, lda, 0, (struct size){MR, NR / VL, true});
}

#if defined __AVX512F__
static void pack_trans_narrow(float *dst, const float *src, size_t lds, size_t k, const float *next)
{
    pack_trans(dst, src, lds, k, next, NARROW);
}

static void pack_copy_narrow(float *dst, const float *src, size_t lds, size_t k)
{
    pack_copy(dst, src, lds, k, NARROW);
}

static void narrow_tile(const struct packed_tile *t)
{
    multiply(t, NARROW, 1, (struct size){NARROW, NARROW / VL, false});
}

/* Half the rows at a time: of all, a power of two apart, each would drive the others out of the
 * first cache. */
static void narrow_in_place(const struct packed_tile *t, size_t lda)
{
    const size_t half = NARROW / 2;
    for (size_t row = 0; row < NARROW; row += half)
        multiply_in_place(t, lda, row, (struct size){half, NARROW / VL, true});
}

static const struct packed_kernels narrow = {
    .mr = NARROW,
    .nr = NARROW,
    .per = PER,
    .deep = 1,
    .nc = NC,
    .tile = narrow_tile,
    .tile_in_place = narrow_in_place,
    .pack_trans_mr = pack_trans_narrow,
    .pack_trans_nr = pack_trans_narrow,
    .pack_copy_mr = pack_copy_narrow,
    .pack_copy_nr = pack_copy_narrow,
    .round = round_row,
    .round_by_k = round_by_k,
#if defined __AVX512BF16__
    .pair_by_k = pair_by_k,
#endif
};
#endif

extern const struct packed_kernels PACKED;
const struct packed_kernels PACKED = {
    .mr = MR,
    .nr = NR,
    .per = PER,
    .deep = 1,
    .nc = NC,
#if defined __AVX512F__
    .narrow = &narrow,
#endif
    .tile = tile,
    .tile_in_place = tile_in_place,
    .pack_trans_mr = pack_trans_mr,
    .pack_trans_nr = pack_trans_nr,
    .pack_copy_mr = pack_copy_mr,
    .pack_copy_nr = pack_copy_nr,
    .thin = thin,
    .round = round_row,
    .round_by_k = round_by_k,
#if defined __AVX512BF16__
    .pair_by_k = pair_by_k,
#endif
};
