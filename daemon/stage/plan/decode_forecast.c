/* SPDX-License-Identifier: MIT
 *
 * Owns nothing beyond a call. */
#include "daemon/stage/plan/decode_forecast.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "daemon/stage/plan/cost_table.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/plan/stage_replicas.h"

enum { TIMED_TOKENS = 512, PIECE = 0, TOKEN = 1, KINDS = 2 };

struct decode_forecast {
    struct head *h;
    struct cost_table *timed; /* owned */
    size_t kinds; /* that are timed of each unit: of a scoring only a piece, of a text or a row of data */
    double tokens, pieces, rows;          /* of a piece or row; of the prompt; of a scoring */
    double cost[KINDS][JOB_MAX_STAGES];   /* seconds */
    double mapping[JOB_MAX_STAGES];       /* of a generation: what the first piece takes longer than others */
    double hop[KINDS][JOB_MAX_STAGES];    /* from a stage to the next, of the last to the first */
    struct slice_traffic gathered[KINDS]; /* of all stages, where nodes share them, */
    double gathering[KINDS];              /* and seconds that takes, which cost has too */
};

/* --- what is timed ---------------------------------------------------------------------------- */

static void sizes(struct decode_forecast *o)
{
    const struct head *h = o->h;
    const double tokens = (double)h->nids;
    o->kinds = h->plan.type == JOB_GENERATE ? KINDS : 1;
    o->rows = h->train.data ? (double)data_rows(h->train.data) : 1;
    o->pieces = h->plan.kv_blocks ? ceil(tokens / (double)h->plan.tokens)
                : h->plan.kv      ? (double)h->plan.microbatches
                                  : 1;
    o->tokens = h->train.data ? (double)data_counts(h->train.data).tokens / o->rows : tokens / o->pieces;
    o->tokens = fmax(o->tokens, 1);
}

/* A piece from the middle of the prompt, a token from the middle of the answer: what is behind them
 * costs, too. */
static struct unit_want want(const struct decode_forecast *o, size_t unit, size_t kind)
{
    const struct job_plan *p = &o->h->plan;
    const size_t timed = (size_t)fmin(fmin(round(o->tokens), (double)p->tokens), TIMED_TOKENS),
                 prompt = o->h->nids;
    const size_t before = kind == TOKEN    ? (prompt + p->positions) / 2
                          : prompt > timed ? (prompt - timed) / 2
                                           : 0;
    return (struct unit_want){.unit = unit,
                              .tokens = kind == TOKEN ? 1 : timed,
                              .seqs = 1,
                              .at = !p->kv                  ? 0
                                    : before < p->positions ? before
                                                            : p->positions - 1,
                              .needed = true};
}

/* Nodes that share a stage are as fast as the slowest of them. */
static struct sched_cost slowest_cost(const struct decode_forecast *o, size_t stage, size_t at)
{
    const struct job_plan *p = &o->h->plan;
    struct sched_cost most = {0};
    for (size_t d = 0; d < job_plan_pipelines(p); d++) {
        const struct sched_cost c = cost_table_cost(o->timed, job_plan_rank_at(p, d, stage), at);
        most.f = fmax(most.f, c.f);
        most.r = fmax(most.r, c.r);
    }
    return most;
}

/* Over the slowest cable between two of them. */
static double gather_cost(struct decode_forecast *o, size_t stage, size_t unit, size_t kind)
{
    const struct job_plan *p = &o->h->plan;
    const struct slice_traffic all = slices_traffic(p, &o->h->config, unit, kind == PIECE ? o->tokens : 1);
    double most = 0;
    for (size_t d = 0; d < p->slices && all.times > 0; d++)
        for (size_t other = 0; other < p->slices; other++)
            if (other != d) {
                const struct gather_way way = cost_table_gather(o->timed, job_plan_rank_at(p, d, stage),
                                                                job_plan_rank_at(p, other, stage));
                most = fmax(most, gather_way_seconds(&way, all.bytes / all.times));
            }
    o->gathered[kind].times += all.times;
    o->gathered[kind].bytes += all.bytes;
    o->gathering[kind] += all.times * most;
    return all.times * most;
}

static int look(struct decode_forecast *o, struct err *err)
{
    const size_t units = o->h->config.layers + 2;
    size_t *place = calloc(units, sizeof *place);
    o->timed = cost_table_new(o->h);
    int e = place && o->timed ? 0 : err_set(err, -ENOMEM, "out of memory");
    for (size_t u = 0; u < units && !e; u++) {
        struct unit_list *list = &o->timed->list;
        const size_t same = cost_table_like(o->h, u, 0);
        place[u] = same == u ? list->n : place[same];
        if (same == u && list->n + o->kinds > UNITS_MOST)
            e = err_set(err, -E2BIG, "its layers are of too many kinds");
        for (size_t k = 0; k < o->kinds && same == u && !e; k++)
            list->at[list->n++] = want(o, u, k);
    }
    if (!e)
        e = cost_table_take(o->timed, err);
    for (size_t s = 0; s < o->h->plan.stages && !e; s++) {
        const struct job_plan *p = &o->h->plan;
        const size_t from = s ? p->first[s] + 1 : 0, to = s + 1 < p->stages ? p->first[s + 1] + 1 : units;
        for (size_t u = from; u < to; u++) {
            const struct sched_cost piece = slowest_cost(o, s, place[u]);
            o->mapping[s] += p->kv ? fmax(piece.r - piece.f, 0) : 0;
            for (size_t k = 0; k < o->kinds; k++)
                o->cost[k][s] +=
                    slowest_cost(o, s, place[u] + k).f *
                        (k == PIECE ? o->tokens / (double)o->timed->list.at[place[u]].tokens : 1) +
                    gather_cost(o, s, u, k);
        }
    }
    free(place);
    return e;
}

