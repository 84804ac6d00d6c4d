/* SPDX-License-Identifier: MIT
 *
 * The plan, compiled again, names which task's end each task had to await: that gives the planned
 * times, and how far the nodes' clocks are apart (step_clocks.c). */
#include "daemon/ringd/timeline/timeline.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_plan.h"
#include "daemon/ringd/timeline/step_clocks.h"
#include "daemon/ringd/timeline/task_causes.h"
#include "daemon/common/xalloc.h"
#include "engine/pipe/plan.h"
#include "net/clock_offset.h"
#include "net/ring.h"

enum {
    WINDOW = 8,      /* steps that some ranks have reported and others have not: a fast rank goes ahead */
    STEPS_MAX = 512, /* of a round, of all adapters */
    CELLS_MAX = 4096 /* stages · microbatches: beyond, a picture shows nothing, and the plan takes long */
};

struct row {
    int64_t start, end,
        emitted[TASK_MAX_EMITS]; /* µs of the rank's clock; emitted: each message of the plan */
    size_t nemits;
    int64_t waited, bytes; /* bytes: sent, −1 = not told */
    int kind, mb, message, from;
    double planned_start; /* seconds */
};

#define CLOCK_MAX (INT64_MAX / 4) /* µs between two clocks: beyond, sums of them overflow */

/* Of another rank's clock, against a rank's own. */
struct told {
    bool known;
    int64_t ahead_us, error_us;
};

struct step {
    uint64_t number; /* 0 = none */
    size_t microbatches, steps;
    uint32_t *whose; /* [steps] owned: of which adapter each of them is */
    bool tied;
    uint32_t lowest;
    struct row *rows[RING_MAX_NODES]; /* owned */
    size_t n[RING_MAX_NODES];
    bool have[RING_MAX_NODES];
    struct told told[RING_MAX_NODES][RING_MAX_NODES]; /* by whom, of whom */
};

/* What a step is planned from, and the plan: steps of one shape share it. */
struct planned {
    bool is_tried;
    size_t microbatches, steps;
    uint32_t *whose; /* [steps] owned */
    bool tied;
    uint32_t lowest;
    struct plan *plan;          /* owned; NULL = the shape has none */
    struct task_cause **causes; /* owned: [plan->ranks] */
};

struct timeline {
    const struct job_plan *made; /* borrowed: what all ranks were told */
    size_t ranks;
    struct step pending[WINDOW]; /* the first n_pending, by number */
    size_t n_pending;
    uint64_t gone;    /* steps up to this number are complete or dropped */
    uint64_t dropped; /* steps that some rank reported and that never became complete */
    struct step last;
    struct planned planned; /* of the last step that was encoded */
    bool is_ended;
};

/* --- collecting ------------------------------------------------------------------------------- */

struct timeline *timeline_new(const struct job_plan *plan)
{
    struct timeline *t = xcalloc(1, sizeof *t);
    t->made = plan;
    t->ranks = plan->ranks;
    return t;
}

static void step_done(struct step *s)
{
    for (size_t r = 0; r < RING_MAX_NODES; r++)
        free(s->rows[r]);
    free(s->whose);
    *s = (struct step){0};
}

static void planned_done(struct planned *p, size_t ranks)
{
    task_causes_free(p->causes, ranks);
    plan_free(p->plan);
    free(p->whose);
    *p = (struct planned){0};
}

/* The first n of those that wait. */
static void drop(struct timeline *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        t->gone = t->pending[i].number;
        step_done(&t->pending[i]);
    }
    t->dropped += n;
    t->n_pending -= n;
    memmove(t->pending, t->pending + n, t->n_pending * sizeof *t->pending);
}

uint64_t timeline_end(struct timeline *t)
{
    drop(t, t->n_pending);
    planned_done(&t->planned, t->ranks);
    t->is_ended = true;
    return t->dropped;
}

void timeline_free(struct timeline *t)
{
    if (!t)
        return;
    timeline_end(t);
    step_done(&t->last);
    free(t);
}

