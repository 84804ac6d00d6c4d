/* SPDX-License-Identifier: MIT */
#include "num/faster.h"

#include <float.h>
#include <string.h>
#include <time.h>

enum {
    NUMBERS = 256, /* of k in a tile: its factors stay in the first cache */
    TILES = 16,    /* in a turn: some microseconds, so the clock does not count */
    TURNS = 12     /* by turns, for the best of each: the first ones wake wide units up */
};

static float *a_of(float *room)
{
    return room + PACKED_MR_MOST * PACKED_NR_MOST;
}

static float *b_of(float *room)
{
    return a_of(room) + PACKED_MR_MOST * NUMBERS;
}

/* Seconds for a product of two numbers and their sum. */
static double turn(const struct packed_kernels *k, float *room)
{
    const struct packed_tile tile = {.c = room,
                                     .ldc = k->nr,
                                     .a = a_of(room),
                                     .b = b_of(room),
                                     .k = NUMBERS / k->per,
                                     .next_a = a_of(room),
                                     .next_c = room};
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < TILES; i++)
        k->tile(&tile);
    clock_gettime(CLOCK_MONOTONIC, &to);
    const double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    return seconds / (double)(TILES * k->mr * k->nr * NUMBERS);
}

bool faster_than(const struct packed_kernels *a, const struct packed_kernels *b, float *room)
{
    double best_a = DBL_MAX, best_b = DBL_MAX;
    memset(room, 0, FASTER_FLOATS * sizeof *room);
    for (int i = 0; i < TURNS; i++) {
        const double now_a = turn(a, room), now_b = turn(b, room);
        best_a = now_a < best_a ? now_a : best_a;
        best_b = now_b < best_b ? now_b : best_b;
    }
    return best_a < best_b;
}
