/* SPDX-License-Identifier: MIT
 *
 * Rows of f32 rounded to whole numbers of 8 bits: x ≈ q · scale, symmetric, with one scale for each
 * group along the row. A row's bytes depend on that row alone. What rounds to 0 is 0 exactly. In
 * memory a row is its q, one byte each, then the scales of its groups, BF16. */
#ifndef NUM_ROW8_H
#define NUM_ROW8_H

#include <stddef.h>
#include <stdint.h>

enum { ROW8_GROUP = 32, ROW8_TOP = 127 }; /* elements that share a scale; the largest q */

static inline size_t row8_groups(size_t n)
{
    return (n + ROW8_GROUP - 1) / ROW8_GROUP;
}

/* Of a row of n elements, in memory. */
static inline size_t row8_bytes(size_t n)
{
    return n + row8_groups(n) * sizeof(uint16_t);
}

/* row [row8_bytes(n)], not aligned. Rounds to nearest even, with the scale max|x| / 127 as BF16
 * holds it: an element is off by at most half of its group's scale. A group whose numbers are all
 * below 1e-30 is 0; one with a number that is not finite is NaN, all of it. */
void row8_from_f32(void *row, const float *x, size_t n);

#endif
