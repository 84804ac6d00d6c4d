/* SPDX-License-Identifier: MIT
 *
 * How far the clocks of a step's ranks are apart, from bounds: a message is never heard before it
 * was sent, and neighbours tell what their heartbeats taught them. Used by timeline.c and nobody
 * else. PURE: no clock. */
#ifndef DAEMON_STEP_CLOCKS_H
#define DAEMON_STEP_CLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "net/ring.h"

/* most[q][p]: µs that p's clock can be ahead of q's at most, INFINITY = not known. */
struct step_clocks {
    size_t n; /* ranks */
    double heard[RING_MAX_NODES][RING_MAX_NODES], told[RING_MAX_NODES][RING_MAX_NODES];
};
struct step_clock {
    bool known;
    double offset, error; /* µs ahead of rank 0 */
};

void step_clocks_init(struct step_clocks *c, size_t n);
/* A message of `from` was sent and heard at those times of their clocks. */
void step_clocks_heard(struct step_clocks *c, size_t from, size_t by, double sent_us, double heard_us);
/* `of` is so far ahead of `rank`, give or take the error. */
void step_clocks_told(struct step_clocks *c, size_t rank, size_t of, double ahead_us, double error_us);
/* ret: [n]. What was told counts where it narrows what was heard, and not at all where the two
 * cannot both be. */
void step_clocks_solve(const struct step_clocks *c, struct step_clock *ret);

#endif
