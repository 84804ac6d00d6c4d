/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/ctl_forecast.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/forecast/serve_plan.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/ctl/terminal/ctl_term.h"
#include "engine/pipe/sched_text.h"

enum { F, I, W, R, KINDS, MOST_STAGES = 256 };

static size_t rank_of(const json_t *plan, size_t stage)
{
    return (size_t)json_integer_value(json_array_get(json_object_get(plan, "places"), stage));
}

/* Of all stages of a rank together, in seconds. */
static void sum_of(double ret[KINDS], const json_t *plan, size_t rank)
{
    const json_t *costs = json_object_get(json_object_get(plan, "forecast"), "costs");
    memset(ret, 0, KINDS * sizeof *ret);
    for (size_t s = 0; s < json_array_size(costs); s++)
        for (size_t k = 0; k < KINDS && rank_of(plan, s) == rank; k++)
            ret[k] += json_number_value(json_array_get(json_array_get(costs, s), k));
}

void forecast_costs(char *ret, size_t size, const json_t *plan, size_t rank)
{
    const json_t *forecast = json_object_get(plan, "forecast");
    double sum[KINDS];
    sum_of(sum, plan, rank);
    const double work = (sum[F] + sum[I] + sum[W] + sum[R]) * field_number(forecast, "microbatches"),
                 seconds = field_number(forecast, "seconds"), idle = seconds > 0 ? 1 - work / seconds : 0;
    snprintf(ret, size, "\t%.3g ms\t%.3g ms\t%.3g ms\t%.3g ms\t%.0f %%", 1e3 * sum[F], 1e3 * sum[I],
             1e3 * sum[W], 1e3 * sum[R], idle > 0 ? 100 * idle : 0);
}

void forecast_print(const json_t *plan)
{
    const json_t *forecast = json_object_get(plan, "forecast"), *second = json_object_get(forecast, "second"),
                 *elsewhere = json_object_get(forecast, "elsewhere");
    size_t i;
    json_t *sentence;
    if (!json_is_object(forecast))
        return;
    char what[80] = "a step", next[40] = "";
    if (field_number(forecast, "steps") > 1)
        snprintf(what, sizeof what, "%.0f steps, of all adapters together,", field_number(forecast, "steps"));
    printf("%s should take %.3g s, %.0f microbatches of %.0f rows; the nodes stand still for %.1f %% of "
           "it\n",
           what, field_number(forecast, "seconds"), field_number(forecast, "microbatches"),
           field_number(forecast, "micro_batch_size"), 100 * field_number(forecast, "bubble"));
    if (field_number(forecast, "steps") > 1)
        snprintf(next, sizeof next, "%.0f steps, ", field_number(second, "steps"));
    if (json_is_object(second))
        printf("next best: %s, chunks %.0f, %s%.0f microbatches of %.0f rows: %.3g s\n",
               field_text(second, "schedule", "?"), field_number(second, "chunks"), next,
               field_number(second, "microbatches"), field_number(second, "micro_batch_size"),
               field_number(second, "seconds"));
    if (json_is_object(elsewhere))
        printf("submitted on %s, where model, data and result would then be, it should take %.3g s\n",
               field_text(elsewhere, "node", "?"), field_number(elsewhere, "seconds"));
    json_array_foreach (json_object_get(forecast, "left_out"), i, sentence)
        printf("%s\n", json_string_value(sentence));
}

/* --- of a generation, of a scoring ------------------------------------------------------------ */

const char *speed_head(const json_t *plan)
{
    const json_t *speed = json_object_get(plan, "speed");
    return !json_is_object(speed)                     ? ""
           : json_object_get(speed, "row_seconds")    ? "\tCACHE\tTOKEN"
           : json_object_get(speed, "prompt_seconds") ? "\tCACHE\tPROMPT\tTOKEN"
                                                      : "\tROW";
}

