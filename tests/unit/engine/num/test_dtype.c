/* SPDX-License-Identifier: MIT
 *
 * Element types: every 16-bit pattern, and the rounding of f32 against a slow reading of the
 * definition. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "num/bits.h"
#include "num/dtype.h"

enum { PATTERNS = 1 << 16 };

/* The value of a pattern as IEEE 754 defines it, for a format with `frac` fraction bits. */
static double value_of(unsigned pattern, int frac)
{
    int exps = 15 - frac, bias = (1 << (exps - 1)) - 1;
    int e = (int)(pattern >> frac) & ((1 << exps) - 1);
    double f = ldexp((double)(pattern & ((1u << frac) - 1)), -frac);
    double sign = pattern & 0x8000u ? -1 : 1;
    if (e == (1 << exps) - 1)
        return f > 0 ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1 + f, e - bias) : ldexp(f, 1 - bias));
}

static void check_widening(enum dtype type, int frac)
{
    static uint16_t in[PATTERNS];
    static float out[PATTERNS];
    for (unsigned i = 0; i < PATTERNS; i++)
        in[i] = (uint16_t)i;
    dtype_to_f32(out, in, type, PATTERNS);
    for (unsigned i = 0; i < PATTERNS; i++) {
        double want = value_of(i, frac);
        if (isnan(want))
            assert_true(isnan(out[i]));
        else
            assert_int_equal(bits_of(out[i]), bits_of((float)want));
    }
}

static void test_widening(void **state)
{
    (void)state;
    check_widening(DTYPE_F16, 10);
    check_widening(DTYPE_BF16, 7);
}

/* All 256 patterns of E4M3, by its definition: no infinities, one NaN. */
static void test_widening_f8(void **state)
{
    (void)state;
    uint8_t in[256];
    float out[256];
    for (int i = 0; i < 256; i++)
        in[i] = (uint8_t)i;
    dtype_to_f32(out, in, DTYPE_F8_E4M3, 256);
    for (int i = 0; i < 256; i++) {
        int e = i >> 3 & 15, f = i & 7;
        double want = (i & 0x80 ? -1 : 1) * (e ? ldexp(8 + f, e - 10) : ldexp(f, -9));
        if ((i & 0x7f) == 0x7f)
            assert_true(isnan(out[i]));
        else
            assert_int_equal(bits_of(out[i]), bits_of((float)want));
    }
}

static void check_round_trip(enum dtype type, int frac)
{
    static uint16_t in[PATTERNS], back[PATTERNS];
    static float wide[PATTERNS];
    for (unsigned i = 0; i < PATTERNS; i++)
        in[i] = (uint16_t)i;
    dtype_to_f32(wide, in, type, PATTERNS);
    dtype_from_f32(back, wide, type, PATTERNS);
    for (unsigned i = 0; i < PATTERNS; i++)
        assert_int_equal(back[i], isnan(value_of(i, frac)) ? i | 1u << (frac - 1) : i);
}

static void test_round_trip(void **state)
{
    (void)state;
    check_round_trip(DTYPE_F16, 10);
    check_round_trip(DTYPE_BF16, 7);
}

static uint16_t narrow(enum dtype type, float x)
{
    uint16_t h;
    dtype_from_f32(&h, &x, type, 1);
    return h;
}

/* Between two neighbours: just below the middle, the middle (to the even one) and just above.
 * Finite neighbours are exact in f32, and so is their middle; the pattern after the largest finite
 * one is infinity, reached as if it were a number. */
static void check_rounding(enum dtype type, int frac)
{
    unsigned infinity = ((1u << (15 - frac)) - 1) << frac;
    for (unsigned i = 0; i < infinity; i++) {
        double a = value_of(i, frac);
        double b = i + 1 < infinity ? value_of(i + 1, frac) : 2 * a - value_of(i - 1, frac);
        double middle = a + (b - a) / 2;
        float mid = (float)middle;
        assert_true((double)mid == middle);
        unsigned even = i % 2 == 0 ? i : i + 1;
        assert_int_equal(narrow(type, mid), even);
        assert_int_equal(narrow(type, -mid), even | 0x8000u);
        assert_int_equal(narrow(type, float_of(bits_of(mid) - 1)), i);
        assert_int_equal(narrow(type, float_of(bits_of(mid) + 1)), i + 1);
    }
}

