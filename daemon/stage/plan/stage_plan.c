/* SPDX-License-Identifier: MIT */
#include "daemon/stage/plan/stage_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/file/weights.h"
#include "engine/pipe/sched.h"
#include "engine/pipe/split.h"

static const char *const type_names[JOB_TYPES] = {"train", "generate", "score"};

const char *job_type_name(enum job_type type)
{
    return type < JOB_TYPES ? type_names[type] : "?";
}

static json_t *sizes(const size_t *at, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(a, json_integer((json_int_t)at[i]));
    return a;
}

/* Each target's forms, layer by layer, as two hexadecimal digits; nothing behind the last layer of
 * the range. */
static json_t *form_rows(const struct tune *t)
{
    json_t *rows = json_array();
    for (size_t i = 0; t->nforms && i < t->ntargets; i++) {
        char row[2 * TUNE_FORM_LAYERS + 1] = "";
        for (size_t l = 0; l < t->end_layer && l < TUNE_FORM_LAYERS; l++)
            snprintf(row + 2 * l, 3, "%02x", t->form[i][l]);
        json_array_append_new(rows, json_string(row));
    }
    return rows;
}

static json_t *tune_encode(const struct tune *t)
{
    json_t *targets = json_array(), *forms = json_array();
    for (size_t i = 0; i < t->ntargets; i++)
        json_array_append_new(targets, json_string(t->targets[i]));
    for (size_t i = 0; i < t->nforms; i++)
        json_array_append_new(forms,
                              json_pack("[I,f]", (json_int_t)t->forms[i].rank, (double)t->forms[i].alpha));
    return json_pack("{s:o s:o s:i s:I s:f s:f s:b s:f s:o s:I s:I s:I s:b}", "forms", forms, "form",
                     form_rows(t), "kind", (int)t->kind, "rank", (json_int_t)t->rank, "alpha",
                     (double)t->alpha, "dropout", (double)t->dropout, "rslora", (int)t->rslora, "plus_ratio",
                     t->plus_ratio, "targets", targets, "first_layer", (json_int_t)t->first_layer,
                     "end_layer", (json_int_t)t->end_layer, "seed", (json_int_t)t->seed, "random_init",
                     (int)t->random_init);
}

static json_t *places(const struct job_plan *p)
{
    json_t *a = json_array();
    for (size_t s = 0; s < p->stages; s++)
        json_array_append_new(a, json_integer(p->place[s]));
    return a;
}

static json_t *more_encode(const struct job_plan *p)
{
    json_t *a = json_array();
    for (size_t i = 0; i < p->nmore; i++)
        json_array_append_new(a, tune_encode(&p->more[i]));
    return a;
}

json_t *job_plan_encode(const struct job_plan *p)
{
    return json_pack(
        "{s:s s:s s:s s:s s:o s:o s:s s:s s:I s:o s:b s:s s:b s:b s:I s:I s:I s:I s:I s:I s:I s:o s:o "
        "s:o s:o s:o s:I s:o}",
        "type", job_type_name(p->type), "model", p->model, "fingerprint", p->fingerprint, "weights",
        p->weights ? p->weights : "", "first", sizes(p->first, p->stages + 1), "places", places(p),
        "schedule", p->schedule, "order", p->order ? p->order : "", "microbatches",
        (json_int_t)p->microbatches, "tune", tune_encode(&p->tune), "training", (int)p->training, "compute",
        num_compute_name(p->compute), "kv", (int)p->kv, "by_layer", (int)p->by_layer, "tokens",
        (json_int_t)p->tokens, "seqs", (json_int_t)p->seqs, "positions", (json_int_t)p->positions, "sample",
        (json_int_t)p->sample, "weight_bits", (json_int_t)p->weight_bits, "vocab", (json_int_t)p->vocab,
        "dim", (json_int_t)p->dim, "slots", sizes(p->slots, p->stages), "areas", sizes(p->areas, p->stages),
        "briefs", sizes(p->briefs, p->stages), "lates", sizes(p->lates, p->stages), "bytes",
        sizes(p->bytes, p->ranks), "round_steps", (json_int_t)p->round_steps, "more", more_encode(p));
}

static bool get_sizes(size_t *ret, size_t n, const json_t *a)
{
    if (json_array_size(a) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        json_int_t v = json_integer_value(json_array_get(a, i));
        if (v < 0)
            return false;
        ret[i] = (size_t)v;
    }
    return true;
}

/* Every rank has a stage, and the first stage is the head's. */
static bool get_places(struct job_plan *p, const json_t *a)
{
    bool used[JOB_MAX_RANKS] = {false};
    for (size_t s = 0; s < p->stages; s++) {
        const json_t *v = json_array_get(a, s);
        json_int_t rank = json_integer_value(v);
        if (!json_is_integer(v) || rank < 0 || rank >= (json_int_t)p->ranks)
            return false;
        p->place[s] = (uint32_t)rank;
        used[rank] = true;
    }
    for (size_t r = 0; r < p->ranks; r++)
        if (!used[r])
            return false;
    return p->place[0] == 0;
}