static bool row_read(struct row *ret, const json_t *json)
{
    enum { FIXED = 7, MOST = FIXED + TASK_MAX_EMITS };
    int64_t v[MOST];
    size_t n = json_array_size(json);
    if (n < FIXED || n > MOST)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *number = json_array_get(json, i);
        v[i] = json_integer_value(number);
        if (!json_is_integer(number) || v[i] < -1 || v[i] > INT64_MAX / 4 ||
            (i >= FIXED && (v[i] < v[2] || v[i] > v[3])))
            return false;
    }
    if (v[0] < 0 || v[0] >= TASK_COUNT || v[5] < 0 || v[5] >= MSG_COUNT || v[6] > RING_MAX_NODES ||
        v[2] > v[3])
        return false;
    *ret = (struct row){.start = v[2],
                        .end = v[3],
                        .nemits = n - FIXED,
                        .waited = v[4],
                        .bytes = -1,
                        .kind = (int)v[0],
                        .mb = v[1] > INT32_MAX ? -1 : (int)v[1],
                        .message = (int)v[5],
                        .from = (int)v[6]};
    for (size_t i = FIXED; i < n; i++)
        ret->emitted[i - FIXED] = v[i];
    return true;
}

static void read_bytes(struct row *rows, size_t n, const json_t *bytes)
{
    for (size_t i = 0; json_array_size(bytes) == n && i < n; i++) {
        json_int_t sent = json_integer_value(json_array_get(bytes, i));
        rows[i].bytes = sent >= 0 && sent < INT64_MAX / 4 ? sent : -1;
    }
}

static int read_rows(struct step *s, size_t rank, const json_t *tasks, const json_t *bytes)
{
    size_t n = json_array_size(tasks);
    if (!n)
        return -EBADMSG;
    struct row *rows = xcalloc(n, sizeof *rows);
    for (size_t i = 0; i < n; i++)
        if (!row_read(&rows[i], json_array_get(tasks, i))) {
            free(rows);
            return -EBADMSG;
        }
    read_bytes(rows, n, bytes);
    free(s->rows[rank]);
    s->rows[rank] = rows;
    s->n[rank] = n;
    s->have[rank] = true;
    return 0;
}

/* Of several adapters' steps, which were one program. */
static bool read_steps(struct step *s, const json_t *adapters)
{
    const size_t n = json_array_size(adapters);
    if (n > STEPS_MAX || (n && s->microbatches % n))
        return false;
    s->steps = n ? n : 1;
    s->whose = xcalloc(s->steps, sizeof *s->whose);
    for (size_t i = 0; i < n; i++)
        s->whose[i] = (uint32_t)json_integer_value(json_array_get(adapters, i));
    return true;
}

static bool told_read(const json_t *json, size_t ranks, json_int_t *ret_of, struct told *ret)
{
    json_int_t v[3];
    for (size_t i = 0; i < 3; i++) {
        v[i] = json_integer_value(json_array_get(json, i));
        if (!json_is_integer(json_array_get(json, i)) || v[i] < -CLOCK_MAX || v[i] > CLOCK_MAX)
            return false;
    }
    *ret_of = v[0];
    *ret = (struct told){.known = true, .ahead_us = v[1], .error_us = v[2]};
    return v[0] >= 0 && (size_t)v[0] < ranks && v[2] >= 0;
}

/* What cannot be read is nothing told. */
static void read_told(struct told *told, size_t ranks, const json_t *clocks)
{
    size_t i;
    const json_t *one;
    memset(told, 0, RING_MAX_NODES * sizeof *told);
    json_array_foreach (clocks, i, one) {
        struct told is;
        json_int_t of;
        if (told_read(one, ranks, &of, &is))
            told[of] = is;
    }
}

/* Its place among the steps that wait, begun where no rank has reported it; NULL: nonsense, or it
 * is `gone`. */
static struct step *pending_step(struct timeline *t, const json_t *event, uint64_t number)
{
    size_t at = t->n_pending;
    while (at && t->pending[at - 1].number >= number)
        at--;
    if (at < t->n_pending && t->pending[at].number == number)
        return &t->pending[at];
    struct step fresh = {.number = number,
                         .microbatches = (size_t)json_integer_value(json_object_get(event, "microbatches")),
                         .tied = json_is_true(json_object_get(event, "tied")),
                         .lowest = (uint32_t)json_integer_value(json_object_get(event, "lowest"))};
    if (!read_steps(&fresh, json_object_get(event, "adapters")))
        return NULL;
    if (t->n_pending == WINDOW && at) {
        drop(t, 1);
        at--;
    } else if (t->n_pending == WINDOW) { /* older than all that wait */
        free(fresh.whose);
        t->gone = number;
        t->dropped++;
        return NULL;
    }
    memmove(t->pending + at + 1, t->pending + at, (t->n_pending - at) * sizeof *t->pending);
    t->pending[at] = fresh;
    t->n_pending++;
    return &t->pending[at];
}