/* Of a job that serves: the cache, and a token that is alone. */
static void served_costs(char *ret, size_t size, const json_t *plan, size_t rank)
{
    struct serve_plan p;
    struct serve_ring ring;
    struct err err;
    if (serve_plan_read(&p, plan, &err))
        return;
    if (!serve_plan_ring(&ring, &p, p.limits.ranks, NULL, &err)) {
        const struct serve_stage *stage = &ring.stage[rank < p.limits.ranks ? rank : 0];
        const double token = rows_line_at(&stage->rows, 1) + rows_line_at(&stage->choices, 1);
        const json_t *kv = json_array_get(json_object_get(json_object_get(plan, "speed"), "kv"), rank);
        snprintf(ret, size, "\t%s\t%.3g ms", print_bytes(json_number_value(kv)).text, 1e3 * token);
        free(ring.stage);
    }
    serve_plan_done(&p);
}

void speed_costs(char *ret, size_t size, const json_t *plan, size_t rank)
{
    const json_t *speed = json_object_get(plan, "speed"), *costs = json_object_get(speed, "costs");
    double sum[2] = {0};
    if (json_object_get(speed, "row_seconds")) {
        served_costs(ret, size, plan, rank);
        return;
    }
    for (size_t s = 0; s < json_array_size(costs); s++)
        for (size_t k = 0; k < 2 && rank_of(plan, s) == rank; k++)
            sum[k] += json_number_value(json_array_get(json_array_get(costs, s), k));
    if (json_object_get(speed, "prompt_seconds"))
        snprintf(ret, size, "\t%s\t%.3g ms\t%.3g ms",
                 print_bytes(json_number_value(json_array_get(json_object_get(speed, "kv"), rank))).text,
                 1e3 * sum[0] * field_number(plan, "microbatches"), 1e3 * sum[1]);
    else if (json_is_object(speed))
        snprintf(ret, size, "\t%.3g ms", 1e3 * sum[0]);
}

void speed_print(const json_t *plan)
{
    const json_t *speed = json_object_get(plan, "speed");
    if (json_object_get(speed, "row_seconds"))
        printf(
            "an answer that is alone should get %.3g tokens/s; ringctl simulate --serve says what many get\n",
            field_number(speed, "tokens_per_second"));
    else if (json_object_get(speed, "prompt_seconds"))
        printf("the prompt of %.0f tokens should take %.3g s, every token after it %.3g ms: %.3g tokens/s\n",
               field_number(speed, "prompt_tokens"), field_number(speed, "prompt_seconds"),
               1e3 * field_number(speed, "token_seconds"), field_number(speed, "tokens_per_second"));
    else if (json_is_object(speed))
        printf("%.0f rows of some %.0f tokens should take %.3g s: %.3g tokens/s\n",
               field_number(speed, "rows"), field_number(speed, "row_tokens"), field_number(speed, "seconds"),
               field_number(speed, "tokens_per_second"));
}

static void compare_one(const char *what, double took, double said, double unit, const char *name)
{
    if (took > 0 && said > 0)
        printf("%s took %.3g %s, %+.0f %% of the %.3g %s foreseen\n", what, took / unit, name,
               100 * (took / said - 1), said / unit, name);
}

void speed_compare(const json_t *plan, const json_t *result)
{
    const json_t *speed = json_object_get(plan, "speed");
    const double rate = field_number(result, "tokens_per_second");
    if (!(field_number(result, "cached_tokens") > 0)) /* else a part of the prompt was there before */
        compare_one("the prompt", field_number(result, "prompt_seconds"),
                    field_number(speed, "prompt_seconds"), 1, "s");
    compare_one("a token after it", rate > 0 ? 1 / rate : 0, field_number(speed, "token_seconds"), 1e-3,
                "ms");
    compare_one("the rows", field_number(result, "seconds"), field_number(speed, "seconds"), 1, "s");
}

/* --- chart ------------------------------------------------------------------------------------ */

