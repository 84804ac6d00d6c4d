/* SPDX-License-Identifier: MIT
 *
 * How lanes share chunks: messages sent over random lanes whose rates and round trips are known, on
 * a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/stage/exchange/exchange_share.h"

enum { LANES = 4, SEEDS = 200 };
#define CHUNK ((size_t)256 << 10)

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* 5 Mbit/s to 10 Gbit/s, the fastest at most 100 times the slowest; round trips of 0.1 to 10 ms;
 * 0.1 to 8 MB. */
static size_t draw_lanes(uint64_t *state, struct share_lane lanes[LANES], size_t *ret_bytes)
{
    const size_t n = 2 + draw(state, LANES - 1);
    const double most = 0.8 * (double)(1 + draw(state, 20));
    memset(lanes, 0, LANES * sizeof *lanes);
    for (size_t i = 0; i < n; i++)
        lanes[i] = (struct share_lane){.alive = true,
                                       .cost = most * (double)(1 + draw(state, 100)),
                                       .trip = 50000 + (int64_t)draw(state, 4950000)};
    *ret_bytes = 100000 + draw(state, 7900000);
    return n;
}

typedef enum share_choice choose_fn(const struct share_lane *, size_t, size_t, const struct share_queue *,
                                    int64_t);

static enum share_choice always(const struct share_lane *lanes, size_t n, size_t me,
                                const struct share_queue *queue, int64_t now)
{
    (void)lanes, (void)n, (void)me, (void)queue, (void)now;
    return SHARE_NEXT;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ns until the whole message is delivered. Whichever lane has sent what it had asks for more, the
 * last first. */
static int64_t finish(const struct share_lane *given, unsigned set, size_t bytes, choose_fn *choose)
{
    struct share_lane lanes[LANES];
    memcpy(lanes, given, sizeof lanes);
    for (size_t i = 0; i < LANES; i++)
        lanes[i].alive &= set >> i & 1;
    int64_t now = 0, done = 0;
    while (bytes) {
        bool taken = false;
        for (size_t i = LANES; i-- && bytes;) {
            const struct share_queue queue = {bytes, CHUNK, least(bytes, CHUNK), bytes % CHUNK};
            if (!lanes[i].alive || lanes[i].clear > now)
                continue;
            const enum share_choice choice = choose(lanes, LANES, i, &queue, now);
            if (choice == SHARE_LEAVE)
                continue;
            const size_t took = choice == SHARE_LAST ? queue.last : queue.next;
            share_give(lanes, LANES, i, took, now);
            share_given(&lanes[i], took);
            bytes -= took;
            const int64_t at = lanes[i].clear + lanes[i].trip;
            done = at > done ? at : done;
            taken = true;
        }
        int64_t next = INT64_MAX;
        for (size_t i = 0; i < LANES; i++)
            if (lanes[i].alive && lanes[i].clear > now && lanes[i].clear < next)
                next = lanes[i].clear;
        if (bytes && !taken && next == INT64_MAX)
            return INT64_MAX; /* every lane is idle, and none takes it */
        now = bytes && next != INT64_MAX ? next : now;
    }
    return done;
}

/* The least time over any of the sets of lanes, each chunk given to the lane that delivers it
 * first. */
static double best_of_sets(const struct share_lane *given, size_t n, size_t bytes)
{
    double best = 1e30;
    for (unsigned set = 1; set < 1u << n; set++) {
        double clear[LANES] = {0}, done = 0;
        for (size_t left = bytes, now; left; left -= now) {
            size_t first = LANES;
            double earliest = 1e30;
            now = least(left, CHUNK);
            for (size_t i = 0; i < n; i++) {
                const double at = clear[i] + given[i].cost * (double)now + (double)given[i].trip;
                if (set >> i & 1 && at < earliest) {
                    earliest = at;
                    first = i;
                }
            }
            clear[first] += given[first].cost * (double)now;
            done = earliest > done ? earliest : done;
        }
        best = done < best ? done : best;
    }
    return best;
}

/* How many sets of lanes are slower than the rule promises. */
static unsigned misses(choose_fn *choose)
{
    unsigned wrong = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t state = seed;
        struct share_lane lanes[LANES];
        size_t bytes;
        const size_t n = draw_lanes(&state, lanes, &bytes);
        const unsigned all = (1u << n) - 1;
        const double took = (double)finish(lanes, all, bytes, choose), best = best_of_sets(lanes, n, bytes);
        bool bad = took > 1.05 * best;
        for (size_t i = 0; i < n; i++)
            bad |= took > 1.02 * (double)finish(lanes, all & ~(1u << i), bytes, choose);
        if (bad && choose != always)
            print_message("seed %u: %zu lanes, %zu bytes: %.3f ms, the best lanes %.3f ms\n", (unsigned)seed,
                          n, bytes, took / 1e6, best / 1e6);
        wrong += bad;
    }
    return wrong;
}

static void no_lane_makes_it_slower(void **state)
{
    (void)state;
    assert_int_equal(misses(share_choose), 0);
    assert_true(misses(always) > SEEDS / 2); /* what is promised is not a matter of course */
}

