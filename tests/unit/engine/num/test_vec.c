/* SPDX-License-Identifier: MIT
 *
 * Vectors against plain loops, at lengths around every block border; the exponential over its whole
 * range; the kernel tables against one another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "num/kernels.h"
#include "num/rng.h"
#include "num/vec.h"
#include "tests/lib/isas.h"

static const size_t lengths[] = {0, 1, 7, 15, 16, 17, 63, 1000, 16383, 16385, 50001, 5000003};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static float *random_floats(size_t n, const char *purpose)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    struct rng rng = rng_for(13, purpose);
    rng_fill_uniform(&rng, x, n, -2, 2);
    return x;
}

static struct num *unit(int threads)
{
    struct num *num = NULL;
    assert_int_equal(num_new(&num, threads, NULL), 0);
    return num;
}

static void test_elementwise(void **state)
{
    (void)state;
    struct num *num = unit(2);
    for (size_t i = 0; i < LENGTHS - 1; i++) {
        const size_t n = lengths[i];
        float *a = random_floats(n, "a"), *b = random_floats(n, "b"), *y = random_floats(n, "y");
        vec_add(num, y, a, b, n);
        for (size_t j = 0; j < n; j++)
            assert_true(y[j] == a[j] + b[j]);
        vec_add(num, a, a, b, n); /* in place */
        assert_memory_equal(a, y, n * sizeof *a);
        num_kernels(num)->axpy(y, 0.75f, b, n);
        for (size_t j = 0; j < n; j++)
            assert_true(fabsf(y[j] - (a[j] + 0.75f * b[j])) <= 1e-6f);
        memcpy(a, y, n * sizeof *a);
        vec_scale(num, y, -1.5f, n);
        for (size_t j = 0; j < n; j++)
            assert_true(y[j] == a[j] * -1.5f);
        free(a), free(b), free(y);
    }
    num_free(num);
}

static void test_sumsq(void **state)
{
    (void)state;
    struct num *one = unit(1), *two = unit(2), *five = unit(5);
    for (size_t i = 0; i < LENGTHS; i++) {
        float *x = random_floats(lengths[i], "x");
        double want = 0;
        for (size_t j = 0; j < lengths[i]; j++)
            want += (double)x[j] * (double)x[j];
        const double got = vec_sumsq(one, x, lengths[i]);
        assert_true(fabs(got - want) <= 1e-12 * want);
        assert_true(got == vec_sumsq(two, x, lengths[i]) && got == vec_sumsq(five, x, lengths[i]));
        free(x);
    }
    num_free(one), num_free(two), num_free(five);
}

static void test_logsumexp(void **state)
{
    (void)state;
    static const size_t cols[] = {1, 2, 7, 17, 1000, 32003};
    struct num *num = unit(2);
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        float *x = random_floats(3 * cols[i], "x");
        for (size_t j = 0; j < cols[i]; j++) {
            x[cols[i] + j] = 1e4f * x[cols[i] + j];         /* far apart */
            x[2 * cols[i] + j] = 1000 + x[2 * cols[i] + j]; /* exp would overflow */
        }
        for (size_t r = 0; r < 3; r++) {
            double top = -INFINITY, sum = 0;
            for (size_t j = 0; j < cols[i]; j++)
                top = fmax(top, (double)x[r * cols[i] + j]);
            for (size_t j = 0; j < cols[i]; j++)
                sum += exp((double)x[r * cols[i] + j] - top);
            assert_true(fabs(num_kernels(num)->logsumexp(x + r * cols[i], cols[i]) - (top + log(sum))) <=
                        1e-6 * (1 + fabs(top)));
        }
        free(x);
    }
    const float none[3] = {-INFINITY, -INFINITY, -INFINITY};
    const double got = num_kernels(num)->logsumexp(none, 3);
    assert_true(isinf(got) && got < 0);
    num_free(num);
}

