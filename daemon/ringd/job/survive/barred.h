/* SPDX-License-Identifier: MIT
 *
 * Nodes that came to a job while it ran and could not take part, perhaps because they lack its
 * model: it goes on without them, until their ringd is started again. A value of the job that
 * outlives an attempt. Loop thread. */
#ifndef DAEMON_BARRED_H
#define DAEMON_BARRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/job/plan/placed_plan.h"

struct member;
struct members;

struct barred {
    size_t n;
    uint8_t id[RING_MAX_NODES][16];
    uint64_t boot[RING_MAX_NODES]; /* the life of the daemon that could not */
};

bool barred_has(const struct barred *b, const struct member *node);
/* Those of `offered` that were not among `ran`, which held the job before; their names, with commas
 * between them, in `names`. 0: none are, or nobody ran it. */
size_t barred_add(struct barred *b, const struct job_nodes *offered, const struct job_nodes *ran,
                  const struct members *m, char *names, size_t size);

#endif
