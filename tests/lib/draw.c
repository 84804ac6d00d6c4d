/* SPDX-License-Identifier: MIT */
#include "tests/lib/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "num/rng.h"

float *random_floats(size_t n, const char *purpose)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    struct rng rng = rng_for(23, purpose);
    rng_fill_normal(&rng, x, n, 0, 1);
    return x;
}