/* Ranks report their steps in order: those before one that is complete stay incomplete. */
static void complete(struct timeline *t, const struct step *s)
{
    drop(t, (size_t)(s - t->pending));
    step_done(&t->last);
    t->last = t->pending[0];
    t->gone = t->last.number;
    t->n_pending--;
    memmove(t->pending, t->pending + 1, t->n_pending * sizeof *t->pending);
}

int timeline_add(struct timeline *t, size_t rank, const json_t *event)
{
    json_int_t number = json_integer_value(json_object_get(event, "step")),
               microbatches = json_integer_value(json_object_get(event, "microbatches")),
               lowest = json_integer_value(json_object_get(event, "lowest"));
    if (rank >= t->ranks || number <= 0 || microbatches <= 0 || microbatches > CELLS_MAX || lowest < 0 ||
        (size_t)lowest > t->made->stages)
        return -EBADMSG;
    if ((uint64_t)number <= t->gone)
        return -ESTALE;
    struct step *s = pending_step(t, event, (uint64_t)number);
    if (!s)
        return (uint64_t)number <= t->gone ? -ESTALE : -EBADMSG;
    int r = read_rows(s, rank, json_object_get(event, "tasks"), json_object_get(event, "bytes"));
    if (r)
        return r;
    read_told(s->told[rank], t->ranks, json_object_get(event, "clocks"));
    for (size_t i = 0; i < t->ranks; i++)
        if (!s->have[i])
            return 0;
    complete(t, s);
    return 1;
}

/* --- the plan again --------------------------------------------------------------------------- */

/* NULL where it cannot be had. */
static struct plan *compile(const struct timeline *t, const struct planned *shape)
{
    struct job_orders orders;
    struct plan *plan = NULL;
    struct err err;
    bool recompute[JOB_MAX_STAGES];
    job_plan_recompute(t->made, recompute);
    if (shape->microbatches * t->made->stages > CELLS_MAX ||
        job_orders_make(&orders, t->made, shape->microbatches, shape->steps, &err))
        return NULL;
    struct plan_request req = {.program = PROGRAM_TRAIN,
                               .steps = shape->steps,
                               .adapter_of_step = shape->whose,
                               .tied = shape->tied,
                               .lowest_trained = shape->lowest,
                               .recompute = recompute};
    job_orders_request(&req, &orders, t->made);
    if (plan_compile(&plan, &req, &err))
        plan = NULL;
    job_orders_done(&orders);
    return plan;
}

/* Did the ranks do what that plan has? */
static bool is_done_as(const struct plan *plan, const struct timeline *t)
{
    const struct step *s = &t->last;
    for (size_t r = 0; r < t->ranks; r++) {
        if (plan->rank[r].n != s->n[r])
            return false;
        for (size_t i = 0; i < s->n[r]; i++)
            if (plan->rank[r].tasks[i].kind != (enum task_kind)s->rows[r][i].kind ||
                plan->rank[r].tasks[i].nemits != s->rows[r][i].nemits)
                return false;
    }
    return true;
}

static bool has_shape(const struct planned *p, const struct step *s)
{
    return p->is_tried && p->microbatches == s->microbatches && p->steps == s->steps && p->tied == s->tied &&
           p->lowest == s->lowest && !memcmp(p->whose, s->whose, s->steps * sizeof *s->whose);
}

/* The plan of the last step, from the one before where that had the same shape. */
static void find_plan(struct timeline *t)
{
    const struct step *s = &t->last;
    struct planned *p = &t->planned;
    if (has_shape(p, s))
        return;
    planned_done(p, t->ranks);
    *p = (struct planned){.is_tried = true,
                          .microbatches = s->microbatches,
                          .steps = s->steps,
                          .whose = xmemdup(s->whose, s->steps * sizeof *p->whose),
                          .tied = s->tied,
                          .lowest = s->lowest};
    p->plan = compile(t, p);
    p->causes = p->plan ? task_causes(p->plan) : NULL;
}

