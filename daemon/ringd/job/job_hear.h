/* SPDX-License-Identifier: MIT
 *
 * What the ranks of a job tell of it while it goes its way, taken down: its log, its events, its
 * figures. Nothing here changes a job's state; that is coord's, which calls this on the loop
 * thread. */
#ifndef DAEMON_JOB_HEAR_H
#define DAEMON_JOB_HEAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/err.h"

struct job;
struct job_log;
struct metrics;

/* job->plan is there: the log says which node has which layers. */
void job_hear_plan(const struct job_log *l, struct job *job);
/* A job that was interrupted is about to run again: the log says from where, and of one that trains
 * its copies are chosen. */
void job_hear_start(const struct job_log *l, struct job *job);
/* `layers`, as rank says it opened them: first and end of every chunk. What was planned is one
 * thing, what was opened another; together they must hold every layer exactly once. -EPROTO with a
 * sentence. */
int job_opened_as_planned(const struct job *job, size_t rank, const json_t *layers, struct err *err);
/* The event "kept": a rank's copies are on its disk, or why not. True: all ranks have answered. */
bool job_hear_kept(const struct job_log *l, struct job *job, size_t rank, const json_t *event);
/* The event "state-lost" of rank 0: what the job had saved is gone. */
void job_hear_state_lost(const struct job_log *l, struct job *job, const json_t *event);
/* A line of the log, a step, the memory of a stage, a timeline: kept with the job, and told to who
 * watches. */
void job_hear_event(const struct job_log *l, struct metrics *metrics, struct job *job, size_t rank,
                    const json_t *body);
/* False: the event is none. An answer of a conversation, after which more may be said: it is the
 * result until the next one comes. */
bool job_hear_answer(const struct job_log *l, struct job *job, size_t rank, const json_t *body);
/* "lines" of a rank that is ready: what rank 0 said in an attempt before, as that node has it
 * (survive/line_log.h). What this head has not heard it hears now, if nothing is missing before. */
void job_hear_lines(const struct job_log *l, struct metrics *metrics, struct job *job, size_t rank,
                    const json_t *kept);
/* The way to the rank `to` goes through another node now, or is direct again. */
void job_hear_relayed(const struct job_log *l, struct job *job, size_t rank, const json_t *body);

#endif
