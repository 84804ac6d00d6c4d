/* SPDX-License-Identifier: MIT
 *
 * Planning: from what the user asked, the model's files and what the nodes can do to one plan, or a
 * sentence why not. */
#include "daemon/stage/plan/stage_head.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/output_path.h"
#include "daemon/stage/choice.h"
#include "daemon/stage/eval/eval_work.h"
#include "daemon/stage/hold/held_memory.h"
#include "daemon/stage/plan/stage_head_eval.h"
#include "daemon/stage/plan/stage_head_serve.h"
#include "daemon/stage/serve/draft_model.h"
#include "daemon/stage/stage_nodes.h"
#include "engine/model/stage.h"
#include "engine/model/adapter_names.h"

enum {
    CHUNK = 512, /* positions of a prefill message */
    AGAIN = 64   /* messages at once, of tokens that were generated before */
};

void head_say_positions(struct head *h, size_t n, const char *what)
{
    const size_t most = config_positions(&h->config);
    if (n <= most || h->said_positions)
        return;
    h->said_positions = true;
    stage_say(
        h->events,
        "%s up to %zu tokens; the model was made for %zu (max_position_embeddings%s). The job runs, but "
        "tokens after "
        "%zu may make no sense",
        what, n, most, h->config.rope == ROPE_DEFAULT ? "" : " and rope_scaling", most);
}

void head_take_said(struct head *h, const json_t *said)
{
    if (!said)
        return;
    json_decref(h->said);
    h->said = json_deep_copy(said);
    h->spec.said = h->said;
}

bool head_was_said(const struct head *h, const char *kind, size_t adapter, uint64_t step)
{
    const json_t *until = json_object_get(json_object_get(h->spec.said, kind), h->adapters[adapter].name);
    return json_is_integer(until) && step <= (uint64_t)json_integer_value(until);
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
        r = err_set(err, -EINVAL, "the text is empty, and this tokenizer adds no token: give a text");
    return r;
}

static int open_data(struct head *h, struct stage_data *ret, const char *path, const char *split,
                     struct err *err)
{
    /* A set of ready token ids needs no tokenizer, so a model directory without one is no reason to
     * refuse here. */
    struct err quiet;
    char line[STAGE_DATA_LINE];
    if (ret->data) /* read for an earlier attempt: a file that changed meanwhile changes no row */
        return 0;
    open_tokenizer(h, &quiet);
    int r = stage_data_open(ret, &h->spec, &h->config, h->tok, path, split, err);
    if (r)
        return h->tok ? r : err_prefix(err, r, "%s (and no tokenizer: %.200s)", path, quiet.text);
    stage_data_describe(line, ret, &h->spec);
    stage_say(h->events, "%s: %s", path, line);
    return 0;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* --- training --------------------------------------------------------------------------------- */

static int refuse_out(const char *dir, struct err *err)
{
    return err_set(err, -errno, "--adapter-out %s cannot be created: %s%s", dir, strerror(errno),
                   errno == ENOENT ? "; make the folder above it first" : "");
}

static int check_parent(const char *dir, struct err *err)
{
    char parent[4096];
    const char *slash = strrchr(dir, '/');
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - dir) + 1 : 1, slash ? dir : ".");
    return access(parent, W_OK | X_OK) ? refuse_out(dir, err) : 0;
}

/* Whoever only asks for a plan finds no new folder afterwards. Else the folder has been made by now
 * (cell/cell_files.c), if it can be. */
static int check_writable(const struct head *h, const char *dir, bool dry_run, struct err *err)
{
    char probe[4096];
    int r = output_path_check(h->asked.state_dir, "--adapter-out", dir, err);
    if (r)
        return r;
    if (dry_run && access(dir, F_OK))
        return check_parent(dir, err);
    if (mkdir(dir, 0777) && errno != EEXIST)
        return refuse_out(dir, err);
    snprintf(probe, sizeof probe, "%s/.ringd-XXXXXX", dir);
    int fd = mkstemp(probe);
    if (fd < 0)
        return err_set(err, -errno, "--adapter-out %s cannot be written by the daemon's user (uid %u): %s",
                       dir, getuid(), strerror(errno));
    close(fd);
    unlink(probe);
    return 0;
}

