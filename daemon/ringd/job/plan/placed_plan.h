/* SPDX-License-Identifier: MIT
 *
 * A plan, and which nodes its ranks are: a value that a job owns as a whole, and gets another of
 * when it is planned again. Read once where the stage that planned answers; written where it is
 * sent, shown or kept. Loop thread. */
#ifndef DAEMON_PLACED_PLAN_H
#define DAEMON_PLACED_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/job_plan.h"
#include "daemon/ringd/cluster/members.h"
#include "engine/err.h"
#include "net/ring.h"

/* Nodes in the order of a ring, the head first: of a plan they are its ranks. */
struct job_nodes {
    size_t n;
    uint8_t id[RING_MAX_NODES][16];
    char name[RING_MAX_NODES][64];
    uint64_t available[RING_MAX_NODES]; /* bytes each had for its stage when it was asked */
};

struct pace;

struct placed_plan {
    struct job_plan shared;   /* what all ranks are told */
    struct job_nodes nodes;   /* nodes.n = shared.ranks */
    uint64_t steps;           /* of the whole job */
    json_t *forecast, *speed; /* owned: how long it will take, to be shown; or NULL */
    json_t *in_common;        /* owned: what its ranks share with other jobs, to be shown; or NULL */
    json_t *travel;           /* owned: what has to come to its nodes first, to be shown; or NULL */
    struct pace *pace;        /* owned: how fast its ranks were taken to be, and are; NULL: its layers stay */
};

/* The nodes of that ring, the head first, and in ret_ring what the stage that plans hears of them
 * (a new object). job: the number of the job at that head; 0: it has none. */
void job_nodes_of_ring(struct job_nodes *ret, const struct members_ring *ring, uint64_t job,
                       json_t **ret_ring);
size_t job_nodes_find(const struct job_nodes *nodes, const uint8_t id[16]); /* nodes->n: it is none */
/* Node i of `from` as well, if it is none of them yet; one of them goes. */
void job_nodes_add(struct job_nodes *to, const struct job_nodes *from, size_t i);
void job_nodes_drop(struct job_nodes *nodes, size_t i);
/* [[id in hex, name], …]: a new object; and read again. */
json_t *job_nodes_encode(const struct job_nodes *nodes);
bool job_nodes_read(struct job_nodes *ret, const json_t *list);

/* `told`: {"plan", "steps", "mirrored", "chosen", …}, the message job-planned. `offered`: the nodes
 * that it is about. −EBADMSG with a sentence: it is no plan, of a job of another type, or of other
 * nodes. The caller frees. */
int placed_plan_read(struct placed_plan **ret, const json_t *told, enum job_type type,
                     const struct job_nodes *offered, struct err *err);
void placed_plan_free(struct placed_plan *plan);

json_t *placed_plan_nodes(const struct placed_plan *plan); /* their ids in hex, by rank */
/* As the API shows it and the store keeps it, by rank; null for NULL. */
json_t *placed_plan_show(const struct placed_plan *plan);

#endif
