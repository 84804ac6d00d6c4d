/* SPDX-License-Identifier: MIT
 *
 * Whether a job that runs should stop after its next step, and go on at once with another plan: one
 * of its nodes is drained, there is one more than it was planned for, or one computes at another
 * speed, and enough is left to do. Pure but for what it is given. */
#ifndef DAEMON_DEPARTURE_H
#define DAEMON_DEPARTURE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/survive/resplit.h"

/* Its first node that is drained, in `why`: "node b is drained: …". The head's own counts too. */
bool departure_is_drained(const struct job *job, const struct members *m, char *why, size_t size);

/* A node of the ring that the job was not planned for, in `why`: "node c can take part". The ring
 * is what a job would get now. Of a job that trains false unless the steps so far say that one node
 * more saves several times what the last start of the job took. One that serves has no end: it
 * moves once it has run for a while, longer after each time, and *ret_wait_us is how long that
 * still takes; else 0. */
bool departure_is_worth(const struct job *job, const struct members_ring *ring, struct instant now, char *why,
                        size_t size, uint64_t *ret_wait_us);

/* A node computes at another speed than planned, and other layers would save several times what a
 * move costs: "node b takes 2.1 times as long as planned: …" in `why`. False until that has cost as
 * much as a move, and for a while after the last one, twice as long after each. Keeps in the job
 * since when it is so. */
bool departure_is_uneven(struct job *job, struct instant now, struct resplit *ret, char *why, size_t size);

#endif
