/* SPDX-License-Identifier: MIT
 *
 * Planning: from what the user asked, the model's files and what the nodes can do to one plan, or a sentence
 * why not. */
#include "daemon/stage_head.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/ipc.h"
#include "daemon/stage_room.h"
#include "engine/pipe/split.h"

enum { CHUNK = 512 /* positions of a prefill message */ };

void head_event(struct head *h, const char *kind, json_t *fields)
{
    json_object_set_new(fields, "ev", json_string(kind));
    pthread_mutex_lock(&h->sending);
    ipc_send(h->sock, fields);
    pthread_mutex_unlock(&h->sending);
}

static void say(struct head *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct head *h, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    head_event(h, "log", json_pack("{s:s}", "text", text));
}

/* --- inputs ----------------------------------------------------------------------------------- */

static int open_tokenizer(struct head *h, struct err *err)
{
    return h->tok ? 0 : tokenizer_open(&h->tok, h->spec.model, err);
}

static int read_ids(struct head *h, const json_t *list, struct err *err)
{
    h->nids = json_array_size(list);
    h->ids = calloc(h->nids + 1, sizeof *h->ids);
    if (!h->ids)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < h->nids; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || (size_t)id >= h->config.vocab)
            return err_set(err, -ERANGE, "--ids: entry %zu is not a token id below %zu", i + 1,
                           h->config.vocab);
        h->ids[i] = (uint32_t)id;
    }
    return h->nids ? 0 : err_set(err, -EINVAL, "--ids is empty");
}

static int read_text(struct head *h, const char *text, struct err *err)
{
    int r = open_tokenizer(h, err);
    if (!r)
        r = tokenizer_encode(h->tok, text, strlen(text), true, &h->ids, &h->nids, err);
    if (!r && !h->nids)
        r = err_set(err, -EINVAL,
                    "the text is empty and this tokenizer adds nothing: there is nothing to start from");
    return r;
}

