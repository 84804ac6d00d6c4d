/* SPDX-License-Identifier: MIT */
#include "daemon/common/job_plan.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "engine/file/weights.h"
#include "engine/num/sum_tree.h"
#include "engine/pipe/split.h"

const struct field_choice job_computes[] = {
    {"f32", NUM_F32}, {"bf16", NUM_BF16}, {"int8", NUM_INT8}, {NULL, 0}};

const struct field_choice job_kv_types[] = {{"f32", KV_F32}, {"bf16", KV_BF16}, {"int8", KV_INT8}, {NULL, 0}};

const struct field_choice job_losses[] = {
    {"nll", LOSS_NLL}, {"dpo", LOSS_DPO}, {"orpo", LOSS_ORPO}, {NULL, 0}};

const struct field_choice job_lora_inits[] = {{"uniform", LORA_INIT_UNIFORM},
                                              {"gaussian", LORA_INIT_GAUSSIAN},
                                              {"orthogonal", LORA_INIT_ORTHOGONAL},
                                              {"pissa", LORA_INIT_PISSA},
                                              {NULL, 0}};

/* Every field is required: all nodes run the same ringd. */
#define ROW_OF(use, name, type, ...)                                                                         \
    {                                                                                                        \
        name, type, use, __VA_ARGS__, .missing = ""                                                          \
    }
#define ROW(...) ROW_OF(0, __VA_ARGS__)
#define SENT(...) ROW_OF(JOB_PLAN_SENT, __VA_ARGS__)
#define SHOWN(name, type, ...) ROW_OF(JOB_PLAN_SHOWN, name, type, BY_HAND, __VA_ARGS__)
#define AT(member) FIELD_AT(struct job_plan, member)
#define OF_TUNE(member) FIELD_AT(struct tune, member)
#define BY_HAND 0, 0 /* a list or an object: decoded below */
/* One number for each of `of`, and `plus` more. */
#define NUMBERS(member, most, of, plus)                                                                      \
    FIELD_WHOLES, AT(member), 0, most, .item = sizeof *((struct job_plan *)NULL)->member,                    \
                                       .count = offsetof(struct job_plan, of), .more = plus

static const struct field tune_rows[] = {
    ROW("forms", FIELD_LIST, BY_HAND, .items = "array",
        .doc = "pairs of rank and alpha, where an adapter differs by layer"),
    ROW("form", FIELD_LIST, BY_HAND, .items = "string",
        .doc = "with `forms`, for each target two hexadecimal digits a layer: 0 no factors, k + 1 form k"),
    ROW("kind", FIELD_WHOLE, OF_TUNE(kind), .min = TUNE_NONE, .max = TUNE_FULL,
        .doc = "0 nothing, 1 LoRA, 2 all"),
    ROW("rank", FIELD_WHOLE, OF_TUNE(rank), .min = 0, .max = 65536,
        .doc = "of the factors, at least 1 of LoRA"),
    ROW("alpha", FIELD_NUMBER, OF_TUNE(alpha), .min = 0, .max = FLT_MAX, .doc = "scales their product"),
    ROW("dropout", FIELD_NUMBER, OF_TUNE(dropout), .min = 0, .max = 1,
        .doc = "share of inputs that training drops"),
    ROW("rslora", FIELD_FLAG, OF_TUNE(rslora), .doc = "scaled by alpha / √rank, not alpha / rank"),
    ROW("init", FIELD_CHOICE, OF_TUNE(init), .choices = job_lora_inits, .doc = "what the factors begin with"),
    ROW("plus_ratio", FIELD_NUMBER, OF_TUNE(plus_ratio), .min = 0, .max = DBL_MAX,
        .doc = "how much faster B learns than A; 0 counts as 1"),
    ROW("dora", FIELD_FLAG, OF_TUNE(dora), .doc = "with a magnitude for each output"),
    ROW("fixed", FIELD_WHOLE, OF_TUNE(fixed), .min = 0, .max = 65536,
        .doc = "so many of the last of the rank are never updated"),
    ROW("layer_decay", FIELD_NUMBER, OF_TUNE(layer_decay), .min = 0, .max = 1,
        .doc = "how much slower a layer learns than the one above it; 0 counts as 1"),
    ROW("targets", FIELD_LIST, BY_HAND, .items = "string", .doc = "names of linears, 16 at most"),
    ROW("first_layer", FIELD_WHOLE, OF_TUNE(first_layer), .min = 0, .max = FIELD_ANY,
        .doc = "the first that has LoRA"),
    ROW("end_layer", FIELD_WHOLE, OF_TUNE(end_layer), .min = 0, .max = FIELD_ANY,
        .doc = "the one after the last"),
    ROW("seed", FIELD_WHOLE, OF_TUNE(seed), .min = 0, .max = FIELD_ANY, .doc = "seed of all random choices"),
    ROW("random_init", FIELD_FLAG, OF_TUNE(random_init), .doc = "weights are drawn, not read"),
    {.name = NULL},
};

