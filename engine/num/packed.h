/* SPDX-License-Identifier: MIT
 *
 * Tiles of large products, out of factors laid in the order in which they are multiplied. Like
 * kernels.h a table per instruction set that isa.c picks, but only where these tiles are faster
 * than OpenBLAS's: elsewhere there is none. product.c calls them; any thread, no state. */
#ifndef NUM_PACKED_H
#define NUM_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
    PACKED_MR_MOST = 16, /* of any table */
    PACKED_NR_MOST = 32,
    PACKED_THIN = 16, /* columns of either factor of a thin product, in every table */
};

/* A tile of C (+)= A · B, k cells deep, and what is wanted after it, which is fetched meanwhile: of
 * A's next rows, as they are packed, a cache line for every eight of k, and the next tile of C.
 * Those are not read, and may lie anywhere. */
struct packed_tile {
    float *c;
    size_t ldc;
    const float *a, *b; /* [k, mr], [k, nr] */
    size_t k;
    bool accumulate;
    const float *next_a, *next_c;
};

/* Factors are packed in cells of 32 bits: a float, or two numbers of bf16, that of the even k in
 * the lower half. */
struct packed_kernels {
    size_t mr, nr; /* a tile of C */
    size_t per;    /* numbers of k in a cell */
    size_t nc;     /* columns of B, whole tiles, that stay in the second cache while rows of A pass */
    const struct packed_kernels
        *narrow; /* for a C of no more rows or columns than its tile has; NULL: the same */
    /* A sum of its own for each element in ascending order of k, added to C at the end; of the two
     * in a cell the odd one comes first, as vdpbf16ps has it. */
    void (*tile)(const struct packed_tile *t);
    /* The same with A where it lies, rows of k cells `lda` apart. What comes next are the rows
     * below, of A and of C: t's are not used. */
    void (*tile_in_place)(const struct packed_tile *t, size_t lda);
    /* mr or nr rows of src, `lds` apart, become columns of dst: dst[p·mr + r] = src[r·lds
     * + p]. They also fetch as many rows from `next` on, if not NULL. */
    void (*pack_trans_mr)(float *dst, const float *src, size_t lds, size_t k, const float *next);
    void (*pack_trans_nr)(float *dst, const float *src, size_t lds, size_t k, const float *next);
    /* dst[p·mr + r] = src[p·lds + r] */
    void (*pack_copy_mr)(float *dst, const float *src, size_t lds, size_t k);
    void (*pack_copy_nr)(float *dst, const float *src, size_t lds, size_t k);
    /* sums[PACKED_THIN, PACKED_THIN] (+)= Xᵀ · T: of as many columns of X as of T. k rows of X are
     * `ldx` apart, those of T lie together; `begin`: what sums held does not count. Each is one
     * chain of k, begun with what it held. Fetches X's next columns. */
    void (*thin)(float *sums, const float *x, size_t ldx, const float *t, size_t k, bool begin);
    /* n numbers, rounded to nearest even in bf16, become cells; where those are floats, the two of
     * each pair change places, so that they are added in the order of vdpbf16ps. dst may be src. */
    void (*round)(float *dst, const float *src, size_t n);
};

/* As pack_copy_nr, of `rest` columns where fewer than nr are left: 0 beyond them. */
static inline void pack_copy_rest(float *dst, size_t nr, const float *src, size_t lds, size_t rest, size_t k)
{
    memset(dst, 0, k * nr * sizeof *dst);
    for (size_t p = 0; p < k; p++)
        memcpy(dst + p * nr, src + p * lds, rest * sizeof *dst);
}

extern const struct packed_kernels packed_kernels_avx2;
extern const struct packed_kernels packed_kernels_avx512;
extern const struct packed_kernels packed_kernels_bf16; /* AVX512_BF16; cells of two */

const struct packed_kernels *isa_pick_packed(void);      /* NULL: OpenBLAS multiplies */
const struct packed_kernels *isa_pick_packed_bf16(void); /* NULL: there is no instruction for it */

#endif