static int open_data(struct head *h, struct data **ret, const char *path, const char *split, struct err *err)
{
    /* A set of ready token ids needs no tokenizer, so a model directory without one is no reason to refuse
     * here. */
    struct err quiet;
    open_tokenizer(h, &quiet);
    struct data_request req = {.path = path,
                               .split = split,
                               .tok = h->tok,
                               .seq_len = h->spec.seq_len,
                               .vocab = h->config.vocab,
                               .eos = h->config.neos ? h->config.eos[0] : -1};
    int r = data_open(ret, &req, err);
    if (r)
        return h->tok ? r : err_prefix(err, r, "%s (and no tokenizer: %.200s)", path, quiet.text);
    struct data_counts c = data_counts(*ret);
    say(h,
        "%s: %zu rows, %zu used (%zu without a supervised token dropped, %zu cut to %zu tokens), %zu "
        "tokens, %zu supervised",
        path, c.rows, c.kept, c.unsupervised, c.truncated, h->spec.seq_len, c.tokens, c.supervised);
    return 0;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* --- training --------------------------------------------------------------------------------- */

/* Whoever only asks for a plan finds no new folder afterwards. */
static int check_writable(const char *dir, bool dry_run, struct err *err)
{
    char probe[4096];
    bool is_new = !mkdir(dir, 0777);
    if (!is_new && errno != EEXIST)
        return err_set(err, -errno, "--adapter-out %s cannot be created: %s", dir, strerror(errno));
    snprintf(probe, sizeof probe, "%s/.ringd-XXXXXX", dir);
    int fd = mkstemp(probe);
    if (fd < 0)
        return err_set(err, -errno, "--adapter-out %s cannot be written by the daemon's user (uid %u): %s",
                       dir, getuid(), strerror(errno));
    close(fd);
    unlink(probe);
    if (is_new && dry_run)
        rmdir(dir);
    return 0;
}

static int plan_new_adapter(struct head *h, struct err *err)
{
    const struct job_spec *s = &h->spec;
    struct tune *t = &h->plan.tune;
    tune_last_layers(t, &h->config, s->num_layers);
    int r = s->layers ? tune_layers(t, &h->config, s->layers, err) : 0;
    if (r)
        return err_prefix(err, r, "--layers");
    r = tune_targets(t, h->family, &h->config, s->targets ? s->targets : tune_default_targets(&h->config),
                     err);
    size_t n = 0;
    for (size_t u = 0; !r && u < h->config.layers + 2; u++)
        n += tune_param_count(t, h->family, &h->config, u);
    return r || n ? r
                  : err_set(err, -EINVAL,
                            "layers %zu to %zu have none of the --target-modules: choose other layers",
                            t->first_layer, t->end_layer - 1);
}

static int plan_tune(struct head *h, struct err *err)
{
    struct job_spec *s = &h->spec;
    struct tune *t = &h->plan.tune;
    *t = (struct tune){.kind = s->full ? TUNE_FULL : TUNE_LORA,
                       .rank = s->rank,
                       .alpha = (float)s->alpha,
                       .dropout = (float)s->dropout,
                       .rslora = s->rslora,
                       .plus_ratio = s->plus_ratio,
                       .end_layer = h->config.layers,
                       .seed = s->seed,
                       .random_init = s->random_init};
    int r = 0;
    if (!s->full && s->init_adapter)
        r = adapter_read_config(t, s->init_adapter, h->family, &h->config, err);
    else if (!s->full && s->resume)
        r = adapter_read_config(t, s->adapter_out, h->family, &h->config, err);
    else if (!s->full)
        r = plan_new_adapter(h, err);
    if (!r && s->init_adapter)
        r = adapter_in_open(&h->in, s->init_adapter, t, h->family, &h->config, err);
    if (!r && s->resume)
        r = adapter_in_open_state(&h->in, s->adapter_out, t, h->family, &h->config, &h->first_step, err);
    return r;
}

static int plan_steps(struct head *h, struct err *err)
{
    size_t rows = data_rows(h->train), epochs = h->spec.epochs || h->spec.iters ? h->spec.epochs : 1;
    h->steps = h->spec.iters ? h->spec.iters : (epochs * rows + h->spec.batch - 1) / h->spec.batch;
    if (h->first_step >= h->steps)
        return err_set(err, -EINVAL,
                       "the run in %s has already done %llu steps, and %llu are asked for: raise --iters",
                       h->spec.adapter_out, (unsigned long long)h->first_step, (unsigned long long)h->steps);
    return data_order_new(&h->order, rows, h->spec.shuffle, h->spec.seed, err);
}

static int plan_train(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    p->training = true;
    int r = check_writable(h->spec.adapter_out, h->spec.dry_run, err);
    if (!r)
        r = plan_tune(h, err);
    if (!r)
        r = open_data(h, &h->train, h->spec.data, "train", err);
    if (!r && h->spec.valid)
        r = open_data(h, &h->valid, h->spec.valid, "valid", err);
    if (!r)
        r = plan_steps(h, err);
    if (r)
        return r;
    p->microbatches = (h->spec.batch + h->spec.micro_batch - 1) / h->spec.micro_batch;
    p->positions = larger(data_longest(h->train), h->valid ? data_longest(h->valid) : 0);
    p->seqs = h->spec.micro_batch;
    p->tokens = p->positions * p->seqs;
    snprintf(p->schedule, sizeof p->schedule, "%s", h->spec.schedule);
    return 0;
}

/* --- generation and scoring ------------------------------------------------------------------- */

static int plan_adapter(struct head *h, struct err *err)
{
    if (!h->spec.adapter)
        return 0;
    int r = adapter_read_config(&h->plan.tune, h->spec.adapter, h->family, &h->config, err);
    return r ? r : adapter_in_open(&h->in, h->spec.adapter, &h->plan.tune, h->family, &h->config, err);
}

static int plan_generate(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    int r = h->spec.messages || h->spec.chat ? head_read_chat(h, err)
            : h->spec.ids                    ? read_ids(h, h->spec.ids, err)
                                             : read_text(h, h->spec.prompt, err);
    if (!r && !h->tok) { /* ids in, ids out: text only where there is a tokenizer */
        struct err quiet;
        open_tokenizer(h, &quiet);
    }
    if (!r)
        r = plan_adapter(h, err);
    if (r)
        return r;
    p->kv = true;
    p->positions = h->nids + h->spec.max_tokens;
    p->tokens = h->nids < CHUNK ? h->nids : CHUNK;
    p->microbatches = (h->nids + CHUNK - 1) / CHUNK;
    p->seqs = 1;
    return 0;
}

static int plan_score(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    int r = h->spec.ids    ? read_ids(h, h->spec.ids, err)
            : h->spec.text ? read_text(h, h->spec.text, err)
                           : open_data(h, &h->train, h->spec.data, "test", err);
    if (!r)
        r = plan_adapter(h, err);
    if (!r && !h->train && h->nids < 2)
        r = err_set(err, -EINVAL, "one token alone has no probability to score: give at least two");
    if (r)
        return r;
    p->positions = p->tokens = h->train ? data_longest(h->train) : h->nids;
    p->microbatches = h->train ? 8 : 1;
    p->seqs = 1;
    return 0;
}

/* --- split and memory ------------------------------------------------------------------------- */

/* Most slots any rank can need: all microbatches where the schedule keeps all, else one per rank. Exact once
 * the split is known. */
static size_t slots_guess(const struct job_plan *p)
{
    if (!p->training || !strcmp(p->schedule, "naive"))
        return 1;
    return strcmp(p->schedule, "1f1b") || p->microbatches < p->ranks ? p->microbatches : p->ranks;
}

static int measure_unit(const struct head *h, size_t unit, size_t *ret, struct err *err)
{
    struct job_plan one = h->plan;
    size_t layer = unit ? unit - 1 : 0;
    bool inner = unit >= 1 && unit <= h->config.layers;
    one.ranks = 1;
    one.slots[0] = slots_guess(&h->plan);
    struct stage_spec spec = job_plan_stage(&one, &h->config, 0);
    spec.first_layer = inner ? layer : 0;
    spec.end_layer = inner ? layer + 1 : 0;
    spec.embed = unit == 0;
    spec.head = unit > h->config.layers;
    struct stage_bytes bytes;
    int r = stage_measure(&bytes, &spec, err);
    if (!r)
        *ret = bytes.total;
    return r;
}

struct split_inputs {
    double *cost, speed[JOB_MAX_RANKS];
    size_t *bytes, memory[JOB_MAX_RANKS];
};

static int split_inputs(struct split_inputs *in, const struct head *h, const json_t *nodes, struct err *err)
{
    size_t units = h->config.layers + 2;
    in->cost = calloc(units, sizeof *in->cost);
    in->bytes = calloc(units, sizeof *in->bytes);
    if (!in->cost || !in->bytes)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t r = 0; r < h->plan.ranks; r++) {
        const json_t *node = json_array_get(nodes, r);
        double speed = json_number_value(json_object_get(node, "speed"));
        json_int_t memory = json_integer_value(json_object_get(node, "memory"));
        in->speed[r] = speed > 0 ? speed : 1;
        in->memory[r] = memory > 0 ? (size_t)memory : SIZE_MAX;
    }
    int e = 0;
    for (size_t u = 0; u < units && !e; u++) {
        in->cost[u] = family_cost(h->family, &h->config, u, h->plan.positions);
        e = measure_unit(h, u, &in->bytes[u], err);
    }
    return e;
}

