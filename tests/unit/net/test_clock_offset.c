/* SPDX-License-Identifier: MIT
 *
 * How far a neighbour's clock is ahead: whatever way the delay is shared by there and back, however
 * it varies, and though the clocks run apart, the truth lies within the bound; a clock that is set
 * is followed; times that cannot be are not believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "net/clock_offset.h"

enum { BEAT_US = 1000000, BEATS = 400, LINKS = 200 };

/* Two clocks: theirs shows `offset` + (1 + ppm/10⁶) · ours. */
struct world {
    uint64_t seed;
    int64_t offset, ppm;
};

static uint64_t any(struct world *w, uint64_t below)
{
    w->seed = w->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (w->seed >> 33) % below;
}

static int64_t theirs(const struct world *w, uint64_t ours)
{
    return (int64_t)ours + w->offset + (int64_t)ours * w->ppm / 1000000;
}

static int exchange(struct clock_offset *a, const struct world *w, uint64_t sent, uint64_t there,
                    uint64_t held, uint64_t back)
{
    return clock_offset_learn(a,
                              &(struct clock_offset_times){.sent = {sent},
                                                           .came = (uint64_t)theirs(w, sent + there),
                                                           .left = (uint64_t)theirs(w, sent + there + held),
                                                           .back = {sent + there + held + back}});
}

static void expect_true(const struct clock_offset *a, const struct world *w, uint64_t now)
{
    struct clock_offset_bound is;
    assert_true(clock_offset_at(a, (struct instant){now}, &is));
    uint64_t off = (uint64_t)llabs(theirs(w, now) - (int64_t)now - is.us);
    if (off > is.error_us)
        print_message("off by %lu us, said %lu: offset %ld us, %ld ppm\n", off, is.error_us, w->offset,
                      w->ppm);
    assert_true(off <= is.error_us);
}

/* Delays from 20 µs to 50 ms, each way its own, and heartbeats held back for up to a second. */
static void truth_is_in_the_bound(void **state)
{
    (void)state;
    for (uint64_t link = 0; link < LINKS; link++) {
        struct world w = {.seed = link};
        struct clock_offset a = {.n = 0};
        w.offset = (int64_t)any(&w, 2000000000) * 1000 - 900000000000;
        w.ppm = (int64_t)any(&w, 2 * CLOCK_OFFSET_DRIFT_PPM - 1) - CLOCK_OFFSET_DRIFT_PPM + 1;
        uint64_t now = UINT64_C(2000000000000), there = 20 + any(&w, 2000), back = 20 + any(&w, 2000);
        for (int beat = 0; beat < BEATS; beat++, now += BEAT_US) {
            uint64_t late = any(&w, 10) ? 0 : any(&w, 48000); /* now and then a queue */
            assert_int_equal(exchange(&a, &w, now, there + late + any(&w, 300), any(&w, BEAT_US), back), 0);
            expect_true(&a, &w, now + BEAT_US + 60000);
        }
    }
}

/* All the delay on one way: the estimate is off by half of the round trip, and says so. */
static void asymmetry_is_half_the_round_trip(void **state)
{
    (void)state;
    struct world w = {.offset = 5000000};
    struct clock_offset a = {.n = 0};
    struct clock_offset_bound is;
    assert_false(clock_offset_at(&a, (struct instant){1}, &is));
    assert_int_equal(exchange(&a, &w, 1000000, 4000, 100, 0), 0);
    assert_true(clock_offset_at(&a, (struct instant){1004100}, &is));
    assert_int_equal(is.us, 5002000);
    assert_in_range(is.error_us, 2000, 2010);
}

/* A jam does not spoil what a quick round trip has told; in the long run the latest counts more. */
static void the_shortest_round_trip_counts(void **state)
{
    (void)state;
    struct world w = {.offset = -777};
    struct clock_offset a = {.n = 0};
    struct clock_offset_bound is;
    assert_int_equal(exchange(&a, &w, 1000000, 50, 0, 50), 0);
    for (uint64_t i = 1; i < CLOCK_OFFSET_SAMPLES; i++)
        assert_int_equal(exchange(&a, &w, 1000000 + i * BEAT_US, 30000, 0, 100), 0);
    assert_true(clock_offset_at(&a, (struct instant){8000000}, &is));
    assert_int_equal(is.us, -777);
    assert_in_range(is.error_us, 50, 800);                         /* the drift of seven seconds */
    assert_int_equal(exchange(&a, &w, 9000000, 30000, 0, 100), 0); /* the quick one is forgotten */
    assert_true(clock_offset_at(&a, (struct instant){9100000}, &is));
    assert_in_range(is.error_us, 15000, 16000);
    assert_true(
        clock_offset_at(&a, (struct instant){9100000 + UINT64_C(3600000000)}, &is)); /* an hour of silence */
    assert_in_range(is.error_us, 360000, 400000);
}

static void a_clock_that_is_set_is_followed(void **state)
{
    (void)state;
    struct world w = {.offset = 1000000};
    struct clock_offset a = {.n = 0};
    for (uint64_t i = 1; i < 6; i++)
        assert_int_equal(exchange(&a, &w, i * BEAT_US, 40, 500, 40), 0);
    expect_true(&a, &w, 6 * BEAT_US);
    w.offset -= 20000; /* 20 ms back: what was known before is worth nothing */
    assert_int_equal(exchange(&a, &w, 6 * BEAT_US, 900, 500, 900), 0);
    expect_true(&a, &w, 7 * BEAT_US);
    w.offset = -INT64_C(3000000); /* to before its own boot, as far as our clock goes: no number can say it */
    assert_int_equal(exchange(&a, &w, 1000, 40, 0, 40), -EINVAL);
}

static void nonsense_is_not_learnt(void **state)
{
    (void)state;
    static const struct clock_offset_times bad[] = {
        {.sent = {200}, .back = {100}, .came = 1, .left = 1}, /* answered before it was asked */
        {.sent = {100}, .back = {200}, .came = 9, .left = 8},
        {.sent = {100}, .back = {200}, .came = 1000, .left = 9000}, /* held for longer than it was away */
        {.sent = {100}, .back = {200}, .came = 0, .left = UINT64_MAX},
        {.sent = {100}, .back = {200}, .came = UINT64_MAX - 1, .left = UINT64_MAX},
    };
    struct clock_offset a = {.n = 0};
    struct clock_offset_bound is;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(clock_offset_learn(&a, &bad[i]), -EINVAL);
    assert_false(clock_offset_at(&a, (struct instant){1}, &is));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truth_is_in_the_bound),          cmocka_unit_test(asymmetry_is_half_the_round_trip),
        cmocka_unit_test(the_shortest_round_trip_counts), cmocka_unit_test(a_clock_that_is_set_is_followed),
        cmocka_unit_test(nonsense_is_not_learnt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
