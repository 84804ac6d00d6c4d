/* SPDX-License-Identifier: MIT
 *
 * What requests for a model had to wait for, counted for Prometheus. PURE: any thread. */
#ifndef DAEMON_DESK_STATS_H
#define DAEMON_DESK_STATS_H

#include <stddef.h>
#include <stdint.h>

/* Upper ends: of seconds, and of tokens of one microbatch. */
#define DESK_SECONDS                                                                                         \
    {                                                                                                        \
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300                  \
    }
#define DESK_TOKENS                                                                                          \
    {                                                                                                        \
        1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256                                          \
    }
enum { DESK_BUCKETS = 16 };

struct histogram {
    uint64_t counts[DESK_BUCKETS + 1]; /* by bucket; the last: beyond all ends */
    double sum;
};
void histogram_add(struct histogram *h, const double ends[DESK_BUCKETS], double value);

enum desk_outcome { DESK_STOPPED, DESK_CUT, DESK_CANCELLED, DESK_FAILED, DESK_OUTCOMES };
#define DESK_OUTCOME_NAMES                                                                                   \
    {                                                                                                        \
        "stop", "length", "cancelled", "error"                                                               \
    }

struct desk_stats {
    struct histogram first, between, queue; /* s: to an answer's first token, between tokens, until begun */
    struct histogram batch;                 /* tokens of one microbatch */
    uint64_t outcomes[DESK_OUTCOMES];       /* requests */
};

#endif
