/* SPDX-License-Identifier: MIT
 *
 * Whether a job that runs should stop after its next step, and go on at once on other nodes: one of
 * its nodes is drained, or there is one more than it was planned for and enough left to do. Pure
 * but for what it is given. */
#ifndef DAEMON_DEPARTURE_H
#define DAEMON_DEPARTURE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/job.h"

/* Its first node that is drained, in `why`: "node b is drained: …". The head's own counts too. */
bool departure_is_drained(const struct job *job, const struct members *m, char *why, size_t size);

/* A node of the ring that the job was not planned for, in `why`: "node c can take part". The ring
 * is what a job would get now. False unless the steps so far say that one node more saves several
 * times what the last start of the job took. */
bool departure_is_worth(const struct job *job, const struct members_ring *ring, struct instant now, char *why,
                        size_t size);

#endif
