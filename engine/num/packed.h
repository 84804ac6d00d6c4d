/* SPDX-License-Identifier: MIT
 *
 * Tiles of large products, out of factors laid in the order in which they are multiplied. Like
 * kernels.h a table per instruction set that isa.c picks, but only where these tiles are faster
 * than OpenBLAS's: elsewhere there is none. product.c calls them; any thread, no state. */
#ifndef NUM_PACKED_H
#define NUM_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    PACKED_MR_MOST = 32, /* of any table */
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
 * the lower half, or four bytes, the first in the lowest. In bytes a panel has its scales behind
 * its cells: packed_bytes.c says how. */
struct packed_kernels {
    size_t mr, nr; /* a tile of C */
    size_t per;    /* numbers of k in a cell */
    size_t tail;   /* cells of a row or column of a panel behind those of k */
    size_t deep;   /* a panel has a multiple of this of cells of k; those beyond k are 0 */
    size_t nc;     /* columns of B, whole tiles, that stay in the second cache while rows of A pass */
    bool in_rows;  /* the cells of a row of A lie together, k of them, and not those of a step of k */
    const struct packed_kernels
        *narrow; /* for a C of no more rows or columns than its tile has; NULL: the same */
    /* A sum of its own for each element in ascending order of k, added to C at the end; of the two
     * in a cell the odd one comes first, as vdpbf16ps has it. AMX has an order of its own
     * (packed_kernels_amx). */
    void (*tile)(const struct packed_tile *t);
    /* Around tiles of one thread; NULL: there is nothing to do. */
    void (*begin)(void);
    void (*end)(void);
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
    /* The same of rows that are steps of k, `lds` apart: n ≤ nr columns become cells of a panel of
     * nr. */
    void (*round_by_k)(float *dst, size_t nr, const float *src, size_t lds, size_t k, size_t n);
    /* The same of rows that are stored in bf16; NULL where cells are floats. */
    void (*pair_by_k)(float *dst, size_t nr, const uint16_t *src, size_t lds, size_t k, size_t n);
    const struct packed_bytes *bytes; /* NULL: cells are no bytes */
};

/* How numbers become bytes, by packed_bytes.c. A number is a whole one of −127 to 127 times a
 * scale: that of a row of A, or a column of B, within the block of k. A number that is not finite
 * makes the scale NaN. */
struct packed_bytes {
    const char *isa;
    /* n numbers of a row of A in ⌈n / 4⌉ cells, and 0 in those that make them whole steps; the
     * scale, and the sum of the whole numbers, where tiles need it. Fetches `next`, which may lie
     * anywhere. noise [n]: a number is rounded up if its fraction and (noise + ½) / 256 make 1;
     * NULL: to nearest, to even between two. */
    float (*of_a)(float *dst, const float *src, size_t n, const float *next, const uint8_t *noise,
                  int32_t *ret_sum);
    float (*of_b)(float *dst, const float *src, size_t n,
                  const float *next); /* of a column of B, to nearest */
    /* k rows of n ≤ nr columns, `lds` apart, become a panel of B with its scales. */
    void (*by_k)(float *dst, const float *src, size_t lds, size_t k, size_t n);
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
/* AMX_BF16. Of each 32 numbers of k it adds the even products one after the other, beginning with
 * 0, likewise the odd ones, then both sums; that is added to C. Each sum is rounded once, and what
 * is subnormal is 0, before and after. */
extern const struct packed_kernels packed_kernels_amx;
extern const struct packed_kernels packed_bytes_base; /* cells of four bytes, and so the others: */
extern const struct packed_kernels packed_bytes_avx2;
extern const struct packed_kernels packed_bytes_avxvnni;
extern const struct packed_kernels packed_bytes_vnni;
extern const struct packed_kernels packed_bytes_amx;

const struct packed_kernels *isa_pick_packed(void); /* NULL: OpenBLAS multiplies */
/* NULL: there is no instruction for it. The first has the bits of isa_pick_packed's tiles that get
 * rounded factors, the second its own. */
const struct packed_kernels *isa_pick_packed_bf16(void);
const struct packed_kernels *isa_pick_packed_amx(void);
const struct packed_kernels *isa_pick_packed_bytes(void);

#endif