static int plan_steps(struct head *h, struct err *err)
{
    size_t packs = data_packs_count(h->train.packs),
           epochs = h->spec.epochs || h->spec.iters ? h->spec.epochs : 1;
    h->steps = h->spec.iters ? h->spec.iters : (epochs * packs + h->spec.batch - 1) / h->spec.batch;
    uint64_t done = UINT64_MAX;
    for (size_t a = 0; a < h->nadapters; a++)
        done = h->adapters[a].first_step < done ? h->adapters[a].first_step : done;
    if (done > h->steps)
        return err_set(err, -EINVAL,
                       "the run in %s has already done %llu steps, but this job asks for %llu: raise --iters",
                       h->spec.adapter_out, (unsigned long long)done, (unsigned long long)h->steps);
    if (done == h->steps)
        stage_say(h->events, "the run in %s has done all of its %llu steps: its result is written again",
                  h->spec.adapter_out, (unsigned long long)done);
    int r = 0;
    head_keep_cut(h);
    for (size_t a = 0; a < h->nadapters && !r; a++) {
        const struct data_order_request req = {.packs = h->train.packs,
                                               .shuffle = !h->spec.no_shuffle,
                                               .seed = h->adapters[a].spec.seed,
                                               .group = h->spec.group_by_length ? h->spec.batch : 0};
        r = head_check_order(h, a, err);
        if (!r)
            r = data_order_new(&h->adapters[a].order, &req, err);
    }
    return r;
}

/* Of several adapters each has a folder in the one that was asked for, which nobody makes for a
 * plan alone. */
static int check_results(const struct head *h, struct err *err)
{
    const struct job_spec *s = &h->spec;
    if (h->nadapters == 1)
        return check_writable(h, s->adapter_out, s->dry_run, err);
    int r = check_writable(h, h->asked.adapter_out, s->dry_run, err);
    for (size_t a = 0; a < h->nadapters && !r && !s->dry_run; a++)
        r = check_writable(h, h->adapters[a].spec.adapter_out, false, err);
    return r;
}

/* A run that could have gone on is not lost without a word. */
static void tell_replaced(struct head *h)
{
    char path[4096];
    for (size_t a = 0; a < h->nadapters && !h->spec.resume; a++) {
        const char *dir = h->adapters[a].spec.adapter_out;
        snprintf(path, sizeof path, "%s/" ADAPTER_STATE_FILE, dir);
        if (!access(path, F_OK))
            stage_say(h->events,
                      "the result of this run will replace the run in %s: --resume would continue it instead",
                      dir);
    }
}

static int read_sample_prompt(struct head *h, struct err *err)
{
    int r = read_text(h, h->spec.sample_prompt, err);
    return r ? err_prefix(err, r, "--sample-prompt") : 0;
}

static int open_eval_data(struct head *h, struct err *err)
{
    const char *name;
    json_t *path;
    size_t n = 0;
    int r = 0;
    json_object_foreach ((json_t *)(uintptr_t)h->spec.eval_data, name, path)
        if (!r)
            r = open_data(h, &h->more_valid[n++], json_string_value(path), "valid", err);
    return r ? err_prefix(err, r, "--eval-data") : 0;
}

/* Room for the rows of a set that is evaluated, if there is one. */
static void plan_set(struct job_plan *p, const struct stage_data *set)
{
    if (!set->data)
        return;
    p->positions = larger(p->positions, data_longest(set->data));
    p->seqs = larger(p->seqs, data_packs_most_rows(set->packs));
    p->tokens = larger(p->tokens, data_packs_longest(set->packs));
}

