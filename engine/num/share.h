/* SPDX-License-Identifier: MIT
 *
 * How the outputs of a product are divided among threads: evenly, or as they come. Any thread, no
 * state. */
#ifndef NUM_SHARE_H
#define NUM_SHARE_H

#include <stddef.h>

/* Outputs from … from+n−1; n may be 0. */
struct share {
    size_t from, n;
};

/* How many of `threads` are worth waking for a product of so many multiplications: all or one. */
size_t share_threads(size_t threads, size_t multiplications);

/* That of `thread`, where n outputs are divided evenly in whole steps. */
struct share share_of(size_t n, size_t step, size_t threads, size_t thread);

/* n outputs cut for threads that take shares until there are none left, each a multiple of step but
 * the last. Rounds of one share for each thread, of half of what is left: where nothing disturbs
 * them the threads take equally much, and whoever is late, or has the slower core, has the others
 * take the small shares of the end. For one thread: all in one. */
struct cut {
    size_t n, step, threads;
};

/* Share i of 0 … share_count − 1; empty beyond. */
struct share share_cut(const struct cut *c, size_t i);
size_t share_count(const struct cut *c);

#endif
