/* SPDX-License-Identifier: MIT
 *
 * ringctl simulate: a training step on rings larger than those at hand, and how it grows with them;
 * with --serve, what those see who are answered on such rings (ctl_simulate_serve.c). Asks no
 * daemon. One thread. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_options.h"
#include "daemon/ctl/simulate/ctl_simulate_serve.h"
#include "daemon/ctl/simulate/simulate_sizes.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"
#include "daemon/ctl/forecast/forecast.h"
#include "engine/pipe/plan.h"

enum { ROWS_SHOWN = 32 };
static const char *const recompute_names[] = {"none", "layer", "stage",
                                              "auto"};                /* as enum forecast_recompute */
static const char *const overlap_names[] = {"unit", "stage", "none"}; /* as enum forecast_overlap */
static const double FROZEN_BYTES = 2, TRAINED_BYTES = 16,
                    GIB = 1 << 30; /* of a parameter, with gradient and moments */

static size_t size_of(const struct ctl *ctl, const char *name, size_t otherwise)
{
    return opts_is_set(ctl->opts, name) || !otherwise ? (size_t)opts_int(ctl->opts, name) : otherwise;
}

static double ms_of(const struct ctl *ctl, const char *name, double otherwise)
{
    return opts_is_set(ctl->opts, name) ? opts_float(ctl->opts, name) / 1e3 : otherwise;
}

/* Which of the n names an option has; the table of options refuses all others. */
static size_t named(const struct ctl *ctl, const char *option, const char *const *names, size_t n)
{
    const char *name = opts_str(ctl->opts, option);
    size_t at = 0;
    while (at + 1 < n && strcmp(name, names[at]) != 0)
        at++;
    return at;
}

static enum forecast_overlap overlap_of(const struct ctl *ctl)
{
    return (enum forecast_overlap)named(ctl, "grad-overlap", overlap_names,
                                        sizeof overlap_names / sizeof *overlap_names);
}

static enum forecast_recompute recompute_of(const struct ctl *ctl)
{
    return (enum forecast_recompute)named(ctl, "recompute", recompute_names,
                                          sizeof recompute_names / sizeof *recompute_names);
}

/* A model's W wants whole what the inside of attention and MLP gave: of what these gather, all but
 * their outputs. */
static double gathered_weights(const struct ctl *ctl, const struct forecast_request *req)
{
    if (opts_is_set(ctl->opts, "gather-weights"))
        return req->message * opts_float(ctl->opts, "gather-weights");
    return req->adapters ? 0 : fmax(req->gathered - 2 * req->message, 0);
}

static int read_request(struct forecast_request *ret, const struct ctl *ctl)
{
    double forward = opts_float(ctl->opts, "fwd-ms") / 1e3, backward = ms_of(ctl, "bwd-ms", 2 * forward),
           weights = ms_of(ctl, "weights-ms", backward / 2);
    size_t nodes = size_of(ctl, "nodes", 0), layers = 4 * nodes;
    const bool frozen = opts_is_set(ctl->opts, "adapters");
    if (opts_is_set(ctl->opts, "steps") && !frozen)
        return ctl_usage(ctl, "--steps counts the steps of each adapter: give --adapters, too");
    const size_t slices = size_of(ctl, "tp", 0);
    if (nodes % slices)
        return ctl_usage(ctl, "--tp %zu does not divide --nodes %zu: each stage has as many nodes", slices,
                         nodes);
    if (weights > backward)
        return ctl_usage(ctl, "--weights-ms is a part of --bwd-ms and cannot be longer");
    *ret = (struct forecast_request){
        .schedule = opts_str(ctl->opts, "schedule"),
        .nodes = nodes / slices,
        .slices = slices,
        .layers = size_of(ctl, "layers", layers < SIMULATE_LAYERS_MAX ? layers : SIMULATE_LAYERS_MAX),
        .microbatches = size_of(ctl, "microbatches", 0),
        .replicas = size_of(ctl, "replicas", 0),
        .overlap = overlap_of(ctl),
        .recompute = recompute_of(ctl),
        .forward = forward,
        .input = backward - weights,
        .weights = weights,
        .rate = opts_float(ctl->opts, "link-gbps") * 1e9 / 8,
        .latency = opts_float(ctl->opts, "latency-us") / 1e6,
        .params = opts_float(ctl->opts, "params") * 1e9,
        .param_bytes = frozen && !opts_is_set(ctl->opts, "param-bytes")
                           ? FROZEN_BYTES
                           : opts_float(ctl->opts, "param-bytes"),
        .grad_bytes = opts_float(ctl->opts, "grad-bytes"),
        .adapters = frozen ? (size_t)opts_int(ctl->opts, "adapters") : 0,
        .adapter_params = opts_float(ctl->opts, "adapter-params") * 1e6,
        .adapter_bytes = TRAINED_BYTES};
    if (opts_is_set(ctl->opts, "steps"))
        ret->turns = (size_t)opts_int(ctl->opts, "steps");
    if (opts_is_set(ctl->opts, "memory"))
        ret->node_memory = opts_float(ctl->opts, "memory") * GIB;
    if (opts_is_set(ctl->opts, "chunks"))
        ret->chunks = (size_t)opts_int(ctl->opts, "chunks");
    ret->message = (double)opts_int(ctl->opts, "dim") * (double)opts_int(ctl->opts, "tokens") *
                   (double)opts_int(ctl->opts, "number-bytes");
    ret->kept = ret->message * opts_float(ctl->opts, "kept");
    ret->gathered = ret->message * opts_float(ctl->opts, "gather-fwd");
    ret->gathered_back = ret->message * opts_float(ctl->opts, "gather-bwd");
    ret->gathered_weights = gathered_weights(ctl, ret);
    return CTL_OK;
}

