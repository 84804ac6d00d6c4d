/* SPDX-License-Identifier: MIT
 *
 * Products of quantized weights in integers, shared by gemm.c and the tests: x becomes whole numbers of 16 bits with a scale for
 * each group, a sum within a group is exact, and only the groups' sums are scaled and added in f32. So all tables give the same
 * bits: what they compute is written without fused operations, in an order that no width changes. integer.c is compiled once
 * per instruction set, each object exporting one table; isa.c picks. A kernel works on one thread and never allocates. */
#ifndef NUM_INTEGER_H
#define NUM_INTEGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    INT_STEP = 64, /* elements that lie together in the order of the kernels; x is padded to it with zeros */
    INT_ROWS = 4,  /* rows of W at once */
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

/* One row of x: q [int_cols] in the order of the kernels for so many bits; of each group the scale, and the sum of what its q stand for. */
struct int_row {
    int16_t *q;
    float *scale, *sum; /* [int_groups] */
};

/* y[i·ldy + r·apart] (+)= x_i · (row r of W) for i < n and r < rows. Row i of x lies i·x_bytes behind x's pointers, row r of W
 * r·w_apart bytes behind w, its scales and biases r·side_apart behind theirs. */
struct int_dots {
    float *y;
    size_t ldy, apart, n, rows; /* rows: INT_ROWS or 1 */
    struct int_row x;
    size_t x_bytes;
    const uint8_t *w;
    size_t w_apart;
    const float *scale, *bias; /* of W's groups */
    size_t side_apart;
    size_t cols, group, bits; /* of W */
    bool accumulate;
};

struct int_kernels {
    const char *isa;
    /* A number that is not finite makes the scale of its group NaN. */
    void (*quantize)(const struct int_row *to, const float *x, size_t cols, size_t bits, size_t group);
    void (*dots)(const struct int_dots *d);
};

extern const struct int_kernels int_kernels_base;
extern const struct int_kernels int_kernels_avx2;
extern const struct int_kernels int_kernels_vnni;

const struct int_kernels *isa_pick_int(void); /* the best table this CPU and operating system can run */

#endif
