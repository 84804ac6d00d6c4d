/* SPDX-License-Identifier: MIT
 *
 * Owns nothing beyond a call. */
#include "daemon/stage/plan/rows_forecast.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/stage/plan/cost_table.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "engine/text/sample.h"
#include "engine/text/tokenizer.h"

enum {
    SIZES_MOST = 8,
    FAR_SEQS = 4,    /* that are timed with positions behind them, */
    FAR_MOST = 1024, /* so many at most */
    FAR_LEAST = 64,  /* fewer say nothing */
    TURNS = 21,
};
/* A token of so many sequences each, a short prompt, and a piece of a long one. */
static const size_t usual_sizes[] = {1, 2, 4, 8, 16, 64};

struct rows_forecast {
    struct head *h;
    struct cost_table *timed; /* owned */
    size_t rows[SIZES_MOST], seqs[SIZES_MOST], nsizes, far;
    size_t *kind; /* owned [layers + 2]: of each unit */
    size_t *unit; /* owned [layers + 2]: the first unit of each kind */
    size_t nkinds;
};

/* --- what is timed ---------------------------------------------------------------------------- */

static void add_size(struct rows_forecast *o, size_t rows, size_t seqs)
{
    o->rows[o->nsizes] = rows;
    o->seqs[o->nsizes++] = seqs;
}

static void sizes(struct rows_forecast *o)
{
    const struct job_plan *p = &o->h->plan;
    const size_t piece = fmin((double)o->h->spec.prefill_step, (double)p->positions);
    for (size_t i = 0; i < sizeof usual_sizes / sizeof *usual_sizes; i++) {
        const size_t n = usual_sizes[i], seqs = n <= 16 ? n : 1;
        if (n <= p->seqs + piece && seqs <= p->seqs && n <= p->positions)
            add_size(o, n, seqs);
    }
    if (piece > o->rows[o->nsizes - 1])
        add_size(o, piece, 1);
    const size_t seqs = FAR_SEQS < p->seqs ? FAR_SEQS : p->seqs, far = p->positions / seqs;
    o->far = far < FAR_LEAST ? 0 : far - 1 < FAR_MOST ? far - 1 : FAR_MOST;
}

static size_t far_seqs(const struct rows_forecast *o)
{
    return FAR_SEQS < o->h->plan.seqs ? FAR_SEQS : o->h->plan.seqs;
}

static size_t wants_of_kind(const struct rows_forecast *o)
{
    return o->nsizes + (o->far > 0);
}

static int find_kinds(struct rows_forecast *o, struct err *err)
{
    const size_t units = o->h->config.layers + 2;
    o->kind = calloc(units, sizeof *o->kind);
    o->unit = calloc(units, sizeof *o->unit);
    if (!o->kind || !o->unit)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t u = 0; u < units; u++) {
        const size_t same = cost_table_like(o->h, u, 0);
        if (same == u)
            o->unit[o->nkinds] = u;
        o->kind[u] = same == u ? o->nkinds++ : o->kind[same];
    }
    return o->nkinds * wants_of_kind(o) <= UNITS_MOST
               ? 0
               : err_set(err, -E2BIG, "its layers are of too many kinds");
}

static int look(struct rows_forecast *o, struct err *err)
{
    int e = find_kinds(o, err);
    o->timed = e ? NULL : cost_table_new(o->h);
    if (!e && !o->timed)
        e = err_set(err, -ENOMEM, "out of memory");
    for (size_t k = 0; k < o->nkinds && !e; k++) {
        struct unit_list *list = &o->timed->list;
        for (size_t i = 0; i < o->nsizes; i++)
            list->at[list->n++] = (struct unit_want){
                .unit = o->unit[k], .tokens = o->rows[i], .seqs = o->seqs[i], .needed = true};
        if (o->far)
            list->at[list->n++] = (struct unit_want){
                .unit = o->unit[k], .tokens = far_seqs(o), .seqs = far_seqs(o), .at = o->far, .needed = true};
    }
    return e ? e : cost_table_take(o->timed, err);
}

static double cost(const struct rows_forecast *o, size_t rank, size_t kind, size_t at)
{
    return cost_table_cost(o->timed, rank, kind * wants_of_kind(o) + at).f;
}

/* A row more costs so much for each position behind it. */
static double position_cost(const struct rows_forecast *o, size_t rank, size_t kind)
{
    const size_t seqs = far_seqs(o);
    size_t near = 0;
    while (near + 1 < o->nsizes && o->rows[near] < seqs)
        near++;
    return o->far && o->rows[near] == seqs
               ? fmax(cost(o, rank, kind, o->nsizes) - cost(o, rank, kind, near), 0) / (double)(seqs * o->far)
               : 0;
}

/* --- what is done for each token -------------------------------------------------------------- */

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Choosing it at temperature 1, by this node: the last rank does that. */
static double choice_cost(const struct rows_forecast *o)
{
    const size_t vocab = o->h->plan.vocab;
    const struct sample_params how = {.temperature = 1, .top_p = 1, .seed = 1};
    float *logits = calloc(vocab, sizeof *logits);
    struct sample_scratch *scratch = calloc(vocab, sizeof *scratch);
    double took[TURNS] = {0};
    for (size_t i = 0; logits && i < vocab; i++)
        logits[i] = (float)(i * 2654435761u % 8191) / 1024;
    for (size_t i = 0; logits && scratch && i < TURNS; i++) {
        const double from = seconds_now();
        sample_token(logits, vocab, &how, i, scratch);
        took[i] = seconds_now() - from;
    }
    free(logits);
    free(scratch);
    qsort(took, TURNS, sizeof *took, by_size);
    return took[TURNS / 2];
}

