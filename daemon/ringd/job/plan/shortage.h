/* SPDX-License-Identifier: MIT
 *
 * What a job waits for that did not fit beside others: how much memory which node lacked, and who
 * held memory of its nodes then. It is planned again when that may have changed, and not before: a
 * plan costs a process that reads the model. Pure. */
#ifndef DAEMON_SHORTAGE_H
#define DAEMON_SHORTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/plan/placed_plan.h"

struct shortage;

/* A plan is about to be made for those nodes, of a job of that head: nothing lacks yet. */
struct shortage *shortage_new(const struct job_nodes *offered, const struct members_ring *ring,
                              const uint8_t head[16], uint64_t job);
void shortage_free(struct shortage *s); /* may be NULL */
/* That node lacked so many bytes. False: others hold less than that of all nodes together, so
 * waiting would not help. */
bool shortage_note(struct shortage *s, const uint8_t at[16], uint64_t bytes);
bool shortage_is_known(const struct shortage *s); /* something lacked; s may be NULL */
/* Nothing has changed that would help: no holder is gone, no node more is there, not so much memory
 * is free, and no other stage has begun to map weights, which the job might share. */
bool shortage_stays(const struct shortage *s, const struct members_ring *now);
/* "node b lacks 1.2 GiB of memory, which job 7 holds"; numbers are those of the holders' heads. */
void shortage_describe(const struct shortage *s, char *text, size_t size);

#endif