static int find_slots(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    for (size_t r = 0; r < p->ranks; r++)
        p->slots[r] = 1;
    if (!p->training)
        return 0;
    struct sched *sched = NULL;
    struct plan *plan = NULL;
    struct sched_request want = {.name = p->schedule, .ranks = p->ranks, .microbatches = p->microbatches};
    int e = sched_make(&sched, &want, err);
    if (!e && sched->stages > sched->ranks)
        e = err_set(err, -ENOTSUP,
                    "--schedule %s has several stages on each node, which is not run yet: choose another",
                    p->schedule);
    struct plan_request req = {.program = PROGRAM_TRAIN, .sched = sched, .ranks = p->ranks};
    if (!e)
        e = plan_compile(&plan, &req, err);
    for (size_t r = 0; !e && r < p->ranks; r++)
        p->slots[r] = plan->rank[r].slots ? plan->rank[r].slots : 1;
    plan_free(plan);
    sched_free(sched);
    return e;
}

static int check_memory(struct head *h, const json_t *nodes, const struct split_inputs *in, struct err *err)
{
    struct job_plan *p = &h->plan;
    for (size_t r = 0; r < p->ranks; r++) {
        struct stage_spec spec = job_plan_stage(p, &h->config, r);
        struct stage_bytes bytes;
        size_t room;
        int e = stage_measure(&bytes, &spec, err);
        if (!e)
            e = stage_room(&room, p, &h->config, r, (size_t)in->speed[r], err);
        if (e)
            return e;
        p->bytes[r] = bytes.total + room;
        if (p->bytes[r] > in->memory[r])
            return err_set(
                err, -ENOSPC,
                "node %s needs %.2f GiB for layers %zu to %zu and has %.2f GiB: use a smaller --seq-len or "
                "--micro-batch-size, or add a node",
                json_string_value(json_object_get(json_array_get(nodes, r), "name")),
                (double)p->bytes[r] / (1 << 30), p->first[r], p->first[r + 1],
                (double)in->memory[r] / (1 << 30));
    }
    return 0;
}