/* Its text, and telling it: what rank 0 does. */
static double text_cost(const struct rows_forecast *o)
{
    struct tokenizer_stream *stream = NULL;
    struct err quiet;
    double took[TURNS] = {0};
    if (o->h->tok && tokenizer_stream_new(&stream, o->h->tok, false, &quiet))
        return 0;
    for (size_t i = 0; i < TURNS; i++) {
        const uint32_t id = (uint32_t)(i * 7919 % o->h->plan.vocab);
        const char *text = "";
        size_t n = 0;
        const double from = seconds_now();
        if (stream && tokenizer_stream_push(stream, id, &text, &n))
            n = 0;
        json_t *token =
            json_pack("{s:i s:i s:i s:s%}", "id", 1, "choice", 0, "token", (int)id, "text", text, n);
        char *line = json_dumps(token, JSON_COMPACT);
        took[i] = seconds_now() - from;
        free(line);
        json_decref(token);
    }
    tokenizer_stream_free(stream);
    qsort(took, TURNS, sizeof *took, by_size);
    return took[TURNS / 2];
}

/* --- what is told ----------------------------------------------------------------------------- */

static json_t *seconds_of(const struct rows_forecast *o, size_t rank, size_t kind)
{
    json_t *list = json_array();
    for (size_t i = 0; i < o->nsizes; i++)
        json_array_append_new(list, json_real(cost(o, rank, kind, i)));
    return list;
}

/* To the next rank: seconds of a message without bytes, and of each byte. */
static json_t *hop_of(const struct rows_forecast *o, size_t rank)
{
    const double many = 1 << 20;
    const uint32_t from = o->h->plan.place[rank], to = o->h->plan.place[(rank + 1) % o->h->plan.ranks];
    const struct sched_link empty = cost_table_link(o->timed, from, to, 0),
                            full = cost_table_link(o->timed, from, to, many);
    return json_pack("[f,f]", empty.transfer + empty.latency, (full.transfer - empty.transfer) / many);
}

static json_t *caches(const struct head *h)
{
    json_t *list = json_array();
    for (size_t r = 0; r < h->plan.ranks; r++) {
        const struct stage_spec spec = job_plan_stage(&h->plan, &h->config, r, 0);
        struct stage_bytes bytes = {0};
        struct err quiet;
        json_array_append_new(list,
                              json_integer(stage_measure(&bytes, &spec, &quiet) ? 0 : (json_int_t)bytes.kv));
    }
    return list;
}

static double alone(const struct rows_forecast *o)
{
    const struct job_plan *p = &o->h->plan;
    double token = 0;
    for (size_t r = 0; r < p->ranks; r++)
        for (size_t u = 0; u < o->h->config.layers + 2; u++)
            if (job_plan_stage_of_unit(p, u) == r)
                token += cost(o, p->place[r], o->kind[u], 0);
    for (size_t r = 0; r < p->ranks && p->ranks > 1; r++) {
        const struct sched_link hop = cost_table_link(o->timed, p->place[r], p->place[(r + 1) % p->ranks],
                                                      (double)p->dim * sizeof(float));
        token += hop.transfer + hop.latency;
    }
    return token;
}

static json_t *tell(const struct rows_forecast *o)
{
    const struct job_plan *p = &o->h->plan;
    json_t *rows = json_array(), *seqs = json_array(), *kinds = json_array(), *seconds = json_array(),
           *positions = json_array(), *hops = json_array(), *timed = json_array();
    for (size_t i = 0; i < o->nsizes; i++) {
        json_array_append_new(rows, json_integer((json_int_t)o->rows[i]));
        json_array_append_new(seqs, json_integer((json_int_t)o->seqs[i]));
    }
    for (size_t u = 0; u < o->h->config.layers + 2; u++)
        json_array_append_new(kinds, json_integer((json_int_t)o->kind[u]));
    for (size_t r = 0; r < p->ranks; r++) {
        json_t *of_kind = json_array(), *behind = json_array();
        for (size_t k = 0; k < o->nkinds; k++) {
            json_array_append_new(of_kind, seconds_of(o, p->place[r], k));
            json_array_append_new(behind, json_real(position_cost(o, p->place[r], k)));
        }
        json_array_append_new(seconds, of_kind);
        json_array_append_new(positions, behind);
        json_array_append_new(timed, json_boolean(o->timed->node[r].any));
        if (p->ranks > 1)
            json_array_append_new(hops, hop_of(o, r));
    }
    const double choice = choice_cost(o), text = text_cost(o), token = alone(o) + choice + text;
    return json_pack("{s:o s:o s:f s:i s:i s:o s:o s:o s:o s:o s:o s:f s:f}", "kv", caches(o->h), "timed",
                     timed, "tokens_per_second", 1 / token, "max_num_seqs", (int)p->seqs, "prefill_step_size",
                     (int)o->h->spec.prefill_step, "rows", rows, "row_seqs", seqs, "unit_kinds", kinds,
                     "row_seconds", seconds, "position_seconds", positions, "hops", hops, "choice_seconds",
                     choice, "text_seconds", text);
}

void rows_forecast_make(struct head *h)
{
    struct rows_forecast o = {.h = h};
    struct err err = {""};
    sizes(&o);
    if (look(&o, &err)) {
        stage_say(h->events, "no forecast of the speed: %s", err.text);
    } else {
        cost_table_say(o.timed);
        h->planning.speed = tell(&o);
    }
    cost_table_free(o.timed);
    free(o.kind);
    free(o.unit);
}
