/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/simulate/ctl_simulate_serve.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/forecast/serve_plan.h"
#include "daemon/ctl/terminal/ctl_print.h"
#include "daemon/ctl/terminal/ctl_table.h"

enum { STREAMS_LISTED = 32, NODES_SHOWN = 8 };
static const double MS = 1e-3, US = 1e-6;

/* --- what it costs ---------------------------------------------------------------------------- */

/* "1:2.5,16:4": rows, and the milliseconds they take. */
static int read_points(struct rows_line *ret, const struct ctl *ctl, const char *option)
{
    const char *text = opts_str(ctl->opts, option), *at = text;
    *ret = (struct rows_line){0};
    while (ret->n < ROWS_LINE_MOST) {
        char *end;
        const unsigned long rows = strtoul(at, &end, 10);
        const bool is_next = end != at && *end == ':' && *at != '-' && rows >= 1 &&
                             rows <= SERVE_TOKENS_MOST && (!ret->n || rows > ret->rows[ret->n - 1]);
        at = end + is_next;
        const double ms = is_next ? strtod(at, &end) : -1;
        if (!is_next || end == at || !(ms >= 0 && ms <= 1e7) || (*end && *end != ','))
            break;
        ret->rows[ret->n] = rows;
        ret->seconds[ret->n++] = ms * MS;
        at = end + 1;
        if (!*end)
            return CTL_OK;
    }
    return ctl_usage(
        ctl,
        "--%s %s: this is a list like 1:2.5,16:4, of at most %d numbers of rows and the milliseconds "
        "they take, with the rows in ascending order",
        option, text, ROWS_LINE_MOST);
}

/* Units that are given: layers that are all alike between an embedding that takes nothing and a
 * head. No node has a plan, so its ranks are 0. */
static int plan_of_options(struct serve_plan *p, const struct ctl *ctl)
{
    enum { EMBEDDING, LAYER, HEAD, KINDS };
    const size_t layers = (size_t)opts_int(ctl->opts, opts_is_set(ctl->opts, "layers") ? "layers" : "nodes") *
                          (opts_is_set(ctl->opts, "layers") ? 1 : 4);
    *p = (struct serve_plan){.limits = {.seqs = 32, .prompt = 128},
                             .layers = layers,
                             .kinds = KINDS,
                             .dim = (size_t)opts_int(ctl->opts, "dim"),
                             .kind = calloc(layers + 2, sizeof *p->kind),
                             .unit = calloc(KINDS, sizeof *p->unit)};
    if (!p->kind || !p->unit)
        return ctl_fail(CTL_FAILED, "out of memory");
    for (size_t u = 1; u < layers + 2; u++)
        p->kind[u] = u <= layers ? LAYER : HEAD;
    const int rc = read_points(&p->unit[LAYER].rows, ctl, "row-ms");
    return rc || !opts_is_set(ctl->opts, "head-ms") ? rc : read_points(&p->unit[HEAD].rows, ctl, "head-ms");
}

/* A plan, or what has one: the answer of ringctl plan, or a job's. */
static int plan_of_file(struct serve_plan *p, const char *path)
{
    json_error_t why;
    struct err err;
    json_t *file = json_load_file(path, 0, &why);
    const json_t *within = json_object_get(file, "plan");
    int rc = CTL_OK;
    if (!file)
        rc = ctl_fail(CTL_FAILED, "--plan %s: %s", path, why.text);
    else if (serve_plan_read(p, within ? within : file, &err))
        rc = ctl_fail(CTL_FAILED, "--plan %s: %s", path, err.text);
    json_decref(file);
    return rc;
}

/* --- what is asked for ------------------------------------------------------------------------ */

struct serve_wanted {
    struct serve_plan plan; /* owned */
    double hop[2];          /* of cables that nobody measured */
    bool is_forced;         /* and of all others: the user says so */
    size_t streams[STREAMS_LISTED], nstreams;
    size_t prompt, tokens;
    size_t slices, nodes, most_nodes; /* slices: nodes that share each stage */
    double gathered;                  /* of a layer and row, in numbers for each of its width */
    size_t vocab;
};

