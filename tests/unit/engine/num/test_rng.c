/* SPDX-License-Identifier: MIT
 *
 * Philox against its published known answers, and what is drawn from it. */
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

static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        rng_philox(out, kat[i].counter, kat[i].key);
        assert_memory_equal(out, kat[i].want, sizeof out);
    }
    struct rng zero = {{0, 0}, 0};
    assert_true(rng_u64(&zero) == 0xe169c58d6627e8d5u && zero.next == 1);
}

/* Streams: the same for the same seed and purpose, different when either differs. */
static void test_streams(void **state)
{
    (void)state;
    struct rng a = rng_for(1, "shuffle/0"), b = rng_for(1, "shuffle/0"), c = rng_for(1, "shuffle/1"),
               d = rng_for(2, "shuffle/0");
    const uint64_t first = rng_u64(&a);
    assert_true(first == rng_u64(&b));
    assert_true(first != rng_u64(&c) && first != rng_u64(&d));
    struct rng pinned = rng_for(42, "init/lora");
    /* A change of the key derivation would change every recorded job: it must be deliberate. */
    uint64_t h = 0xcbf29ce484222325u, s = 42 + 0x9e3779b97f4a7c15u;
    for (const char *p = "init/lora"; *p; p++)
        h = (h ^ (unsigned char)*p) * 0x100000001b3u;
    uint64_t *x[2] = {&s, &h};
    for (int i = 0; i < 2; i++) {
        if (i)
            h ^= s;
        *x[i] = (*x[i] ^ *x[i] >> 30) * 0xbf58476d1ce4e5b9u;
        *x[i] = (*x[i] ^ *x[i] >> 27) * 0x94d049bb133111ebu;
        *x[i] ^= *x[i] >> 31;
    }
    assert_true(pinned.key[0] == (uint32_t)h && pinned.key[1] == (uint32_t)(h >> 32));
}

static void test_below_and_uniform(void **state)
{
    (void)state;
    struct rng rng = rng_for(7, "below");
    size_t seen[6] = {0};
    for (int i = 0; i < 60000; i++) {
        const uint64_t x = rng_below(&rng, 6);
        assert_true(x < 6);
        seen[x]++;
    }
    for (int i = 0; i < 6; i++)
        assert_in_range(seen[i], 9600, 10400); /* four standard deviations of 91 */
    assert_true(rng_below(&rng, 1) == 0);
    for (int i = 0; i < 1000; i++)
        assert_true(rng_below(&rng, (1ull << 63) + 1) <= 1ull << 63);
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        const double u = rng_uniform(&rng);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 10000 - 0.5) < 0.012);
}

static void test_fills(void **state)
{
    (void)state;
    enum { N = 40001 };
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    struct rng rng = rng_for(3, "normal");
    rng_fill_normal(&rng, x, N, 2, 0.5f);
    double mean = 0, var = 0, fourth = 0;
    for (size_t i = 0; i < N; i++)
        mean += (double)x[i] / N;
    for (size_t i = 0; i < N; i++) {
        const double d = ((double)x[i] - mean) / 0.5;
        var += d * d / N;
        fourth += d * d * d * d / N;
    }
    assert_true(fabs(mean - 2) < 0.01 && fabs(var - 1) < 0.03 && fabs(fourth - 3) < 0.2);
    rng_fill_uniform(&rng, x, N, -3, 5);
    mean = 0;
    for (size_t i = 0; i < N; i++) {
        assert_true(x[i] >= -3 && x[i] <= 5);
        mean += (double)x[i] / N;
    }
    assert_true(fabs(mean - 1) < 0.05);
    free(x);
}

static void test_permutation(void **state)
{
    (void)state;
    enum { N = 1000 };
    uint32_t perm[N], again[N];
    unsigned char seen[N] = {0};
    struct rng a = rng_for(5, "shuffle/2"), b = a;
    rng_permutation(&a, perm, N);
    rng_permutation(&b, again, N);
    assert_memory_equal(perm, again, sizeof perm);
    size_t fixed = 0;
    for (size_t i = 0; i < N; i++) {
        assert_true(perm[i] < N && !seen[perm[i]]);
        seen[perm[i]] = 1;
        fixed += perm[i] == i;
    }
    assert_true(fixed < 10);
    rng_permutation(&a, perm, 0);
    rng_permutation(&a, perm, 1);
    assert_int_equal(perm[0], 0);
}

/* The vector kernels of every instruction set this CPU has draw the masks that the pure function
 * gives, from any start. */
static void test_dropout(void **state)
{
    (void)state;
    struct num *num = NULL;
    assert_int_equal(num_new(&num, 1, NULL), 0);
    static const uint64_t firsts[] = {
        0, 1, 63, 64, 777, (1ull << 34) - 130}; /* the last carries into the high counter word */
    static const float rates[] = {0, 0.1f, 0.5f, 1};
    float x[1000], y[1000], z[1024];
    for (size_t i = 0; i < 1000; i++)
        x[i] = 1 + (float)i;
    for (size_t r = 0; r < 4; r++)
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) {
            struct rng base = rng_for(9, "dropout");
            base.next = f * 3;
            rng_dropout_apply(num, y, x, &base, firsts[f], 1000, rates[r]);
            size_t kept = 0;
            for (size_t i = 0; i < 1000; i++) {
                const float mask = rng_dropout(base, firsts[f] + i, rates[r]);
                assert_true(y[i] == x[i] * mask);
                assert_true(mask == 0 || mask == 1 / (1 - rates[r]));
                kept += mask != 0;
            }
            assert_true(fabs((double)kept - 1000 * (1 - (double)rates[r])) <
                        80); /* five standard deviations */
            const struct dropout_consts c = rng_dropout_consts(&base, rates[r]);
            for (size_t i = 0; i < 1024; i++)
                z[i] = 1;
            kernels_base.dropout(z, z, 16, firsts[f] / DROPOUT_GROUP, &c);
            for (size_t i = 0; i < 1024; i++)
                assert_true(z[i] ==
                            rng_dropout(base, firsts[f] / DROPOUT_GROUP * DROPOUT_GROUP + i, rates[r]));
        }
    num_free(num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),     cmocka_unit_test(test_streams),
        cmocka_unit_test(test_below_and_uniform), cmocka_unit_test(test_fills),
        cmocka_unit_test(test_permutation),       cmocka_unit_test(test_dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