/* --- one ring --------------------------------------------------------------------------------- */

/* Of a ring; those that share a stage are one in `nodes`, and one row of what is printed. */
static size_t nodes_of(const struct forecast_request *req)
{
    return req->nodes * req->slices;
}

static json_t *describe(const struct forecast_request *req, const struct forecast *f)
{
    json_t *nodes = json_array();
    for (size_t r = 0; r < f->nodes; r++) {
        const struct forecast_node *n = &f->node[r];
        json_array_append_new(nodes, json_pack("{s:I s:f s:I s:f s:f s:f s:f s:f s:s}", "layers",
                                               (json_int_t)n->layers, "busy_seconds", n->busy, "in_flight",
                                               (json_int_t)n->in_flight, "memory_bytes", n->memory,
                                               "next_bytes", n->to_next, "previous_bytes", n->to_prev,
                                               "gather_seconds", n->gathering, "gathered_bytes", n->gathered,
                                               "recompute", recompute_names[n->recompute]));
    }
    return json_pack("{s:s s:I s:I s:I s:I s:I s:I s:I s:I s:f s:f s:f s:f s:o}", "schedule", req->schedule,
                     "nodes", (json_int_t)nodes_of(req), "tp", (json_int_t)req->slices, "stages",
                     (json_int_t)f->stages, "layers", (json_int_t)req->layers, "microbatches",
                     (json_int_t)req->microbatches, "adapters", (json_int_t)req->adapters, "steps",
                     (json_int_t)f->turns, "replicas", (json_int_t)req->replicas, "seconds", f->seconds,
                     "bubble", f->bubble, "reduce_seconds", f->reducing, "update_seconds", f->updating,
                     "per_node", nodes);
}

static void print_csv(const struct forecast *f)
{
    puts("rank,layers,busy_seconds,idle_seconds,in_flight,memory_bytes,next_bytes,previous_bytes,"
         "gather_seconds,gathered_bytes,recompute");
    for (size_t r = 0; r < f->nodes; r++) {
        const struct forecast_node *n = &f->node[r];
        printf("%zu,%zu,%.6g,%.6g,%zu,%.0f,%.0f,%.0f,%.6g,%.0f,%s\n", r, n->layers, n->busy,
               f->seconds - n->busy, n->in_flight, n->memory, n->to_next, n->to_prev, n->gathering,
               n->gathered, recompute_names[n->recompute]);
    }
}

static void say_short(const struct forecast_request *req, const struct forecast *f)
{
    size_t n = 0;
    for (size_t r = 0; r < f->nodes; r++)
        n += req->node_memory > 0 && f->node[r].memory > req->node_memory;
    if (n)
        printf("%zu of %zu nodes need more memory than the %s of --memory\n", n * req->slices, nodes_of(req),
               print_bytes(req->node_memory).text);
}

