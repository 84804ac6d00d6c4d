/* SPDX-License-Identifier: MIT
 *
 * What product.c and product_pack.c share: blocks of k, and how both factors of one are laid in
 * panels. */
#ifndef NUM_PRODUCT_IMPL_H
#define NUM_PRODUCT_IMPL_H

#include "num/kernels.h"
#include "num/packed.h"
#include "num/product.h"

enum {
    KC_F32 = 384,
    JOINED = 64, /* a second term with no more k joins the last block of the first */
    KC_MAX = KC_F32 + JOINED,
    NC_BY_K = 512,      /* columns of weights by k packed at once: each row is another page */
    BLOCKS = 64,        /* of k for which A is packed together */
    LINE = 16,          /* floats of a cache line */
    NC_STEP_BY_K = 128, /* of weights by k: whole groups, and long enough runs of a row */
    KC_BYTES = 512,     /* k of a block of bytes at most: they have a scale in common */
    KC_BYTES_STEP = PRODUCT_NOISE,
};

/* A product, and what computes it: the first term, and what is in f32. */
struct work {
    const struct num *num;
    const struct packed_kernels *k, *f32;
    const struct product *p;
};

/* What one thread computes. */
struct c_part {
    size_t row, rows, col, cols;
};

/* k of one term from `from` on, as rows at … of a packed block. */
struct segment {
    const struct product_term *term;
    size_t from, k, at;
};

/* A block of k: a piece of a term, and at the end of the first term perhaps all of the second where
 * that has the same form. Its k, and the `at` of segments, count cells; a row or column of a packed
 * panel has `apart` of them. */
struct product_block {
    struct segment segment[2];
    size_t segments, k, apart;
    enum product_form form;
    const struct packed_kernels *kernels; /* for that form */
    bool first;                           /* of the product */
    float *a;                             /* packed */
};

/* How far into the terms blocks have been cut. */
struct walk {
    size_t term, at;
};

/* Blocks whose rows of A are packed together. */
struct run {
    struct walk walk;
    size_t blocks;
    struct product_block block[BLOCKS];
};

/* A thread's scratch. */
struct room {
    float *a, *b; /* [rows / MR][apart, MR], [cols / NR][apart, NR] */
    float *rows;  /* stored weights just made f32, and what was rounded */
    size_t a_floats;
};

/* Rows row … of A into dst. */
void product_pack_a(const struct work *w, const struct room *room, float *dst, const struct product_block *b,
                    size_t row, size_t rows);
/* Columns col … of B into room->b. */
void product_pack_b(const struct work *w, const struct room *room, const struct product_block *b, size_t col,
                    size_t cols);

#endif