/* e^x in ulps of the true result, through the kernel that computes nothing else. */
static void check_exp(const struct kernels *k)
{
    enum { BATCH = 4096 };
    float x[BATCH], y[BATCH];
    double worst = 0;
    for (int run = 0; run < 200; run++) {
        for (int i = 0; i < BATCH; i++)
            y[i] = x[i] = -104.0f + 193.0f * (float)(run * BATCH + i) / (200 * BATCH);
        k->exp_minus(y, BATCH, 0, 1);
        for (int i = 0; i < BATCH; i++) {
            const double want = exp((double)x[i]);
            if (want > 3.4028234e38) {
                assert_true(isinf(y[i]) || y[i] > 3.40282e38f);
                continue;
            }
            const double ulp = ldexp(1, (int)fmax(floor(log2(want)) - 23, -149));
            worst = fmax(worst, fabs((double)y[i] - want) / ulp);
        }
    }
    if (!(worst <= 1.5))
        fail_msg("exp of %s is off by %g ulp", k->isa, worst);
    float edge[6] = {-INFINITY, -1e30f, 0, 1e30f, INFINITY, NAN};
    k->exp_minus(edge, 6, 0, 1);
    assert_true(edge[0] == 0 && edge[1] == 0 && edge[2] == 1 && isinf(edge[3]) && isinf(edge[4]) &&
                isnan(edge[5]));
}

static void test_exp(void **state)
{
    (void)state;
    const struct kernels *tables[ISAS_MOST];
    for (size_t i = 0, n = isas_kernels(tables); i < n; i++)
        check_exp(tables[i]);
}

/* Tiles of odd sizes, straight and transposed, against plain sums. */
static void test_tile(void **state)
{
    (void)state;
    enum { M = 31, K = 29, N = 48, LD = 64 };
    const struct kernels *tables[ISAS_MOST];
    float *a = random_floats(LD * LD, "a"), *b = random_floats(LD * LD, "b"),
          *c = random_floats(LD * LD, "c");
    for (size_t i = 0, all = isas_kernels(tables); i < all; i++)
        for (size_t m = 1; m <= M; m++)
            for (size_t n = TILE_PAD; n <= N; n += TILE_PAD)
                for (int way = 0; way < 4; way++) {
                    float *out = random_floats(LD * LD, "c");
                    const bool across = way & 1, add = way & 2;
                    tables[i]->tile(
                        &(struct tile){out, LD, a, across ? 1 : LD, across ? LD : 1, b, LD, m, n, K, add});
                    for (size_t r = 0; r < LD; r++)
                        for (size_t j = 0; j < LD; j++) {
                            double want = add || r >= m || j >= n ? (double)c[r * LD + j] : 0;
                            for (size_t p = 0; r < m && j < n && p < K; p++)
                                want += (double)a[across ? p * LD + r : r * LD + p] * (double)b[p * LD + j];
                            assert_true(fabs((double)out[r * LD + j] - want) <= 2e-5);
                        }
                    free(out);
                }
    free(a), free(b), free(c);
}

enum { KEYS = 5, WIDE = 35, LD = 37 };

static void plain_softmax_columns(float *s, size_t keys, size_t n, float *max, float *sum, float *rescale)
{
    for (size_t i = 0; i < n; i++) {
        const float was = max[i];
        double all = 0;
        for (size_t c = 0; c < keys; c++)
            max[i] = fmaxf(max[i], s[c * LD + i]);
        for (size_t c = 0; c < keys; c++)
            all += (double)(s[c * LD + i] = (float)exp((double)s[c * LD + i] - (double)max[i]));
        rescale[i] = (float)exp((double)was - (double)max[i]);
        sum[i] = (float)((double)sum[i] * (double)rescale[i] + all);
    }
}

/* Columns of every number of keys and every length, that begin or go on, with keys that are not
 * seen; and nothing beyond them. */
