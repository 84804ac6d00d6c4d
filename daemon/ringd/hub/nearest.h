/* SPDX-License-Identifier: MIT
 *
 * Which of some nodes are nearest to this one, by the cables that their records name. Loop
 * thread. */
#ifndef DAEMON_NEAREST_H
#define DAEMON_NEAREST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct members;

/* ids: of nodes that have all of a model, or parts, in hex. ret: those from which this one takes it
 * (hops_sources), the nearest first, at most `most`; what no cable leads to comes last. Returns how
 * many. */
size_t nearest(const struct members *members, const json_t *ids, bool parts, uint8_t (*ret)[16], size_t most);

#endif
