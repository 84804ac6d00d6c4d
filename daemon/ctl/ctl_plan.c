/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by the commands that submit a job, and by ringctl job. */
#include "daemon/ctl/ctl_plan.h"

#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_forecast.h"
#include "daemon/ctl/models/model_wait.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/ctl_plan_file.h"
#include "daemon/ctl/ctl_spec.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/common/layers_text.h"
#include "daemon/common/model/travel_text.h"

static struct amount bytes_told(const json_t *value)
{
    return value ? print_bytes(json_number_value(value)) : (struct amount){"-"};
}

/* "0-3", "0-1,6"; "none". bounds: first layer and the one after the last, of each stage. */
static void layers_text(char *text, size_t n, const json_t *bounds)
{
    *text = '\0';
    for (size_t i = 0; i + 1 < json_array_size(bounds); i += 2)
        layers_text_add(text, n, (size_t)json_integer_value(json_array_get(bounds, i)),
                        (size_t)json_integer_value(json_array_get(bounds, i + 1)));
    if (!*text)
        snprintf(text, n, "none");
}

/* "0" for the replica and "1 of 2" for the slice, as far as there are several. */
static void pipeline_text(char *text, size_t n, const json_t *plan, size_t rank)
{
    const size_t at = forecast_pipeline(plan, rank), slices = forecast_slices(plan);
    const bool has_replicas = json_array_size(json_object_get(plan, "shares"));
    const size_t used = has_replicas ? (size_t)snprintf(text, n, "\t%zu", at / slices) : 0;
    if (slices > 1)
        snprintf(text + used, n - used, "\t%zu of %zu", at % slices + 1, slices);
}

/* Who holds what: with what was measured and what was forecast, where anything was. */
static struct table *stages(const json_t *plan, const json_t *memory)
{
    const json_t *split = json_object_get(plan, "split"), *forecast = json_object_get(plan, "forecast");
    const bool measured = json_array_size(memory), foreseen = json_is_object(forecast),
               has_replicas = json_array_size(json_object_get(plan, "shares"));
    char head[160];
    snprintf(head, sizeof head, "  RANK%s%s\tNODE\tLAYERS\tPLANNED\tOF%s\tSLOTS%s",
             has_replicas ? "\tREPLICA" : "", forecast_slices(plan) > 1 ? "\tSLICE" : "",
             measured ? "\tMEASURED\tPEAK" : "", foreseen ? "\tF\tI\tW\tR\tBUBBLE" : speed_head(plan));
    struct table *t = table_new(head);
    for (size_t r = 0; r < json_array_size(split); r++) {
        const char *name = json_string_value(json_array_get(json_object_get(plan, "nodes"), r));
        const json_t *stage = json_array_get(memory, r);
        char layers[48], has[64] = "", costs[120] = "", pipeline[72] = "";
        layers_text(layers, sizeof layers, json_array_get(split, r));
        if (measured)
            snprintf(has, sizeof has, "\t%s\t%s", bytes_told(json_object_get(stage, "rss")).text,
                     bytes_told(json_object_get(stage, "peak")).text);
        if (foreseen)
            forecast_costs(costs, sizeof costs, plan, r);
        else
            speed_costs(costs, sizeof costs, plan, r);
        pipeline_text(pipeline, sizeof pipeline, plan, r);
        table_add(t, "  %zu%s\t%s\t%s\t%s\t%s%s\t%.0f%s", r, pipeline, name ? name : "?", layers,
                  print_bytes(json_number_value(json_array_get(json_object_get(plan, "bytes"), r))).text,
                  bytes_told(json_array_get(json_object_get(plan, "available"), r)).text, has,
                  json_number_value(json_array_get(json_object_get(plan, "slots"), r)), costs);
    }
    return t;
}

/* "node a: 1.2 GiB of 3.4 GiB are shared with job 4", for each rank that shares something. */
static void print_shared(const json_t *plan)
{
    size_t r;
    json_t *rank;
    json_array_foreach (json_object_get(plan, "shared"), r, rank) {
        const json_t *jobs = json_object_get(rank, "jobs");
        const char *name = json_string_value(json_array_get(json_object_get(plan, "nodes"), r));
        if (!json_array_size(jobs))
            continue;
        printf("node %s: %s of %s are shared with job%s", name ? name : "?",
               print_bytes(field_number(rank, "bytes")).text,
               print_bytes(json_number_value(json_array_get(json_object_get(plan, "bytes"), r))).text,
               json_array_size(jobs) == 1 ? "" : "s");
        for (size_t i = 0; i < json_array_size(jobs); i++)
            printf("%s %.0f", i ? "," : "", json_number_value(json_array_get(jobs, i)));
        putchar('\n');
    }
}

/* What has to come first, of a model with a name; of a job that runs or is over, it has come. */
static void print_travel(const json_t *job)
{
    const char *state = field_text(job, "state", "planned");
    const bool is_to_come = !strcmp(state, "planned");
    const json_t *travel = is_to_come ? json_object_get(json_object_get(job, "plan"), "travel") : NULL;
    char text[800];
    for (size_t r = 0; r < json_array_size(json_object_get(travel, "ranks")); r++)
        if (travel_rank_text(text, sizeof text, travel, r))
            puts(text);
    if (travel_total_text(text, sizeof text, travel))
        puts(text);
    if (travel_spared_text(text, sizeof text, travel))
        puts(text);
}