static const struct field plan_fields[] = {
    ROW("type", FIELD_CHOICE, AT(type), .choices = job_types, .doc = "of the job"),
    ROW("model", FIELD_FIXED, AT(model), .path = FIELD_MODEL, .doc = "a path that is the same on every node"),
    ROW("fingerprint", FIELD_FIXED, AT(fingerprint),
        .doc = "hash of the model's shape; a node whose model has another hash refuses the job"),
    SENT(
        "content", FIELD_FIXED, AT(content),
        .doc =
            "of a model with a name: which files it is, §7.5; a node whose files are others refuses the job"),
    SENT("weights", FIELD_OWNED, AT(weights), .max = WEIGHTS_TEXT_MAX,
         .doc = "hash of the tensors' values, see below; empty with `content`"),
    ROW("first", NUMBERS(first, FIELD_ANY, stages, 1),
        .doc = "stages + 1 numbers: stage s has layers `first[s]` … `first[s+1]` − 1"),
    ROW("places", NUMBERS(place, JOB_MAX_RANKS - 1, stages, 0),
        .doc = "rank of each stage; every rank has a stage, and stage 0 is on rank 0. Of several replicas: "
               "place in its pipeline"),
    ROW("other_places", NUMBERS(others, JOB_MAX_RANKS - 1, nothers, 0),
        .doc = "of several replicas with unlike numbers of ranks: the same of each behind the first, one "
               "after the other; else empty"),
    ROW("shares", NUMBERS(share, SUM_TREE_LEAVES, replicas, 0),
        .doc = "of several replicas: how many of the groups each has; else empty"),
    ROW("slices", FIELD_WHOLE, AT(slices), .min = 0, .max = SLICE_MOST,
        .doc = "how many ranks share the layers of each stage, as replicas of the pipeline "
               "do that each compute a part of every product; 0: each stage has one rank"),
    ROW("groups", FIELD_WHOLE, AT(groups), .min = 0, .max = SUM_TREE_LEAVES,
        .doc = "in how many groups of microbatches gradients are added up; 0 counts as 1"),
    ROW("parts", NUMBERS(parts, PLAN_MAX_PARTS, stages, 0),
        .doc = "by stage: in how many parts its gradients go between replicas"),
    ROW("divided", FIELD_FLAG, AT(divided),
        .doc = "each replica has the moments of a slice of the weights, and updates that slice"),
    ROW("schedule", FIELD_FIXED, AT(schedule), .doc = "name of the schedule; `own` for a custom one"),
    ROW("order", FIELD_OWNED, AT(order), .max = JOB_ORDER_MAX,
        .doc = "the tasks of the user's schedule (docs/SCHEDULES.md); else empty"),
    ROW("microbatches", FIELD_WHOLE, AT(microbatches), .min = 1, .max = FIELD_ANY,
        .doc = "of a training step"),
    ROW("tune", FIELD_OBJECT, BY_HAND, .of = tune_rows, .doc = "the adapter or the weights to train"),
    ROW("training", FIELD_FLAG, AT(training), .doc = "there are backwards"),
    ROW("loss", FIELD_CHOICE, AT(loss), .choices = job_losses,
        .doc = "what training makes small; of dpo and orpo each two sequences of a microbatch are a pair"),
    ROW("copies", FIELD_FLAG, AT(copies), .doc = "after a step ranks keep what is trained in memory, twice"),
    SENT("submitted", FIELD_WHOLE, AT(submitted), .min = 0, .max = FIELD_ANY,
         .doc = "when the job was, in seconds since 1970: copies on disks are of that job"),
    ROW("compute", FIELD_CHOICE, AT(compute), .choices = job_computes,
        .doc = "number type of products with many rows"),
    ROW("kv", FIELD_FLAG, AT(kv), .doc = "whether tasks keep keys and values for the next"),
    ROW("kv_blocks", FIELD_WHOLE, AT(kv_blocks), .min = 0, .max = UINT32_MAX - 1,
        .doc = "of 16 positions each, which the sequences of a job that serves share; else 0"),
    ROW("rings", FIELD_FLAG, AT(rings),
        .doc = "layers with a window keep that of each sequence, and have none of these blocks"),
    ROW("kept_states", FIELD_WHOLE, AT(kept_states), .min = 0, .max = JOB_SERVED_MAX,
        .doc = "of layers with a state: so many of texts that others may begin with"),
    ROW("guesses", FIELD_WHOLE, AT(guesses), .min = 0, .max = JOB_DRAFT_MAX,
        .doc = "positions that the state of a sequence can go back, at most"),
    ROW("kv_type", FIELD_CHOICE, AT(kv_type), .choices = job_kv_types,
        .doc = "number type of keys and values in them"),
    ROW("by_layer", FIELD_FLAG, AT(by_layer), .doc = "layers keep only their inputs"),
    ROW("tokens", FIELD_WHOLE, AT(tokens), .min = 1, .max = FIELD_ANY, .doc = "of a microbatch, at most"),
    ROW("seqs", FIELD_WHOLE, AT(seqs), .min = 1, .max = FIELD_ANY, .doc = "of a microbatch, at most"),
    ROW("positions", FIELD_WHOLE, AT(positions), .min = 1, .max = FIELD_ANY, .doc = "of a sequence, at most"),
    ROW("sample", FIELD_WHOLE, AT(sample), .min = 0, .max = FIELD_ANY,
        .doc = "positions of a sample that a training job writes; 0: none"),
    ROW("weight_bits", FIELD_WHOLE, AT(weight_bits), .min = 0, .max = 8,
        .doc = "8 or 4: weights are quantized; 0: they are not"),
    ROW("vocab", FIELD_WHOLE, AT(vocab), .min = 1, .max = FIELD_ANY, .doc = "of the model"),
    ROW("dim", FIELD_WHOLE, AT(dim), .min = 1, .max = FIELD_ANY, .doc = "of the model"),
    SENT("slots", NUMBERS(slots, FIELD_ANY, stages, 0), .doc = "by stage: microbatches in flight at most"),
    ROW("activations", NUMBERS(activations, FIELD_ANY, stages, 0),
        .doc = "by stage: buffers for kept activations; 0: one for each slot"),
    ROW("bwd_x_only", NUMBERS(bwd_x_only, FIELD_ANY, stages, 0),
        .doc = "by stage: buffers for what only task I reads of a forward"),
    ROW("bwd_w_only", NUMBERS(bwd_w_only, FIELD_ANY, stages, 0),
        .doc = "by stage: buffers for what task I leaves for W"),
    ROW("bytes", NUMBERS(bytes, FIELD_ANY, ranks, 0), .doc = "by rank: the memory it takes"),
    ROW("draft_bytes", FIELD_WHOLE, AT(draft_bytes), .min = 0, .max = FIELD_ANY,
        .doc = "of rank 0, among them: of the draft model of a job that serves; else 0"),
    SENT("mapped", FIELD_LIST, BY_HAND, .items = "integer",
         .doc =
             "by unit (embedding, layers, head): bytes that are mapped from the model's files; empty: none"),
    SENT("tied", FIELD_FLAG, AT(tied), .doc = "the head's matrix is the embedding: its rank maps both"),
    ROW("round_steps", FIELD_WHOLE, AT(round_steps), .min = 1, .max = JOB_MAX_STEPS,
        .doc = "most steps of a round, over all adapters"),
    ROW("more", FIELD_LIST, BY_HAND, .items = "object",
        .doc = "further adapters on the same weights, each as `tune`, when training on the same linears"),
    SHOWN("slots", FIELD_LIST, .items = "integer", .doc = "by rank: of all its stages together"),
    SHOWN("split", FIELD_LIST, .items = "array",
          .doc = "by rank: of each of its stages the first layer, and the one after the last"),
    SHOWN("nodes", FIELD_LIST, .items = "string", .doc = "by rank: the node's name"),
    SHOWN("available", FIELD_LIST, .items = "integer", .doc = "by rank: the memory that the node had for it"),
    {"shared", FIELD_LIST, JOB_PLAN_SHOWN, BY_HAND, .items = "object",
     .doc = "by rank: `bytes` that the stages of other `jobs` on the node had mapped already when it was "
            "planned; missing: none had"},
    {"travel", FIELD_OBJECT, JOB_PLAN_SHOWN, BY_HAND,
     .doc = "of a model with a name: what has to come to its nodes first, and how long that takes "
            "(docs/API.md); missing: nothing has"},
    {"forecast", FIELD_OBJECT, JOB_PLAN_SHOWN, BY_HAND,
     .doc = "of a training job: how long a step takes (docs/API.md)"},
    {"speed", FIELD_OBJECT, JOB_PLAN_SHOWN, BY_HAND,
     .doc = "of other jobs: how long they take (docs/API.md)"},
    {.name = NULL},
};

