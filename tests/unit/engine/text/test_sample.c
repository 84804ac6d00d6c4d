/* SPDX-License-Identifier: MIT
 *
 * Choosing tokens: the greedy rule, determinism, the nucleus, and frequencies against exact
 * probabilities. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "text/sample.h"

enum { VOCAB = 12, DRAWS = 60000 };

static uint32_t choose_by(const float *logits, size_t vocab, const struct sample_params *params,
                          uint64_t index)
{
    struct sample_scratch *scratch = malloc(vocab * sizeof *scratch);
    uint32_t id = sample_token(logits, vocab, params, index, scratch);
    free(scratch);
    return id;
}

static uint32_t choose(const float *logits, size_t vocab, float temperature, float top_p, uint64_t seed,
                       uint64_t index)
{
    struct sample_params params = {.temperature = temperature, .top_p = top_p, .seed = seed};
    return choose_by(logits, vocab, &params, index);
}

static void test_greedy(void **state)
{
    (void)state;
    const float ties[] = {1, 3, 3, 2};
    assert_int_equal(choose(ties, 4, 0, 1, 1, 0), 1);
    assert_int_equal(choose(ties, 4, -1, 1, 1, 0), 1);
    assert_int_equal(choose(ties, 4, NAN, 1, 1, 0), 1);
    const float low[] = {-INFINITY, -INFINITY, -5};
    assert_int_equal(choose(low, 3, 0, 1, 1, 0), 2);
}

static void test_not_numbers(void **state)
{
    (void)state;
    const float some[] = {NAN, 1, NAN, 2, NAN};
    const float all[] = {NAN, NAN, NAN};
    const float none[] = {-INFINITY, -INFINITY};
    const float top[] = {0, INFINITY, 3, INFINITY};
    size_t second = 0;
    assert_int_equal(choose(some, 5, 0, 1, 1, 0), 3);
    for (uint64_t i = 0; i < 200; i++) {
        uint32_t id = choose(some, 5, 1, i % 2 ? 0.5f : 1, 7, i);
        assert_true(id == 1 || id == 3);
        assert_int_equal(choose(all, 3, 1, 0.9f, 7, i), 0);
        assert_int_equal(choose(none, 2, 1, 0.9f, 7, i), 0);
        id = choose(top, 4, 0.7f, 1, 7, i);
        assert_true(id == 1 || id == 3);
        second += id == 3;
        assert_int_equal(choose(some, 5, 1, NAN, 7, i) % 2, 1);
        assert_true(choose(some, 5, INFINITY, 1, 7, i) < 5);
    }
    assert_true(second > 60 && second < 140); /* infinite logits share alike */
}

static void test_repeats(void **state)
{
    (void)state;
    float logits[VOCAB];
    for (size_t i = 0; i < VOCAB; i++)
        logits[i] = (float)(i % 5) * 0.4f;
    size_t differ_seed = 0, differ_index = 0;
    for (uint64_t i = 0; i < 300; i++) {
        uint32_t id = choose(logits, VOCAB, 1, 1, 42, i);
        assert_int_equal(choose(logits, VOCAB, 1, 1, 42, i), id);
        differ_seed += choose(logits, VOCAB, 1, 1, 43, i) != id;
        differ_index += choose(logits, VOCAB, 1, 1, 42, i + 1) != id;
    }
    assert_true(differ_seed > 200 && differ_index > 200);
}

/* Frequencies of `draws` against the exact distribution of `p`: chi-square with its degrees of
 * freedom far below the mean plus five standard deviations. */
static void check_frequencies_by(const float *logits, const struct sample_params *params, const double *p)
{
    size_t count[VOCAB] = {0};
    for (uint64_t i = 0; i < DRAWS; i++)
        count[choose_by(logits, VOCAB, params, i)]++;
    double chi2 = 0, freedom = -1;
    for (size_t i = 0; i < VOCAB; i++) {
        double want = p[i] * DRAWS;
        if (want == 0) {
            assert_int_equal(count[i], 0);
            continue;
        }
        chi2 += ((double)count[i] - want) * ((double)count[i] - want) / want;
        freedom += 1;
    }
    if (chi2 > freedom + 5 * sqrt(2 * freedom) + 5)
        fail_msg("seed %llu: chi-square %.1f with %.0f degrees of freedom", (unsigned long long)params->seed,
                 chi2, freedom);
}

static void check_frequencies(const float *logits, float temperature, float top_p, const double *p)
{
    const struct sample_params params = {.temperature = temperature, .top_p = top_p, .seed = 20240917};
    check_frequencies_by(logits, &params, p);
}

static void test_distribution(void **state)
{
    (void)state;
    float logits[VOCAB];
    double p[VOCAB], sum = 0;
    for (size_t i = 0; i < VOCAB; i++)
        logits[i] = (float)((i * 7) % VOCAB) * 0.3f;
    for (size_t i = 0; i < VOCAB; i++)
        sum += p[i] = exp((double)logits[i] / 0.8);
    for (size_t i = 0; i < VOCAB; i++)
        p[i] /= sum;
    check_frequencies(logits, 0.8f, 1, p);
}