static int read_streams(struct serve_wanted *w, const struct ctl *ctl)
{
    const char *text = opts_str(ctl->opts, "streams"), *at = text;
    while (w->nstreams < STREAMS_LISTED) {
        char *end;
        const unsigned long n = strtoul(at, &end, 10);
        if (end == at || *at == '-' || n < 1 || n > SERVE_STREAMS_MOST || (*end && *end != ','))
            break;
        w->streams[w->nstreams++] = n;
        at = end + 1;
        if (!*end)
            return CTL_OK;
    }
    return ctl_usage(ctl, "--streams %s: this is a list like 1,4,16, of at most %d numbers from 1 to %d",
                     text, STREAMS_LISTED, SERVE_STREAMS_MOST);
}

static void read_numbers(struct serve_wanted *w, const struct ctl *ctl)
{
    struct serve_plan *p = &w->plan;
    w->prompt = (size_t)opts_int(ctl->opts, "prompt-tokens");
    w->tokens = (size_t)opts_int(ctl->opts, "max-tokens");
    w->slices = (size_t)opts_int(ctl->opts, "tp");
    w->gathered = opts_float(ctl->opts, "gather-fwd");
    w->vocab = (size_t)opts_int(ctl->opts, "vocab");
    w->nodes = opts_is_set(ctl->opts, "nodes") || !p->limits.ranks ? (size_t)opts_int(ctl->opts, "nodes")
                                                                   : p->limits.ranks;
    w->most_nodes = opts_is_set(ctl->opts, "scale-to") ? (size_t)opts_int(ctl->opts, "scale-to") : w->nodes;
    w->hop[0] = opts_float(ctl->opts, "latency-us") * US;
    w->hop[1] = 8 / (opts_float(ctl->opts, "link-gbps") * 1e9);
    w->is_forced = opts_is_set(ctl->opts, "latency-us") || opts_is_set(ctl->opts, "link-gbps");
    if (opts_is_set(ctl->opts, "token-us")) {
        p->choice = opts_float(ctl->opts, "token-us") * US;
        p->text = 0;
    }
    if (opts_is_set(ctl->opts, "max-num-seqs"))
        p->limits.seqs = (size_t)opts_int(ctl->opts, "max-num-seqs");
    if (opts_is_set(ctl->opts, "prefill-step-size"))
        p->limits.prompt = (size_t)opts_int(ctl->opts, "prefill-step-size");
}

static int read_wanted(struct serve_wanted *w, const struct ctl *ctl)
{
    const bool has_plan = opts_is_set(ctl->opts, "plan"), has_rows = opts_is_set(ctl->opts, "row-ms");
    if (has_plan == has_rows)
        return ctl_usage(ctl, has_plan
                                  ? "--plan and --row-ms both say what rows take: leave one out"
                                  : "--serve needs what rows take: --plan FILE with what `ringctl plan serve "
                                    "--model DIR --json` printed, or --row-ms");
    int rc = has_plan ? plan_of_file(&w->plan, opts_str(ctl->opts, "plan")) : plan_of_options(&w->plan, ctl);
    if (!rc)
        rc = read_streams(w, ctl);
    if (rc)
        return rc;
    read_numbers(w, ctl);
    if (w->nodes % w->slices)
        return ctl_usage(ctl, "--tp %zu does not divide %zu nodes: each stage has as many nodes", w->slices,
                         w->nodes);
    return w->most_nodes < w->nodes
               ? ctl_usage(ctl, "--scale-to %zu is below the %zu nodes of the first ring", w->most_nodes,
                           w->nodes)
               : CTL_OK;
}

/* --- what is printed -------------------------------------------------------------------------- */

/* Of one ring and a number of streams. */
struct serve_row {
    const struct serve_wanted *w;
    const struct serve_forecast *f;
    size_t streams;
    double of_one; /* tokens a second, against one stream on the first ring */
};

