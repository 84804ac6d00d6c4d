/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_trace.h"

#include <stdlib.h>
#include <string.h>

void trace_begin(struct trace *t, size_t tasks)
{
    t->n = 0;
    if (tasks <= t->room)
        return;
    struct trace_row *rows = realloc(t->rows, tasks * sizeof *rows);
    if (rows) {
        t->rows = rows;
        t->room = tasks;
    }
}

void trace_done(struct trace *t)
{
    free(t->rows);
    *t = (struct trace){0};
}

void trace_wait(struct trace *t, const struct exec *e, struct instant now)
{
    if (t->waiting.us)
        return;
    t->waiting = now;
    t->message = e->wait_key.kind;
    t->rank = e->wait_rank;
}

void trace_emit(struct trace *t, size_t emit, size_t bytes, struct instant now)
{
    if (emit < TASK_MAX_EMITS)
        t->emitted[emit] = now;
    t->bytes += bytes;
}

uint64_t trace_task(struct trace *t, size_t at, const struct task *task, struct instant start,
                    struct instant end)
{
    uint64_t waited = t->waiting.us ? clock_since_us(start, t->waiting) : 0;
    t->waiting = (struct instant){0};
    if (at < t->room) {
        struct trace_row *row = &t->rows[at];
        t->n = at < t->n ? t->n : at + 1;
        *row = (struct trace_row){.start = start,
                                  .end = end,
                                  .nemits = task->nemits,
                                  .waited_us = waited,
                                  .bytes = t->bytes,
                                  .kind = task->kind,
                                  .mb = task->mb,
                                  .message = t->message,
                                  .rank = t->rank};
        memcpy(row->emitted, t->emitted, sizeof row->emitted);
    }
    memset(t->emitted, 0, sizeof t->emitted);
    t->bytes = 0;
    return waited;
}

void trace_within(struct trace *t, size_t at, const struct task *task, struct instant start,
                  struct instant end)
{
    const struct instant waiting = t->waiting;
    t->waiting = (struct instant){0};
    trace_task(t, at, task, start, end);
    t->waiting = waiting;
}

json_t *trace_encode(const struct trace *t)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_row *row = &t->rows[i];
        json_t *one = json_pack("[i,i,I,I,I,i,i]", (int)row->kind, (int)row->mb, (json_int_t)row->start.us,
                                (json_int_t)row->end.us, (json_int_t)row->waited_us, (int)row->message,
                                row->waited_us ? (int)row->rank : -1);
        for (uint32_t k = 0; k < row->nemits;
             k++) /* one that was not sent after all counts as sent at the end */
            json_array_append_new(
                one, json_integer((json_int_t)(row->emitted[k].us ? row->emitted[k].us : row->end.us)));
        json_array_append_new(rows, one);
    }
    return rows;
}

json_t *trace_encode_bytes(const struct trace *t)
{
    json_t *bytes = json_array();
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(bytes, json_integer((json_int_t)t->rows[i].bytes));
    return bytes;
}
