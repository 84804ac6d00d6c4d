/* SPDX-License-Identifier: MIT */
#include "tests/lib/near.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

void must(int r, const struct err *err)
{
    if (r)
        fail_msg("%d: %s", r, err->text);
}

void must_refuse(int r, int code, const struct err *err, const char *part)
{
    if (r != code)
        fail_msg("returned %d instead of %d (wanted a sentence with \"%s\")", r, code, part);
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not contain \"%s\"", err->text, part);
}

double near_max(const float *x, size_t n)
{
    double max = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, fabs((double)x[i]));
    return max;
}

static size_t worst(const float *got, const float *want, size_t n, double *ret_off)
{
    size_t at = 0;
    *ret_off = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        if (isnan(off))
            off = INFINITY;
        if (off > *ret_off) {
            *ret_off = off;
            at = i;
        }
    }
    return at;
}

double near_difference(const float *got, const float *want, size_t n)
{
    double off;
    worst(got, want, n, &off);
    return off;
}

void assert_near(const float *got, const float *want, size_t n, double tolerance, const char *what)
{
    double off;
    size_t at = worst(got, want, n, &off);
    if (!(off <= tolerance))
        fail_msg("%s: element %zu of %zu is %.9g, wanted %.9g: %.3g off, %.3g allowed", what, at, n,
                 (double)got[at], (double)want[at], off, tolerance);
}

void assert_near_max(const float *got, const float *want, size_t n, double tolerance, const char *what)
{
    assert_near(got, want, n, tolerance * near_max(want, n), what);
}

void assert_same_bits(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got))
            fail_msg("%s: element %zu of %zu is %.9g, wanted exactly %.9g", what, i, n, (double)got[i],
                     (double)want[i]);
}

static double log_sum(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i]);
    return log(sum);
}

double near_logprobs(const float *got, const float *want, size_t rows, size_t vocab)
{
    double off = 0, all = 0;
    for (size_t row = 0; row < rows; row++, got += vocab, want += vocab) {
        const double of_got = log_sum(got, vocab), of_want = log_sum(want, vocab);
        for (size_t i = 0; i < vocab; i++) {
            off += pow((double)got[i] - of_got - ((double)want[i] - of_want), 2);
            all += pow((double)want[i] - of_want, 2);
        }
    }
    return sqrt(off / all);
}
