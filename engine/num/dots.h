/* SPDX-License-Identifier: MIT
 *
 * Products of rows of W with rows of x. Each dot product is one chain of vectors along the row,
 * folded at its end: its bits depend on the two rows alone, whatever tile they fall into.
 * Included by kernels.c only. */
#ifndef NUM_DOTS_H
#define NUM_DOTS_H

#include "num/kernels.h"
#include "num/simd.h"
#include "num/simd_stored.h"

/* Sums of a tile, in registers beside the vectors they are made of. */
enum {
    DOTS_NR = 4, /* rows of W */
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

/* --- W is read where it lies ------------------------------------------------------------------ */

INLINE size_t size_of(const enum dtype t)
{
    return t == DTYPE_F32 ? 4 : t == DTYPE_F8_E4M3 ? 1 : 2;
}

struct dots_args {
    float *y;
    size_t ldy;
    const float *x;
    size_t ldx;
    const char *w;
    size_t apart;       /* rows from one of the tile's rows to the next */
    size_t apart_bytes; /* the same in w */
    size_t cols;
    size_t ahead, step; /* bytes from w to what is fetched meanwhile, and from one fetch to the next */
    bool accumulate;
};

INLINE void dots_tile(const struct dots_args *d, const int nr, const int nx, const bool fetches,
                      const enum dtype t)
{
    vf acc[DOTS_NX * DOTS_NR] = {0};
    const size_t whole = d->cols / VL * VL, rest = d->cols - whole;
    size_t fetch = d->ahead;
    for (size_t i = 0; i < whole; i += VL) {
        vf x[DOTS_NX];
        UNROLL
        for (int j = 0; j < nx; j++)
            x[j] = load(d->x + (size_t)j * d->ldx + i);
        UNROLL
        for (int r = 0; r < nr; r++) {
            const char *at = d->w + (size_t)r * d->apart_bytes;
            const vf w = load_as(at, i, VL, t);
            if (fetches)
                __builtin_prefetch(at + fetch, 0, 2);
            UNROLL
            for (int j = 0; j < nx; j++)
                add_product(&acc[j * nr + r], w, x[j]);
        }
        fetch += d->step;
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

/* nr rows of W, which stay near, with all of x. The first two tiles fetch the next rows, into the
 * second cache: the first has room for too few lines that are on their way. Up to two rows of x the
 * CPU fetches fast enough by itself: measured. */
INLINE void dots_rows(struct dots_args d, const int nr, size_t nx, const enum dtype t)
{
    d.step = VL * size_of(t) / (nx > DOTS_NX ? 2 : 1);
    for (size_t left = nx, k; left; left -= k) {
        k = left < DOTS_NX ? left : left == DOTS_NX + 1 || left == DOTS_NX + 2 ? DOTS_NX / 2 + 1 : DOTS_NX;
        if (k == DOTS_NX && nx - left >= 2 * DOTS_NX) {
            dots_tile(&d, nr, DOTS_NX, false, t);
        } else {
            switch (k) {
            case 1: dots_tile(&d, nr, 1, false, t); break;
            case 2: dots_tile(&d, nr, 2, false, t); break;
#if defined __AVX512F__ || defined __aarch64__
            case 3: dots_tile(&d, nr, 3, true, t); break;
            case 4: dots_tile(&d, nr, 4, true, t); break;
            case 5: dots_tile(&d, nr, 5, true, t); break;
#endif
            default: dots_tile(&d, nr, DOTS_NX, true, t); break;
            }
            d.ahead += d.cols / VL * d.step;
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
    const size_t row_bytes = ldw * size_of(t), quarter = rows / DOTS_NR, rest = rows % DOTS_NR;
    struct dots_args d = {y, ldy, x, ldx, w, quarter, quarter * row_bytes, cols, row_bytes, 0, accumulate};
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

#endif
