/* SPDX-License-Identifier: MIT
 *
 * How many cables lie between nodes, and which of some nodes are nearest. PURE; any thread. */
#ifndef DAEMON_HOPS_H
#define DAEMON_HOPS_H

#include <stdbool.h>
#include <stddef.h>

/* joined [n * n]: whether a cable leads from one to the other. ret [n]: how many lie between each
 * and `start`; SIZE_MAX: none lead there. */
void hops_from(const bool *joined, size_t n, size_t start, size_t *ret);
/* Of those that are marked [n], the nearest first, at most `most` of them; of equally near ones,
 * the first. ret: their places. Returns how many. */
size_t hops_nearest(const size_t *far, const bool *marked, size_t n, size_t *ret, size_t most);
/* From which of these a node takes a model, at most `most` of them, as above. are_whole: each
 * has all of it, so the two nearest share the work. Else each may be the only one that has some
 * block: a node takes from all that a cable leads to, and from the nearest others as long as it
 * has not seven. */
size_t hops_sources(const size_t *far, const bool *marked, size_t n, bool are_whole, size_t *ret,
                    size_t most);

#endif
