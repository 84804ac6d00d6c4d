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
#include "engine/pipe/plan.h"
#include "engine/pipe/sched_text.h"

enum { F, I, W, R, KINDS, MOST_STAGES = 256 };

static bool is_unlike(const json_t *plan)
{
    return json_array_size(json_object_get(plan, "other_places")) > 0;
}

/* Where a stage lies in a pipeline. */
static size_t place_of(const json_t *plan, size_t pipeline, size_t stage)
{
    const json_t *places = json_object_get(plan, "places"), *others = json_object_get(plan, "other_places");
    const json_t *at = pipeline && json_array_size(others)
                           ? json_array_get(others, (pipeline - 1) * json_array_size(places) + stage)
                           : json_array_get(places, stage);
    return (size_t)json_integer_value(at);
}

size_t forecast_slices(const json_t *plan)
{
    const size_t slices = (size_t)field_number(plan, "slices");
    return slices ? slices : 1;
}

static size_t replicas_of(const json_t *plan)
{
    const size_t replicas = json_array_size(json_object_get(plan, "shares"));
    return replicas ? replicas : 1;
}

size_t forecast_places(const json_t *plan, size_t pipeline)
{
    const size_t ranks = json_array_size(json_object_get(plan, "nodes"));
    size_t most = 0;
    if (!is_unlike(plan))
        return ranks / (replicas_of(plan) * forecast_slices(plan));
    for (size_t s = 0; s < json_array_size(json_object_get(plan, "places")); s++)
        most = place_of(plan, pipeline, s) > most ? place_of(plan, pipeline, s) : most;
    return most + 1;
}

static struct plan_shape shape_of(const json_t *plan)
{
    const size_t pipelines = replicas_of(plan) * forecast_slices(plan);
    struct plan_shape shape = {.pipelines = pipelines < PLAN_MAX_REPLICAS ? pipelines : PLAN_MAX_REPLICAS};
    for (size_t d = 0; d < shape.pipelines; d++)
        shape.first[d + 1] = shape.first[d] + forecast_places(plan, d);
    return shape;
}

size_t forecast_pipeline(const json_t *plan, size_t rank)
{
    const struct plan_shape shape = shape_of(plan);
    return plan_shape_pipeline(&shape, rank);
}

void forecast_parallel(char *ret, size_t size, const json_t *plan)
{
    const size_t replicas = replicas_of(plan), slices = forecast_slices(plan);
    size_t used = 0;
    if (!is_unlike(plan)) {
        if (replicas > 1 || slices == 1)
            used += (size_t)snprintf(ret, size, "dp=%zu,", replicas);
        if (slices > 1 && used < size)
            used += (size_t)snprintf(ret + used, size - used, "tp=%zu,", slices);
        if (used < size)
            snprintf(ret + used, size - used, "pp=%zu", forecast_places(plan, 0));
        return;
    }
    for (size_t d = 0; d < replicas && used < size; d++)
        used += (size_t)snprintf(ret + used, size - used, "%s%zu", d ? "+" : "pp=", forecast_places(plan, d));
}

static bool is_at(const json_t *plan, size_t stage, size_t rank)
{
    const struct plan_shape shape = shape_of(plan);
    return place_of(plan, plan_shape_pipeline(&shape, rank), stage) == plan_shape_place(&shape, rank);
}

/* Of unlike replicas: F, I, W, R and microbatches of a rank; else NULL. */
static const json_t *own_costs(const json_t *plan, size_t rank)
{
    return json_array_get(json_object_get(json_object_get(plan, "forecast"), "rank_costs"), rank);
}

/* Of all stages of a rank together, in seconds. */
static void sum_of(double ret[KINDS], const json_t *plan, size_t rank)
{
    const json_t *costs = json_object_get(json_object_get(plan, "forecast"), "costs"),
                 *own = own_costs(plan, rank);
    memset(ret, 0, KINDS * sizeof *ret);
    for (size_t k = 0; k < KINDS && own; k++)
        ret[k] = json_number_value(json_array_get(own, k));
    if (own)
        return;
    for (size_t s = 0; s < json_array_size(costs); s++)
        for (size_t k = 0; k < KINDS && is_at(plan, s, rank); k++)
            ret[k] += json_number_value(json_array_get(json_array_get(costs, s), k));
}

void forecast_costs(char *ret, size_t size, const json_t *plan, size_t rank)
{
    const json_t *forecast = json_object_get(plan, "forecast");
    double sum[KINDS];
    sum_of(sum, plan, rank);
    const json_t *own = own_costs(plan, rank);
    const double microbatches =
        own ? json_number_value(json_array_get(own, KINDS)) : field_number(forecast, "microbatches");
    const double work = (sum[F] + sum[I] + sum[W] + sum[R]) * microbatches,
                 seconds = field_number(forecast, "seconds"), idle = seconds > 0 ? 1 - work / seconds : 0;
    snprintf(ret, size, "\t%.3g ms\t%.3g ms\t%.3g ms\t%.3g ms\t%.0f %%", 1e3 * sum[F], 1e3 * sum[I],
             1e3 * sum[W], 1e3 * sum[R], idle > 0 ? 100 * idle : 0);
}