static void print_ring(const struct forecast_request *req, const struct forecast *f)
{
    printf("%s, %zu nodes, %zu stages, %zu layers, %zu microbatches: a step takes %.4g s, bubble %.2f %%\n",
           req->schedule, nodes_of(req), f->stages, req->layers, req->microbatches, f->seconds,
           100 * f->bubble);
    if (req->slices > 1)
        printf("%zu nodes share each stage, in one row below: what they gather takes %.4g s on the busiest\n",
               req->slices, forecast_most(f).gathering);
    if (req->adapters)
        printf("in the mean of a round of %zu step%s of each of %zu adapter%s, which takes %.4g s\n",
               f->turns, f->turns == 1 ? "" : "s", req->adapters, req->adapters == 1 ? "" : "s",
               f->seconds * (double)(f->turns * req->adapters));
    if (f->reducing > 0)
        printf("%zu replicas still add up gradients for %.4g s of that time\n", req->replicas, f->reducing);
    struct table *t =
        table_new("  RANK\tLAYERS\tBUSY\tIN FLIGHT\tMEMORY\tTO NEXT\tTO PREVIOUS\tGATHERED\tRECOMPUTES");
    for (size_t r = 0; r < f->nodes && r < ROWS_SHOWN; r++) {
        const struct forecast_node *n = &f->node[r];
        table_add(t, "  %zu\t%zu\t%.4g s\t%zu\t%s\t%s\t%s\t%s\t%s", r, n->layers, n->busy, n->in_flight,
                  print_bytes(n->memory).text, print_bytes(n->to_next).text, print_bytes(n->to_prev).text,
                  print_bytes(n->gathered).text, recompute_names[n->recompute]);
    }
    table_print_free(t, stdout);
    if (f->nodes > ROWS_SHOWN)
        printf("and %zu more: --csv and --json have them all\n", f->nodes - ROWS_SHOWN);
    say_short(req, f);
}

static int one_ring(const struct ctl *ctl, const struct forecast_request *req)
{
    struct forecast f;
    struct err err;
    if (forecast_make(&f, req, &err))
        return ctl_fail(CTL_FAILED, "%s", err.text);
    if (ctl->json) {
        json_t *json = describe(req, &f);
        print_json(json);
        json_decref(json);
    } else if (opts_flag(ctl->opts, "csv")) {
        print_csv(&f);
    } else {
        print_ring(req, &f);
    }
    forecast_done(&f);
    return CTL_OK;
}

/* --- many rings ------------------------------------------------------------------------------- */

/* The request with everything that grows `times` as large. */
static struct forecast_request grown(const struct forecast_request *req, const char *how, size_t times)
{
    struct forecast_request r = *req;
    if (*how == 'r') {
        r.replicas *= times;
        return r;
    }
    r.nodes *= times;
    r.layers *= times;
    r.params *= (double)times;
    r.adapter_params *= (double)times;
    r.microbatches *= *how == 'b' ? times : 1;
    return r;
}

/* Layers and microbatches done a second by a node. */
static double node_speed(const struct forecast_request *r, const struct forecast *f)
{
    return (double)r->layers * (double)r->microbatches / (double)nodes_of(r) / f->seconds;
}

struct scaling {
    struct table *table; /* owned, NULL: CSV or JSON */
    json_t *rows;        /* owned, of JSON */
    double first_speed;
};

static void add_size(struct scaling *s, const struct forecast_request *r, const struct forecast *f)
{
    struct forecast_node most = forecast_most(f);
    double link = most.to_next > most.to_prev ? most.to_next : most.to_prev, speed = node_speed(r, f);
    s->first_speed = s->first_speed > 0 ? s->first_speed : speed;
    double efficiency = speed / s->first_speed;
    size_t nodes = nodes_of(r) * r->replicas;
    if (s->table)
        table_add(s->table, "%zu\t%zu\t%zu\t%zu\t%.4g s\t%.2f %%\t%.2f %%\t%s\t%s", nodes, r->replicas,
                  r->layers, r->microbatches, f->seconds, 100 * f->bubble, 100 * efficiency,
                  print_bytes(link).text, print_bytes(most.memory).text);
    else if (s->rows)
        json_array_append_new(
            s->rows, json_pack("{s:I s:I s:I s:I s:I s:f s:f s:f s:f s:f s:f}", "nodes", (json_int_t)nodes,
                               "steps", (json_int_t)f->turns, "replicas", (json_int_t)r->replicas, "layers",
                               (json_int_t)r->layers, "microbatches", (json_int_t)r->microbatches, "seconds",
                               f->seconds, "bubble", f->bubble, "efficiency", efficiency, "reduce_seconds",
                               f->reducing, "link_bytes", link, "memory_bytes", most.memory));
    else
        printf("%zu,%zu,%zu,%zu,%.6g,%.6g,%.6g,%.6g,%.0f,%.0f\n", nodes, r->replicas, r->layers,
               r->microbatches, f->seconds, f->bubble, efficiency, f->reducing, link, most.memory);
}

