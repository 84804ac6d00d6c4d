/* SPDX-License-Identifier: MIT
 *
 * Where a job was submitted: the node, and its number there. It stays the same when another node
 * takes the job over, and so names it to all nodes that work on it. And from whom it was taken
 * over. Pure. */
#ifndef DAEMON_ORIGIN_H
#define DAEMON_ORIGIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct origin {
    uint8_t head[16];
    uint64_t job; /* 0: there is none */
};

static inline bool origin_is(const struct origin *a, const struct origin *b)
{
    return a->job == b->job && !__builtin_memcmp(a->head, b->head, sizeof a->head);
}
/* {"node": hex, "job": number}: a new object. */
json_t *origin_encode(const struct origin *o);
bool origin_read(struct origin *ret, const json_t *o);
/* One head in place of another: what the new one knows of the job. */
struct takeover {
    uint8_t from[16];
    uint32_t attempt; /* of the old head's, the latest */
};
json_t *takeover_encode(const struct takeover *t); /* {"from": hex, "attempt"}: a new object */
bool takeover_read(struct takeover *ret, const json_t *t);

#endif
