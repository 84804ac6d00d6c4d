/* SPDX-License-Identifier: MIT
 *
 * Writes schedules down, for programs and for people. Owns its scratch alone. Pure but for the
 * stream it is given; called by ringctl and by whoever shows a plan. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pipe/sched_text.h"

/* --- cells ------------------------------------------------------------------------------------ */

/* A task begins, or its result is ready to be sent. */
struct event {
    double when;
    bool begins;
    uint32_t rank;
    size_t at; /* in the rank's list */
};

/* Results before beginnings, so that what is ready goes off before the next task does. */
static int compare_events(const void *va, const void *vb)
{
    const struct event *a = va, *b = vb;
    if (a->when != b->when)
        return a->when < b->when ? -1 : 1;
    if (a->begins != b->begins)
        return a->begins ? 1 : -1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

struct lines {
    const struct sched *sched;
    char **text; /* [ranks] owned, through the streams */
    size_t *size;
    FILE **to; /* [ranks] owned */
};

static void cell(const struct lines *l, uint32_t rank, uint32_t stage, const char *word, uint32_t mb)
{
    fprintf(l->to[rank], "%s%u%s%u", ftell(l->to[rank]) > 0 ? "," : "", stage, word, mb);
}

static void message(const struct lines *l, uint32_t rank, uint32_t to_stage, const struct sched_task *task)
{
    bool forward = task->op == OP_F;
    uint32_t to = l->sched->rank_of_stage[to_stage];
    if (to == rank)
        return;
    cell(l, rank, task->stage, forward ? "SEND_F" : "SEND_B", task->mb);
    cell(l, to, to_stage, forward ? "RECV_F" : "RECV_B", task->mb);
}

static void play_event(const struct lines *l, const struct event *e)
{
    const struct sched_task *task = &l->sched->rank[e->rank].tasks[e->at];
    if (e->begins)
        cell(l, e->rank, task->stage, sched_op_name(task->op), task->mb);
    else if (task->op == OP_F && task->stage + 1 < l->sched->stages)
        message(l, e->rank, task->stage + 1, task);
    else if ((task->op == OP_I || task->op == OP_B) && task->stage > 0)
        message(l, e->rank, task->stage - 1, task);
}

static struct event *list_events(const struct sched *sched, const struct sched_sim *sim, size_t *ret_n)
{
    size_t n = 0, task = 0;
    for (size_t r = 0; r < sched->ranks; r++)
        n += 2 * sched->rank[r].n;
    struct event *events = calloc(n + 1, sizeof *events);
    for (uint32_t r = 0; events && r < sched->ranks; r++)
        for (size_t k = 0; k < sched->rank[r].n; k++, task++) {
            events[2 * task] = (struct event){sim->start[task], true, r, k};
            events[2 * task + 1] = (struct event){sim->end[task], false, r, k};
        }
    *ret_n = n;
    return events;
}

static int with_messages(const struct lines *l, struct err *err)
{
    const struct sched_costs units = {.each = {1.0, 1.0, 1.0, 1.0, 0}};
    struct sched_sim sim;
    int rc = sched_simulate(&sim, l->sched, &units, err);
    if (rc < 0)
        return rc;
    size_t n;
    struct event *events = list_events(l->sched, &sim, &n);
    sched_sim_done(&sim);
    if (!events)
        return err_set(err, -ENOMEM, "no memory to write the schedule");
    qsort(events, n, sizeof *events, compare_events);
    for (size_t i = 0; i < n; i++)
        play_event(l, &events[i]);
    free(events);
    return 0;
}

static void tasks_alone(const struct lines *l)
{
    for (uint32_t r = 0; r < l->sched->ranks; r++)
        for (size_t k = 0; k < l->sched->rank[r].n; k++) {
            const struct sched_task *task = &l->sched->rank[r].tasks[k];
            cell(l, r, task->stage, sched_op_name(task->op), task->mb);
        }
}

static int lines_open(struct lines *l, const struct sched *sched)
{
    *l = (struct lines){.sched = sched};
    l->text = calloc(sched->ranks, sizeof *l->text);
    l->size = calloc(sched->ranks, sizeof *l->size);
    l->to = calloc(sched->ranks, sizeof *l->to);
    if (!l->text || !l->size || !l->to)
        return -ENOMEM;
    for (size_t r = 0; r < sched->ranks; r++)
        if (!(l->to[r] = open_memstream(&l->text[r], &l->size[r])))
            return -ENOMEM;
    return 0;
}

/* What was written is complete once its stream is closed. */
static int lines_close(struct lines *l, FILE *to)
{
    int rc = 0;
    for (size_t r = 0; l->to && r < l->sched->ranks; r++) {
        if (l->to[r] && fclose(l->to[r]) != 0)
            rc = -ENOMEM;
        if (to && rc == 0 && fprintf(to, "%s\n", l->text[r]) < 0)
            rc = -EIO;
        free(l->text[r]);
    }
    free(l->text);
    free(l->size);
    free(l->to);
    return rc;
}

int sched_write(FILE *to, const struct sched *sched, bool messages, struct err *err)
{
    struct lines l;
    int rc = lines_open(&l, sched);
    if (rc < 0)
        rc = err_set(err, rc, "no memory to write the schedule");
    else if (messages)
        rc = with_messages(&l, err);
    else
        tasks_alone(&l);
    int closed = lines_close(&l, rc == 0 ? to : NULL);
    return rc == 0 && closed < 0
               ? err_set(err, closed, "the schedule cannot be written: %s", strerror(-closed))
               : rc;
}

/* --- charts ----------------------------------------------------------------------------------- */

/* Which of its rank's stages a stage is, counted along the way of a microbatch. */
static size_t chunk_of(const struct sched *sched, uint32_t stage)
{
    size_t chunk = 0;
    for (uint32_t s = 0; s < stage; s++)
        chunk += sched->rank_of_stage[s] == sched->rank_of_stage[stage];
    return chunk;
}

static void chart_task(FILE *to, const struct sched *sched, const struct sched_task *task, size_t width,
                       size_t columns)
{
    char name[24];
    const char *kind = sched_op_name(task->op);
    snprintf(name, sizeof name, "%c%u", chunk_of(sched, task->stage) % 2 ? *kind + ('a' - 'A') : *kind,
             task->mb);
    fprintf(to, " %*s", (int)width, name);
    for (size_t c = 1; c < columns; c++)
        fprintf(to, " %*s", (int)width, "--");
}

static void chart_gap(FILE *to, size_t width, size_t columns)
{
    while (columns-- > 0)
        fprintf(to, " %*s", (int)width, ".");
}

void sched_chart(FILE *to, const struct sched *sched, const struct sched_sim *sim, double unit)
{
    size_t width = sched->microbatches > 10 ? sched->microbatches > 100 ? 4 : 3 : 2, task = 0;
    size_t total = (size_t)lround(sim->makespan / unit);
    for (size_t r = 0; r < sched->ranks; r++) {
        const struct sched_list *list = &sched->rank[r];
        size_t column = 0;
        fprintf(to, "r%zu", r);
        for (size_t k = 0; k < list->n; k++, task++) {
            size_t begin = (size_t)lround(sim->start[task] / unit),
                   end = (size_t)lround(sim->end[task] / unit);
            if (end <= column)
                continue; /* too short to be seen */
            begin = begin > column ? begin : column;
            chart_gap(to, width, begin - column);
            if (end > begin)
                chart_task(to, sched, &list->tasks[k], width, end - begin);
            column = end;
        }
        chart_gap(to, width, total > column ? total - column : 0);
        fputc('\n', to);
    }
}