/* --- what was planned ------------------------------------------------------------------------- */

/* When the task could begin at the earliest, NAN while that is not known. */
static double earliest(const struct step *s, const struct task_cause *cause, const size_t *done)
{
    double at = 0;
    for (size_t k = 0; k < TASK_MAX_NEEDS; k++) {
        if (cause[k].task == SIZE_MAX)
            continue;
        if (cause[k].task >= done[cause[k].rank])
            return NAN;
        const struct row *maker = &s->rows[cause[k].rank][cause[k].task];
        double made = maker->planned_start + (double)(maker->emitted[cause[k].emit] - maker->start) / 1e6;
        at = made > at ? made : at;
    }
    return at;
}

/* Each rank does its tasks in their order, each as soon as its messages are made, and takes as long
 * as it took. Returns the length of the whole. */
static double lay_out(const struct timeline *t, struct task_cause **causes)
{
    const struct step *s = &t->last;
    size_t done[RING_MAX_NODES] = {0};
    double free_at[RING_MAX_NODES] = {0}, length = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t r = 0; r < t->ranks; r++)
            for (; done[r] < s->n[r]; done[r]++) {
                struct row *row = &s->rows[r][done[r]];
                double at = earliest(s, &causes[r][done[r] * TASK_MAX_NEEDS], done);
                if (isnan(at))
                    break;
                row->planned_start = at > free_at[r] ? at : free_at[r];
                free_at[r] = row->planned_start + (double)(row->end - row->start) / 1e6;
                length = free_at[r] > length ? free_at[r] : length;
                moved = true;
            }
    }
    return length;
}

/* --- the clocks ------------------------------------------------------------------------------- */

/* What a rank's node told of its neighbours, which was true when the step had ended. */
static void add_told(const struct step *s, size_t rank, struct step_clocks *clocks)
{
    const double ran = (double)(s->rows[rank][s->n[rank] - 1].end - s->rows[rank][0].start);
    for (size_t i = 0; i < clocks->n; i++)
        if (s->told[rank][i].known)
            step_clocks_told(clocks, rank, i, (double)s->told[rank][i].ahead_us,
                             (double)s->told[rank][i].error_us + ran * CLOCK_OFFSET_DRIFT_PPM / 1e6);
}

static void set_clocks(const struct timeline *t, struct task_cause **causes, struct step_clock *ret)
{
    const struct step *s = &t->last;
    struct step_clocks *clocks = xcalloc(1, sizeof *clocks);
    step_clocks_init(clocks, t->ranks);
    for (size_t p = 0; p < t->ranks; p++) {
        add_told(s, p, clocks);
        for (size_t i = 0; causes && i < s->n[p] * TASK_MAX_NEEDS; i++) {
            const struct task_cause *c = &causes[p][i];
            if (c->task != SIZE_MAX)
                step_clocks_heard(clocks, c->rank, p, (double)s->rows[c->rank][c->task].emitted[c->emit],
                                  (double)s->rows[p][i / TASK_MAX_NEEDS].start);
        }
    }
    step_clocks_solve(clocks, ret);
    free(clocks);
}

/* --- showing ---------------------------------------------------------------------------------- */

struct frame {
    double origin, seconds, busy; /* origin in µs of rank 0's clock */
};

/* A rank whose clock is not known is laid with its first task at the step's begin. */
static double shift_of(const struct timeline *t, const struct step_clock *clocks, size_t rank)
{
    const struct step *s = &t->last;
    return clocks[rank].known ? clocks[rank].offset : (double)(s->rows[rank][0].start - s->rows[0][0].start);
}

static struct frame measure(const struct timeline *t, const struct step_clock *clocks)
{
    const struct step *s = &t->last;
    struct frame f = {INFINITY, 0, 0};
    double end = -INFINITY;
    for (size_t r = 0; r < t->ranks; r++) {
        double shift = shift_of(t, clocks, r);
        f.origin = fmin(f.origin, (double)s->rows[r][0].start - shift);
        end = fmax(end, (double)s->rows[r][s->n[r] - 1].end - shift);
        for (size_t i = 0; i < s->n[r]; i++)
            f.busy += (double)(s->rows[r][i].end - s->rows[r][i].start) / 1e6;
    }
    f.seconds = (end - f.origin) / 1e6;
    return f;
}

