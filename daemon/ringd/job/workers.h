/* SPDX-License-Identifier: MIT
 *
 * This node's parts in all jobs: a worker for each, found by the head of the job and its number
 * there. They share the node's memory, so a stage is opened only where it fits beside the others;
 * and what a job that trains keeps here for its next attempt, so at most one of them trains. A
 * worker whose part is over keeps its place until another job needs it. Loop thread. */
#ifndef DAEMON_WORKERS_H
#define DAEMON_WORKERS_H

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/worker.h"

struct workers;

enum { WORKERS_MAX = MEMBER_STAGES };

struct workers_setup {
    struct worker_setup each; /* of all of them, its `owner` too */
    /* Bytes that one stage more may have on this node now, beside what the others were promised. */
    uint64_t (*free_memory)(void *owner);
};
struct workers *workers_new(const struct workers_setup *setup);
void workers_free(struct workers *ws); /* lets go of all stages, which are killed */

/* Head: as worker_plan. Where there is no place the job hears that this node is busy. */
void workers_plan(struct workers *ws, uint64_t job, uint32_t attempt, const struct origin *origin,
                  enum job_type type, json_t *spec, json_t *nodes, struct loan *loan);

/* Messages, whose fields have been checked. The worker that takes the sender for its head, in that
 * job and that attempt of it; NULL: there is none. */
struct worker *workers_of_head(const struct workers *ws, const uint8_t from[16], const json_t *body);
void workers_take_open(struct workers *ws, const uint8_t head[16], const json_t *body); /* of any head */
/* "job-stop" of who is no head here: there is nothing to stop, and it waits for the word. */
void workers_say_stopped(struct workers *ws, const uint8_t head[16], const json_t *body);
void workers_take_head_answer(struct workers *ws, const uint8_t from[16], const json_t *body);
void workers_take_lane_turn(struct workers *ws, const uint8_t from[16], const json_t *body);

/* As worker_ask. */
int workers_ask(struct workers *ws, uint64_t job, json_t *message);

/* Data connections that reach our listener, as worker_data_hello and worker_data_up. */
int workers_data_hello(struct workers *ws, const struct link_hello *peer, char *why, size_t size);
void workers_data_up(struct workers *ws, struct link *link, uint32_t from_rank); /* takes the link */

/* As worker_coming and worker_brought. */
void workers_coming(struct workers *ws, const char *model, const json_t *event);
void workers_brought(struct workers *ws, const char *model, const char *why);
void workers_kept(struct workers *ws, const json_t *event); /* as worker_kept */
void workers_changed(struct workers *ws);                   /* nodes came or went */

/* What we do, for our record. */
void workers_describe(const struct workers *ws, struct member *self);
/* Bytes that stages were promised, and those of them that they have not taken yet. What several map
 * of the same files counts once. The kernel calls mapped pages free, so all of them count as not
 * taken. */
uint64_t workers_promised(const struct workers *ws, uint64_t *ret_untaken);
bool workers_are_training(const struct workers *ws); /* a stage makes steps */
bool workers_are_idle(const struct workers *ws);     /* they work on no job, nor plan one */
/* A stage of the job that was submitted there is at work. */
bool workers_work_on(const struct workers *ws, const struct origin *of);

/* All together; the memory is also that of earlier stages that do not end. */
void workers_totals(const struct workers *ws, struct worker_totals *ret);
json_t *workers_lanes(const struct workers *ws); /* as lane_counts_encode; a new list */

#endif
