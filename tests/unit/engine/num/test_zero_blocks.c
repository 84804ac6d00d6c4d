/* SPDX-License-Identifier: MIT
 *
 * Values without their zeros: every bit comes back, zeros cost next to nothing, and bytes that are
 * no message are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "num/rng.h"
#include "num/zero_blocks.h"

enum { MOST = 20 * ZERO_BLOCK };

/* Runs of zeros and of other values, as long as chance has it; some of those are −0. */
static void fill(float *values, size_t n, struct rng *rng)
{
    size_t run = 0;
    bool zero = false;
    for (size_t i = 0; i < n; i++, run--) {
        if (!run) {
            zero = rng_below(rng, 2);
            run = 1 + (size_t)rng_below(rng, 3 * ZERO_BLOCK);
        }
        const float other = rng_below(rng, 5) ? 1.0f / (float)(i + 1) : -0.0f;
        values[i] = zero ? 0.0f : other;
    }
}

/* In memory of just the size that is promised: what writes beyond it is found by the sanitizer. */
static void every_bit_comes_back(void **state)
{
    (void)state;
    struct rng rng = rng_for(1, "values");
    for (size_t n = 0; n <= MOST; n += n < 3 ? 1 : 1 + (size_t)rng_below(&rng, 7)) {
        float values[MOST + 1];
        float *message = malloc(zero_blocks_bytes(n));
        assert_non_null(message);
        fill(values, n, &rng);
        memcpy(message, values, n * sizeof *values);
        const size_t bytes = zero_blocks_pack(message, n);
        assert_true(bytes > 0 && bytes <= zero_blocks_bytes(n));
        float *arrived = malloc(zero_blocks_bytes(n));
        assert_non_null(arrived);
        memset(arrived, 0xa5, zero_blocks_bytes(n));
        memcpy(arrived, message, bytes);
        assert_true(zero_blocks_unpack(arrived, n, bytes));
        assert_memory_equal(arrived, values, n * sizeof *values);
        free(arrived);
        free(message);
    }
}

static void zeros_are_left_out(void **state)
{
    (void)state;
    static float values[MOST + MOST / 32];
    const size_t none = zero_blocks_pack(values, MOST);
    assert_true(none <= MOST / ZERO_BLOCK / 8 + 1);
    memset(values, 0, sizeof values);
    values[5 * ZERO_BLOCK] = 1;
    assert_int_equal(zero_blocks_pack(values, MOST), none + ZERO_BLOCK * sizeof *values);
}

/* −0 + 0 is 0: a zero with a sign that was left out would come back without it. */
static void a_negative_zero_stays(void **state)
{
    (void)state;
    float values[ZERO_BLOCK + 1] = {[7] = -0.0f}, before[ZERO_BLOCK];
    memcpy(before, values, sizeof before);
    const size_t bytes = zero_blocks_pack(values, ZERO_BLOCK);
    assert_true(bytes > ZERO_BLOCK * sizeof *values);
    assert_true(zero_blocks_unpack(values, ZERO_BLOCK, bytes));
    assert_memory_equal(values, before, sizeof before);
}

static void what_is_no_message_is_refused(void **state)
{
    (void)state;
    static float values[MOST + MOST / 32];
    for (size_t i = 0; i < MOST; i += 3 * ZERO_BLOCK)
        values[i] = 1;
    const size_t bytes = zero_blocks_pack(values, MOST), most = zero_blocks_bytes(MOST);
    const size_t wrong[] = {0,    1,       bytes - ZERO_BLOCK, bytes - 4, bytes - 1, bytes + 1, bytes + 4,
                            most, most + 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        static float message[MOST + MOST / 32];
        memcpy(message, values, sizeof message);
        assert_false(zero_blocks_unpack(message, MOST, wrong[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bit_comes_back),
        cmocka_unit_test(zeros_are_left_out),
        cmocka_unit_test(a_negative_zero_stays),
        cmocka_unit_test(what_is_no_message_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