static size_t nodes_of(const struct serve_row *r)
{
    return r->f->nodes * r->w->slices;
}

struct serve_shown {
    struct table *table; /* owned, NULL: CSV or JSON */
    json_t *rows;        /* owned, of JSON */
};

static json_t *shares(const double *x, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(x[i]));
    return list;
}

static double least_of(const double *x, size_t n)
{
    double least = INFINITY;
    for (size_t i = 0; i < n; i++)
        least = fmin(least, x[i]);
    return least;
}

static double most_of(const double *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, x[i]);
    return most;
}

/* "97 95 %", of many nodes "90-97 %". */
static void busy_text(char *ret, size_t size, const double *x, size_t n)
{
    int at = 0;
    for (size_t i = 0; i < n && n <= NODES_SHOWN; i++)
        at += snprintf(ret + at, size - (size_t)at, "%.0f ", 100 * x[i]);
    if (n > NODES_SHOWN)
        at = snprintf(ret, size, "%.0f-%.0f ", 100 * least_of(x, n), 100 * most_of(x, n));
    snprintf(ret + at, size - (size_t)at, "%%");
}

static void add_table_row(struct table *t, const struct serve_row *r)
{
    const struct serve_forecast *f = r->f;
    char nodes[80], cables[80] = "-";
    busy_text(nodes, sizeof nodes, f->busy, f->nodes); /* of those that share a stage, one */
    if (f->nodes > 1)
        busy_text(cables, sizeof cables, f->cable, f->nodes);
    table_add(t, "%zu\t%zu\t%.4g\t%.4g\t%.2f\t%.4g ms\t%.4g ms\t%.4g ms\t%.4g ms\t%s\t%s", nodes_of(r),
              r->streams, f->tokens_per_second, f->tokens_per_second / (double)r->streams, r->of_one,
              f->first / MS, f->first_most / MS, f->gap / MS, f->gap_p99 / MS, nodes, cables);
}

static json_t *describe(const struct serve_row *r)
{
    const struct serve_forecast *f = r->f;
    return json_pack("{s:I s:I s:I s:f s:f s:f s:f s:f s:f s:f s:f s:o s:o}", "nodes",
                     (json_int_t)nodes_of(r), "tp", (json_int_t)r->w->slices, "streams",
                     (json_int_t)r->streams, "seconds", f->seconds, "tokens_per_second", f->tokens_per_second,
                     "per_stream", f->tokens_per_second / (double)r->streams, "of_one", r->of_one,
                     "first_token_seconds", f->first, "last_first_token_seconds", f->first_most,
                     "gap_seconds", f->gap, "gap_p99_seconds", f->gap_p99, "node_busy",
                     shares(f->busy, f->nodes), "cable_busy", shares(f->cable, f->nodes));
}

static void show(struct serve_shown *s, const struct serve_row *r)
{
    const struct serve_forecast *f = r->f;
    if (s->table)
        add_table_row(s->table, r);
    else if (s->rows)
        json_array_append_new(s->rows, describe(r));
    else
        printf("%zu,%zu,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.4f,%.4f,%.4f\n", nodes_of(r), r->streams,
               f->tokens_per_second, f->tokens_per_second / (double)r->streams, r->of_one, f->first,
               f->first_most, f->gap, f->gap_p99, least_of(f->busy, f->nodes), most_of(f->busy, f->nodes),
               most_of(f->cable, f->nodes));
}

static struct serve_shown begin(const struct ctl *ctl, const struct serve_wanted *w)
{
    struct serve_shown s = {0};
    if (ctl->json) {
        s.rows = json_array();
    } else if (opts_flag(ctl->opts, "csv")) {
        puts("nodes,streams,tokens_per_second,per_stream,of_one,first_token_seconds,last_first_token_seconds,"
             "gap_seconds,gap_p99_seconds,node_busy_least,node_busy_most,cable_busy_most");
    } else {
        printf("%zu layers; prompts of %zu tokens, answers of %zu, all asked for at once\n", w->plan.layers,
               w->prompt, w->tokens);
        if (w->slices > 1)
            printf("%zu nodes share each stage\n", w->slices);
        s.table =
            table_new("NODES\tSTREAMS\tTOKENS/S\tEACH\tOF ONE\tFIRST TOKEN\tLAST OF THEM\tGAP\tGAP P99\t"
                      "NODES BUSY\tCABLES BUSY");
    }
    return s;
}

