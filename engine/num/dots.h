/* SPDX-License-Identifier: MIT
 *
 * Products of rows of W with rows of x. Each dot product is one chain of vectors along the row,
 * folded at its end: its bits depend on the two rows alone, whatever tile or block they fall into.
 * Included by kernels.c only. */
#ifndef NUM_DOTS_H
#define NUM_DOTS_H

#include "num/kernels.h"
#include "num/simd.h"
#include "num/simd_stored.h"

/* Sums of a tile, in registers beside the vectors they are made of. */
enum {
    DOTS_NR = 4,    /* rows of W */
    DOTS_LINE = 32, /* elements of 16 bits in a cache line */
#if defined __AVX512F__ || defined __aarch64__
    DOTS_NX = 6, /* rows of x */
#else
    DOTS_NX = 3,
#endif
};

/* --- folding ---------------------------------------------------------------------------------- */

/* The sums of VL vectors, in their order, each as sum_of has it: halves are folded onto one
 * another, of several vectors at once. */
INLINE vf sums_of(const vf v[VL])
{
    vf t[4];
#if defined __AVX512F__
    UNROLL
    for (int j = 0; j < 4; j++) {
        const vf a =
            __builtin_shufflevector(v[j], v[4 + j], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
            __builtin_shufflevector(v[j], v[4 + j], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30,
                                    31);
        const vf b = __builtin_shufflevector(v[8 + j], v[12 + j], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20,
                                             21, 22, 23) +
                     __builtin_shufflevector(v[8 + j], v[12 + j], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26,
                                             27, 28, 29, 30, 31);
        t[j] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
               __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
#define TWOS(a, b)                                                                                           \
    (__builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +               \
     __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
    const vf a = TWOS(t[0], t[1]), b = TWOS(t[2], t[3]);
    return __builtin_shufflevector(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +
           __builtin_shufflevector(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31);
#elif defined __AVX2__
    UNROLL
    for (int j = 0; j < 4; j++)
        t[j] = __builtin_shufflevector(v[j], v[4 + j], 0, 1, 2, 3, 8, 9, 10, 11) +
               __builtin_shufflevector(v[j], v[4 + j], 4, 5, 6, 7, 12, 13, 14, 15);
#define TWOS(a, b)                                                                                           \
    (__builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +                                               \
     __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15))
    const vf a = TWOS(t[0], t[1]), b = TWOS(t[2], t[3]);
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
#else
    for (int j = 0; j < 4; j++)
        t[j] = v[j];
#define TWOS(a, b) (__builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7))
    const vf a = TWOS(t[0], t[1]), b = TWOS(t[2], t[3]);
    return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
#undef TWOS
}

/* What a tile's sums go to: y[j·ldy + r·apart], for rows r of W and j of x. */
struct dots_to {
    float *y;
    size_t ldy, apart, rows;
    bool accumulate;
};

INLINE void dots_put(float *y, float s, bool accumulate)
{
    *y = accumulate ? *y + s : s;
}

/* acc [nx][DOTS_NR]; `to.rows` of the rows of W exist. */
INLINE void dots_fold(const struct dots_to to, const vf *acc, const int nr, const int nx)
{
    UNROLL
    for (int at = 0; at < nr * nx; at += VL) {
        vf v[VL];
        float sums[VL];
        UNROLL
        for (int i = 0; i < VL; i++)
            v[i] = at + i < nr * nx ? acc[at + i] : (vf){0};
        store(sums, sums_of(v));
        for (int i = at; i < at + VL && i < nr * nx; i++) {
            const size_t j = (size_t)i / (size_t)nr, r = (size_t)i % (size_t)nr;
            if (r < to.rows)
                dots_put(to.y + j * to.ldy + r * to.apart, sums[i - at], to.accumulate);
        }
    }
}

/* --- few rows of x: W is read where it lies --------------------------------------------------- */

struct dots_args {
    float *y;
    size_t ldy;
    const float *x;
    size_t ldx;
    const char *w;
    size_t apart;       /* rows from one of the tile's rows to the next */
    size_t apart_bytes; /* the same in w */
    size_t cols;
    bool accumulate;
};

INLINE void dots_tile(const struct dots_args *d, const int nr, const int nx, const enum dtype t)
{
    vf acc[DOTS_NX * DOTS_NR] = {0};
    const size_t whole = d->cols / VL * VL, rest = d->cols - whole;
    for (size_t i = 0; i < whole; i += VL) {
        vf w[DOTS_NR];
        UNROLL
        for (int r = 0; r < nr; r++)
            w[r] = load_as(d->w + (size_t)r * d->apart_bytes, i, VL, t);
        UNROLL
        for (int j = 0; j < nx; j++) {
            const vf x = load(d->x + (size_t)j * d->ldx + i);
            UNROLL
            for (int r = 0; r < nr; r++)
                add_product(&acc[j * nr + r], w[r], x);
        }
    }
    if (rest) {
        UNROLL
        for (int j = 0; j < nx; j++)
            UNROLL
        for (int r = 0; r < nr; r++)
            add_product(&acc[j * nr + r], load_as(d->w + (size_t)r * d->apart_bytes, whole, rest, t),
                        load_m(d->x + (size_t)j * d->ldx + whole, rest));
    }
    dots_fold((struct dots_to){d->y, d->ldy, d->apart, (size_t)nr, d->accumulate}, acc, nr, nx);
}

/* nr rows of W, which stay in the first cache, with all of x. */
INLINE void dots_rows(struct dots_args d, const int nr, size_t nx, const enum dtype t)
{
    for (size_t left = nx, k; left; left -= k) {
        k = left < DOTS_NX ? left : left == DOTS_NX + 1 || left == DOTS_NX + 2 ? DOTS_NX / 2 + 1 : DOTS_NX;
        switch (k) {
        case 1: dots_tile(&d, nr, 1, t); break;
        case 2: dots_tile(&d, nr, 2, t); break;
        case 3: dots_tile(&d, nr, 3, t); break;
#if defined __AVX512F__ || defined __aarch64__
        case 4: dots_tile(&d, nr, 4, t); break;
        case 5: dots_tile(&d, nr, 5, t); break;
#endif
        default: dots_tile(&d, nr, DOTS_NX, t); break;
        }
        d.x += k * d.ldx;
        d.y += k * d.ldy;
    }
}

/* A few rows of W at once hide the latency of the additions. Four lie a quarter of the rows apart:
 * each then walks on from where it ended, and the CPU fetches ahead of four long streams instead of
 * starting again with every short row. */
INLINE void dots_any(float *y, size_t ldy, const float *x, size_t ldx, size_t nx, const void *w, size_t ldw,
                     size_t rows, size_t cols, bool accumulate, const enum dtype t)
{
    const size_t size = t == DTYPE_F32 ? 4 : t == DTYPE_F8_E4M3 ? 1 : 2;
    const size_t row_bytes = ldw * size, quarter = rows / DOTS_NR, rest = rows % DOTS_NR;
    struct dots_args d = {y, ldy, x, ldx, w, quarter, quarter * row_bytes, cols, accumulate};
    for (size_t r = 0; r < quarter; r++, d.y++, d.w += row_bytes)
        dots_rows(d, DOTS_NR, nx, t);
    d.y = y + DOTS_NR * quarter;
    d.w = (const char *)w + DOTS_NR * quarter * row_bytes;
    for (size_t r = 0; r < rest; r++, d.y++, d.w += row_bytes)
        dots_rows(d, 1, nx, t);
}

static void dots_f32(float *y, size_t ldy, const float *x, size_t ldx, size_t nx, const void *w, size_t ldw,
                     size_t rows, size_t cols, bool accumulate)
{
    dots_any(y, ldy, x, ldx, nx, w, ldw, rows, cols, accumulate, DTYPE_F32);
}

static void dots_f16(float *y, size_t ldy, const float *x, size_t ldx, size_t nx, const void *w, size_t ldw,
                     size_t rows, size_t cols, bool accumulate)
{
    dots_any(y, ldy, x, ldx, nx, w, ldw, rows, cols, accumulate, DTYPE_F16);
}

static void dots_bf16(float *y, size_t ldy, const float *x, size_t ldx, size_t nx, const void *w, size_t ldw,
                      size_t rows, size_t cols, bool accumulate)
{
    dots_any(y, ldy, x, ldx, nx, w, ldw, rows, cols, accumulate, DTYPE_BF16);
}

static void dots_f8(float *y, size_t ldy, const float *x, size_t ldx, size_t nx, const void *w, size_t ldw,
                    size_t rows, size_t cols, bool accumulate)
{
    dots_any(y, ldy, x, ldx, nx, w, ldw, rows, cols, accumulate, DTYPE_F8_E4M3);
}

/* --- more rows of x: a block of W at a time, whose sums wait until the next ------------------- */

/* Vector `at` of a line's worth of elements. */
INLINE vf load_of_line(const char *w, const size_t at, const enum dtype t)
{
#if defined __AVX512F__
    /* One shuffle moves a number to where it is the upper half of a float. GCC 12 would load the
     * line once for both halves, and then has too few registers. */
    if (t == DTYPE_BF16) {
        typedef struct {
            char bytes[DOTS_LINE * sizeof(uint16_t)];
        } line;
        const __m512i first =
            _mm512_slli_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), 16);
        const __m512i from = at ? _mm512_add_epi32(first, _mm512_set1_epi32(VL << 16)) : first;
        const __mmask32 upper = 0xaaaaaaaa;
        __m512i v;
        __asm__("vpermw %2, %1, %0 %{%3%}%{z%}"
                : "=v"(v)
                : "v"(from), "m"(*(const line *)(const void *)w), "Yk"(upper));
        return (vf)v;
    }
#endif
    return load_as(w, at * VL, VL, t);
}

/* Four rows of W in a block; where fewer are left, the last stands for those there are not. */
struct dots_w {
    const char *row[DOTS_NR];
};

/* What a tile fetches of the next block while it computes: two of its rows. */
struct dots_fetch {
    const char *a, *b;
};

INLINE void block_step(vf *acc, const vf w[DOTS_NR], const float *x, size_t ldx, const int nx)
{
    UNROLL
    for (int j = 0; j < nx; j++) {
        const vf xj = load(x + (size_t)j * ldx);
        UNROLL
        for (int r = 0; r < DOTS_NR; r++)
            add_product(&acc[j * DOTS_NR + r], w[r], xj);
    }
}

/* The columns after the last whole line. */
INLINE void block_rest(vf *acc, const struct dots_block *d, const struct dots_w *w, const float *x, size_t i,
                       const int nx, const enum dtype t)
{
    for (size_t m; i < d->k; i += VL) {
        m = d->k - i < VL ? d->k - i : VL;
        UNROLL
        for (int j = 0; j < nx; j++)
            UNROLL
        for (int r = 0; r < DOTS_NR; r++)
            add_product(&acc[j * DOTS_NR + r], load_as(w->row[r], i, m, t),
                        load_m(x + (size_t)j * d->ldx + i, m));
    }
}

INLINE void block_tile(const struct dots_block *d, const float *x, const struct dots_w *w, float *sums,
                       const struct dots_to to, const struct dots_fetch next, const int nx,
                       const enum dtype t)
{
    vf acc[DOTS_NX * DOTS_NR] = {0};
    const size_t whole = d->k / DOTS_LINE * DOTS_LINE, ldx = d->ldx, size = t == DTYPE_F32 ? 4 : 2;
    const bool wide = t == DTYPE_F32 && d->next_size == sizeof(float);
    const char *const w0 = w->row[0], *const w1 = w->row[1], *const w2 = w->row[2], *const w3 = w->row[3];
    UNROLL_24
    for (int s = 0; s < nx * DOTS_NR; s++)
        if (!d->first)
            acc[s] = load(sums + s * VL);
    for (size_t i = 0; i < whole; i += DOTS_LINE) {
        __builtin_prefetch(next.a + i * d->next_size, 0, 3);
        __builtin_prefetch(next.b + i * d->next_size, 0, 3);
        if (wide) {
            __builtin_prefetch(next.a + i * sizeof(float) + DOTS_LINE * sizeof(uint16_t), 0, 3);
            __builtin_prefetch(next.b + i * sizeof(float) + DOTS_LINE * sizeof(uint16_t), 0, 3);
        }
        UNROLL
        for (size_t k = 0; k < DOTS_LINE / VL; k++) {
            const vf wr[DOTS_NR] = {load_of_line(w0 + i * size, k, t), load_of_line(w1 + i * size, k, t),
                                    load_of_line(w2 + i * size, k, t), load_of_line(w3 + i * size, k, t)};
            block_step(acc, wr, x + i + k * VL, ldx, nx);
        }
    }
    if (whole < d->k)
        block_rest(acc, d, w, x, whole, nx, t);
    if (d->last) {
        dots_fold(to, acc, DOTS_NR, nx);
        return;
    }
    UNROLL_24
    for (int s = 0; s < nx * DOTS_NR; s++)
        store(sums + s * VL, acc[s]);
}

/* Rows of x stay in the first cache while those of W pass. */
INLINE void block_any(const struct dots_block *d, const enum dtype t)
{
    float *sums = d->sums;
    const size_t size = t == DTYPE_F32 ? 4 : 2;
    for (size_t j = 0, nx, at = 0; j < d->n; j += nx) {
        nx = d->n - j < DOTS_NX ? d->n - j : d->n - j == DOTS_NX + 2 ? DOTS_NX / 2 + 1 : DOTS_NX;
        for (size_t r = 0; r < d->rows; r += DOTS_NR, sums += DOTS_NX * DOTS_NR * VL, at += 2) {
            const float *x = d->x + j * d->ldx;
            const struct dots_to to = {d->y + j * d->ldy + r, d->ldy, 1, d->rows - r, d->accumulate};
            struct dots_w w;
            for (size_t i = 0; i < DOTS_NR; i++)
                w.row[i] = (const char *)d->w + (r + i < d->rows ? r + i : d->rows - 1) * d->ldw * size;
            const char *a = at < d->next_rows ? d->next + at * d->next_apart : w.row[0];
            const char *b = at + 1 < d->next_rows ? a + d->next_apart : a;
            const struct dots_fetch next = {a, b};
            switch (nx) {
            case 1: block_tile(d, x, &w, sums, to, next, 1, t); break;
            case 2: block_tile(d, x, &w, sums, to, next, 2, t); break;
#if defined __AVX512F__ || defined __aarch64__
            case 3: block_tile(d, x, &w, sums, to, next, 3, t); break;
            case 4: block_tile(d, x, &w, sums, to, next, 4, t); break;
            case 5: block_tile(d, x, &w, sums, to, next, 5, t); break;
#endif
            default: block_tile(d, x, &w, sums, to, next, DOTS_NX, t); break;
            }
        }
    }
}

static void dots_block(const struct dots_block *d)
{
    switch (d->type) {
    case DTYPE_BF16: block_any(d, DTYPE_BF16); break;
    case DTYPE_F16: block_any(d, DTYPE_F16); break;
    default: block_any(d, DTYPE_F32); break;
    }
}

#endif
