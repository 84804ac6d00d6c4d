/* SPDX-License-Identifier: MIT
 *
 * Scores and logits that are held within a cap (Gemma 2, arXiv 2408.00118, section 2): y =
 * cap·tanh(x/cap), whose slope is 1 − (y/cap)². Called by layers, for parts of their rows. */
#ifndef LAYER_SOFTCAP_H
#define LAYER_SOFTCAP_H

#include <math.h>
#include <stddef.h>

enum { SOFTCAP_PART = 64 }; /* whose slopes are held at once */

/* In place; cap 0: x stays. */
static inline void softcap_apply(float *x, size_t n, float cap)
{
    for (size_t i = 0; i < n && cap > 0; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

/* From y. */
static inline void softcap_slope(float *slope, const float *y, size_t n, float cap)
{
    for (size_t i = 0; i < n; i++)
        slope[i] = 1 - y[i] / cap * (y[i] / cap);
}

static inline void softcap_back(float *dx, const float *slope, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dx[i] *= slope[i];
}

#endif