static void test_nucleus(void **state)
{
    (void)state;
    /* Probabilities 0.4, 0.3, 0.2 and nine of 1/90. */
    float logits[VOCAB];
    for (size_t i = 0; i < VOCAB; i++)
        logits[i] = (float)log(1.0 / 90);
    logits[5] = (float)log(0.4);
    logits[2] = (float)log(0.3);
    logits[9] = (float)log(0.2);
    double two[VOCAB] = {[5] = 4.0 / 7, [2] = 3.0 / 7},
           three[VOCAB] = {[5] = 4.0 / 9, [2] = 3.0 / 9, [9] = 2.0 / 9};
    double one[VOCAB] = {[5] = 1};
    check_frequencies(logits, 1, 0.39f, one);
    check_frequencies(logits, 1, 0.41f, two);
    check_frequencies(logits, 1, 0.69f, two);
    check_frequencies(logits, 1, 0.71f, three);
    check_frequencies(logits, 1, 0, one);
    check_frequencies(logits, 1, -3, one);
}

static void test_nucleus_of_equals(void **state)
{
    (void)state;
    const float equal[VOCAB] = {0};
    double half[VOCAB], first[VOCAB] = {1};
    for (size_t i = 0; i < VOCAB; i++)
        half[i] = i < 6 ? 1.0 / 6 : 0; /* ties go to the lower id */
    check_frequencies(equal, 1, 0.49f, half);
    check_frequencies(equal, 1, 0.01f, first);
    const float single[] = {3};
    assert_int_equal(choose(single, 1, 1, 0.5f, 1, 1), 0);
}

/* Of x, the heaviest first. */
static void sort_all(const double *x, size_t *order)
{
    for (size_t i = 0; i < VOCAB; i++) {
        size_t at = i;
        for (; at > 0 && x[order[at - 1]] < x[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

/* What the header says, done the long way: sort all, cut, share out. */
static void oracle(const float *logits, const struct sample_params *params, double *p)
{
    double x[VOCAB], sum = 0, mass = 0;
    size_t order[VOCAB], n = params->top_k && params->top_k < VOCAB ? params->top_k : VOCAB;
    for (size_t i = 0; i < VOCAB; i++)
        x[i] = (double)logits[i];
    for (size_t i = 0; i < params->nadjust; i++) {
        const struct sample_adjust *a = &params->adjust[i];
        const double r = (double)a->repeat;
        x[a->id] = (x[a->id] > 0 ? x[a->id] / r : x[a->id] * r) + (double)a->add;
    }
    sort_all(x, order);
    const double max = x[order[0]];
    for (size_t i = 0; i < VOCAB; i++)
        x[i] = exp((x[i] - max) / (double)params->temperature);
    for (size_t i = 0; i < n; i++)
        sum += x[order[i]];
    for (size_t i = 0; i < n && params->top_p < 1; i++)
        if ((mass += x[order[i]]) >= (double)params->top_p * sum)
            n = i + 1;
    while (n > 1 && x[order[n - 1]] < (double)params->min_p)
        n--;
    sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[order[i]];
    for (size_t i = 0; i < VOCAB; i++)
        p[order[i]] = i < n ? x[order[i]] / sum : 0;
}

/* Every cut alone and with the others. */
static void test_cuts(void **state)
{
    (void)state;
    static const struct sample_adjust adjust[] = {{3, 1.5f, 0}, {4, 1.5f, -0.7f}, {0, 2, 0}, {3, 1, 0.25f}};
    float logits[VOCAB];
    for (size_t i = 0; i < VOCAB; i++)
        logits[i] = (float)((i * 7) % VOCAB) * 0.31f - 1;
    for (unsigned which = 1; which < 16; which++) {
        double p[VOCAB];
        struct sample_params params = {.temperature = 0.9f, .seed = which};
        params.top_k = which & 1 ? 7 : 0;
        params.top_p = which & 2 ? 0.83f : 1;
        params.min_p = which & 4 ? 0.21f : 0;
        params.adjust = adjust;
        params.nadjust = which & 8 ? sizeof adjust / sizeof *adjust : 0;
        oracle(logits, &params, p);
        check_frequencies_by(logits, &params, p);
    }
}

/* The order of a heap does not decide which of equals stay. */
static void test_top_k_of_equals(void **state)
{
    (void)state;
    float logits[VOCAB] = {0};
    logits[11] = 1;
    for (uint32_t k = 1; k <= VOCAB + 1; k++) {
        const struct sample_params params = {.temperature = 1, .top_p = 1, .top_k = k, .seed = 3};
        for (uint64_t i = 0; i < 500; i++) {
            const uint32_t id = choose_by(logits, VOCAB, &params, i);
            assert_true(id == 11 || id + 1 < k);
        }
    }
}

/* An adjusted logit is greedy too, and one that is no number stays none. */
static void test_adjusted_greedy(void **state)
{
    (void)state;
    const float logits[] = {1, 4, 3, NAN, -2};
    const struct sample_adjust less = {1, 2, 0}, more = {4, 1, 100}, none = {3, 1, 100},
                               both[] = {{1, 2, 0}, {2, 1.6f, 0}};
    struct sample_params params = {.top_p = 1, .adjust = &less, .nadjust = 1};
    assert_int_equal(choose_by(logits, 5, &params, 0), 2);
    params.adjust = &more;
    assert_int_equal(choose_by(logits, 5, &params, 0), 4);
    params.adjust = &none;
    assert_int_equal(choose_by(logits, 5, &params, 0), 1);
    params.adjust = both;
    params.nadjust = 2;
    assert_int_equal(choose_by(logits, 5, &params, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_not_numbers),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_nucleus),
        cmocka_unit_test(test_nucleus_of_equals),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_top_k_of_equals),
        cmocka_unit_test(test_adjusted_greedy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