static void look_hops(struct decode_forecast *o)
{
    const struct job_plan *p = &o->h->plan;
    for (size_t s = 0; s < p->stages && p->ranks > 1; s++)
        for (size_t k = 0; k < o->kinds; k++) {
            const size_t next = (s + 1) % p->stages;
            const double bytes = next ? (k == PIECE ? o->tokens : 1) * (double)p->dim * 4 : 8;
            const struct sched_link link =
                cost_table_link(o->timed, job_plan_rank_at(p, 0, s), job_plan_rank_at(p, 0, next), bytes);
            o->hop[k][s] = link.transfer + link.latency;
        }
}

/* --- what follows ----------------------------------------------------------------------------- */

/* `n` in a row through all stages: the first all the way, the others as fast as the slowest stage
 * lets them. */
static double through(const struct decode_forecast *o, size_t kind, double n)
{
    double all = 0, slowest = 0;
    for (size_t s = 0; s < o->h->plan.stages; s++) {
        all += o->cost[kind][s] + o->hop[kind][s] + (kind == PIECE ? o->mapping[s] : 0);
        slowest = fmax(slowest, o->cost[kind][s]);
    }
    return all + (n - 1) * slowest;
}

static json_t *caches(const struct head *h, struct err *err)
{
    json_t *list = json_array();
    for (size_t r = 0; r < h->plan.ranks; r++) {
        size_t sum = 0;
        for (size_t s = 0; s < h->plan.stages; s++) {
            const struct stage_spec spec =
                job_plan_stage(&h->plan, &h->config, s, job_plan_pipeline_of(&h->plan, r));
            struct stage_bytes bytes = {0};
            if (job_plan_is_at(&h->plan, s, r) && !stage_measure(&bytes, &spec, err))
                sum += bytes.kv;
        }
        json_array_append_new(list, json_integer((json_int_t)sum));
    }
    return list;
}

static json_t *tell(const struct decode_forecast *o, struct err *err)
{
    const struct head *h = o->h;
    json_t *costs = json_array(), *timed = json_array();
    for (size_t s = 0; s < h->plan.stages; s++) {
        json_t *of = json_array();
        for (size_t k = 0; k < o->kinds; k++)
            json_array_append_new(of, json_real(o->cost[k][s]));
        json_array_append_new(costs, of);
    }
    for (size_t r = 0; r < h->plan.ranks; r++)
        json_array_append_new(timed, json_boolean(o->timed->node[r].any));
    json_t *all = json_pack("{s:o s:o s:o}", "costs", costs, "timed", timed, "kv", caches(h, err)), *more;
    if (h->plan.type == JOB_GENERATE) {
        const double token = through(o, TOKEN, 1);
        more =
            json_pack("{s:I s:f s:f s:f}", "prompt_tokens", (json_int_t)h->nids, "prompt_seconds",
                      through(o, PIECE, o->pieces), "token_seconds", token, "tokens_per_second", 1 / token);
    } else {
        const double group = h->plan.kv ? o->pieces : fmin((double)h->plan.microbatches, o->rows),
                     seconds = through(o, PIECE, group) * ceil(o->rows / group),
                     tokens = o->tokens * o->pieces;
        more = json_pack("{s:I s:f s:f s:f}", "rows", (json_int_t)o->rows, "row_tokens", tokens, "seconds",
                         seconds, "tokens_per_second", o->rows * tokens / seconds);
    }
    json_object_update(all, more);
    json_decref(more);
    if (h->plan.slices)
        json_object_set_new(all, "gather",
                            json_pack("{s:f s:f s:f}", "times", o->gathered[TOKEN].times, "bytes",
                                      o->gathered[TOKEN].bytes, "seconds", o->gathering[TOKEN]));
    return all;
}

void decode_forecast_make(struct head *h)
{
    struct decode_forecast *o = calloc(1, sizeof *o);
    struct err err = {"out of memory"};
    json_decref(h->planning.speed); /* of a try on other nodes */
    h->planning.speed = NULL;
    int e = -ENOMEM;
    if (o) {
        o->h = h;
        sizes(o);
        e = look(o, &err);
    }
    if (!e) {
        look_hops(o);
        cost_table_say(o->timed);
        h->planning.speed = tell(o, &err);
    } else {
        stage_say(h->events, "no forecast of the speed: %s", err.text);
    }
    if (o)
        cost_table_free(o->timed);
    free(o);
}