static bool forms_decode(struct tune *t, const json_t *json)
{
    const json_t *forms = json_object_get(json, "forms"), *rows = json_object_get(json, "form");
    t->nforms = json_array_size(forms);
    if (t->nforms > TUNE_MAX_FORMS || json_array_size(rows) != (t->nforms ? t->ntargets : 0) ||
        (t->nforms && t->end_layer > TUNE_FORM_LAYERS))
        return false;
    for (size_t i = 0; i < t->nforms; i++) {
        const json_t *form = json_array_get(forms, i);
        const json_int_t rank = json_integer_value(json_array_get(form, 0));
        const double alpha = json_number_value(json_array_get(form, 1));
        if (rank < 1 || rank > 65536 || !(alpha > 0))
            return false;
        t->forms[i] = (struct tune_form){(size_t)rank, (float)alpha};
    }
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *row = json_string_value(json_array_get(rows, i));
        if (!row || strlen(row) != 2 * t->end_layer || strspn(row, "0123456789abcdef") != strlen(row))
            return false;
        for (size_t l = 0; l < t->end_layer; l++) {
            unsigned form;
            if (sscanf(row + 2 * l, "%2x", &form) != 1 || form > t->nforms)
                return false;
            t->form[i][l] = (uint8_t)form;
        }
    }
    return true;
}

static bool tune_decode(struct tune *t, const json_t *json)
{
    json_t *targets;
    json_int_t rank, first, end, seed;
    double alpha, dropout, plus_ratio;
    int kind, rslora, random_init;
    if (json_unpack((json_t *)json, "{s:i s:I s:F s:F s:b s:F s:o s:I s:I s:I s:b}", "kind", &kind, "rank",
                    &rank, "alpha", &alpha, "dropout", &dropout, "rslora", &rslora, "plus_ratio", &plus_ratio,
                    "targets", &targets, "first_layer", &first, "end_layer", &end, "seed", &seed,
                    "random_init", &random_init))
        return false;
    if (kind < TUNE_NONE || kind > TUNE_FULL || rank < 0 || rank > 65536 || first < 0 || end < first ||
        json_array_size(targets) > TUNE_MAX_TARGETS || (kind == TUNE_LORA && rank < 1) || !(plus_ratio >= 0))
        return false;
    *t = (struct tune){.kind = (enum tune_kind)kind,
                       .rank = (size_t)rank,
                       .alpha = (float)alpha,
                       .dropout = (float)dropout,
                       .rslora = rslora,
                       .plus_ratio = plus_ratio,
                       .first_layer = (size_t)first,
                       .end_layer = (size_t)end,
                       .seed = (uint64_t)seed,
                       .random_init = random_init};
    for (t->ntargets = 0; t->ntargets < json_array_size(targets); t->ntargets++) {
        const char *name = json_string_value(json_array_get(targets, t->ntargets));
        if (!name)
            return false;
        strncat(t->targets[t->ntargets], name, sizeof t->targets[0] - 1);
    }
    return true;
}

/* Further adapters are put on what the first is put on. */
static bool more_decode(struct job_plan *p, const json_t *list)
{
    p->nmore = json_array_size(list);
    if (!json_is_array(list) || p->nmore >= JOB_MAX_ADAPTERS || (p->nmore && p->tune.kind != TUNE_LORA))
        return false;
    for (size_t i = 0; i < p->nmore; i++) {
        struct tune own, *t = &p->more[i];
        if (!tune_decode(&own, json_array_get(list, i)) || own.kind != TUNE_LORA)
            return false;
        *t = p->tune;
        t->rank = own.rank;
        t->alpha = own.alpha;
        t->dropout = own.dropout;
        t->rslora = own.rslora;
        t->plus_ratio = own.plus_ratio;
        t->seed = own.seed;
    }
    return true;
}

