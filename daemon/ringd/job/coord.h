/* SPDX-License-Identifier: MIT
 *
 * The jobs submitted to this node: it is their head. Queues them, plans, hands out, watches, ends
 * them with one named cause. Loop thread. Every state but QUEUED (which shows why it waits) and
 * RUNNING (watched by heartbeats) has a deadline. */
#ifndef DAEMON_COORD_H
#define DAEMON_COORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct coord;
struct job;
struct members_ring;
struct node;

struct coord *coord_new(struct node *node); /* jobs the store still calls unfinished are closed, saying why */
void coord_free(struct coord *c);
/* Nobody reads the steps of its jobs any more. Before http_stop. */
void coord_end_streams(struct coord *c);

int coord_check_type(const char *type, struct err *err); /* −EINVAL with a sentence: there are no such jobs */
/* Takes the spec's reference. −EINVAL with a sentence for an unknown type, and for what is asked of
 * POST /v1/plan. */
int coord_submit(struct coord *c, const char *type, json_t *spec, uint64_t *ret_id, struct err *err);
int coord_cancel(struct coord *c,
                 uint64_t id); /* −ENOENT unknown, −EALREADY ended, −EBUSY is about to end as it will */

/* What is said next in a conversation that has been answered; NULL ends it. Takes the reference.
 * −ENOENT unknown, −EALREADY ended, −EBUSY it is answering, or no conversation. */
int coord_turn(struct coord *c, uint64_t id, json_t *turn);

/* Messages of workers: "job-planned", "-ready", "-connected", "-event", "-failed", "-done",
 * "-stopped"; of other heads: "job-wanted". */
void coord_message(struct coord *c, const uint8_t from[16], const char *kind, const json_t *body);
void coord_changed(struct coord *c); /* nodes came or went */

const struct job *coord_find(const struct coord *c,
                             uint64_t id);            /* kept in memory: unfinished ones and the last ended */
const struct job *coord_first(const struct coord *c); /* newest first, through ->next */

/* The nodes a job would get now, ranks from us on, busy or not; false: none, and `why` is a
 * sentence. */
bool coord_ring(struct coord *c, struct members_ring *ret, char *why, size_t size);

#endif