static int simulate(struct sched **ret, struct sched_sim *sim, const json_t *plan)
{
    const json_t *forecast = json_object_get(plan, "forecast"), *costs = json_object_get(forecast, "costs");
    struct sched_cost of[MOST_STAGES];
    struct err err;
    const size_t stages = json_array_size(costs);
    for (size_t s = 0; s < stages && s < MOST_STAGES; s++) {
        const json_t *c = json_array_get(costs, s);
        of[s] = (struct sched_cost){.f = json_number_value(json_array_get(c, F)),
                                    .i = json_number_value(json_array_get(c, I)) +
                                         json_number_value(json_array_get(c, R)),
                                    .w = json_number_value(json_array_get(c, W))};
    }
    struct sched_request req = {.name = field_text(plan, "schedule", ""),
                                .ranks = json_array_size(json_object_get(plan, "nodes")),
                                .chunks = (size_t)field_number(forecast, "chunks"),
                                .microbatches = (size_t)field_number(forecast, "microbatches")};
    struct sched_costs paper = {.stage = of};
    int e = stages && stages <= MOST_STAGES ? sched_make(ret, &req, &err) : -1;
    if (!e && (*ret)->stages != stages)
        e = -1;
    return e ? e : sched_simulate(sim, *ret, &paper, &err);
}

void forecast_chart(const json_t *plan)
{
    struct sched *sched = NULL;
    struct sched_sim sim = {0};
    const size_t width = term_width(stdout), wide = width >= 60 ? width : 120;
    if (json_is_object(json_object_get(plan, "forecast")) && !simulate(&sched, &sim, plan) &&
        sim.makespan > 0) {
        const size_t cell = 1 + (sched->microbatches > 10 ? sched->microbatches > 100 ? 4 : 3 : 2),
                     columns = (wide - 4) / cell;
        const double unit = sim.makespan / (double)columns;
        printf("one column is %.3g ms; messages not counted\n", 1e3 * unit);
        sched_chart(stdout, sched, &sim, unit);
    }
    sched_sim_done(&sim);
    sched_free(sched);
}

/* --- what came of it -------------------------------------------------------------------------- */

/* Mean seconds of a microbatch, of all tasks of a kind on a rank; a whole backward is I and W. */
static void measured_of(double ret[KINDS], const json_t *rank, double microbatches)
{
    static const char *const names[KINDS] = {"F", "I", "W", "R"};
    size_t i;
    json_t *task;
    memset(ret, 0, KINDS * sizeof *ret);
    json_array_foreach (json_object_get(rank, "tasks"), i, task) {
        const char *kind = json_string_value(json_array_get(task, 0));
        const double took =
            json_number_value(json_array_get(task, 3)) - json_number_value(json_array_get(task, 2));
        for (size_t k = 0; kind && k < KINDS; k++)
            if (!strcmp(kind, names[k]) || (k == I && !strcmp(kind, "B")))
                ret[k] += took / microbatches;
    }
}

void forecast_compare(const json_t *plan, const json_t *timeline)
{
    const json_t *forecast = json_object_get(plan, "forecast"), *ranks = json_object_get(timeline, "ranks");
    const double m = field_number(timeline, "microbatches"), of = field_number(forecast, "microbatches"),
                 took = field_number(timeline, "seconds"),
                 said = field_number(forecast, "seconds") *
                        (of > 0 ? m / of : 1); /* the last round of several adapters may be a shorter one */
    if (!json_is_object(forecast) || !(took > 0) || !(said > 0) || !(m > 0))
        return;
    printf("step %.0f took %.3g s, %+.0f %% of the %.3g s foreseen\n", field_number(timeline, "step"), took,
           100 * (took / said - 1), said);
    struct table *t = table_new("  RANK\tF\tFORESEEN\tI+W\tFORESEEN\tR\tFORESEEN");
    for (size_t r = 0; r < json_array_size(ranks); r++) {
        double is[KINDS], was[KINDS];
        measured_of(is, json_array_get(ranks, r), m);
        sum_of(was, plan, r);
        table_add(t, "  %zu\t%.3g ms\t%.3g ms\t%.3g ms\t%.3g ms\t%.3g ms\t%.3g ms", r, 1e3 * is[F],
                  1e3 * was[F], 1e3 * (is[I] + is[W]), 1e3 * (was[I] + was[W]), 1e3 * is[R], 1e3 * was[R]);
    }
    table_print_free(t, stdout);
}
