/* SPDX-License-Identifier: MIT
 *
 * Owns nothing beyond a call. */
#include "daemon/stage/plan/stage_units.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/cache_dir.h"
#include "daemon/stage/plan/stage_cost.h"
#include "daemon/stage/plan_admit.h"
#include "daemon/stage/plan/stage_memory.h"
#include "daemon/stage/plan/stage_of_plan.h"
#include "daemon/stage/plan/stage_replicas.h"

enum { BUDGET_S = 30 };
static const double LONGEST_S = 1e6; /* of a task: what is more is no time that anybody measured */

struct stage_spec unit_spec(const struct job_plan *p, const struct config *config, size_t unit, size_t tokens,
                            size_t seqs)
{
    const size_t layers = config->layers, layer = unit ? unit - 1 : 0;
    const bool inner = unit >= 1 && unit <= layers;
    return (struct stage_spec){.model_dir = p->model,
                               .config = *config,
                               .tune = p->tune,
                               .first_layer = inner  ? layer
                                              : unit ? layers
                                                     : 0,
                               .end_layer = inner  ? layer + 1
                                            : unit ? layers
                                                   : 0,
                               .embed = unit == 0,
                               .head = unit > layers,
                               .training = p->training,
                               .groups = job_plan_groups(p),
                               .end_group = p->replicas ? p->share[replicas_largest(p)] : 0,
                               .split_backward = p->training,
                               .by_layer = p->by_layer && p->training,
                               .slots = 1,
                               .tokens = tokens,
                               .seqs = seqs,
                               .positions = p->positions,
                               .slice = job_plan_slice(p, 0),
                               .weight_bits = p->weight_bits,
                               .stands_in = true,
                               .pairs = p->loss != LOSS_NLL,
                               .kv = p->kv};
}

/* Of a job that serves: the blocks that its sequences need. */
static size_t blocks_of(const struct unit_want *w)
{
    const size_t each = (w->tokens + w->seqs - 1) / w->seqs;
    return w->seqs * ((w->at + each + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK);
}

/* All together hold what one sequence of the job may hold, but for a block that is begun of each:
 * the node has memory for that. */
static bool has_room(const struct unit_want *w, const struct job_plan *p)
{
    return w->seqs <= JOB_SERVED_MAX && (blocks_of(w) - w->seqs) * STAGE_KV_BLOCK <= p->positions;
}

/* A pool of them, and logits behind each sequence. */
static void with_pool(struct stage_spec *spec, const struct job_plan *p, const struct unit_want *w)
{
    spec->kv_blocks = blocks_of(w);
    spec->states = w->seqs;
    spec->ring_blocks = p->rings ? stage_ring_blocks(&spec->config) : 0;
    spec->kv_type = p->kv_type;
    spec->logit_rows = w->seqs;
}

/* --- timing ----------------------------------------------------------------------------------- */

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* What is timed is a slice alone: for what others would give, its own columns stand in. */
static int gather_alone(void *owner, const struct gather_columns *c, struct err *err)
{
    (void)owner;
    (void)err;
    const size_t own = c->first[1];
    for (size_t row = 0; row < c->rows && c->own != c->to; row++)
        for (size_t at = 0; at < c->width && own; at += own)
            memcpy(c->to + row * c->width + at, c->own + row * own,
                   (c->width - at < own ? c->width - at : own) * sizeof *c->to);
    return 0;
}

int units_time(struct sched_cost *ret, bool *ret_have, const struct unit_list *list,
               const struct job_plan *plan, const struct config *config, int threads, bool may_time,
               struct err *err)
{
    char dir[4096];
    struct err quiet;
    struct num *num = NULL;
    const struct gather alone = {job_plan_slice(plan, 0), gather_alone, NULL};
    const double began = seconds_now();
    const bool cached = !cache_dir(dir, sizeof dir, "weights", &quiet);
    int e = num_new(&num, threads, err), last = e;
    if (num)
        num_set_compute(num, job_plan_compute(plan));
    for (size_t i = 0; i < list->n; i++) {
        const struct unit_want *w = &list->at[i];
        struct unit_trial trial = {
            .spec = unit_spec(plan, config, w->unit, w->tokens, w->seqs), .at = w->at, .trained = w->trained};
        const bool in_time = w->needed || seconds_now() - began < BUDGET_S;
        trial.spec.cache_dir = cached ? dir : NULL;
        trial.spec.gather = &alone;
        if (plan->kv_blocks)
            with_pool(&trial.spec, plan, w);
        ret_have[i] = false;
        if (!num)
            continue;
        e = unit_cost(&ret[i], num, &trial, plan->fingerprint, may_time && in_time, err);
        ret_have[i] = !e;
        last = e && in_time ? e : last;
    }
    num_free(num);
    return last;
}

/* --- the question and its answer -------------------------------------------------------------- */

/* A plan that any node can read: who has which layers is still to be found out. */
static json_t *plan_encode(const struct job_plan *plan)
{
    struct job_plan p = *plan;
    p.replicas = p.groups = 0;
    p.divided = false;
    p.ranks = p.slices ? p.slices : p.ranks; /* as many as share a stage */
    job_plan_place_single(&p);
    memset(p.first, 0, sizeof p.first);
    memset(p.bytes, 0, sizeof p.bytes);
    p.order = NULL;
    p.nmapped = 0;
    p.nmore = 0;
    p.microbatches = 1;
    return job_plan_encode(&p);
}

json_t *units_encode(const struct unit_list *list, const struct job_plan *plan)
{
    json_t *units = json_array();
    for (size_t i = 0; i < list->n; i++) {
        const struct unit_want *w = &list->at[i];
        json_array_append_new(units,
                              json_pack("[I,I,I,I,b,b]", (json_int_t)w->unit, (json_int_t)w->tokens,
                                        (json_int_t)w->seqs, (json_int_t)w->at, w->trained, w->needed));
    }
    return json_pack("{s:o s:o}", "plan", plan_encode(plan), "units", units);
}

int units_decode(struct unit_list *list, const json_t *units, const struct job_plan *plan,
                 const struct config *config)
{
    *list = (struct unit_list){.n = json_array_size(units)};
    if (!list->n || list->n > UNITS_MOST)
        return -EBADMSG;
    for (size_t i = 0; i < list->n; i++) {
        json_int_t unit, tokens, seqs, at;
        int trained, needed;
        if (json_unpack(json_array_get(units, i), "[I,I,I,I,b,b]", &unit, &tokens, &seqs, &at, &trained,
                        &needed) ||
            unit < 0 || (size_t)unit > config->layers + 1 || tokens < 1 || tokens > 1 << 20 || seqs < 1 ||
            seqs > tokens || at < 0 || (trained && !plan->training) ||
            (plan->kv && ((size_t)tokens > plan->positions || (size_t)at > plan->positions - (size_t)tokens)))
            return -EBADMSG;
        list->at[i] =
            (struct unit_want){(size_t)unit, (size_t)tokens, (size_t)seqs, (size_t)at, trained, needed};
        if (plan->kv_blocks && !has_room(&list->at[i], plan))
            return -EBADMSG;
    }
    return 0;
}

static json_t *encode_answer(const struct sched_cost *costs, const bool *have, size_t n, const char *why)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, have[i] ? json_pack("[f,f,f,f,f]", costs[i].f, costs[i].i, costs[i].w,
                                                        costs[i].r, costs[i].u)
                                            : json_null());
    return json_pack("{s:o s:s}", "costs", list, "why", why);
}