static double most_of(const json_t *list)
{
    double most = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const double one = json_number_value(json_array_get(list, i));
        most = one > most ? one : most;
    }
    return most;
}

static void print_exchange(const json_t *plan)
{
    const json_t *forecast = json_object_get(plan, "forecast"),
                 *sent = json_object_get(forecast, "sent_bytes"),
                 *spared = json_object_get(forecast, "spared_bytes");
    if (json_array_size(sent))
        printf("of it replicas add up gradients for %.3g s, on the CPUs and behind the last backward: each "
               "node sends %s at most\n",
               field_number(forecast, "exchange_seconds"), print_bytes(most_of(sent)).text);
    if (json_array_size(spared))
        printf("the replicas share out AdamW's moments: they save %s on a node at most\n",
               print_bytes(most_of(spared)).text);
}

/* "1.2 GiB, 800 MiB": of each node, in the order of the ranks. */
static void bytes_text(char *text, size_t size, const json_t *bytes)
{
    size_t used = 0;
    *text = 0;
    for (size_t r = 0; r < json_array_size(bytes) && used < size; r++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", r ? ", " : "",
                                 print_bytes(json_number_value(json_array_get(bytes, r))).text);
}

/* The names of nodes, "a, b". */
static void names_text(char *text, size_t size, const json_t *names)
{
    size_t used = 0;
    *text = 0;
    for (size_t r = 0; r < json_array_size(names) && used < size; r++) {
        const char *name = json_string_value(json_array_get(names, r));
        used += (size_t)snprintf(text + used, size - used, "%s%s", r ? ", " : "", name ? name : "?");
    }
}

/* Of --parallel auto: the best three, what their steps are made of, and why. */
static void print_choices(const json_t *choices)
{
    size_t i;
    json_t *one;
    char text[400];
    if (!json_array_size(choices))
        return;
    puts("--parallel auto found these plans, the best first; memory is an estimate");
    struct table *t = table_new(
        "  PLAN\tNODES\tSCHEDULE\tCHUNKS\tROWS\tSTEP\tWORK\tBUBBLE\tCABLES\tGATHER\tSUMS\tUPDATE\tMEMORY");
    json_array_foreach (choices, i, one) {
        char names[400];
        names_text(names, sizeof names, json_object_get(one, "nodes"));
        bytes_text(text, sizeof text, json_object_get(one, "bytes"));
        table_add(t, "  %s\t%s\t%s\t%.0f\t%.0f\t%.3g s\t%.3g s\t%.3g s\t%.3g s\t%.3g s\t%.3g s\t%.3g s\t%s",
                  field_text(one, "parallel", "?"), names, field_text(one, "schedule", "?"),
                  field_number(one, "chunks"), field_number(one, "micro_batch_size"),
                  field_number(one, "seconds"), field_number(one, "work_seconds"),
                  field_number(one, "bubble_seconds"), field_number(one, "cable_seconds"),
                  field_number(one, "gather_seconds"), field_number(one, "sum_seconds"),
                  field_number(one, "update_seconds"), text);
    }
    table_print_free(t, stdout);
    json_array_foreach (choices, i, one) {
        if (i)
            printf("%s on %s would take %+.1f %%: %s\n", field_text(one, "parallel", "?"),
                   field_text(one, "schedule", "?"),
                   100 * (field_number(one, "seconds") / field_number(json_array_get(choices, 0), "seconds") -
                          1),
                   field_text(one, "why", "?"));
        else
            printf("%s was chosen: %s\n", field_text(one, "parallel", "?"), field_text(one, "why", "?"));
    }
}

