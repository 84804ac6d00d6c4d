/* SPDX-License-Identifier: MIT
 *
 * Which nodes of the ring a schedule of fewer ranks runs on, and how fast a node is. Pure. */
#ifndef DAEMON_STAGE_NODES_H
#define DAEMON_STAGE_NODES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

/* nodes: [{"name", "speed", "memory", "slowness", "kernels"}, …] in ring order, the head's
 * first, at most 16. Sets of `ranks` of them, each a mask of places, with the head in all. The best
 * comes first: that which is fastest, then has fewest hops that another node must relay, then has
 * most memory.
 * `wanted`: names that alone may be in it, or NULL; `apart`: places that may not, a bit each. ret:
 * at most `most` of them, the caller's. Returns how many; 0: there is none. */
size_t stage_nodes_choose(uint32_t *ret, size_t most, const json_t *nodes, size_t ranks, const json_t *wanted,
                          uint32_t apart);
/* Those whose CPUs round otherwise than the first node's, a bit each: other kernels compute there
 * (isa_rounding). updates: only where AdamW's update has other bits, which kernels with a fused
 * multiply-add have alike. Whose kernels are not known counts as the first's. */
uint32_t stage_nodes_apart(const json_t *nodes, bool updates);
/* The kernels of all, without what counts for products in bf16 alone: what stands behind "/". */
void stage_nodes_without_bf16(json_t *nodes);
/* What each of them computes with, as "a and b with avx2, c with neon"; those not known are left
 * out. */
void stage_nodes_kernels_text(char *text, size_t size, const json_t *nodes);
/* The kernels of all, each once and in the order of their names: "avx2+neon". */
void stage_nodes_kernels(char *text, size_t size, const json_t *nodes);
/* How fast the node in that place is: its threads, less what it was found to be slower of late. */
double stage_nodes_speed(const json_t *nodes, size_t place);
/* So many times longer it takes than by its threads, or by what was timed there; usually 1. */
double stage_nodes_slowness(const json_t *nodes, size_t place);
/* Those of the mask, in their order; a new list. */
json_t *stage_nodes_take(const json_t *nodes, uint32_t mask);
/* Their names, as "a, b and c". */
void stage_nodes_text(char *text, size_t size, const json_t *nodes, uint32_t mask);

#endif