const struct field *job_plan_fields(void)
{
    return plan_fields;
}

const struct field *job_tune_fields(void)
{
    return tune_rows;
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
    json_t *json = fields_write(t, tune_rows, 0);
    json_object_set_new(json, "forms", forms);
    json_object_set_new(json, "form", form_rows(t));
    json_object_set_new(json, "targets", targets);
    return json;
}

static json_t *more_encode(const struct job_plan *p)
{
    json_t *a = json_array();
    for (size_t i = 0; i < p->nmore; i++)
        json_array_append_new(a, tune_encode(&p->more[i]));
    return a;
}

static json_t *encode_for(const struct job_plan *p, unsigned use)
{
    json_t *json = fields_write(p, plan_fields, use);
    json_object_set_new(json, "tune", tune_encode(&p->tune));
    json_object_set_new(json, "more", more_encode(p));
    return json;
}

json_t *job_plan_encode(const struct job_plan *p)
{
    json_t *json = encode_for(p, JOB_PLAN_SENT), *mapped = json_array();
    for (size_t u = 0; u < p->nmapped; u++)
        json_array_append_new(mapped, json_integer((json_int_t)p->mapped[u]));
    json_object_set_new(json, "mapped", mapped);
    return json;
}

json_t *job_plan_show(const struct job_plan *p)
{
    return encode_for(p, JOB_PLAN_SHOWN);
}