static int plan_split(struct head *h, const json_t *nodes, struct err *err)
{
    struct split_inputs in = {0};
    int e = split_inputs(&in, h, nodes, err);
    struct split_request req = {.stages = h->plan.ranks,
                                .layers = h->config.layers,
                                .unit_cost = in.cost,
                                .unit_bytes = in.bytes,
                                .speed = in.speed,
                                .memory = in.memory};
    if (!e)
        e = split_layers(h->plan.first, &req, err);
    if (e ==
        -ENOSPC) { /* unit by unit it did not fit: the exact sum, below, names the node, or finds that it does */
        req.memory = NULL;
        e = split_layers(h->plan.first, &req, err);
    }
    if (!e)
        e = split_check(h->plan.first, h->plan.ranks, h->config.layers, err);
    if (!e)
        e = find_slots(h, err);
    if (!e)
        e = check_memory(h, nodes, &in, err);
    free(in.cost);
    free(in.bytes);
    return e;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int plan_model(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    snprintf(p->model, sizeof p->model, "%s", h->spec.model);
    int r = config_read(&h->config, p->model, err);
    if (r)
        return r;
    h->family = family_find(h->config.family);
    if (!h->family)
        return err_set(err, -ENOTSUP, "%s: models of the family \"%s\" are not known here", p->model,
                       h->config.family);
    p->vocab = h->config.vocab;
    p->dim = h->config.dim;
    p->tune.end_layer = h->config.layers;
    return h->spec.random_init ? 0 : config_fingerprint(p->fingerprint, p->model, err);
}

int head_plan(struct head *h, enum job_type type, json_t *spec, const json_t *nodes, struct err *err)
{
    static int (*const plan[JOB_TYPES])(struct head *, struct err *) = {plan_train, plan_generate,
                                                                        plan_score};
    h->json = json_incref(spec);
    h->plan = (struct job_plan){.type = type, .ranks = json_array_size(nodes)};
    if (h->plan.ranks < 1 || h->plan.ranks > JOB_MAX_RANKS)
        return err_set(err, -EINVAL, "a ring of %zu nodes: 1 to %d can share a job", h->plan.ranks,
                       JOB_MAX_RANKS);
    int r = job_spec_read(&h->spec, type, spec, err);
    if (!r)
        r = plan_model(h, err);
    if (!r)
        r = plan[type](h, err);
    return r ? r : plan_split(h, nodes, err);
}

void head_done(struct head *h)
{
    adapter_in_close(h->in);
    data_order_free(h->order);
    data_close(h->train);
    data_close(h->valid);
    tokenizer_close(h->tok);
    free(h->ids);
    json_decref(h->json);
    pthread_mutex_destroy(&h->sending);
}

void head_init(struct head *h, int sock)
{
    *h = (struct head){.sock = sock};
    pthread_mutex_init(&h->sending, NULL);
}

/* --- starting values -------------------------------------------------------------------------- */

static int load_piece(void *owner, const struct param_piece *piece, float *values, struct err *err)
{
    struct head *h = owner;
    (void)err;
    adapter_in_piece(h->in, piece, values);
    return 0;
}

int head_load(struct head *h, struct runner *r, struct err *err)
{
    if (!h->in)
        return 0;
    struct head_round round = {.piece = load_piece, .owner = h};
    struct go go = {.program = PROGRAM_LOAD, .state = adapter_in_has_state(h->in), .step = h->first_step};
    return runner_round(r, &go, &round, err);
}