static int microbatch(const struct row *row)
{
    const enum task_kind kind = (enum task_kind)row->kind;
    const bool is_of_one = task_is_compute(kind) || kind == TASK_LOSS || kind == TASK_TOKEN;
    return is_of_one ? row->mb : -1;
}

static json_t *rank_encode(const struct timeline *t, size_t rank, double zero, const struct plan *plan)
{
    const struct step *s = &t->last;
    json_t *tasks = json_array(), *planned = json_array();
    double busy = 0, waited = 0;
    for (size_t i = 0; i < s->n[rank]; i++) {
        const struct row *row = &s->rows[rank][i];
        const char *kind = task_kind_name((enum task_kind)row->kind);
        int stage = plan ? (int)plan->rank[rank].tasks[i].stage : -1;
        bool stood = row->waited > 0;
        busy += (double)(row->end - row->start) / 1e6;
        waited += stood ? (double)row->waited / 1e6 : 0;
        json_array_append_new(
            tasks, json_pack("[s,i,f,f,f,s,i,i,I]", kind, microbatch(row), ((double)row->start - zero) / 1e6,
                             ((double)row->end - zero) / 1e6, stood ? (double)row->waited / 1e6 : 0.0,
                             stood ? msg_kind_name((enum msg_kind)row->message) : "", stood ? row->from : -1,
                             stage, (json_int_t)row->bytes));
        if (plan)
            json_array_append_new(planned,
                                  json_pack("[s,i,f,f]", kind, microbatch(row), row->planned_start,
                                            row->planned_start + (double)(row->end - row->start) / 1e6));
    }
    return json_pack("{s:f s:f s:o s:o}", "busy_seconds", busy, "wait_seconds", waited, "tasks", tasks,
                     "planned", planned);
}

static double bubble_of(double busy, size_t ranks, double seconds)
{
    double share = seconds > 0 ? 1 - busy / ((double)ranks * seconds) : 0;
    return share > 0 ? share : 0;
}

json_t *timeline_encode(struct timeline *t, uint64_t job, const char (*names)[64])
{
    const struct step *s = &t->last;
    if (!s->number)
        return NULL;
    find_plan(t);
    const struct plan *plan = t->planned.plan && is_done_as(t->planned.plan, t) ? t->planned.plan : NULL;
    struct task_cause **causes = plan ? t->planned.causes : NULL;
    struct step_clock clocks[RING_MAX_NODES];
    set_clocks(t, causes, clocks);
    double planned = plan ? lay_out(t, causes) : 0;
    struct frame f = measure(t, clocks);
    json_t *ranks = json_array();
    for (size_t r = 0; r < t->ranks; r++) {
        json_t *one = rank_encode(t, r, f.origin + shift_of(t, clocks, r), plan);
        json_object_set_new(one, "rank", json_integer((json_int_t)r));
        json_object_set_new(one, "node", json_string(names[r]));
        json_object_set_new(one, "offset_us",
                            clocks[r].known ? json_integer(llround(clocks[r].offset)) : json_null());
        json_object_set_new(one, "offset_error_us",
                            clocks[r].known ? json_integer(llround(clocks[r].error)) : json_null());
        json_array_append_new(ranks, one);
    }
    json_t *ret =
        json_pack("{s:I s:I s:I s:s s:I s:I s:f s:f s:o s:o s:o}", "id", (json_int_t)job, "step",
                  (json_int_t)s->number, "steps", (json_int_t)s->steps, "schedule", t->made->schedule,
                  "microbatches", (json_int_t)s->microbatches, "begin_us", (json_int_t)llround(f.origin),
                  "seconds", f.seconds, "bubble", bubble_of(f.busy, t->ranks, f.seconds), "planned_seconds",
                  plan ? json_real(planned) : json_null(), "planned_bubble",
                  plan ? json_real(bubble_of(f.busy, t->ranks, planned)) : json_null(), "ranks", ranks);
    if (t->is_ended)
        planned_done(&t->planned, t->ranks);
    return ret;
}