static int plan_train(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    p->training = true;
    p->loss = h->spec.loss;
    p->submitted = h->spec.submitted;
    p->copies = h->spec.copies && h->config.layers + 2 <= HELD_UNITS_MAX;
    int r = check_results(h, err);
    if (!r)
        r = head_plan_tunes(h, err);
    if (!r)
        r = open_data(h, &h->train, h->spec.data, "train", err);
    if (!r && h->spec.valid)
        r = open_data(h, &h->valid, h->spec.valid, "valid", err);
    if (!r)
        r = open_eval_data(h, err);
    if (!r)
        r = plan_steps(h, err);
    if (!r && h->spec.sample_prompt)
        r = read_sample_prompt(h, err);
    if (!r && h->spec.eval_questions)
        r = open_tokenizer(h, err);
    if (!r && h->spec.eval_questions)
        r = head_read_questions(h, err);
    if (r)
        return r;
    tell_replaced(h);
    p->microbatches = (h->spec.batch + h->spec.micro_batch - 1) / h->spec.micro_batch;
    p->positions = data_longest(h->train.data);
    p->seqs = data_packs_most_rows(h->train.packs);
    p->tokens = data_packs_longest(h->train.packs);
    head_say_positions(h, p->positions, "rows are");
    plan_set(p, &h->valid);
    for (size_t i = 0; i < JOB_EVAL_SETS; i++)
        plan_set(p, &h->more_valid[i]);
    p->seqs *= h->spec.micro_batch;
    p->tokens *= h->spec.micro_batch;
    p->sample = larger(h->nids ? h->nids + h->spec.sample_tokens : 0, h->eval ? h->eval->positions : 0);
    snprintf(p->schedule, sizeof p->schedule, "%s", h->spec.schedule);
    return 0;
}

/* --- generation and scoring ------------------------------------------------------------------- */

static int plan_adapter(struct head *h, struct err *err)
{
    if (!h->spec.adapter)
        return 0;
    int r = adapter_read_config(&h->plan.tune, h->spec.adapter, h->family, &h->config, err);
    return r ? r
             : adapter_in_open(&h->adapters[0].in, h->spec.adapter, &h->plan.tune, h->family, &h->config,
                               err);
}

/* The prompt is that of the last turn, token for token: a template may write another date by
 * now. */
static int plan_so_far(struct head *h, struct err *err)
{
    int r = so_far_read(&h->so_far, h->spec.so_far, h->config.vocab, err);
    if (r || !h->so_far.n)
        return r;
    const struct so_far_turn *last = &h->so_far.turns[h->so_far.n - 1];
    uint32_t *ids = calloc(last->n_ids, sizeof *ids);
    if (!ids)
        return err_set(err, -ENOMEM, "out of memory");
    memcpy(ids, last->ids, last->n_ids * sizeof *ids);
    free(h->ids);
    h->ids = ids;
    h->nids = last->n_ids;
    h->spec.seed = last->seed;
    h->said_positions =
        larger(h->so_far.first_prompt, h->nids) + h->spec.max_tokens > config_positions(&h->config);
    h->spec.forecast = false; /* of the whole job, which was made before it began */
    return 0;
}

static int plan_generate(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    int r = choice_check(&h->spec, h->config.vocab, err);
    if (r)
        return r;
    r = h->spec.messages || h->spec.chat ? head_read_chat(h, err)
        : h->spec.ids                    ? read_ids(h, h->spec.ids, err)
                                         : read_text(h, h->spec.prompt, err);
    if (!r && !h->tok) { /* ids in, ids out: text only where there is a tokenizer */
        struct err quiet;
        open_tokenizer(h, &quiet);
    }
    if (!r)
        r = plan_so_far(h, err);
    if (!r)
        r = plan_adapter(h, err);
    if (r)
        return r;
    /* The same room and the same chunks as before, or the text would not be the same. */
    size_t prompt = h->so_far.n ? h->so_far.first_prompt : h->nids;
    p->kv = true;
    p->positions = prompt + h->spec.max_tokens;
    head_say_positions(h, p->positions, "the prompt and --max-tokens together are");
    if (h->spec.keep_alive) /* what is said later wants room as well */
        prompt = p->positions = (p->positions / h->spec.max_kv_size + 1) * h->spec.max_kv_size;
    p->tokens = prompt < CHUNK ? prompt : CHUNK;
    p->microbatches = (prompt + CHUNK - 1) / CHUNK;
    if (h->so_far.n)
        p->microbatches = larger(p->microbatches, AGAIN);
    p->seqs = 1;
    return so_far_fits(&h->so_far, p->positions, h->spec.max_tokens, err);
}