void forecast_print(const json_t *plan)
{
    const json_t *forecast = json_object_get(plan, "forecast"), *second = json_object_get(forecast, "second"),
                 *elsewhere = json_object_get(forecast, "elsewhere");
    size_t i;
    json_t *sentence;
    if (!json_is_object(forecast))
        return;
    const char *whose = json_array_size(json_object_get(plan, "shares")) ? " in a replica at most" : "";
    char what[80] = "a step", next[40] = "";
    if (field_number(forecast, "steps") > 1)
        snprintf(what, sizeof what, "%.0f steps, of all adapters together,", field_number(forecast, "steps"));
    const double microbatches = field_number(forecast, "microbatches"),
                 rows = field_number(forecast, "micro_batch_size");
    printf("%s should take %.3g s, %.0f microbatch%s of %.0f row%s%s; the nodes stand still for %.1f %% of "
           "it\n",
           what, field_number(forecast, "seconds"), microbatches, microbatches == 1 ? "" : "es", rows,
           rows == 1 ? "" : "s", whose, 100 * field_number(forecast, "bubble"));
    print_exchange(plan);
    if (json_object_get(forecast, "reference_seconds"))
        printf("before a step whose pairs come for the first time, the model without adapter takes some %.3g "
               "s\n",
               field_number(forecast, "reference_seconds"));
    if (field_number(forecast, "steps") > 1)
        snprintf(next, sizeof next, "%.0f steps, ", field_number(second, "steps"));
    if (json_is_object(second))
        printf("next best: %s, chunks %.0f, %s%.0f microbatches of %.0f rows%s: %.3g s\n",
               field_text(second, "schedule", "?"), field_number(second, "chunks"), next,
               field_number(second, "microbatches"), field_number(second, "micro_batch_size"), whose,
               field_number(second, "seconds"));
    if (json_is_object(elsewhere))
        printf("submitted on %s, where model, data and result would then be, it should take %.3g s\n",
               field_text(elsewhere, "node", "?"), field_number(elsewhere, "seconds"));
    json_array_foreach (json_object_get(forecast, "left_out"), i, sentence)
        printf("%s\n", json_string_value(sentence));
    print_choices(json_object_get(forecast, "choices"));
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
        for (size_t k = 0; k < 2 && is_at(plan, s, rank); k++)
            sum[k] += json_number_value(json_array_get(json_array_get(costs, s), k));
    if (json_object_get(speed, "prompt_seconds"))
        snprintf(ret, size, "\t%s\t%.3g ms\t%.3g ms",
                 print_bytes(json_number_value(json_array_get(json_object_get(speed, "kv"), rank))).text,
                 1e3 * sum[0] * field_number(plan, "microbatches"), 1e3 * sum[1]);
    else if (json_is_object(speed))
        snprintf(ret, size, "\t%.3g ms", 1e3 * sum[0]);
}

/* Of nodes that share stages. */
static void print_gather(const json_t *gather)
{
    const double times = field_number(gather, "times");
    if (times > 0)
        printf("for a token nodes that share a stage gather %.0f times, %.3g ms each: %s come to a node of "
               "each stage\n",
               times, 1e3 * field_number(gather, "seconds") / times,
               print_bytes(field_number(gather, "bytes")).text);
}

/* Of --parallel auto of a generation: the best three shapes. */
static void print_answers(const json_t *choices)
{
    size_t i;
    json_t *one;
    if (!json_array_size(choices))
        return;
    puts("--parallel auto found these plans, the best first; ANSWER is the prompt and all tokens");
    struct table *t = table_new("  PLAN\tNODES\tPROMPT\tTOKEN\tANSWER");
    json_array_foreach (choices, i, one) {
        char names[400];
        names_text(names, sizeof names, json_object_get(one, "nodes"));
        table_add(t, "  %s\t%s\t%.3g s\t%.3g ms\t%.3g s", field_text(one, "parallel", "?"), names,
                  field_number(one, "prompt_seconds"), 1e3 * field_number(one, "token_seconds"),
                  field_number(one, "seconds"));
    }
    table_print_free(t, stdout);
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
    print_gather(json_object_get(speed, "gather"));
    print_answers(json_object_get(speed, "choices"));
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
                                .ranks = forecast_places(plan, (size_t)field_number(forecast, "slowest")),
                                .chunks = (size_t)field_number(forecast, "chunks"),
                                .microbatches = (size_t)field_number(forecast, "microbatches")};
    const size_t groups = (size_t)field_number(plan, "groups");
    if (!json_array_size(json_object_get(plan, "shares")) && groups <= req.microbatches)
        req.groups = (struct sched_groups){req.microbatches, groups, 0, groups};
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

/* Mean seconds of a microbatch, of all tasks of a kind on a rank of so many stages; a whole
 * backward is I and W. */
static void measured_of(double ret[KINDS], const json_t *rank, double stages)
{
    static const char *const names[KINDS] = {"F", "I", "W", "R"};
    double microbatches = 0; /* of several replicas, its own */
    size_t i;
    json_t *task;
    memset(ret, 0, KINDS * sizeof *ret);
    json_array_foreach (json_object_get(rank, "tasks"), i, task) {
        const char *kind = json_string_value(json_array_get(task, 0));
        microbatches += kind && !strcmp(kind, names[F]) && stages > 0 ? 1 / stages : 0;
    }
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
    const double m = field_number(timeline, "microbatches"),
                 of = field_number(plan, "microbatches") * field_number(forecast, "steps"),
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
        measured_of(is, json_array_get(ranks, r), field_number(forecast, "chunks"));
        sum_of(was, plan, r);
        table_add(t, "  %zu\t%.3g ms\t%.3g ms\t%.3g ms\t%.3g ms\t%.3g ms\t%.3g ms", r, 1e3 * is[F],
                  1e3 * was[F], 1e3 * (is[I] + is[W]), 1e3 * (was[I] + was[W]), 1e3 * is[R], 1e3 * was[R]);
    }
    table_print_free(t, stdout);
}
