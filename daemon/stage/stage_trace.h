/* SPDX-License-Identifier: MIT
 *
 * What one rank did in a step: when each task began and ended, and what it stood still for before.
 * Filled by the runner task by task, without allocating once a step of that size has been seen.
 * Main thread of ringd-stage. */
#ifndef DAEMON_STAGE_TRACE_H
#define DAEMON_STAGE_TRACE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/pipe/exec.h"
#include "net/clock.h"

struct trace_row {
    struct instant start, end;
    struct instant emitted[TASK_MAX_EMITS]; /* its messages, as the plan counts them */
    uint32_t nemits;
    uint64_t waited_us, bytes; /* bytes: of all its messages */
    uint32_t kind, mb;         /* enum task_kind */
    uint32_t message, rank;    /* waited for: enum msg_kind, where waited_us > 0 */
};
struct trace {
    struct trace_row *rows; /* owned */
    size_t n, room;
    struct instant emitted[TASK_MAX_EMITS]; /* by the task under way */
    uint64_t bytes;                         /* the same */
    struct instant waiting;                 /* since when it stands still, {0} = it does not */
    uint32_t message, rank;                 /* for what */
};

/* A step of that many tasks begins. Short of memory it goes unrecorded. */
void trace_begin(struct trace *t, size_t tasks);
void trace_done(struct trace *t);
/* It stands still from `now` on, if it did not before; the first reason counts. */
void trace_wait(struct trace *t, const struct exec *e, struct instant now);
/* The task under way sends its message of that number in the plan. */
void trace_emit(struct trace *t, size_t emit, size_t bytes, struct instant now);
/* Task number `at` of the plan was done. Returns the microseconds waited before it. */
uint64_t trace_task(struct trace *t, size_t at, const struct task *task, struct instant start,
                    struct instant end);
/* The same of one that ran within another, before which nothing stood still. */
void trace_within(struct trace *t, size_t at, const struct task *task, struct instant start,
                  struct instant end);
/* [[kind, mb, start, end, waited, message, rank, when sent…], …]: numbers, times in microseconds of
 * this machine's clock; rank −1: no wait. */
json_t *trace_encode(const struct trace *t);
/* The bytes each of them sent. */
json_t *trace_encode_bytes(const struct trace *t);

#endif
