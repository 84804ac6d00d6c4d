/* SPDX-License-Identifier: MIT
 *
 * ringctl schedule: the order of a step's work, built in or written by the user, looked at without
 * a ring: its chart, whether it can run, and as a file for others. Asks no daemon. One thread. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_options.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "engine/pipe/plan.h"
#include "engine/pipe/sched_text.h"

enum { RANKS = 4, MICROBATCHES = 8, COLUMNS = 400, MOST_ADAPTERS = 16 };

const struct opt_def ctl_schedule_options[] = {
    {.name = "ranks",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = SCHED_MAX_RANKS,
     .help = "number of nodes in the ring (default: 4, or as in FILE)"},
    OPTION_CHUNKS,
    {.name = "microbatches",
     .type = OPT_INT,
     .placeholder = "N",
     .min = 1,
     .max = SCHED_MAX_CELLS,
     .help = "number of microbatches in a step (default: 8, or as in FILE)"},
    {.name = "adapters",
     .type = OPT_INT,
     .placeholder = "N",
     .def = "1",
     .min = 1,
     .max = MOST_ADAPTERS,
     .help = "train this many adapters at once on the same weights; their steps alternate"},
    OPTION_ROUND_STEPS,
    {.name = "cost",
     .type = OPT_STRING,
     .placeholder = "F,I,W[,R]",
     .def = "1,1,1",
     .help = "time of a stage for the forward, the input gradients, the weight gradients, and a recomputed "
             "forward"},
    {.name = "format",
     .type = OPT_CHOICE,
     .placeholder = "compute_only|compute_comms",
     .def = "compute_only",
     .help = "with convert: write the tasks alone, or the tasks and all messages"},
    {.name = NULL},
};

struct shown {
    size_t adapters, turns; /* steps of each */
    bool is_read;           /* there is a file, and what is wrong is in it */
    struct sched *sched;    /* owned */
    struct plan *plan;      /* owned */
    struct sched_sim sim;
    struct sched_cost cost;
};

static void shown_done(struct shown *s)
{
    sched_sim_done(&s->sim);
    plan_free(s->plan);
    sched_free(s->sched);
}

/* --- inputs ----------------------------------------------------------------------------------- */

static char *read_file(const char *path, struct err *err)
{
    FILE *f = fopen(path, "re");
    char *text = f ? malloc(SCHED_TEXT_MAX + 2) : NULL;
    if (!f)
        err_set(err, -errno, "%s is neither a built-in schedule nor a readable file: %s", path,
                strerror(errno));
    else if (!text)
        err_set(err, -ENOMEM, "out of memory");
    size_t n = text ? fread(text, 1, SCHED_TEXT_MAX + 1, f) : 0;
    if (text && (ferror(f) || memchr(text, '\0', n))) {
        err_set(err, -EINVAL, "%s cannot be read as text", path);
        free(text);
        text = NULL;
    }
    if (text)
        text[n] = '\0';
    if (f)
        fclose(f);
    return text;
}

static int make(struct shown *s, const struct ctl *ctl, const char *what, struct err *err)
{
    struct sched_request req = {
        .name = what,
        .ranks = opts_is_set(ctl->opts, "ranks") ? (size_t)opts_int(ctl->opts, "ranks") : 0,
        .chunks = opts_is_set(ctl->opts, "chunks") ? (size_t)opts_int(ctl->opts, "chunks") : 0};
    if (opts_is_set(ctl->opts, "microbatches"))
        req.microbatches = (size_t)opts_int(ctl->opts, "microbatches");
    if (sched_info(what)) {
        req.ranks = req.ranks ? req.ranks : RANKS;
        req.microbatches = req.microbatches ? req.microbatches : MICROBATCHES;
        int rc = s->turns
                     ? 0
                     : steps_per_adapter_go(&s->turns, &req, s->adapters,
                                            steps_per_adapter(req.ranks, s->adapters, req.microbatches), err);
        req.microbatches *= s->adapters * s->turns;
        return rc ? rc : sched_make(&s->sched, &req, err);
    }
    s->turns = s->turns ? s->turns : 1;
    if (s->adapters * s->turns > 1)
        return err_set(err, -EINVAL, "%s orders one step: several steps need a built-in schedule", what);
    char *text = read_file(what, err);
    req.text = text;
    int rc = text ? sched_make(&s->sched, &req, err) : -EINVAL;
    s->is_read = text != NULL;
    free(text);
    return rc;
}

static int read_cost(struct sched_cost *ret, const char *text)
{
    int used = 0;
    struct sched_cost c = {0};
    if (sscanf(text, "%lf,%lf,%lf%n,%lf%n", &c.f, &c.i, &c.w, &used, &c.r, &used) < 3 || text[used])
        return -EINVAL;
    *ret = c;
    return 0;
}

/* --- output ----------------------------------------------------------------------------------- */

/* The shortest time any task takes, unless that makes too many columns. */
static double unit_of(const struct shown *s)
{
    double unit = s->sim.makespan;
    const double costs[] = {s->cost.f, s->cost.i, s->cost.w, s->cost.r};
    for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
        unit = costs[i] > 0 && costs[i] < unit ? costs[i] : unit;
    return fmax(unit, s->sim.makespan / COLUMNS);
}

