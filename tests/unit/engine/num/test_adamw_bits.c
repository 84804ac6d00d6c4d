/* SPDX-License-Identifier: MIT
 *
 * Replicas of a pipeline on unlike CPUs stay the same to the bit: AdamW's update has the same bits
 * with every table of kernels whose CPU has a fused multiply-add, and values drawn to begin with
 * have them on all CPUs. The sums of bits are those of x86-64 with AVX2; `make arm64` holds NEON to
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "num/rng.h"
#include "tests/lib/isas.h"

enum { N = 20003, STEPS = 20 };

struct values {
    float w[N], m[N], v[N];
};

static uint32_t sum_of_bits(const float *x, size_t n, uint32_t sum)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        sum = sum * 16777619u ^ bits; /* FNV-1 of words */
    }
    return sum;
}

static uint32_t drawn(float *x)
{
    struct rng rng = rng_for(5, "values");
    rng_fill_normal(&rng, x, N / 2, 0, 1);
    rng_fill_uniform(&rng, x + N / 2, N - N / 2, -0.5f, 0.5f);
    return sum_of_bits(x, N, 0);
}

static void begin_values_have_the_same_bits(void **state)
{
    static float x[N];
    (void)state;
    assert_int_equal(drawn(x), 0x0a99fbde);
}

static uint32_t updated(const struct kernels *table)
{
    static struct values of;
    static float g[N];
    struct rng rng = rng_for(6, "gradients");
    memset(&of, 0, sizeof of);
    drawn(of.w);
    for (int t = 1; t <= STEPS; t++) {
        const struct adamw_consts c = {.gscale = 0.37f,
                                       .decay = 1 - 1e-5f,
                                       .beta1 = 0.9f,
                                       .rest1 = 1 - 0.9f,
                                       .beta2 = 0.999f,
                                       .rest2 = 1 - 0.999f,
                                       .step_size = 1e-3f / (float)(1 - pow(0.9, t)),
                                       .root_bias2 = (float)sqrt(1 - pow(0.999, t)),
                                       .eps = 1e-8f};
        rng_fill_uniform(&rng, g, N, -0.01f, 0.01f);
        table->adamw(of.w, of.m, of.v, g, N, &c);
    }
    return sum_of_bits(of.v, N, sum_of_bits(of.m, N, sum_of_bits(of.w, N, 0)));
}

static void updates_with_fused_kernels_have_the_same_bits(void **state)
{
    const struct kernels *all[ISAS_MOST];
    const size_t n = isas_kernels(all);
    size_t fused = 0;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(all[i]->isa, "base"))
            continue;
        assert_int_equal(updated(all[i]), 0x59ec8b0b);
        fused++;
    }
    if (!fused)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(begin_values_have_the_same_bits),
                                       cmocka_unit_test(updates_with_fused_kernels_have_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
