/* SPDX-License-Identifier: MIT
 *
 * How the lanes of a neighbor share its chunks: by when each would deliver. Pure functions over
 * what is known of each lane; the exchange calls them with its lock held. */
#ifndef DAEMON_EXCHANGE_SHARE_H
#define DAEMON_EXCHANGE_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Times are of CLOCK_MONOTONIC, in ns. All zeros but `alive`: a new lane. */
struct share_lane {
    bool alive;
    double cost;             /* ns a byte, smoothed; 0: not measured yet */
    int64_t measured;        /* when */
    int64_t trip;            /* ns one way */
    int64_t clear;           /* when all that the lane took is expected to have left this end */
    size_t held;             /* bytes the lane took, and the kernel has not got yet */
    uint64_t acked, busy_us; /* of the sample before */
};
/* What is left to send of the messages that may go, down to the one in question. */
struct share_queue {
    size_t bytes; /* of all of them */
    size_t chunk; /* bytes of a whole chunk */
    size_t next;  /* bytes of the chunk in question, at most `chunk` */
    size_t last;  /* bytes of the last chunk, if the lane may take that instead; 0: it may not */
};

enum share_choice { SHARE_LEAVE, SHARE_NEXT, SHARE_LAST };
/* Whether lane `me` takes the chunk in question, or the short last one, or leaves both: the latter
 * if the others, each with what it has already, deliver all of the queue before `me` delivers one
 * of the two. The lane that delivers the chunk first always takes one, so no chunk is left by every
 * lane. */
enum share_choice share_choose(const struct share_lane *lanes, size_t n, size_t me,
                               const struct share_queue *queue, int64_t now);

/* The lane that delivers `bytes` first, the lowest of equals; n: none is alive. */
size_t share_first(const struct share_lane *lanes, size_t n, size_t bytes, int64_t now);

/* When lane `me`, which left a chunk of `bytes` to the others, has to look whether they did what is
 * expected of them. */
int64_t share_look_again(const struct share_lane *lanes, size_t n, size_t me, size_t bytes, int64_t now);

/* Lane `me` takes `bytes`; later the kernel has got them. */
void share_give(struct share_lane *lanes, size_t n, size_t me, size_t bytes, int64_t now);
void share_given(struct share_lane *lane, size_t bytes);

/* What was found of a lane after it sent a chunk. */
struct share_sample {
    uint64_t acked;   /* bytes that the other end has acknowledged so far */
    uint64_t busy_us; /* for how long some waited for that */
    size_t unsent;    /* bytes that the kernel has and the other end has not acknowledged */
    int64_t trip;     /* ns one way */
};
/* Learns from it; `now`: of the sample. True: the lane is so much slower than expected that lanes
 * which left chunks to it should look again. */
bool share_measured(struct share_lane *lane, const struct share_sample *sample, int64_t now);

#endif
