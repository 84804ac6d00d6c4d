/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/terminal/step_trace.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DONE = 1, PLANNED = 2, STEPS = 3 }; /* threads of a node; STEPS: of rank 0 alone */

/* Where the events of a step go. */
struct out {
    json_t *events;   /* borrowed */
    double begin;     /* seconds: of this step, in the trace */
    json_int_t arrow; /* the last number */
};

static double micros(const struct out *out, double seconds)
{
    return (out->begin + seconds) * 1e6;
}

/* Takes the reference to args. */
static void slice(struct out *out, const char *name, const char *category, size_t rank, int thread,
                  double start, double end, json_t *args)
{
    json_array_append_new(out->events,
                          json_pack("{s:s s:s s:s s:I s:i s:f s:f s:o}", "name", name, "cat", category, "ph",
                                    "X", "pid", (json_int_t)rank, "tid", thread, "ts", micros(out, start),
                                    "dur", (end - start) * 1e6, "args", args));
}

static void name_of(char *ret, size_t size, const struct step_task *t)
{
    char stage[16] = "", mb[16] = "";
    if (t->stage >= 0 && t->mb >= 0)
        snprintf(stage, sizeof stage, "%d", t->stage);
    if (t->mb >= 0)
        snprintf(mb, sizeof mb, "%d", t->mb);
    snprintf(ret, size, "%s%s%s", stage, t->kind, mb);
}

static const char *node_of(const struct step_view *v, int rank)
{
    return rank >= 0 && (size_t)rank < v->nranks ? v->ranks[rank].node : "";
}

static void add_task(struct out *out, const struct step_view *v, size_t rank, const struct step_task *t)
{
    char name[48], why[128];
    name_of(name, sizeof name, t);
    json_t *args = json_pack("{s:I s:i s:i s:f}", "step", (json_int_t)v->step, "microbatch", t->mb, "stage",
                             t->stage, "waited_seconds", t->waited);
    if (t->bytes >= 0)
        json_object_set_new(args, "bytes_sent", json_integer((json_int_t)t->bytes));
    slice(out, name, t->kind, rank, DONE, t->start, t->end, args);
    if (t->waited > 0) {
        snprintf(why, sizeof why, "waits%s%s%s%s", *t->message ? " for " : "", t->message,
                 t->from >= 0 ? " of " : "", node_of(v, t->from));
        /* A rank may stand still since before the first step, where the trace begins. */
        slice(out, why, "wait", rank, DONE, fmax(t->start - t->waited, -out->begin), t->start,
              json_pack("{s:s s:i s:s}", "message", t->message, "rank", t->from, "before", name));
    }
    if (!isnan(t->planned_start) && !isnan(t->planned_end))
        slice(out, name, t->kind, rank, PLANNED, t->planned_start, t->planned_end,
              json_pack("{s:i s:i}", "microbatch", t->mb, "stage", t->stage));
}

/* Process and thread names. */
static void add_label(struct out *out, const char *what, size_t rank, int thread, const char *text)
{
    json_array_append_new(out->events, json_pack("{s:s s:s s:I s:i s:{s:s}}", "name", what, "ph", "M", "pid",
                                                 (json_int_t)rank, "tid", thread, "args", "name", text));
}

static void add_names(struct out *out, const struct step_view *v, size_t rank)
{
    const struct step_rank *r = &v->ranks[rank];
    char title[96];
    snprintf(title, sizeof title, "%s (rank %zu)", r->node, rank);
    add_label(out, "process_name", rank, 0, title);
    add_label(out, "thread_name", rank, DONE, r->is_placed ? "done" : "done, by a clock that is not known");
    add_label(out, "thread_name", rank, PLANNED, "planned");
    json_array_append_new(out->events, json_pack("{s:s s:s s:I s:i s:{s:I}}", "name", "process_sort_index",
                                                 "ph", "M", "pid", (json_int_t)rank, "tid", 0, "args",
                                                 "sort_index", (json_int_t)rank));
}

static void add_rank(struct out *out, const struct step_view *v, size_t rank)
{
    const struct step_rank *r = &v->ranks[rank];
    double sent = 0;
    for (size_t i = 0; i < r->n; i++) {
        add_task(out, v, rank, &r->tasks[i]);
        if (r->tasks[i].bytes <= 0)
            continue;
        sent += r->tasks[i].bytes;
        json_array_append_new(out->events, json_pack("{s:s s:s s:I s:f s:{s:f}}", "name", "bytes sent", "ph",
                                                     "C", "pid", (json_int_t)rank, "ts",
                                                     micros(out, r->tasks[i].end), "args", "bytes", sent));
    }
}

/* --- arrows ----------------------------------------------------------------------------------- */

/* Who did forward and backward of each stage and microbatch: [2·cells], rank −1 = nobody. */
struct doer {
    int rank;
    const struct step_task *task;
};
struct doers {
    size_t stages, mbs;
    struct doer *of; /* owned */
};

static bool is_backward(const struct step_task *t)
{
    return !strcmp(t->kind, "B") || !strcmp(t->kind, "I");
}

