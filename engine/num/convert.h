/* SPDX-License-Identifier: MIT
 *
 * Where the elements of a stored matrix lie, and rows of it in f32. Called by gemm.c and product.c;
 * any thread, no state. */
#ifndef NUM_CONVERT_H
#define NUM_CONVERT_H

#include "num/mat.h"
#include "num/kernels.h"

/* Of a matrix that is not quantized; in a row that lies whole the next columns follow. */
const char *convert_element(struct mat w, size_t row, size_t col);
/* Of one that is. */
const uint8_t *convert_words(struct mat w, size_t row);
size_t convert_row_bytes(struct mat w);

/* Scales and biases of n groups of a row from the `first` on. */
void convert_sides(const struct kernels *k, float *scale, float *bias, struct mat w, size_t row, size_t first,
                   size_t n);
/* n bytes of numbers that are stored signed, as kernels take them. */
void convert_signed(uint8_t *dst, const uint8_t *src, size_t n);

/* Elements col … col+n−1 of a row, times the scales of their blocks where the type has scales. Of
 * quantized rows col begins a group. */
void convert_row(const struct kernels *k, float *dst, struct mat w, size_t row, size_t col, size_t n);

/* The same of several rows, into rows of dst that are `ldd` floats apart. Where columns are stored
 * one after the other this is much faster than row by row. */
void convert_rows(const struct kernels *k, float *dst, size_t ldd, struct mat w, size_t row, size_t rows,
                  size_t col, size_t n);

/* Columns that parts of a row are best multiples of: groups must be whole, and of the largest
 * blocks half of one is converted for nothing at most. No more than a group has. */
size_t convert_step(struct mat w);

/* Asks for the bytes of such elements ahead, without a wait; of a row there is not, nothing. */
void convert_fetch(struct mat w, size_t row, size_t col, size_t n);

/* n numbers to the nearest that bf16 has, to even between two; dst may be src. */
void convert_round(float *dst, const float *src, size_t n);

/* Rows that are best converted at once. */
size_t convert_together(struct mat w);

/* Elements of its dtype, row after row. */
bool convert_is_in_place(struct mat w);
/* Floats that may be read where they lie. */
bool convert_is_plain(struct mat w);

#endif
