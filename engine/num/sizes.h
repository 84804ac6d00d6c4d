/* SPDX-License-Identifier: MIT
 *
 * Arithmetic of sizes. */
#ifndef NUM_SIZES_H
#define NUM_SIZES_H

#include <stddef.h>

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The next multiple of `to`, or n itself. */
static inline size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

#endif
