/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/terminal/step_view.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double number_at(const json_t *row, size_t i, double otherwise)
{
    const json_t *value = json_array_get(row, i);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void copy_text(char *to, size_t size, const json_t *value)
{
    to[0] = '\0';
    if (json_is_string(value))
        strncat(to, json_string_value(value), size - 1);
}

/* Fields that an older head does not send stay unknown. */
static int read_task(struct step_task *ret, const json_t *row, const json_t *planned)
{
    struct step_task t = {.mb = (int)number_at(row, 1, -1),
                          .start = number_at(row, 2, NAN),
                          .end = number_at(row, 3, NAN),
                          .waited = number_at(row, 4, 0),
                          .from = (int)number_at(row, 6, -1),
                          .stage = (int)number_at(row, 7, -1),
                          .bytes = number_at(row, 8, -1),
                          .planned_start = number_at(planned, 2, NAN),
                          .planned_end = number_at(planned, 3, NAN)};
    copy_text(t.kind, sizeof t.kind, json_array_get(row, 0));
    copy_text(t.message, sizeof t.message, json_array_get(row, 5));
    if (!*t.kind || isnan(t.start) || !(t.end >= t.start) || !(t.waited >= 0))
        return -EBADMSG;
    *ret = t;
    return 0;
}

static int read_rank(struct step_rank *rank, const json_t *json)
{
    const json_t *tasks = json_object_get(json, "tasks"), *planned = json_object_get(json, "planned");
    double error = number_of(json, "offset_error_us");
    copy_text(rank->node, sizeof rank->node, json_object_get(json, "node"));
    rank->is_placed = !isnan(error);
    rank->clock_error = rank->is_placed ? error / 1e6 : 0;
    size_t n = json_array_size(tasks);
    if (!n)
        return -EBADMSG;
    rank->tasks = calloc(n, sizeof *rank->tasks);
    if (!rank->tasks)
        return -ENOMEM;
    for (; rank->n < n; rank->n++) {
        int rc = read_task(&rank->tasks[rank->n], json_array_get(tasks, rank->n),
                           json_array_get(planned, rank->n));
        if (rc)
            return rc;
    }
    return 0;
}

static int read_all(struct step_view *v, const json_t *json)
{
    const json_t *ranks = json_object_get(json, "ranks");
    v->job = number_of(json, "id");
    v->step = number_of(json, "step");
    v->steps = json_object_get(json, "steps") ? number_of(json, "steps") : 1;
    v->microbatches = number_of(json, "microbatches");
    v->begin = number_of(json, "begin_us") / 1e6;
    v->seconds = number_of(json, "seconds");
    v->bubble = number_of(json, "bubble");
    v->planned_seconds = number_of(json, "planned_seconds");
    v->planned_bubble = number_of(json, "planned_bubble");
    copy_text(v->schedule, sizeof v->schedule, json_object_get(json, "schedule"));
    size_t n = json_array_size(ranks);
    if (!n || isnan(v->job + v->step + v->steps + v->microbatches + v->begin + v->seconds + v->bubble))
        return -EBADMSG;
    v->ranks = calloc(n, sizeof *v->ranks);
    if (!v->ranks)
        return -ENOMEM;
    v->nranks = n;
    int rc = 0;
    for (size_t r = 0; !rc && r < n; r++)
        rc = read_rank(&v->ranks[r], json_array_get(ranks, r));
    return rc;
}

int step_view_read(struct step_view **ret, const json_t *timeline, struct err *err)
{
    struct step_view *v = calloc(1, sizeof *v);
    int rc = v ? read_all(v, timeline) : -ENOMEM;
    if (rc) {
        step_view_free(v);
        return rc == -ENOMEM
                   ? err_set(err, rc, "out of memory")
                   : err_set(
                         err, rc,
                         "this ringctl cannot read the daemon's timeline: install the same version of both");
    }
    *ret = v;
    return 0;
}

void step_view_free(struct step_view *v)
{
    if (!v)
        return;
    for (size_t r = 0; r < v->nranks; r++)
        free(v->ranks[r].tasks);
    free(v->ranks);
    free(v);
}

static int longest_first(const void *va, const void *vb)
{
    const struct step_wait *a = va, *b = vb;
    return a->seconds > b->seconds ? -1 : a->seconds < b->seconds;
}

size_t step_view_waits(const struct step_view *v, struct step_wait *ret, size_t max)
{
    size_t most = 0, n = 0;
    for (size_t r = 0; r < v->nranks; r++)
        most += v->ranks[r].n;
    struct step_wait *all = calloc(most, sizeof *all);
    for (size_t r = 0; all && r < v->nranks; r++)
        for (size_t i = 0, own = n; i < v->ranks[r].n; i++) {
            const struct step_task *t = &v->ranks[r].tasks[i];
            size_t k = own;
            if (t->waited <= 0)
                continue;
            while (k < n && (all[k].from != t->from || strcmp(all[k].message, t->message) != 0))
                k++;
            if (k == n)
                all[n++] = (struct step_wait){r, t->message, t->from, 0};
            all[k].seconds += t->waited;
        }
    if (n)
        qsort(all, n, sizeof *all, longest_first);
    n = n < max ? n : max;
    for (size_t k = 0; k < n; k++)
        ret[k] = all[k];
    free(all);
    return n;
}