static void test_rounding(void **state)
{
    (void)state;
    check_rounding(DTYPE_F16, 10);
    check_rounding(DTYPE_BF16, 7);
}

static void test_extremes(void **state)
{
    (void)state;
    const float in[] = {0.f,     -0.f,    INFINITY, -INFINITY,  3.4e38f,  65504.f,
                        65519.f, 65520.f, 0x1p-25f, 0x1.8p-25f, 0x1p-149f};
    const uint16_t f16[] = {0, 0x8000, 0x7c00, 0xfc00, 0x7c00, 0x7bff, 0x7bff, 0x7c00, 0, 1, 0};
    const uint16_t bf16[] = {0, 0x8000, 0x7f80, 0xff80, 0x7f80, 0x4780, 0x4780, 0x4780, 0x3300, 0x3340, 0};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        assert_int_equal(narrow(DTYPE_F16, in[i]), f16[i]);
        assert_int_equal(narrow(DTYPE_BF16, in[i]), bf16[i]);
    }
    /* A NaN whose payload lies in the lost bits stays a NaN, and one of all ones does not turn into
     * zero. */
    assert_int_equal(narrow(DTYPE_F16, float_of(0x7f800001u)), 0x7e00);
    assert_int_equal(narrow(DTYPE_BF16, float_of(0x7f800001u)), 0x7fc0);
    assert_int_equal(narrow(DTYPE_F16, float_of(0xffffffffu)), 0xffff);
    assert_int_equal(narrow(DTYPE_BF16, float_of(0xffffffffu)), 0xffff);
}

/* Any count, any alignment, nothing written beyond. */
static void test_counts(void **state)
{
    (void)state;
    const size_t counts[] = {0, 1, 63, 64, 65, 200};
    for (enum dtype type = 0; type < DTYPE_F8_E4M3; type++) { /* those that are written */
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            size_t n = counts[c], bytes = n * dtype_size(type);
            unsigned char *raw = malloc(bytes + 2);
            float *in = malloc((n + 1) * sizeof *in), *out = malloc((n + 1) * sizeof *out);
            for (size_t i = 0; i < n; i++)
                in[i] = (float)i / 8;
            raw[bytes + 1] = 0x5a;
            out[n] = 42;
            dtype_from_f32(raw + 1, in, type, n);
            dtype_to_f32(out, raw + 1, type, n);
            if (n > 0)
                assert_memory_equal(in, out, (n < 128 ? n : 128) * sizeof *in);
            assert_int_equal(raw[bytes + 1], 0x5a);
            assert_true(out[n] == 42);
            free(raw);
            free(in);
            free(out);
        }
    }
}

static void test_names(void **state)
{
    (void)state;
    enum dtype type = DTYPE_COUNT;
    assert_int_equal(dtype_from_name("BF16", &type), 0);
    assert_int_equal(type, DTYPE_BF16);
    assert_int_equal(dtype_from_name("float16", &type), 0);
    assert_int_equal(type, DTYPE_F16);
    assert_int_equal(dtype_from_name("F8_E4M3", &type), 0);
    assert_int_equal(type, DTYPE_F8_E4M3);
    assert_true(dtype_from_name("F8_E5M2", &type) < 0);
    assert_int_equal(type, DTYPE_F8_E4M3);
    assert_string_equal(dtype_name(DTYPE_F32), "F32");
    assert_int_equal(dtype_size(DTYPE_F32), 4);
    assert_int_equal(dtype_size(DTYPE_BF16), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widening),   cmocka_unit_test(test_widening_f8),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_extremes),   cmocka_unit_test(test_counts),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
