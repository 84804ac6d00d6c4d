/* SPDX-License-Identifier: MIT */
#include "daemon/stage_trace.h"

#include <stdlib.h>

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

uint64_t trace_task(struct trace *t, const struct task *task, struct instant start, struct instant end)
{
    uint64_t waited = t->waiting.us ? clock_since_us(start, t->waiting) : 0;
    t->waiting = (struct instant){0};
    if (t->n < t->room)
        t->rows[t->n++] = (struct trace_row){start, end, waited, task->kind, task->mb, t->message, t->rank};
    return waited;
}

json_t *trace_encode(const struct trace *t)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_row *row = &t->rows[i];
        json_array_append_new(rows, json_pack("[i,i,I,I,I,i,i]", (int)row->kind, (int)row->mb,
                                              (json_int_t)row->start.us, (json_int_t)row->end.us,
                                              (json_int_t)row->waited_us, (int)row->message,
                                              row->waited_us ? (int)row->rank : -1));
    }
    return rows;
}
