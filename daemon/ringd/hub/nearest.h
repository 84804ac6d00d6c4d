/* SPDX-License-Identifier: MIT
 *
 * Which of some nodes are nearest to this one, by the cables that their records name. Loop
 * thread. */
#ifndef DAEMON_NEAREST_H
#define DAEMON_NEAREST_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct members;

/* ids: of nodes, in hex. ret: those that are members and another node than this one, the nearest
 * first, at most `most` of them; what no cable leads to comes last. Returns how many. */
size_t nearest(const struct members *members, const json_t *ids, uint8_t (*ret)[16], size_t most);

#endif
