/* SPDX-License-Identifier: MIT
 *
 * Which nodes of the ring a schedule of fewer ranks runs on. Pure. */
#ifndef DAEMON_STAGE_NODES_H
#define DAEMON_STAGE_NODES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

/* nodes: [{"name", "speed", "memory"}, …] in ring order, the head's first, at most 16. Sets of
 * `ranks` of them, each a mask of places, with the head in all: the best first, that with the most
 * threads, then with the fewest hops that another node must relay, then with the most memory.
 * `wanted`: names that alone may be in it, or NULL. ret: at most `most` of them, the caller's.
 * Returns how many; 0: there is none. */
size_t stage_nodes_choose(uint32_t *ret, size_t most, const json_t *nodes, size_t ranks,
                          const json_t *wanted);
/* Those of the mask, in their order; a new list. */
json_t *stage_nodes_take(const json_t *nodes, uint32_t mask);
/* Their names, as "a, b and c". */
void stage_nodes_text(char *text, size_t size, const json_t *nodes, uint32_t mask);

#endif
