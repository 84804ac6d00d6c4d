/* SPDX-License-Identifier: MIT
 *
 * How far the clock of a neighbour is ahead of ours, from heartbeats that each name four times:
 * ours when it was sent, theirs when it came and when its answer left, ours when that came (RFC
 * 5905 §8). Owned by a link, one life of the neighbour long; loop thread. PURE. */
#ifndef NET_CLOCK_OFFSET_H
#define NET_CLOCK_OFFSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"

enum {
    CLOCK_OFFSET_SAMPLES = 8,
    CLOCK_OFFSET_DRIFT_PPM =
        100 /* how differently two clocks may run; their crystals are made to a fraction of it */
};

struct clock_offset_bound {
    int64_t us;        /* it is ahead of ours, negative: behind */
    uint64_t error_us; /* at most so much more or less, whatever way the delay was shared by there and back */
};
struct clock_offset {
    struct {
        struct clock_offset_bound is;
        struct instant at;
    } samples[CLOCK_OFFSET_SAMPLES]; /* the last ones, in any order */
    size_t n;                        /* ever, since the clocks last agreed with what was known of them */
};

struct clock_offset_times {
    struct instant sent, back; /* ours */
    uint64_t came, left;       /* theirs, µs */
};
/* −EINVAL, and nothing is learnt: times that no clock can have had. */
int clock_offset_learn(struct clock_offset *a, const struct clock_offset_times *t);
/* The best of them: of the shortest round trip, but one long ago is worth less. False: there is
 * none yet. */
bool clock_offset_at(const struct clock_offset *a, struct instant now, struct clock_offset_bound *ret);

#endif
