/* SPDX-License-Identifier: MIT
 *
 * Products of quantized weights in integers, shared by gemm.c and the tests: x becomes whole
 * numbers of 16 bits (of 24 where W is in blocks) with a scale for each group, a sum within a group
 * is exact, and only the groups' sums are scaled and added in f32. So all tables give the same
 * bits: what they compute is written without fused operations, in an order that no width changes.
 * integer.c is compiled once per instruction set, each object exporting one table; isa.c picks. A
 * kernel works on one thread and never allocates. */
#ifndef NUM_INTEGER_H
#define NUM_INTEGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/block.h"
#include "num/dtype.h"

enum {
    INT_STEP = 64,  /* elements at once; x is padded to it with zeros */
    INT_ROWS = 4,   /* rows of W at once */
    INT_TILE = 6,   /* many rows: rows of x at once */
    INT_TALL = 32,  /* most rows of W in a panel */
    INT_SPAN = 256, /* of blocks: columns at once, one large block or eight small ones */
};

/* Columns padded to whole steps. */
static inline size_t int_cols(size_t cols)
{
    return (cols + INT_STEP - 1) / INT_STEP * INT_STEP;
}
/* What shares a scale of x: the group of the weights, and no more than a step. */
static inline size_t int_group(size_t group)
{
    return group < INT_STEP ? group : INT_STEP;
}
static inline size_t int_groups(size_t cols, size_t group)
{
    return int_cols(cols) / int_group(group);
}

/* What x becomes: 16 bits for few rows; bytes for few rows with W of 4 bits; bytes for many
 * rows. */
enum int_form { INT_HALVES, INT_BYTES, INT_TILES };

/* One row of x, rounded to whole numbers of 16 bits or to bytes [int_cols], in the order in which
 * the kernels of that form meet them; of each group the scale, and the sum of what its numbers
 * stand for. Where a table has `fours`, a step of q is bytes too: 64 that count 256, and 64 of what
 * is left. */
struct int_row {
    int16_t *q;
    int8_t *bytes;
    float *scale, *sum; /* [int_groups] */
    int16_t *low;       /* for W in blocks: what is left where a number of q counts 256 */
};

/* y[i·ldy + r·apart] (+)= x_i · (row r of W) for i < n and r < rows. Row i of x lies i·x_bytes
 * behind x's pointers, row r of W r·w_apart bytes behind w, its scales and biases r·side_apart
 * bytes behind theirs. */
struct int_dots {
    float *y;
    size_t ldy, apart, n, rows; /* rows: INT_ROWS or 1 */
    struct int_row x;
    enum int_form form; /* of x: INT_HALVES or, if W has 4 bits, INT_BYTES */
    size_t x_bytes;
    const uint8_t *w;
    size_t w_apart;
    const void *scale, *bias; /* of W's groups */
    size_t side_apart;
    enum dtype side;          /* their type: F32, F16 or BF16 */
    size_t cols, group, bits; /* of W */
    bool accumulate;
};

/* W in blocks: what shares a scale of x, as many columns as share one of W. x is padded to whole
 * spans with zeros. */
static inline size_t int_block_group(enum block_type type)
{
    return type == BLOCK_Q2_K || type == BLOCK_Q3_K || type == BLOCK_Q6_K ? 16 : 32;
}
/* Whether one byte of W holds a number of the first half of a group and one of the second: then
 * x has of each 128 columns the first halves of all four groups before the second. */
static inline bool int_block_is_split(enum block_type type)
{
    return type != BLOCK_Q8_0 && (type < BLOCK_Q2_K || type > BLOCK_Q6_K);
}
/* The largest number of x: the products of a lane add up in 32 bits, of levels up to 63 or up to
 * 255, four or, of halves, eight. */
static inline int32_t int_block_top(enum block_type type)
{
    return type == BLOCK_Q8_0                             ? 1 << 21
           : type == BLOCK_IQ4_NL || type == BLOCK_IQ4_XS ? 1 << 20
                                                          : (1 << 22) - 1;
}
static inline size_t int_block_cols(size_t cols)
{
    return (cols + INT_SPAN - 1) / INT_SPAN * INT_SPAN;
}

/* y[i·ldy + to[r]] (+)= x_i · (row r of W) for i < n and r < rows ≤ INT_ROWS; row r of W is at
 * w[r]. cols are whole blocks. */
struct int_block_dots {
    float *y;
    size_t ldy, n, rows, to[INT_ROWS];
    struct int_row x; /* as block_quantize makes it */
    size_t x_bytes;
    const uint8_t *w[INT_ROWS];
    size_t cols;
    enum block_type type;
    bool accumulate;
};

/* Many rows: a panel is `tall` rows of W by some columns, four bytes of a row beside one another:
 * columns 4p … 4p+3 of row r at w[p·tall + r], the scale of its group g at scale[g·tall + r]. Rows
 * and columns there are not are 0. */
struct int_panel {
    uint32_t *w;
    float *scale, *bias;
};

/* y[i·ldy + r] (+)= x_i · (row r of the panel) for i < n ≤ INT_TILE and r < rows ≤ tall, over
 * `groups` groups of x. x is as quantize makes INT_TILES, from the panel's first column on. */
struct int_tile {
    float *y;
    size_t ldy, n, rows;
    struct int_row x;
    size_t x_bytes;
    struct int_panel panel;
    size_t group, groups;
    bool accumulate;
};

struct int_kernels {
    const char *isa;
    bool fours; /* the CPU multiplies bytes, four to a lane */
    size_t tall;
    /* For W of so many bits in such groups. Bytes are up to ±127 for 4 bits, ±63 for 8, whose
     * products then fit by twos into 16 bits. A number that is not finite makes the scale of its
     * group NaN. */
    void (*quantize)(const struct int_row *to, const float *x, size_t cols, size_t bits, size_t group,
                     enum int_form form);
    void (*dots)(const struct int_dots *d);
    /* The same for W in blocks: 24 bits, in groups of int_block_group. */
    void (*block_quantize)(const struct int_row *to, const float *x, size_t cols, enum block_type type);
    void (*block_dots)(const struct int_block_dots *d);
    /* A panel's bytes of columns col … col+n−1; from one row of W to the next are row_bytes; all
     * its columns are row_cols, a multiple of 8. */
    void (*pack)(uint32_t *to, const uint8_t *w, size_t row_bytes, size_t rows, size_t row_cols, size_t col,
                 size_t n, size_t bits);
    void (*tile)(const struct int_tile *t);
};

extern const struct int_kernels int_kernels_base;
extern const struct int_kernels int_kernels_avx2;
extern const struct int_kernels int_kernels_avxvnni;
extern const struct int_kernels int_kernels_vnni;

const struct int_kernels *isa_pick_int(void); /* the best table this CPU and operating system can run */

#endif
