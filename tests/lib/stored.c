/* SPDX-License-Identifier: MIT */
#include "tests/lib/stored.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

enum { BLOCK = 128 };

/* Sign, exponent and fraction of a small float with `frac` fraction bits and this bias; no
 * infinities. */
static double small_float(unsigned bits, int exp_bits, int frac, int bias)
{
    const unsigned f = bits & ((1u << frac) - 1), e = bits >> frac & ((1u << exp_bits) - 1);
    const double sign = bits >> (exp_bits + frac) & 1 ? -1 : 1;
    return sign * (e ? ldexp(1 + ldexp(f, -frac), (int)e - bias) : ldexp(f, 1 - bias - frac));
}

static double stored(const struct st_tensor *t, size_t i)
{
    const unsigned char *p = t->data;
    float f;
    if (!strcmp(t->dtype_name, "F8_E4M3"))
        return small_float(p[i], 4, 3, 7);
    if (!strcmp(t->dtype_name, "F16"))
        return small_float(p[2 * i] | (unsigned)p[2 * i + 1] << 8, 5, 10, 15);
    if (!strcmp(t->dtype_name, "BF16"))
        return small_float(p[2 * i] | (unsigned)p[2 * i + 1] << 8, 8, 7, 127);
    memcpy(&f, p + 4 * i, sizeof f);
    return (double)f;
}

static const struct st_tensor *find(const struct st *st, const char *name)
{
    const struct st_tensor *t = st_find(st, name);
    if (!t)
        fail_msg("%s is not stored", name);
    return t;
}

double *stored_numbers(const struct st *st, const char *name)
{
    const struct st_tensor *t = find(st, name);
    double *x = calloc(t->elements ? t->elements : 1, sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < t->elements; i++)
        x[i] = stored(t, i);
    if (!strcmp(t->dtype_name, "F8_E4M3")) {
        char scale_name[128];
        snprintf(scale_name, sizeof scale_name, "%s_scale_inv", name);
        const struct st_tensor *s = find(st, scale_name);
        const size_t cols = t->shape[1], across = (cols + BLOCK - 1) / BLOCK;
        for (size_t i = 0; i < t->elements; i++)
            x[i] *= stored(s, i / cols / BLOCK * across + i % cols / BLOCK);
    }
    return x;
}