/* Every place has a stage, and the first stage is at the first. */
static bool check_places_at(const uint32_t *place, size_t stages, size_t places)
{
    bool used[JOB_MAX_RANKS] = {false};
    for (size_t s = 0; s < stages; s++) {
        if (place[s] >= places)
            return false;
        used[place[s]] = true;
    }
    for (size_t r = 0; r < places; r++)
        if (!used[r])
            return false;
    return place[0] == 0;
}

/* Of replicas with unlike numbers of ranks each rank has a run of stages. */
static bool check_run(const uint32_t *place, size_t stages)
{
    size_t s = 1;
    while (s < stages && place[s] >= place[s - 1])
        s++;
    return s == stages;
}

static bool check_places(const struct job_plan *p)
{
    const struct plan_shape shape = job_plan_shape(p);
    bool is_good = !p->nothers || (p->replicas > 1 && p->nothers == (p->replicas - 1) * p->stages &&
                                   !p->slices && shape.first[p->replicas] == p->ranks);
    for (size_t d = 0; d < shape.pipelines && is_good; d++)
        is_good = check_places_at(shape.place[d], p->stages, plan_shape_places(&shape, d)) &&
                  (!p->nothers || check_run(shape.place[d], p->stages));
    return is_good;
}

/* Moments that are divided are those of one set of weights, and no rank could copy a whole unit of
 * them. */
