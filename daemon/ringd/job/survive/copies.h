/* SPDX-License-Identifier: MIT
 *
 * Which copies of what a job trained lie in the memory of its nodes, as their stages say when they
 * are open, and from which of them an interrupted job goes on: the newest step of which every unit
 * is somewhere. Pure. */
#ifndef DAEMON_COPIES_H
#define DAEMON_COPIES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"
#include "engine/err.h"

struct copies;

struct copies *copies_new(void);
void copies_free(struct copies *c);

/* What `rank` says of its own: [{"step", "units": [[first, end], …]}, …]; NULL: it has none. Takes
 * the place of what it said before. −EBADMSG: nonsense, and it counts as having none. */
int copies_hear(struct copies *c, uint32_t rank, const json_t *held, struct err *err);

/* The newest step not beyond `most`. ret: {"step", "by": [rank, …] by unit}, a new object, of each
 * unit the rank that trains it if that has it, else the lowest that has; NULL: no step is whole. */
json_t *copies_choose(const struct copies *c, const struct job_plan *plan, uint64_t most);

#endif