static void check_softmax_columns(const struct kernels *k, size_t keys, size_t n, bool begins)
{
    float *scores[2], *max[2], *sum[2], *rescale[2];
    for (size_t i = 0; i < 2; i++) {
        scores[i] = random_floats(KEYS * LD, "s");
        for (size_t at = 3; at < KEYS * LD; at += 7)
            scores[i][at] = at % LD && at >= LD ? -INFINITY : scores[i][at]; /* the first key is seen */
        max[i] = random_floats(WIDE, "m");
        sum[i] = random_floats(WIDE, "u");
        rescale[i] = random_floats(WIDE, "r");
        for (size_t j = 0; j < WIDE; j++) {
            max[i][j] = begins ? -INFINITY : max[i][j];
            sum[i][j] = begins ? 0 : 1 + fabsf(sum[i][j]);
        }
    }
    k->softmax_columns(scores[0], LD, keys, n, max[0], sum[0], rescale[0]);
    plain_softmax_columns(scores[1], keys, n, max[1], sum[1], rescale[1]);
    assert_memory_equal(max[0], max[1], WIDE * sizeof **max);
    for (size_t j = 0; j < WIDE; j++) {
        assert_true(fabsf(sum[0][j] - sum[1][j]) <= 5e-7f * fabsf(sum[1][j]));
        assert_true(fabsf(rescale[0][j] - rescale[1][j]) <= 5e-7f * fabsf(rescale[1][j]));
    }
    for (size_t j = 0; j < KEYS * LD; j++)
        assert_true(scores[0][j] == scores[1][j] || /* beyond them perhaps infinite */
                    fabsf(scores[0][j] - scores[1][j]) <= 5e-7f * fabsf(scores[1][j]));
    for (size_t i = 0; i < 2; i++)
        free(scores[i]), free(max[i]), free(sum[i]), free(rescale[i]);
}

static void test_softmax_columns(void **state)
{
    (void)state;
    const struct kernels *tables[ISAS_MOST];
    for (size_t i = 0, all = isas_kernels(tables); i < all; i++)
        for (size_t keys = 1; keys <= KEYS; keys++)
            for (size_t n = 0; n <= WIDE; n++)
                for (int begins = 0; begins < 2; begins++)
                    check_softmax_columns(tables[i], keys, n, begins);
}

/* Of every length, and nothing beyond it. */
static void test_softmax_back(void **state)
{
    (void)state;
    enum { N = 35 };
    const struct kernels *tables[ISAS_MOST];
    float *score = random_floats(N, "s"), *grad = random_floats(N, "g"), *lse = random_floats(N, "l"),
          *delta = random_floats(N, "d");
    for (size_t i = 0, all = isas_kernels(tables); i < all; i++)
        for (size_t n = 0; n < N; n++) {
            float p[N], dp[N];
            memcpy(p, score, sizeof p);
            memcpy(dp, grad, sizeof dp);
            tables[i]->softmax_back(p, dp, lse, delta, n);
            for (size_t j = 0; j < N; j++) {
                const double e = exp((double)score[j] - (double)lse[j]), want = j < n ? e : (double)score[j],
                             d = (double)grad[j], want_d = j < n ? e * (d - (double)delta[j]) : d;
                assert_true(fabs((double)p[j] - want) <= 5e-7 * fabs(want));
                assert_true(fabs((double)dp[j] - want_d) <= 5e-7 * (fabs(want_d) + e * fabs(d)));
            }
        }
    free(score), free(grad), free(lse), free(delta);
}

static void test_transpose(void **state)
{
    (void)state;
    const struct kernels *tables[ISAS_MOST];
    float *src = random_floats(40 * 50, "t"), dst[50 * 48];
    for (size_t i = 0, all = isas_kernels(tables); i < all; i++)
        for (size_t rows = 0; rows <= 40; rows += 3)
            for (size_t cols = 0; cols <= 50; cols += 5) {
                tables[i]->transpose(dst, 48, src, 50, rows, cols);
                for (size_t r = 0; r < rows; r++)
                    for (size_t c = 0; c < cols; c++)
                        assert_true(dst[c * 48 + r] == src[r * 50 + c]);
            }
    free(src);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_sumsq),
        cmocka_unit_test(test_logsumexp),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_tile),
        cmocka_unit_test(test_softmax_back),
        cmocka_unit_test(test_softmax_columns),
        cmocka_unit_test(test_transpose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