/* A text is scored as what serves scores it, in pieces of the same rows: to the same bits. */
static void plan_text_rows(struct job_plan *p)
{
    p->kv = true;
    p->kv_type = KV_F32;
    p->kv_blocks = (p->positions + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK;
    p->tokens = p->positions < CHUNK ? p->positions : CHUNK;
}

static int plan_score(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    int r = h->spec.ids    ? read_ids(h, h->spec.ids, err)
            : h->spec.text ? read_text(h, h->spec.text, err)
                           : open_data(h, &h->train, h->spec.data, "test", err);
    if (!r)
        r = plan_adapter(h, err);
    if (!r && !h->train.data && !h->tok) { /* the text of tokens, where there is a tokenizer */
        struct err quiet;
        open_tokenizer(h, &quiet);
    }
    if (!r && h->spec.top_logprobs > h->config.vocab)
        r = err_set(err, -EINVAL, "--top-logprobs %zu: the model has only %zu tokens", h->spec.top_logprobs,
                    h->config.vocab);
    if (!r && !h->train.data && h->nids < 2)
        r = err_set(err, -EINVAL, "one token alone has no probability to score: give at least two");
    if (r)
        return r;
    p->positions = p->tokens = h->train.data ? data_longest(h->train.data) : h->nids;
    head_say_positions(h, p->positions, h->train.data ? "rows are" : "the text is");
    p->microbatches = h->train.data ? 8 : 1;
    p->seqs = 1;
    if (!h->train.data)
        plan_text_rows(p);
    return 0;
}

static int plan_eval(struct head *h, struct err *err)
{
    int r = open_tokenizer(h, err);
    if (!r)
        r = head_read_questions(h, err);
    if (!r)
        r = plan_adapter(h, err);
    if (!r)
        head_plan_questions(h);
    return r;
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Training rounds weights as it multiplies with them; all others take the whole numbers that are
 * stored. */
static int check_compute(const struct head *h, struct err *err)
{
    const struct job_plan *p = &h->plan;
    const size_t bits = h->config.quant_bits;
    const struct quant stored = {.bits = bits, .kind = h->config.quant_kind};
    if (p->compute != NUM_INT8 || p->weight_bits || h->spec.type == JOB_TRAIN)
        return 0;
    if (bits && !quant_is_whole(&stored))
        return err_set(err, -EINVAL,
                       "--compute int8 multiplies weights of 8 or 4 bits, and %s is stored in %zu bits%s: "
                       "leave it out, or give --compute bf16",
                       p->model, bits, stored.kind == QUANT_MXFP4 ? " of MXFP4" : "");
    return bits ? 0
                : err_set(err, -EINVAL,
                          "--compute int8 multiplies weights of 8 or 4 bits, and %s is stored in %s: give "
                          "--weights int8 or int4 too, or --compute bf16",
                          p->model, dtype_name(h->config.dtype));
}

/* A plan that is only asked for needs the config alone: shapes and types follow from it. */
static int plan_files(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    if (h->spec.random_init)
        return 0;
    h->planning.is_bare = h->spec.dry_run && !st_dir_lists(p->model);
    if (!h->planning.is_bare)
        return config_fingerprint(p->fingerprint, p->model, err);
    stage_say(h->events,
              "%s has a config and no weights: sizes are computed from the config, and nothing is timed",
              p->model);
    return 0;
}

static int plan_model(struct head *h, struct err *err)
{
    struct job_plan *p = &h->plan;
    snprintf(p->model, sizeof p->model, "%s", h->spec.model);
    int r = config_read(&h->config, p->model, err);
    if (r)
        return r;
    h->family = family_find(h->config.family);
    if (!h->family)
        return err_set(err, -ENOTSUP, "%s: models of the family \"%s\" are not supported", p->model,
                       h->config.family);
    p->vocab = h->config.vocab;
    p->dim = h->config.dim;
    p->weight_bits = h->spec.weight_bits;
    p->compute = h->spec.compute;
    r = check_compute(h, err);
    if (r)
        return r;
    p->by_layer = h->spec.recompute == RECOMPUTE_LAYER;
    p->tune.end_layer = h->config.layers;
    return plan_files(h, err);
}

/* The job as each of its adapters has it. */
static int read_specs(struct head *h, enum job_type type, struct err *err)
{
    struct sweep sweep = {0};
    int r = job_spec_read(&h->asked, type, h->json, err);
    r = r ? r : sweep_read(&sweep, &h->asked, err);
    h->nadapters = sweep.n;
    for (size_t a = 0; a < sweep.n; a++) {
        struct head_adapter *to = &h->adapters[a];
        memcpy(to->name, sweep.one[a].name, sizeof to->name);
        to->json = sweep.one[a].spec;
        r = r ? r : job_spec_read(&to->spec, type, to->json, err);
    }
    if (!r)
        h->spec = h->adapters[0].spec;
    return r;
}

static bool has_state(const struct head *h)
{
    char path[4096];
    bool has = true;
    for (size_t a = 0; a < h->nadapters; a++) {
        snprintf(path, sizeof path, "%s/" ADAPTER_STATE_FILE, h->adapters[a].spec.adapter_out);
        has = has && !access(path, F_OK);
    }
    return has;
}

/* A job that was interrupted is resumed. One whose state is lost begins as its user has said;
 * copies on disks of nodes may then take it further. */
static void find_state(struct head *h)
{
    if (!h->spec.goes_on)
        return;
    if (!has_state(h)) {
        stage_event(h->events, "state-lost", json_pack("{s:s}", "folder", h->asked.adapter_out));
        return;
    }
    for (size_t a = 0; a < h->nadapters; a++) {
        h->adapters[a].spec.resume = true;
        h->adapters[a].spec.init_adapter = NULL;
    }
    h->spec.resume = true;
    h->spec.init_adapter = NULL;
}

int head_plan(struct head *h, enum job_type type, json_t *spec, const json_t *nodes, struct err *err)
{
    static int (*const plan[JOB_TYPES])(struct head *, struct err *) = {plan_train, plan_generate, plan_score,
                                                                        head_plan_serve, plan_eval};
    h->json = json_incref(spec);
    h->planning.nodes = json_deep_copy(nodes);
    h->plan = (struct job_plan){.type = type, .ranks = json_array_size(nodes), .round_steps = 1};
    if (h->plan.ranks < 1 || h->plan.ranks > JOB_MAX_RANKS)
        return err_set(err, -EINVAL, "a ring of %zu nodes: 1 to %d can share a job", h->plan.ranks,
                       JOB_MAX_RANKS);
    int r = read_specs(h, type, err);
    if (h->spec.compute != NUM_BF16)
        stage_nodes_without_bf16(h->planning.nodes);
    if (!r)
        find_state(h);
    if (!r)
        r = plan_model(h, err);
    if (!r)
        r = plan[type](h, err);
    return r ? r : type == JOB_SERVE ? head_split_served(h, err) : head_split(h, err);
}

void head_done(struct head *h)
{
    for (size_t a = 0; a < h->nadapters; a++) {
        adapter_in_close(h->adapters[a].in);
        data_order_free(h->adapters[a].order);
        json_decref(h->adapters[a].json);
    }
    stage_data_done(&h->train);
    stage_data_done(&h->valid);
    for (size_t i = 0; i < JOB_EVAL_SETS; i++)
        stage_data_done(&h->more_valid[i]);
    tokenizer_close(h->tok);
    so_far_done(&h->so_far);
    free(h->ids);
    free(h->held_by);
    draft_model_free(h->draft);
    eval_work_free(h->eval);
    job_plan_done(&h->plan);
    json_decref(h->planning.forecast);
    json_decref(h->planning.speed);
    json_decref(h->planning.pace);
    free(h->planning.travel_lacks);
    st_close(h->planning.heads);
    json_decref(h->planning.nodes);
    json_decref(h->json);
    json_decref(h->said);
    chat_inbox_done(&h->inbox);
    ask_inbox_done(&h->asks);
}

void head_init(struct head *h, struct stage_events *events)
{
    *h = (struct head){.events = events};
    chat_inbox_init(&h->inbox);
    ask_inbox_init(&h->asks);
}

void head_rest(struct head *h)
{
    struct stage_events *events = h->events;
    struct tokenizer *tok = h->tok;
    struct eval_work *eval = h->eval;
    const struct stage_data train = h->train, valid = h->valid;
    struct stage_data more_valid[JOB_EVAL_SETS];
    memcpy(more_valid, h->more_valid, sizeof more_valid);
    memset(h->more_valid, 0, sizeof h->more_valid);
    h->tok = NULL;
    h->eval = NULL;
    h->train = h->valid = (struct stage_data){0};
    head_done(h);
    head_init(h, events);
    h->tok = tok;
    h->eval = eval;
    h->train = train;
    h->valid = valid;
    memcpy(h->more_valid, more_valid, sizeof more_valid);
}