int job_plan_decode(struct job_plan *ret, const json_t *json, struct err *err)
{
    struct job_plan p = {0};
    const char *type, *model, *fingerprint, *weights, *schedule, *order, *compute;
    json_t *first, *place, *tune, *slots, *areas, *briefs, *lates, *bytes, *more;
    json_int_t round_steps, microbatches, tokens, seqs, positions, sample, weight_bits, vocab, dim;
    int training, kv, by_layer;
    json_error_t je;
    if (json_unpack_ex(
            (json_t *)json, &je, 0,
            "{s:s s:s s:s s:s s:o s:o s:s s:s s:I s:o s:b s:s s:b s:b s:I s:I s:I s:I s:I s:I s:I s:o s:o "
            "s:o s:o s:o s:I s:o}",
            "type", &type, "model", &model, "fingerprint", &fingerprint, "weights", &weights, "first", &first,
            "places", &place, "schedule", &schedule, "order", &order, "microbatches", &microbatches, "tune",
            &tune, "training", &training, "compute", &compute, "kv", &kv, "by_layer", &by_layer, "tokens",
            &tokens, "seqs", &seqs, "positions", &positions, "sample", &sample, "weight_bits", &weight_bits,
            "vocab", &vocab, "dim", &dim, "slots", &slots, "areas", &areas, "briefs", &briefs, "lates",
            &lates, "bytes", &bytes, "round_steps", &round_steps, "more", &more))
        return err_set(err, -EBADMSG,
                       "the head sent a plan this version cannot read (%s): same ringd on all nodes?",
                       je.text);
    while (p.type < JOB_TYPES && strcmp(type_names[p.type], type))
        p.type++;
    p.ranks = json_array_size(bytes);
    p.stages = json_array_size(place);
    if (p.type == JOB_TYPES || p.ranks < 1 || p.ranks > JOB_MAX_RANKS || p.stages < p.ranks ||
        p.stages > JOB_MAX_STAGES || !get_places(&p, place) || !get_sizes(p.first, p.stages + 1, first) ||
        !get_sizes(p.slots, p.stages, slots) || !get_sizes(p.areas, p.stages, areas) ||
        !get_sizes(p.briefs, p.stages, briefs) || !get_sizes(p.lates, p.stages, lates) ||
        !get_sizes(p.bytes, p.ranks, bytes) || strlen(order) > JOB_ORDER_MAX ||
        strlen(weights) > WEIGHTS_TEXT_MAX || !tune_decode(&p.tune, tune) || !forms_decode(&p.tune, tune) ||
        !more_decode(&p, more) || num_compute_from_name(compute, &p.compute) || round_steps < 1 ||
        round_steps > JOB_MAX_STEPS || microbatches < 1 ||
        (weight_bits != 0 && weight_bits != 4 && weight_bits != 8) || tokens < 1 || seqs < 1 ||
        positions < 1 || sample < 0 || vocab < 1 || dim < 1)
        return err_set(err, -EBADMSG,
                       "the head sent a plan this version cannot read: same ringd on all nodes?");
    strncat(p.model, model, sizeof p.model - 1);
    strncat(p.fingerprint, fingerprint, sizeof p.fingerprint - 1);
    strncat(p.schedule, schedule, sizeof p.schedule - 1);
    p.microbatches = (size_t)microbatches;
    p.round_steps = (size_t)round_steps;
    p.training = training;
    p.kv = kv;
    p.by_layer = by_layer;
    p.tokens = (size_t)tokens;
    p.seqs = (size_t)seqs;
    p.positions = (size_t)positions;
    p.sample = (size_t)sample;
    p.weight_bits = (size_t)weight_bits;
    p.vocab = (size_t)vocab;
    p.dim = (size_t)dim;
    if ((*order && !(p.order = strdup(order))) || (*weights && !(p.weights = strdup(weights)))) {
        job_plan_done(&p);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret = p;
    return 0;
}

int job_plan_check_model(const struct job_plan *plan, struct err *err)
{
    char mine[33];
    int r = plan->tune.random_init ? 0 : config_fingerprint(mine, plan->model, err);
    if (!r && !plan->tune.random_init && strcmp(mine, plan->fingerprint))
        r = err_set(err, -EINVAL,
                    "the model in %s differs from the head's (fingerprint %.8s, the head's %.8s): "
                    "copy it again",
                    plan->model, mine, plan->fingerprint);
    return r;
}

void job_plan_done(struct job_plan *p)
{
    free(p->order);
    free(p->weights);
    p->order = p->weights = NULL;
}

void job_plan_place_single(struct job_plan *p)
{
    p->stages = p->ranks;
    for (uint32_t s = 0; s < p->stages; s++)
        p->place[s] = s;
}

struct sched_request job_plan_schedule(const struct job_plan *p, size_t microbatches)
{
    return (struct sched_request){.name = p->schedule,
                                  .text = p->order,
                                  .ranks = p->ranks,
                                  .chunks = p->order ? 0 : p->stages / p->ranks,
                                  .microbatches = microbatches};
}

void job_plan_recompute(const struct job_plan *p, bool *ret)
{
    for (size_t s = 0; s < p->stages; s++)
        ret[s] = p->areas[s] > 0;
}

struct stage_spec job_plan_stage(const struct job_plan *p, const struct config *config, size_t stage)
{
    return (struct stage_spec){
        .model_dir = p->model,
        .config = *config,
        .tune = p->tune,
        .more = p->more,
        .nmore = p->nmore,
        .first_layer = p->first[stage],
        .end_layer = p->first[stage + 1],
        .embed = stage == 0,
        .head = stage == p->stages - 1,
        .training = p->training,
        .split_backward = p->training && p->lates[stage] > 0,
        .slots = p->slots[stage],
        .areas = p->areas[stage],
        .briefs = p->briefs[stage],
        .lates = p->lates[stage],
        .by_layer = p->by_layer && p->training,
        .tokens = p->tokens,
        .seqs = p->seqs,
        .positions = p->positions,
        .weight_bits = p->weight_bits,
        .kv = p->kv,
        .sample = p->sample,
    };
}
