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

#endif