static int many_rings(const struct ctl *ctl, const struct forecast_request *req)
{
    const char *how = opts_str(ctl->opts, "grow");
    size_t to = (size_t)opts_int(ctl->opts, "scale-to");
    struct scaling s = {0};
    struct err err;
    int rc = CTL_OK;
    const size_t first = nodes_of(req) * req->replicas;
    if (first > to)
        return ctl_usage(ctl, "--scale-to %zu is below the %zu nodes of the first ring", to, first);
    if (ctl->json)
        s.rows = json_array();
    else if (!opts_flag(ctl->opts, "csv"))
        s.table =
            table_new("NODES\tRINGS\tLAYERS\tMICROBATCHES\tSTEP\tBUBBLE\tEFFICIENCY\tBYTES A LINK\tMEMORY");
    else
        puts("nodes,replicas,layers,microbatches,step_seconds,bubble,efficiency,reduce_seconds,link_bytes,"
             "memory_bytes");
    for (size_t times = 1; !rc && times * first <= to; times *= 2) {
        struct forecast_request r = grown(req, how, times);
        struct forecast f;
        if (forecast_make(&f, &r, &err)) {
            rc = ctl_fail(CTL_FAILED, "%zu nodes: %s", nodes_of(&r) * r.replicas, err.text);
        } else {
            add_size(&s, &r, &f);
            forecast_done(&f);
        }
    }
    if (s.table)
        table_print_free(s.table, stdout);
    if (s.rows && !rc) {
        json_t *json = json_pack("{s:s s:s s:O}", "schedule", req->schedule, "grow", how, "sizes", s.rows);
        print_json(json);
        json_decref(json);
    }
    json_decref(s.rows);
    return rc;
}

/* Options of one of the two, with the other, would say nothing. */
static int check_kind(const struct ctl *ctl, bool serves)
{
    static const char *const of_serving[] = {"plan",       "row-ms",       "head-ms",
                                             "token-us",   "streams",      "prompt-tokens",
                                             "max-tokens", "max-num-seqs", "prefill-step-size",
                                             "vocab"},
                             *const of_training[] = {
                                 "microbatches", "schedule",      "chunks",       "recompute",
                                 "memory",       "adapters",      "steps",        "fwd-ms",
                                 "bwd-ms",       "weights-ms",    "tokens",       "number-bytes",
                                 "kept",         "params",        "param-bytes",  "adapter-params",
                                 "replicas",     "grad-bytes",    "grad-overlap", "grow",
                                 "gather-bwd",   "gather-weights"};
    const char *const *others = serves ? of_training : of_serving;
    const size_t n =
        serves ? sizeof of_training / sizeof *of_training : sizeof of_serving / sizeof *of_serving;
    for (size_t i = 0; i < n; i++)
        if (opts_is_set(ctl->opts, others[i]))
            return ctl_usage(ctl,
                             serves ? "--%s is about training: leave it out, or --serve"
                                    : "--%s is about serving: give --serve, too",
                             others[i]);
    return CTL_OK;
}

int ctl_simulate_main(struct ctl *ctl)
{
    struct forecast_request req;
    const bool serves = opts_flag(ctl->opts, "serve");
    int rc = ctl_no_args(ctl);
    if (!rc)
        rc = check_kind(ctl, serves);
    if (!rc && serves)
        return simulate_serve(ctl);
    if (!rc)
        rc = read_request(&req, ctl);
    if (rc)
        return rc;
    return opts_is_set(ctl->opts, "scale-to") ? many_rings(ctl, &req) : one_ring(ctl, &req);
}