static void end(const struct serve_wanted *w, struct serve_shown *s, bool is_whole)
{
    if (s->table)
        table_print_free(s->table, stdout);
    if (s->rows && is_whole) {
        json_t *json = json_pack("{s:I s:I s:I s:O}", "layers", (json_int_t)w->plan.layers, "prompt_tokens",
                                 (json_int_t)w->prompt, "max_tokens", (json_int_t)w->tokens, "rows", s->rows);
        print_json(json);
        json_decref(json);
    }
    json_decref(s->rows);
}

/* --- all of it -------------------------------------------------------------------------------- */

static int ring_of(struct serve_ring *ret, const struct serve_wanted *w, size_t nodes)
{
    struct err err;
    const size_t places = nodes / w->slices;
    if (serve_plan_ring(ret, &w->plan, places, w->hop, &err))
        return ctl_fail(CTL_FAILED, "%zu nodes: %s", nodes, err.text);
    for (size_t n = 0; n < places && w->is_forced; n++) {
        ret->stage[n].hop = w->hop[0];
        ret->stage[n].hop_byte = w->hop[1];
    }
    const bool has_cables = w->plan.limits.ranks > 1 && !w->is_forced;
    serve_ring_share(ret, &(struct serve_sharing){.slices = w->slices,
                                                  .layer_bytes = w->gathered * ret->row_bytes,
                                                  .score_bytes = (double)w->vocab * sizeof(float),
                                                  .once = w->hop[0],
                                                  .byte = has_cables ? w->plan.hop[0][1] : w->hop[1]});
    ret->prompt = w->prompt;
    ret->tokens = w->tokens;
    return CTL_OK;
}

static int forecast_of(struct serve_forecast *ret, struct serve_ring *ring, size_t streams)
{
    struct err err;
    ring->streams = streams;
    return serve_forecast_make(ret, ring, &err) ? ctl_fail(CTL_FAILED, "%s", err.text) : CTL_OK;
}

/* One stream alone: what others are held against. */
static int one_stream(double *ret, const struct serve_wanted *w)
{
    struct serve_ring ring = {0};
    struct serve_forecast f;
    int rc = ring_of(&ring, w, w->nodes);
    if (!rc)
        rc = forecast_of(&f, &ring, 1);
    free(ring.stage);
    if (rc)
        return rc;
    *ret = f.tokens_per_second;
    serve_forecast_done(&f);
    return CTL_OK;
}

static int one_ring(struct serve_shown *s, const struct serve_wanted *w, size_t nodes, double one)
{
    struct serve_ring ring = {0};
    int rc = ring_of(&ring, w, nodes);
    for (size_t i = 0; i < w->nstreams && !rc; i++) {
        struct serve_forecast f;
        rc = forecast_of(&f, &ring, w->streams[i]);
        if (rc)
            break;
        show(s, &(struct serve_row){w, &f, w->streams[i], f.tokens_per_second / one});
        serve_forecast_done(&f);
    }
    free(ring.stage);
    return rc;
}

int simulate_serve(const struct ctl *ctl)
{
    struct serve_wanted w = {0};
    double one = 0;
    int rc = read_wanted(&w, ctl);
    if (!rc)
        rc = one_stream(&one, &w);
    if (!rc) {
        struct serve_shown shown = begin(ctl, &w);
        for (size_t nodes = w.nodes; nodes <= w.most_nodes && !rc; nodes *= 2)
            rc = one_ring(&shown, &w, nodes, one);
        end(&w, &shown, !rc);
    }
    serve_plan_done(&w.plan);
    return rc;
}