static void equals_share(void **state)
{
    (void)state;
    for (double cost = 0; cost <= 8; cost += 4) {
        struct share_lane lanes[LANES] = {{.alive = true, .cost = cost}, {.alive = true, .cost = cost}};
        const struct share_queue queue = {2 * CHUNK, CHUNK, CHUNK, 0};
        assert_int_not_equal(SHARE_LEAVE, share_choose(lanes, LANES, 0, &queue, 0));
        assert_int_not_equal(SHARE_LEAVE, share_choose(lanes, LANES, 1, &queue, 0));
        share_give(lanes, LANES, 0, CHUNK, 0);
        assert_int_equal(share_first(lanes, LANES, CHUNK, 0), 1);
        assert_int_not_equal(SHARE_LEAVE, share_choose(lanes, LANES, 1, &queue, 0));
    }
}

/* Whatever is queued, held, late or unknown. */
static void some_lane_always_takes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20 * SEEDS; seed++) {
        uint64_t at = seed;
        struct share_lane lanes[LANES];
        struct share_queue queue;
        const int64_t now = (int64_t)1000000000000;
        draw_lanes(&at, lanes, &queue.bytes);
        queue.chunk = draw(&at, 2) ? CHUNK : least(queue.bytes, 1 + draw(&at, CHUNK));
        queue.next = least(queue.bytes, queue.chunk);
        queue.next -= draw(&at, 2) * draw(&at, queue.next);
        for (size_t i = 0; i < LANES; i++) {
            lanes[i].cost *= (double)draw(&at, 2);
            lanes[i].held = draw(&at, 2) * CHUNK;
            lanes[i].measured = now - (int64_t)draw(&at, 1000000000);
            lanes[i].clear = now - 1000000000 + (int64_t)draw(&at, 2000000000);
        }
        const size_t first = share_first(lanes, LANES, queue.next, now);
        queue.last = draw(&at, 2) ? queue.bytes % queue.chunk : 0;
        if (first == LANES || share_choose(lanes, LANES, first, &queue, now) == SHARE_LEAVE)
            fail_msg("seed %u: lane %zu leaves its chunk", (unsigned)seed, first);
    }
}

static void a_late_lane_is_passed(void **state)
{
    (void)state;
    const int64_t second = 1000000000;
    struct share_lane lanes[LANES] = {{.alive = true, .cost = 100}, {.alive = true, .cost = 1000}};
    const struct share_queue queue = {CHUNK, CHUNK, CHUNK, 0};
    share_give(lanes, LANES, 0, CHUNK, 0);
    assert_int_equal(SHARE_LEAVE, share_choose(lanes, LANES, 1, &queue, 0));
    assert_true(share_look_again(lanes, LANES, 1, CHUNK, 0) <= second);
    assert_int_not_equal(
        SHARE_LEAVE, share_choose(lanes, LANES, 1, &queue, second)); /* it should have been sent in 26 ms */
    lanes[0].alive = false;
    assert_int_not_equal(SHARE_LEAVE, share_choose(lanes, LANES, 1, &queue, 0));
}

static void a_lane_left_out_is_tried_again(void **state)
{
    (void)state;
    const int64_t second = 1000000000;
    struct share_lane lanes[LANES] = {{.alive = true, .cost = 400}, {.alive = true, .cost = 1600}};
    const struct share_queue queue = {2 * CHUNK, CHUNK, CHUNK, 0};
    assert_int_equal(SHARE_LEAVE, share_choose(lanes, LANES, 1, &queue, 0));
    lanes[0].measured = 150 * second;
    assert_int_not_equal(SHARE_LEAVE, share_choose(lanes, LANES, 1, &queue, 150 * second));
    const struct share_sample sample = {CHUNK, CHUNK * 16 / 10, 0, 0};
    share_measured(&lanes[1], &sample, 150 * second);
    assert_int_equal(SHARE_LEAVE, share_choose(lanes, LANES, 1, &queue, 151 * second));
}

/* A queue on the way swallows the first bytes at once. */
static void a_rate_is_one_over_a_while(void **state)
{
    (void)state;
    const uint64_t big = 10 * CHUNK;
    const struct share_sample swallowed = {32 << 10, 10, CHUNK, 0}, first = {CHUNK, 400000, 0, 0},
                              same = {2 * CHUNK, 800000, 0, 0}, idle = {2 * CHUNK, 800000, 0, 0},
                              slower = {2 * CHUNK + big, 800000 + 80000000, CHUNK, 0};
    struct share_lane lane = {.alive = true};
    assert_false(share_measured(&lane, &swallowed, 0));
    assert_true(lane.cost == 0);
    share_measured(&lane, &first, 0);
    const double cost = lane.cost;
    assert_true(cost > 1500 && cost < 1550);
    assert_false(share_measured(&lane, &same, 0));
    assert_true(lane.cost == cost);
    assert_false(share_measured(&lane, &idle, 0));
    assert_true(lane.cost == cost);
    assert_true(share_measured(&lane, &slower, 0));
    assert_true(lane.clear > (int64_t)(cost * CHUNK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_lane_makes_it_slower),        cmocka_unit_test(equals_share),
        cmocka_unit_test(some_lane_always_takes),         cmocka_unit_test(a_late_lane_is_passed),
        cmocka_unit_test(a_lane_left_out_is_tried_again), cmocka_unit_test(a_rate_is_one_over_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