static void stages_text(char *text, size_t n, const struct sched *sched, size_t rank)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t stage = 0; stage < sched->stages && used < n; stage++)
        if (sched->rank_of_stage[stage] == rank)
            used += (size_t)snprintf(text + used, n - used, "%s%zu", used ? "," : "", stage);
}

static void print_table(const struct shown *s)
{
    const struct sched *sched = s->sched;
    if (s->adapters > 1)
        printf("%zu adapters, %zu steps of each: ", s->adapters, s->turns);
    printf("%zu ranks, %zu stages, %zu microbatches: takes %.6g, bubble %.2f %%, %zu buffers a link (%zu not "
           "to wait)\n",
           sched->ranks, sched->stages, sched->microbatches, s->sim.makespan, 100 * s->sim.bubble,
           s->plan->rank[0].credits, s->plan->rank[0].credits_fast);
    struct table *t = table_new("  RANK\tSTAGES\tTASKS\tSPAN\tIDLE\tIN FLIGHT");
    for (size_t r = 0; r < sched->ranks; r++) {
        char stages[64];
        stages_text(stages, sizeof stages, sched, r);
        table_add(t, "  %zu\t%s\t%zu\t%.6g\t%.6g\t%zu", r, stages, sched->rank[r].n, s->sim.span[r],
                  s->sim.idle[r], s->sim.peak[r]);
    }
    table_print_free(t, stdout);
}

static json_t *describe(const struct shown *s)
{
    const struct sched *sched = s->sched;
    json_t *ranks = json_array(), *placement = json_array();
    for (size_t i = 0; i < sched->stages; i++)
        json_array_append_new(placement, json_integer(sched->rank_of_stage[i]));
    for (size_t r = 0; r < sched->ranks; r++)
        json_array_append_new(ranks, json_pack("{s:I s:f s:f s:I}", "tasks", (json_int_t)sched->rank[r].n,
                                               "span", s->sim.span[r], "idle", s->sim.idle[r], "in_flight",
                                               (json_int_t)s->sim.peak[r]));
    return json_pack("{s:I s:I s:I s:I s:I s:o s:f s:f s:I s:I s:o}", "ranks", (json_int_t)sched->ranks,
                     "stages", (json_int_t)sched->stages, "adapters", (json_int_t)s->adapters, "steps",
                     (json_int_t)s->turns, "microbatches", (json_int_t)sched->microbatches, "rank_of_stage",
                     placement, "makespan", s->sim.makespan, "bubble", s->sim.bubble, "credits",
                     (json_int_t)s->plan->rank[0].credits, "credits_fast",
                     (json_int_t)s->plan->rank[0].credits_fast, "per_rank", ranks);
}

static void print(const struct ctl *ctl, const struct shown *s, bool chart)
{
    if (ctl->json) {
        json_t *json = describe(s);
        print_json(json);
        json_decref(json);
        return;
    }
    if (chart)
        sched_chart(stdout, s->sched, &s->sim, unit_of(s));
    print_table(s);
}

/* --- commands --------------------------------------------------------------------------------- */

/* plan_compile says first what is wrong with the order; then what messages and buffers make of
 * it. */
static int work_out(struct shown *s, struct err *err)
{
    uint32_t adapter_of_step[MOST_ADAPTERS * PLAN_MAX_TURNS];
    const size_t steps = s->adapters * s->turns;
    for (size_t i = 0; i < steps; i++)
        adapter_of_step[i] = (uint32_t)(i % s->adapters);
    struct plan_request req = {
        .program = PROGRAM_TRAIN, .sched = s->sched, .steps = steps, .adapter_of_step = adapter_of_step};
    struct sched_costs costs = {.each = s->cost};
    int rc = plan_compile(&s->plan, &req, err);
    return rc ? rc : sched_simulate(&s->sim, s->sched, &costs, err);
}

int ctl_schedule_main(struct ctl *ctl)
{
    static const char *const commands[] = {"show", "check", "convert"};
    size_t which = 0;
    struct shown s = {0};
    struct err err = {""};
    while (which < 3 && (ctl->n_args < 1 || strcmp(ctl->args[0], commands[which])))
        which++;
    if (which == 3 || ctl->n_args != 2)
        return ctl_usage(ctl, "schedule takes show, check or convert, and one schedule: its name or a file");
    if (read_cost(&s.cost, opts_str(ctl->opts, "cost")))
        return ctl_usage(ctl, "--cost %s: three or four numbers are expected, as in 1,1,0.5",
                         opts_str(ctl->opts, "cost"));
    s.adapters = (size_t)opts_int(ctl->opts, "adapters");
    s.turns = opts_is_set(ctl->opts, "steps") ? (size_t)opts_int(ctl->opts, "steps") : 0;
    int rc = make(&s, ctl, ctl->args[1], &err);
    if (!rc)
        rc = work_out(&s, &err);
    if (rc && !sched_info(ctl->args[1]) && s.is_read)
        err_prefix(&err, rc, "%s", ctl->args[1]);
    if (!rc && which == 2)
        rc = sched_write(stdout, s.sched, !strcmp(opts_str(ctl->opts, "format"), "compute_comms"), &err);
    else if (!rc)
        print(ctl, &s, which == 0);
    shown_done(&s);
    return rc ? ctl_fail(CTL_FAILED, "%s", err.text) : CTL_OK;
}
