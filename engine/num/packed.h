/* SPDX-License-Identifier: MIT
 *
 * Tiles of large products, out of factors laid in the order in which they are multiplied. Like kernels.h a table per instruction
 * set that isa.c picks, but only where these tiles are faster than OpenBLAS's: elsewhere there is none. product.c calls them; any
 * thread, no state. */
#ifndef NUM_PACKED_H
#define NUM_PACKED_H

#include <stdbool.h>
#include <stddef.h>

enum { PACKED_TALL = 6, PACKED_WIDE = 16 }; /* a tile of C */

struct packed_kernels {
    /* C[TALL, WIDE] (+)= A · B, a sum of its own for each element in ascending order of k, added to C at the end. a: [k, TALL],
     * b: [k, WIDE]. */
    void (*tile)(float *c, size_t ldc, const float *a, const float *b, size_t k, bool accumulate);
    /* The same with A where it lies, rows of k floats `lda` apart. */
    void (*tile_in_place)(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t k,
                          bool accumulate);
    /* TALL or WIDE rows of src, `lds` apart, become columns of dst: dst[p·TALL + r] = src[r·lds + p]. They also fetch what lies
     * as many rows further on. */
    void (*turn_tall)(float *dst, const float *src, size_t lds, size_t k);
    void (*turn_wide)(float *dst, const float *src, size_t lds, size_t k);
    /* dst[p·TALL + r] = src[p·lds + r] */
    void (*take_tall)(float *dst, const float *src, size_t lds, size_t k);
    void (*take_wide)(float *dst, const float *src, size_t lds, size_t k);
};

extern const struct packed_kernels packed_kernels_avx2;

const struct packed_kernels *isa_pick_packed(void); /* NULL: OpenBLAS multiplies */

#endif
