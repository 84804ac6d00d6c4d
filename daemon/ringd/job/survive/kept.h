/* SPDX-License-Identifier: MIT
 *
 * What the ranks of a job answer when a step is to go to all their disks: rank 0 asks for another
 * when all have. Pure. */
#ifndef DAEMON_KEPT_H
#define DAEMON_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kept_step {
    uint64_t step;             /* the newest that a rank has answered for; 0: none has */
    uint32_t answered, failed; /* bit by rank */
    bool is_said;              /* that a rank could not; not again in this attempt */
};

/* An answer of a rank below 32 of `ranks`. True: it was the last one. */
bool kept_hear(struct kept_step *k, size_t rank, size_t ranks, uint64_t step, bool is_whole);
/* After that: is it on all disks? */
static inline bool kept_is_whole(const struct kept_step *k)
{
    return k->step && !k->failed;
}

#endif