static bool check_divided(const struct job_plan *p)
{
    return !p->divided || (p->replicas && p->tune.kind == TUNE_FULL && !p->nmore && !p->copies);
}

/* Each replica has groups, and all of them are given out. */
static bool check_shares(const struct job_plan *p)
{
    const bool trains = p->type == JOB_TRAIN;
    if (p->groups > (trains ? p->microbatches : 1) || (!trains && p->replicas) || p->slices == 1 ||
        job_plan_pipelines(p) > PLAN_MAX_REPLICAS || (!p->nothers && p->ranks % job_plan_pipelines(p) != 0))
        return false;
    for (size_t d = 0; d < p->replicas; d++)
        if (!p->share[d])
            return false;
    return !p->replicas || job_plan_first_group(p, p->replicas) == job_plan_groups(p);
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

static bool tune_decode(struct tune *t, const json_t *json, struct err *why)
{
    const json_t *targets = json_object_get(json, "targets");
    *t = (struct tune){0};
    if (fields_read(t, tune_rows, 0, json, why) || t->end_layer < t->first_layer ||
        json_array_size(targets) > TUNE_MAX_TARGETS || t->fixed > t->rank ||
        (t->kind == TUNE_LORA && t->rank < 1))
        return false;
    for (t->ntargets = 0; t->ntargets < json_array_size(targets); t->ntargets++) {
        const char *name = json_string_value(json_array_get(targets, t->ntargets));
        if (!name)
            return false;
        strncat(t->targets[t->ntargets], name, sizeof t->targets[0] - 1);
    }
    return true;
}

/* Those that are trained together lie on the same linears; those that are served need not. */
static bool more_decode(struct job_plan *p, const json_t *list, struct err *why)
{
    p->nmore = json_array_size(list);
    if (p->nmore >= JOB_MAX_ADAPTERS || (p->nmore && p->tune.kind != TUNE_LORA))
        return false;
    for (size_t i = 0; i < p->nmore; i++) {
        struct tune own, *t = &p->more[i];
        if (!tune_decode(&own, json_array_get(list, i), why) || own.kind != TUNE_LORA)
            return false;
        if (p->type == JOB_SERVE) {
            if (!forms_decode(&own, json_array_get(list, i)))
                return false;
            *t = own;
            continue;
        }
        *t = p->tune;
        t->rank = own.rank;
        t->alpha = own.alpha;
        t->dropout = own.dropout;
        t->rslora = own.rslora;
        t->init = own.init;
        t->plus_ratio = own.plus_ratio;
        t->dora = own.dora;
        t->fixed = own.fixed;
        t->layer_decay = own.layer_decay;
        t->seed = own.seed;
    }
    return true;
}

/* No rank maps more than it takes. */
static bool check_mapped(const struct job_plan *p)
{
    size_t left[JOB_MAX_RANKS];
    memcpy(left, p->bytes, sizeof left);
    for (size_t u = 0; u < p->nmapped; u++)
        for (size_t r = 0; r < p->ranks; r++) {
            const size_t bytes = job_plan_maps(p, r, u) ? p->mapped[u] : 0;
            if (bytes > left[r])
                return false;
            left[r] -= bytes;
        }
    return true;
}

static int mapped_decode(struct job_plan *p, const json_t *list, struct err *why)
{
    const size_t n = json_array_size(list);
    if (n && (n < 2 || n - 2 != p->first[p->stages]))
        return -EBADMSG;
    p->mapped = n ? calloc(n, sizeof *p->mapped) : NULL;
    if (n && !p->mapped)
        return err_set(why, -ENOMEM, "out of memory");
    for (; p->nmapped < n; p->nmapped++) {
        const json_t *bytes = json_array_get(list, p->nmapped);
        if (!json_is_integer(bytes) || json_integer_value(bytes) < 0)
            return -EBADMSG;
        p->mapped[p->nmapped] = (size_t)json_integer_value(bytes);
    }
    return check_mapped(p) ? 0 : -EBADMSG;
}

/* Two of the lists say how many ranks and stages there are. */
static bool check_lists(struct job_plan *p, const json_t *json, struct err *why)
{
    p->ranks = json_array_size(json_object_get(json, "bytes"));
    p->stages = json_array_size(json_object_get(json, "places"));
    p->replicas = json_array_size(json_object_get(json, "shares"));
    p->nothers = json_array_size(json_object_get(json, "other_places"));
    return p->ranks >= 1 && (!p->nothers || p->nothers == (p->replicas - 1) * p->stages) &&
           p->replicas <= PLAN_MAX_REPLICAS && check_shares(p) && p->stages >= job_plan_places(p) &&
           check_places(p) && !fields_check_counts(p, plan_fields, JOB_PLAN_SENT, json, why);
}

int job_plan_decode(struct job_plan *ret, const json_t *json, struct err *err)
{
    struct job_plan p = {0};
    struct err why = {"lists of its fields do not fit together"};
    const json_t *tune = json_object_get(json, "tune");
    int r = fields_read(&p, plan_fields, JOB_PLAN_SENT, json, &why);
    if (r || !check_lists(&p, json, &why) || !tune_decode(&p.tune, tune, &why) ||
        !forms_decode(&p.tune, tune) || !more_decode(&p, json_object_get(json, "more"), &why) ||
        !check_divided(&p) || (p.weight_bits != 0 && p.weight_bits != 4 && p.weight_bits != 8) ||
        (r = mapped_decode(&p, json_object_get(json, "mapped"), &why))) {
        job_plan_done(&p);
        return r == -ENOMEM ? err_set(err, r, "%s", why.text)
                            : err_set(err, -EBADMSG,
                                      "the head sent a plan this version cannot read (%s): install the same "
                                      "ringd on all nodes",
                                      why.text);
    }
    *ret = p;
    return 0;
}

void job_plan_done(struct job_plan *p)
{
    free(p->order);
    free(p->weights);
    free(p->mapped);
    p->order = p->weights = NULL;
    p->mapped = NULL;
    p->nmapped = 0;
}

size_t job_plan_stage_of_unit(const struct job_plan *plan, size_t unit)
{
    const size_t last = plan->stages - 1;
    size_t stage = 0;
    if (unit == 0)
        return 0;
    while (stage < last && plan->first[stage + 1] < unit)
        stage++;
    return unit > plan->first[plan->stages] ? last : stage;
}

bool job_plan_maps(const struct job_plan *plan, size_t rank, size_t unit)
{
    return job_plan_is_at(plan, job_plan_stage_of_unit(plan, unit), rank) ||
           (unit == 0 && plan->tied && job_plan_is_at(plan, plan->stages - 1, rank));
}

void job_plan_place_single(struct job_plan *p)
{
    p->nothers = 0;
    p->stages = job_plan_places(p);
    for (uint32_t s = 0; s < p->stages; s++)
        p->place[s] = s;
}

size_t job_plan_states(const struct job_plan *p)
{
    const size_t most = p->seqs * job_plan_places(p); /* microbatches that are under way */
    return most < p->kv_blocks ? most : p->kv_blocks; /* each has a block at least */
}