/* "2 replicas (dp=2,pp=1), which take 4 and 2 of 6 groups of microbatches" */
static void print_replicas(const json_t *plan)
{
    const json_t *shares = json_object_get(plan, "shares");
    const size_t n = json_array_size(shares);
    if (!n)
        return;
    char parallel[40];
    forecast_parallel(parallel, sizeof parallel, plan);
    printf("%zu replicas (%s), which take", n, parallel);
    for (size_t d = 0; d < n; d++)
        printf("%s %.0f", !d ? "" : d + 1 < n ? "," : " and", json_number_value(json_array_get(shares, d)));
    printf(" of %.0f groups of microbatches\n", field_number(plan, "groups"));
    if (json_is_true(json_object_get(plan, "divided")))
        puts("each replica has the moments of a slice of the weights, and updates that slice; no node keeps "
             "copies");
}

/* "trains DoRA of rank 8 on q_proj, v_proj; a layer learns 0.9 times as fast as the one above
 * it" */
static void print_tune(const json_t *plan)
{
    enum { LORA = 1, ALL };
    const json_t *tune = json_object_get(plan, "tune"), *targets = json_object_get(tune, "targets");
    const double kind = field_number(tune, "kind"), fixed = field_number(tune, "fixed"),
                 decay = field_number(tune, "layer_decay");
    if (!json_is_true(json_object_get(plan, "training")) || (kind != LORA && kind != ALL))
        return;
    if (kind == LORA)
        printf("trains %s of rank %.0f", json_is_true(json_object_get(tune, "dora")) ? "DoRA" : "LoRA",
               field_number(tune, "rank"));
    else
        fputs("trains all weights", stdout);
    if (fixed > 0)
        printf(" (%.0f stay as they begin)", fixed);
    for (size_t i = 0; i < json_array_size(targets); i++)
        printf("%s%s", i ? ", " : " on ", json_string_value(json_array_get(targets, i)));
    if (decay > 0 && decay < 1)
        printf("; a layer learns %g times as fast as the one above it", decay);
    putchar('\n');
}

/* Plans of older versions do not say it. */
static const char *compute_of(const json_t *plan)
{
    return field_text(plan, "compute", "f32");
}

void ctl_print_plan(const json_t *job)
{
    const json_t *plan = json_object_get(job, "plan");
    struct table *t = stages(plan, json_object_get(job, "memory"));
    if (table_rows(t) && !*field_text(plan, "schedule", ""))
        printf("plan, at most %.0f tokens at once, computed in %s\n", field_number(plan, "tokens"),
               compute_of(plan));
    else if (table_rows(t))
        printf("plan, schedule %s, %.0f microbatches, at most %.0f tokens each, computed in %s\n",
               field_text(plan, "schedule", "-"), field_number(plan, "microbatches"),
               field_number(plan, "tokens"), compute_of(plan));
    if (table_rows(t))
        print_tune(plan);
    print_replicas(plan);
    const size_t more = json_array_size(json_object_get(plan, "more"));
    if (more && *field_text(plan, "schedule", ""))
        printf("%zu adapters on the same weights, %.0f steps of each in a round\n", more + 1,
               field_number(plan, "round_steps") / (double)(more + 1));
    table_print_free(t, stdout);
    print_shared(plan);
    print_travel(job);
    forecast_print(plan);
    speed_print(plan);
}

void ctl_print_adapters(const json_t *adapters)
{
    struct table *t = table_new("  ADAPTER\tSTEP\tLOSS\tVALID");
    size_t i;
    json_t *one;
    json_array_foreach (adapters, i, one) {
        const json_t *step = json_object_get(one, "step");
        table_add(t, "  %s\t%.0f\t%s\t%s", field_text(one, "adapter", "?"),
                  field_number(one, step ? "step" : "steps"),
                  print_number(json_object_get(one, "loss"), "-").text,
                  print_number(json_object_get(one, "valid_loss"), "-").text);
    }
    if (table_rows(t))
        table_print_free(t, stdout);
    else
        table_free(t);
}

bool ctl_plan_wanted(const struct ctl *ctl)
{
    return ctl->plans || opts_flag(ctl->opts, "dry-run");
}

static int ask(const struct ctl *ctl, enum job_type type, json_t *spec, json_t **ret)
{
    enum { WITHIN_S = 1000 }; /* the daemon gives up sooner, and says so: a large data set is read */
    struct model_wait wait = {.last = ""};
    int rc;
    for (;;) {
        json_t *answer = NULL;
        rc = ctl_spec_send(ctl, "/v1/plan", type, json_incref(spec), WITHIN_S, &answer);
        if (!rc && !model_wait_goes_on(&wait, answer, &rc) && !rc) {
            *ret = answer;
            return CTL_OK;
        }
        json_decref(answer);
        if (rc)
            return rc;
    }
}

int ctl_plan_ask(const struct ctl *ctl, enum job_type type, json_t *spec, const char *out)
{
    json_t *answer = NULL, *line;
    size_t i;
    int rc = ask(ctl, type, spec, &answer);
    json_decref(spec);
    if (rc)
        return rc;
    if (ctl->json) {
        print_json(answer);
    } else {
        json_array_foreach (json_object_get(answer, "lines"), i, line)
            fprintf(stderr, "%s\n", json_string_value(line));
        ctl_print_plan(answer);
        forecast_chart(json_object_get(answer, "plan"));
    }
    rc = out ? plan_file_write(out, json_object_get(answer, "plan")) : CTL_OK;
    json_decref(answer);
    return rc;
}

int ctl_plan_main(struct ctl *ctl)
{
    return ctl_usage(ctl, "plan needs a job: train, generate, score, serve or eval, with its options");
}