static bool is_known(const struct step_task *t)
{
    return (!strcmp(t->kind, "F") || is_backward(t)) && t->stage >= 0 && t->mb >= 0;
}

static struct doer *doer_of(const struct doers *d, bool backward, size_t stage, size_t mb)
{
    return &d->of[2 * (stage * d->mbs + mb) + backward];
}

static bool find_doers(struct doers *d, const struct step_view *v)
{
    enum { CELLS_MAX = 1 << 20 }; /* a timeline has far fewer: numbers of a daemon gone wrong */
    *d = (struct doers){0};
    for (size_t r = 0; r < v->nranks; r++)
        for (size_t i = 0; i < v->ranks[r].n; i++) {
            const struct step_task *t = &v->ranks[r].tasks[i];
            if (is_known(t) && (size_t)t->stage >= d->stages)
                d->stages = (size_t)t->stage + 1;
            if (is_known(t) && (size_t)t->mb >= d->mbs)
                d->mbs = (size_t)t->mb + 1;
        }
    if (!d->stages || d->mbs > CELLS_MAX / d->stages)
        return false;
    d->of = calloc(2 * d->stages * d->mbs, sizeof *d->of);
    for (size_t r = 0; d->of && r < v->nranks; r++)
        for (size_t i = 0; i < v->ranks[r].n; i++) {
            const struct step_task *t = &v->ranks[r].tasks[i];
            if (is_known(t))
                *doer_of(d, is_backward(t), (size_t)t->stage, (size_t)t->mb) = (struct doer){(int)r, t};
        }
    return d->of;
}

static void arrow(struct out *out, const struct doer *from, const struct doer *to, json_int_t number)
{
    const char *name = is_backward(to->task) ? "gradient" : "activations";
    json_array_append_new(
        out->events,
        json_pack("{s:s s:s s:s s:I s:i s:i s:f}", "name", name, "cat", "message", "ph", "s", "id", number,
                  "pid", from->rank, "tid", DONE, "ts",
                  micros(out, from->task->start + 0.99 * (from->task->end - from->task->start))));
    json_array_append_new(out->events, json_pack("{s:s s:s s:s s:s s:I s:i s:i s:f}", "name", name, "cat",
                                                 "message", "ph", "f", "bp", "e", "id", number, "pid",
                                                 to->rank, "tid", DONE, "ts", micros(out, to->task->start)));
}

static void add_arrows(struct out *out, const struct step_view *v)
{
    struct doers d;
    if (!find_doers(&d, v))
        return;
    for (size_t s = 0; s + 1 < d.stages; s++)
        for (size_t mb = 0; mb < d.mbs; mb++)
            for (int back = 0; back < 2; back++) {
                const struct doer *from = doer_of(&d, back, back ? s + 1 : s, mb),
                                  *to = doer_of(&d, back, back ? s : s + 1, mb);
                if (from->task && to->task && from->rank != to->rank)
                    arrow(out, from, to, ++out->arrow);
            }
    free(d.of);
}

json_t *step_trace(const struct step_view *v)
{
    json_t *events = json_array(), *clocks = json_object();
    struct out out = {.events = events};
    for (size_t r = 0; events && clocks && r < v->nranks; r++) {
        add_names(&out, v, r);
        add_rank(&out, v, r);
        json_object_set_new(clocks, v->ranks[r].node,
                            v->ranks[r].is_placed ? json_real(v->ranks[r].clock_error) : json_null());
    }
    add_arrows(&out, v);
    json_t *about = json_pack("{s:f s:f s:s s:f s:f s:f s:o}", "job", v->job, "step", v->step, "schedule",
                              v->schedule, "microbatches", v->microbatches, "seconds", v->seconds, "bubble",
                              v->bubble, "clock_error_seconds", clocks);
    if (!isnan(v->planned_seconds)) {
        json_object_set_new(about, "planned_seconds", json_real(v->planned_seconds));
        json_object_set_new(about, "planned_bubble", json_real(v->planned_bubble));
    }
    return json_pack("{s:o s:s s:o}", "traceEvents", events, "displayTimeUnit", "ms", "otherData", about);
}

json_t *step_trace_next(struct step_trace_place *place, const struct step_view *v)
{
    char name[48];
    const bool is_first = !place->has_begun;
    if (is_first)
        *place = (struct step_trace_place){.has_begun = true, .zero = v->begin};
    struct out out = {.events = json_array(), .begin = v->begin - place->zero, .arrow = place->arrows};
    if (!out.events)
        return NULL;
    for (size_t r = 0; is_first && r < v->nranks; r++)
        add_names(&out, v, r);
    if (is_first)
        add_label(&out, "thread_name", 0, STEPS, "steps");
    snprintf(name, sizeof name, "step %.0f", v->step);
    slice(&out, name, "step", 0, STEPS, 0, v->seconds,
          json_pack("{s:I s:f s:f}", "step", (json_int_t)v->step, "microbatches", v->microbatches, "bubble",
                    v->bubble));
    for (size_t r = 0; r < v->nranks; r++)
        add_rank(&out, v, r);
    add_arrows(&out, v);
    place->arrows = out.arrow;
    return out.events;
}