json_t *units_answer(const json_t *question, int threads, bool may_time)
{
    struct job_plan plan = {0};
    struct config config;
    struct unit_list *list = calloc(1, sizeof *list);
    struct sched_cost costs[UNITS_MOST];
    bool have[UNITS_MOST] = {false};
    struct err err = {""};
    int e = list ? job_plan_decode(&plan, json_object_get(question, "plan"), &err)
                 : err_set(&err, -ENOMEM, "out of memory");
    if (!e)
        e = config_read(&config, plan.model, &err);
    if (!e)
        e = job_plan_check_model(&plan, &config, &err);
    if (!e)
        e = plan_admit_model(&plan, &config, &err);
    if (!e)
        e = plan_admit_positions(&plan, &config, memory_of_machine(), &err);
    if (!e && units_decode(list, json_object_get(question, "units"), &plan, &config))
        e = err_set(&err, -EBADMSG,
                    "this version cannot read the head's question: install the same ringd on all nodes");
    if (!e)
        units_time(costs, have, list, &plan, &config, threads, may_time, &err);
    json_t *answer = encode_answer(costs, have, e ? 0 : list->n, err.text);
    job_plan_done(&plan);
    free(list);
    return answer;
}

int units_decode_answer(struct sched_cost *ret, bool *ret_have, size_t n, const json_t *answer)
{
    const json_t *list = json_object_get(answer, "costs");
    memset(ret_have, 0, n * sizeof *ret_have);
    if (json_array_size(list) != n)
        return -EBADMSG;
    for (size_t i = 0; i < n; i++) {
        struct sched_cost c;
        if (json_unpack(json_array_get(list, i), "[F,F,F,F,F]", &c.f, &c.i, &c.w, &c.r, &c.u))
            continue; /* null: it could not be timed */
        ret_have[i] = c.f > 0 && c.i >= 0 && c.w >= 0 && c.r >= 0 && c.u >= 0 &&
                      fmax(fmax(fmax(c.f, c.i), fmax(c.w, c.r)), c.u) <= LONGEST_S;
        ret[i] = c;
    }
    return 0;
}
