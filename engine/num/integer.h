/* SPDX-License-Identifier: MIT
 *
 * Products of quantized weights in integers, shared by gemm.c and the tests: x becomes whole
 * numbers of 16 bits (of 23 where W is in blocks) with a scale for each group, a sum within a
 * group is exact, and only the groups' sums are scaled and added in f32. So all tables give the
 * same bits: what they compute is written without fused operations, in an order that no width
 * changes. integer.c and integer_tiles.c are compiled once per instruction set, each object
 * exporting one table; isa.c picks. A kernel works on one thread and never allocates. */
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
    INT_MANY = 16,  /* many rows: most rows of x at once */
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

/* W in blocks of 256, whose parts have scales that are whole numbers. */
static inline bool int_block_is_large(enum block_type type)
{
    return block_values(type) == INT_SPAN;
}
/* What shares a scale of x: a block of W. x is padded to whole spans with zeros. */
static inline size_t int_block_group(enum block_type type)
{
    return block_values(type);
}
/* What shares a sum of x: as many columns as share a scale of W. */
static inline size_t int_block_sums(enum block_type type)
{
    return type == BLOCK_Q2_K || type == BLOCK_Q3_K || type == BLOCK_Q6_K ? 16 : 32;
}
/* Where x has each sixteen columns of a span, so that vectors of W of any width meet them: as they
 * come; of 128 columns the first halves of all four blocks before the second; of 128 columns those
 * of low nibbles before those of high ones, and of the two groups that are such nibbles the halves
 * a b and c d as a d b c: both vectors of 32 have a group in each half, and share their scales; or
 * by twos that W has in the same bits. */
enum int_block_order { ORDER_PLAIN, ORDER_SPLIT, ORDER_NIBBLES, ORDER_PAIRS };

static inline enum int_block_order int_block_order(enum block_type type)
{
    switch (type) {
    case BLOCK_Q6_K: return ORDER_PLAIN;
    case BLOCK_Q4_K:
    case BLOCK_Q5_K: return ORDER_NIBBLES;
    case BLOCK_Q2_K:
    case BLOCK_Q3_K: return ORDER_PAIRS;
    default: return ORDER_SPLIT;
    }
}
/* Whether levels are signed bytes; others are from 0 to 63. */
static inline bool int_block_is_signed(enum block_type type)
{
    return type == BLOCK_Q8_0 || type == BLOCK_IQ4_NL || type == BLOCK_IQ4_XS;
}
/* Whether x is two numbers of 16 bits, as levels of small blocks need it that are signed: the
 * second counts 2⁻¹⁴. Rounding x to 23 bits would be seen with weights of eight. */
static inline bool int_block_is_long(enum block_type type)
{
    return type == BLOCK_Q8_0 || type == BLOCK_IQ4_NL;
}
/* Where the scale and the sum of x come that meet block i of a span of small ones: those of blocks
 * at even places first, as vectors take the scales of two blocks (scales_of_sums). */
static inline size_t int_small_place(size_t i)
{
    return i % 2 * 4 + i / 2;
}
/* Otherwise the largest number of x: in three bytes that count 255 · 2⁷, 2⁷ and 1, up to ±127, ±127
 * and from −64 to 63, so that two products fit into 16 bits, and sums of eight into 32. */
enum { INT_BLOCK_TOP = (127 * 255 + 127) * 128 + 63 };
/* Bytes of a number of x: of long ones two are for tables that take levels plus 128. */
static inline size_t int_block_bytes(enum block_type type)
{
    return int_block_is_long(type) ? 6 : 3;
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

/* y[i·ldy + r] (+)= x_i · (row r of the panel) for i < n ≤ many and r < rows ≤ tall, over
 * `groups` groups of x. x is as quantize makes INT_TILES, from the panel's first column on; there
 * is memory for the bytes of `many` rows. */
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
    /* For W of so many bits in such groups. Bytes are up to ±127 for 4 bits, ±63 for 8, whose
     * products then fit by twos into 16 bits. A number that is not finite makes the scale of its
     * group NaN. */
    void (*quantize)(const struct int_row *to, const float *x, size_t cols, size_t bits, size_t group,
                     enum int_form form);
    void (*dots)(const struct int_dots *d);
    /* The same for W in blocks: of each 64 numbers, in their order, 64 times each of the bytes;
     * scales for each int_block_group, sums for each int_block_sums. */
    void (*block_quantize)(const struct int_row *to, const float *x, size_t cols, enum block_type type);
    void (*block_dots)(const struct int_block_dots *d);
};

/* Products with many rows: a table of their own, for a CPU may have another instruction for them
 * than for few. */
struct int_tiles {
    const char *isa;
    size_t tall, many; /* rows of W in a panel; rows of x at once */
    /* A panel's bytes of columns col … col+n−1; from one row of W to the next are row_bytes; all
     * its columns are row_cols, a multiple of 8. */
    void (*pack)(uint32_t *to, const uint8_t *w, size_t row_bytes, size_t rows, size_t row_cols, size_t col,
                 size_t n, size_t bits);
    /* Around tiles of one thread and of one size of groups; NULL: there is nothing to do. */
    void (*begin)(size_t group);
    void (*end)(void);
    void (*tile)(const struct int_tile *t);
};

extern const struct int_kernels int_kernels_base;
extern const struct int_kernels int_kernels_avx2;
extern const struct int_kernels int_kernels_avxvnni;
extern const struct int_kernels int_kernels_vnni;

extern const struct int_tiles int_tiles_base;
extern const struct int_tiles int_tiles_avx2;
extern const struct int_tiles int_tiles_avxvnni;
extern const struct int_tiles int_tiles_vnni;
extern const struct int_tiles int_tiles_amx;

/* The best tables this CPU and operating system can run. */
const struct int_kernels *isa_pick_int(void);
const struct int_tiles *isa_pick_int_tiles(void);

#endif
