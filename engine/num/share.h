/* SPDX-License-Identifier: MIT
 *
 * How the outputs of a product are divided among threads: evenly, or as they come. Any thread. */
#ifndef NUM_SHARE_H
#define NUM_SHARE_H

#include <stddef.h>
#include <stdint.h>

/* Outputs from … from+n−1; n may be 0. */
struct share {
    size_t from, n;
};

/* That of `thread`, where n outputs are divided evenly in whole steps. */
struct share share_of(size_t n, size_t step, size_t threads, size_t thread);

/* n outputs that threads take until there are none left, in multiples of step but for the last of all. Even threads take from the
 * beginning and odd ones from the end, each a part of what its half still has, then of what the other has, at last one step. So whoever
 * is late, or has the slower core, has the others take what is between; and product after product a thread has much the same outputs,
 * which are near it. One thread takes all at once. */
struct pile {
    _Atomic uint64_t left; /* the first step in the upper half, the end in the lower one */
    size_t n, step, threads;
};

/* Nothing is taken yet; fewer than 2³² steps. While no thread takes. */
void pile_set(struct pile *p, size_t n, size_t step, size_t threads);
struct share pile_take(struct pile *p, size_t thread); /* any thread; of no outputs: nothing is left */

#endif
