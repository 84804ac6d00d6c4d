/* SPDX-License-Identifier: MIT */
#include "daemon/common/job_spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_plan.h"
#include "daemon/common/model/model_name.h"

/* The learning rate where nothing is said. */
#define LR_LORA 5e-4
#define LR_FULL 2e-4
/* The same of pairs: those of TRL's examples, for rates as above soon forget how to write. */
#define LR_DPO 5e-6
#define LR_ORPO_LORA 8e-5
#define LR_ORPO_FULL 8e-6

/* Keeps the first complaint, so that a list of rules needs no list of ifs. */
struct rules {
    const json_t *given;
    struct err *err;
    int failed;
};

static bool has(const struct rules *r, const char *key)
{
    const json_t *v = json_object_get(r->given, key);
    return v && !json_is_null(v);
}

static void demand(struct rules *r, bool ok, const char *sentence)
{
    if (!ok && !r->failed)
        r->failed = err_set(r->err, -EINVAL, "%s", sentence);
}

static void check_lora(const struct job_spec *s, struct rules *r)
{
    const bool shaped = s->layers || s->num_layers || s->rslora || s->dora;
    const bool draws = has(r, "lora_init");
    demand(r, s->lora_init != LORA_INIT_ORTHOGONAL || (s->rank % 2 == 0 && s->rank <= LORA_INIT_RANK_MAX),
           "--lora-init orthogonal needs an even --rank of at most 256: one half of it is for each matrix");
    demand(r, !s->layers || !s->num_layers, "--layers and --num-layers both choose layers: give one");
    demand(
        r, !s->full || (!shaped && !draws && s->plus_ratio == 1),
        "--layers, --num-layers, --rslora, --dora, --lora-init and --lora-plus-ratio are for LoRA, not for "
        "--fine-tune-type full");
    demand(r, s->lora_init != LORA_INIT_PISSA || s->rank <= LORA_INIT_RANK_MAX,
           "--lora-init pissa needs a --rank of at most 256");
    demand(r, s->lora_init != LORA_INIT_PISSA || (!s->dora && s->dropout == 0),
           "--lora-init pissa goes without --dora and --dropout: the adapter holds what it takes out of the "
           "weights, and both would change that part too");
    demand(r, !s->init_adapter || (!shaped && !draws),
           "--layers, --num-layers, --rslora, --dora and --lora-init make a new adapter; the one of "
           "--init-adapter is made already");
    demand(r, s->full || !s->random_init, "--init random makes sense only with --fine-tune-type full");
    demand(r, !s->full || !s->init_adapter,
           "--init-adapter is for LoRA; a full fine-tune starts from --model");
    demand(r, !s->resume || !s->init_adapter,
           "--resume continues the run in --adapter-out; it cannot start from --init-adapter too");
}

bool job_adapter_is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
    const size_t n = strlen(name);
    return n && n <= JOB_ADAPTER_NAME && strspn(name, allowed) == n;
}

bool job_adapter_is_former(const char *name)
{
    char of[JOB_ADAPTER_NAME + 1];
    const size_t n = strcspn(name, "~"), digits = name[n] ? strspn(name + n + 1, "0123456789") : 0;
    snprintf(of, sizeof of, "%.*s", (int)(n < sizeof of ? n : 0), name);
    return digits && digits <= 20 && !name[n + 1 + digits] && job_adapter_is_name(of);
}

bool job_read_serve_as(const char *text, char ret_name[JOB_ADAPTER_NAME + 1], const char **ret_deployment)
{
    const size_t n = strcspn(text, "@");
    if (n > JOB_ADAPTER_NAME || (text[n] && !text[n + 1]))
        return false;
    memcpy(ret_name, text, n);
    ret_name[n] = '\0';
    *ret_deployment = text[n] ? text + n + 1 : "";
    return job_adapter_is_name(ret_name);
}

static void check_serve_as(const struct job_spec *s, struct rules *r)
{
    char name[JOB_ADAPTER_NAME + 1];
    const char *deployment;
    demand(r, !s->serve_as || job_read_serve_as(s->serve_as, name, &deployment),
           "--serve-as takes NAME or NAME@DEPLOYMENT: a name has 1 to 64 letters, digits and ._:- only");
    demand(r, !s->serve_as || !s->full,
           "--serve-as serves an adapter, and --fine-tune-type full makes a model: serve that with `ringctl "
           "serve --model`");
    demand(r, !s->serve_as || !s->sweep,
           "--serve-as serves one adapter, and --sweep trains several: add the best with `ringctl serve "
           "adapter add`");
}

static void cut_batch(struct job_spec *s, struct rules *r)
{
    s->has_micro_batch = has(r, "micro_batch_size");
    demand(r, !s->microbatches || !s->has_micro_batch,
           "--microbatches and --micro-batch-size both set the size of a microbatch: give one");
    demand(r, s->microbatches <= s->batch,
           "--microbatches is more than the rows of a step: raise --batch-size");
    if (s->microbatches)
        s->micro_batch = (s->batch + s->microbatches - 1) / s->microbatches;
    demand(
        r, !s->microbatches || (s->batch + s->micro_batch - 1) / s->micro_batch == s->microbatches,
        "--batch-size cannot be cut into that many --microbatches of as many rows each: choose a multiple");
}

static size_t *parallel_of(struct job_spec *s, const char *at)
{
    return !strncmp(at, "dp=", 3)   ? &s->replicas
           : !strncmp(at, "tp=", 3) ? &s->slices
           : !strncmp(at, "pp=", 3) ? &s->places
                                    : NULL;
}

/* Behind "pp=1": "+2+2", the nodes of further replicas. Returns their end, or NULL. */
static const char *read_unlike(struct job_spec *s, const char *at)
{
    size_t n = 0, sum = 0;
    bool is_like = true;
    s->unlike[n++] = s->places;
    while (*at == '+' && n < PLAN_MAX_REPLICAS && at[1] >= '1' && at[1] <= '9') {
        char *end;
        s->unlike[n++] = strtoul(at + 1, &end, 10);
        at = end;
    }
    for (size_t d = 0; d < n; d++) {
        is_like = is_like && s->unlike[d] == s->places;
        sum += s->unlike[d] <= JOB_MAX_RANKS ? s->unlike[d] : JOB_MAX_RANKS + 1;
    }
    if (*at == '+' || sum > JOB_MAX_RANKS || s->replicas)
        return NULL;
    s->replicas = n;
    if (is_like)
        memset(s->unlike, 0, sizeof s->unlike);
    else
        s->places = 0;
    return at;
}

/* "dp=2", "dp=2,tp=2,pp=2", "pp=1+2", "tp=2": each once, in any order; or "auto". */
static void read_parallel(struct job_spec *s, struct rules *r)
{
    const bool trains = s->type == JOB_TRAIN, may_be_any = trains || s->type == JOB_GENERATE;
    s->any_parallel = may_be_any && s->parallel && !strcmp(s->parallel, "auto");
    const char *at = s->any_parallel ? NULL : s->parallel;
    bool is_good = true;
    while (at && *at && is_good) {
        size_t *to = parallel_of(s, at);
        char *end = NULL;
        const unsigned long n = to && at[3] >= '1' && at[3] <= '9' ? strtoul(at + 3, &end, 10) : 0;
        is_good = n && n <= JOB_MAX_RANKS && !*to && !(to == &s->places && *s->unlike);
        if (is_good)
            *to = n;
        const char *next = is_good && trains && to == &s->places && *end == '+' ? read_unlike(s, end) : end;
        is_good = is_good && next && (!*next || (*next == ',' && next[1]));
        at = is_good ? next + (*next == ',') : at;
    }
    is_good = !at || (is_good && *s->parallel);
    demand(
        r, is_good || !trains,
        "--parallel takes dp=D for D replicas of the pipeline, tp=T for T nodes that share each stage, pp=P "
        "for P stages, or several of these: dp=2,tp=2,pp=2; pp=1+2 for a replica of one node and one of "
        "two; or auto");
    demand(
        r, is_good || trains,
        "--parallel takes tp=T for T nodes that share each stage, pp=P for P stages, or both: tp=2,pp=2; for "
        "generate also auto");
    demand(
        r, s->slices < 2 || !*s->unlike,
        "--parallel: replicas with unlike numbers of nodes (pp=P+Q) do not go together with tp=T nodes that "
        "share a stage: give dp=D and pp=P instead, or leave out tp");
    demand(r, trains || !s->replicas, "--parallel dp=D is for training: here, give tp=T, pp=P or both");
    demand(r, s->replicas <= PLAN_MAX_REPLICAS, "--parallel: a job has at most 8 replicas, so dp is 1 to 8");
    demand(r, s->slices <= SLICE_MOST, "--parallel: at most 8 nodes share a stage, so tp is 1 to 8");
    demand(r, s->replicas > PLAN_MAX_REPLICAS || s->replicas * s->slices <= PLAN_MAX_REPLICAS,
           "--parallel: dp times tp is at most 8: lower one of them");
    demand(r, !s->zero || !s->any_parallel,
           "--zero 1 needs a number of replicas: give --parallel dp=2 or more in place of auto");
    demand(r, !s->zero || s->replicas > 1,
           "--zero 1 divides moments among replicas, and there is one: give --parallel dp=2 or more too");
    demand(
        r, !s->zero || s->full,
        "--zero 1 is for --fine-tune-type full: the moments of an adapter are small, and every replica has "
        "them");
}

static void check_eval_data(const struct job_spec *s, struct rules *r)
{
    const char *name;
    json_t *path;
    demand(r, s->valid || !s->eval_data,
           "--eval-data names further rows to evaluate: give the first ones as --valid FILE|DIR");
    demand(r, json_object_size(s->eval_data) <= JOB_EVAL_SETS,
           "--eval-data was given too often: a job evaluates 8 sets at most beside --valid");
    json_object_foreach ((json_t *)(uintptr_t)s->eval_data, name, path) {
        const char *at = json_string_value(path);
        if (!r->failed && !job_adapter_is_name(name))
            r->failed =
                err_set(r->err, -EINVAL,
                        "--eval-data: \"%s\" is no name of a set, which has 1 to %d letters, digits and "
                        "._:- only; give --eval-data NAME=FILE",
                        name, JOB_ADAPTER_NAME);
        if (!r->failed && (!at || *at != '/'))
            r->failed =
                err_set(r->err, -EINVAL, "--eval-data: the set \"%s\" must have an absolute path", name);
    }
}

static double usual_lr(const struct job_spec *s)
{
    switch (s->loss) {
    case LOSS_DPO: return LR_DPO;
    case LOSS_ORPO: return s->full ? LR_ORPO_FULL : LR_ORPO_LORA;
    default: return s->full ? LR_FULL : LR_LORA;
    }
}

/* Of rows with two answers. */
static void check_pairs(struct job_spec *s, struct rules *r)
{
    if (s->loss == LOSS_NLL)
        return;
    demand(r, !has(r, "mask"),
           "--loss dpo and orpo train the answers and never the prompt: leave out --mask");
    demand(r, !s->packing,
           "--packing is for --loss nll: of dpo and orpo the two answers of a row stay together");
    demand(r, s->overlong != DATA_SPLIT,
           "--overlong split is for --loss nll: of dpo and orpo give truncate or drop");
    demand(
        r, s->loss != LOSS_DPO || !s->full,
        "--loss dpo compares the adapter with the model without it, so it is not for --fine-tune-type full: "
        "leave that out, or give --loss orpo");
    s->mask = DATA_MASK_PROMPT;
}

static void check_train(struct job_spec *s, struct rules *r)
{
    read_parallel(s, r);
    check_pairs(s, r);
    demand(r, s->loss != LOSS_NLL || !has(r, "beta"),
           "--beta needs --loss dpo or --loss orpo: give that too");
    if (s->any_parallel && !has(r, "schedule"))
        s->schedule = "auto";
    demand(r, !s->any_parallel || !s->split,
           "--parallel auto chooses the split itself: leave it or \"split\" out");
    demand(r, !s->any_parallel || sched_info(s->schedule) || !strcmp(s->schedule, "auto"),
           "--parallel auto needs a schedule for any number of nodes: give a built-in one, or leave it out");
    demand(r, !has(r, "objective") || !strcmp(s->schedule, "auto"),
           "--objective needs --schedule auto: give that too");
    demand(r, !s->split || strcmp(s->schedule, "auto") != 0,
           "--schedule auto chooses the split itself: \"split\" needs a schedule by name");
    check_lora(s, r);
    check_serve_as(s, r);
    cut_batch(s, r);
    demand(r, s->valid || !s->eval_every, "--eval-every needs rows to evaluate: give --valid FILE|DIR too");
    check_eval_data(s, r);
    demand(r, s->valid || !s->eval_questions,
           "--eval-questions is asked whenever --valid is evaluated: give --valid FILE|DIR too");
    demand(r, !s->early_stop || s->eval_every,
           "--early-stop counts evaluations: give --valid FILE|DIR and --eval-every N too");
    demand(r, s->sample_prompt || !s->sample_every,
           "--sample-every needs a text to begin with: give --sample-prompt TEXT too");
    if (!has(r, "lr"))
        s->lr = usual_lr(s);
    demand(r, !s->group_by_length || !s->no_shuffle,
           "--group-by-length sorts the rows and --no-shuffle keeps their order: give only one of them");
    demand(r, !s->iters || !s->epochs, "--iters and --epochs both set the length of the training: give one");
    demand(r, !s->weight_bits || !s->full,
           "--weights int8 and int4 are for LoRA, not for --fine-tune-type full: quantized weights are not "
           "trained");
    demand(r, s->compute != NUM_INT8 || !s->full,
           "--compute int8 is for LoRA, not for --fine-tune-type full: weights that are trained would be "
           "rounded to 8 bits in each step; give --compute bf16 or f32");
}

enum { LIKELY_MAX = 100000 }; /* tokens in one event, which has 16 MiB */

static void check_generate(struct job_spec *s, struct rules *r)
{
    read_parallel(s, r);
    demand(r, !s->chat || s->prompt, "--chat is for a PROMPT in words, not for --ids");
    demand(r, !s->system || s->chat, "--system needs --chat: a plain text has no instructions");
    demand(r, !s->template_args || s->chat || s->messages,
           "--template-arg needs --chat: a plain text has no template");
    demand(r, s->logprobs || !s->top_logprobs, "--top-logprobs needs --logprobs: give that too");
    demand(r, !s->logprobs || s->max_tokens * (1 + s->top_logprobs) <= LIKELY_MAX,
           "--logprobs lists too many tokens: make --max-tokens or --top-logprobs smaller (at most 100000 in "
           "all)");
    demand(r, !s->messages || (!s->prompt && !s->ids), "\"messages\" are the prompt: give no other");
    demand(r, !s->keep_alive || s->messages,
           "\"keep_alive\" needs \"messages\": only a conversation goes on");
    demand(r, !s->prompt || !s->ids, "PROMPT and --ids are two prompts: give one");
    demand(r, s->prompt || s->ids || s->messages, "a PROMPT or --ids 1,2,3 is missing");
}

static void check_score(const struct job_spec *s, struct rules *r)
{
    demand(r, !!s->text + !!s->ids + !!s->data == 1, "give one of --text, --ids and --data");
    demand(r, !s->top_logprobs || !s->data,
           "--top-logprobs needs --text or --ids: ringd shows no single tokens of a data set");
    demand(r, s->data || s->compute != NUM_BF16,
           "--compute bf16 is for a data set: a text is scored with the bits of a model that is served");
}

static void check_eval(const struct job_spec *s, struct rules *r)
{
    demand(r, s->compute != NUM_BF16,
           "--compute bf16 is for other jobs: an evaluation has the bits of a model that is served");
}

static void check_adapters(const struct job_spec *s, struct rules *r)
{
    const char *name, *served = s->model ? job_served_name(s) : "";
    json_t *folder;
    demand(r, json_object_size(s->adapters) <= JOB_MAX_ADAPTERS,
           "--adapter was given too often: a model is served with 16 adapters at most");
    json_object_foreach ((json_t *)(uintptr_t)s->adapters, name, folder) {
        const char *path = json_string_value(folder);
        if (!r->failed && !job_adapter_is_name(name) && !job_adapter_is_former(name))
            r->failed =
                err_set(r->err, -EINVAL,
                        "--adapter: \"%s\" is no name of an adapter, which has 1 to %d letters, digits "
                        "and ._:- only; give --adapter NAME=DIR",
                        name, JOB_ADAPTER_NAME);
        if (!r->failed && (!path || (*path != '/' && !model_name_is(path))))
            r->failed =
                err_set(r->err, -EINVAL,
                        "--adapter: the folder of \"%s\" must be a text with an absolute path, or the "
                        "adapter's name as ORG/NAME",
                        name);
        if (!r->failed && !strcmp(name, served))
            r->failed = err_set(r->err, -EINVAL,
                                "--adapter: \"%s\" is what clients call the model without adapters; give "
                                "another NAME=DIR",
                                name);
    }
}

static void check_serve(struct job_spec *s, struct rules *r)
{
    read_parallel(s, r);
    demand(r, s->model, "--model DIR is needed, or a word: list, show, stop or adapter");
    demand(r, !s->model || *job_served_name(s),
           "--model ends with a slash, so the model has no name: give --name NAME, or leave the slash out");
    demand(r, !s->draft_bits || s->draft_model, "--draft-weights needs --draft-model");
    demand(r, s->draft_max || !s->draft_model,
           "--draft-model guesses nothing with --draft-max 0: give another --draft-max, or leave one out");
    demand(r, s->draft_max || !s->draft_mtp,
           "--draft-mtp guesses nothing with --draft-max 0: give another --draft-max, or leave one out");
    demand(r, !s->draft_mtp || !s->draft_model,
           "--draft-mtp and --draft-model both guess: leave one of them out");
    check_adapters(s, r);
}

int job_spec_read(struct job_spec *ret, enum job_type type, const json_t *json, struct err *err)
{
    struct job_spec s = {.type = type, .json = json};
    struct rules rules = {json, err, 0};
    const int r = fields_read(&s, job_spec_fields(), JOB_SPEC_OF(type) | JOB_SPEC_OF_DAEMON, json, err);
    if (r)
        return r;
    switch (type) {
    case JOB_TRAIN: check_train(&s, &rules); break;
    case JOB_GENERATE: check_generate(&s, &rules); break;
    case JOB_SERVE: check_serve(&s, &rules); break;
    case JOB_EVAL: check_eval(&s, &rules); break;
    default: check_score(&s, &rules); break;
    }
    if (!rules.failed)
        *ret = s;
    return rules.failed;
}

const char *job_served_name(const struct job_spec *s)
{
    const char *slash = s->model ? strrchr(s->model, '/') : NULL;
    return s->served_name ? s->served_name : slash ? slash + 1 : s->model;
}

int job_spec_read_data(struct job_spec *ret, const json_t *json, struct err *err)
{
    struct job_spec s = {.type = JOB_TRAIN, .json = json};
    struct rules rules = {json, err, 0};
    const int r = fields_read(&s, job_spec_fields(), JOB_SPEC_OF_DATA, json, err);
    if (r)
        return r;
    check_pairs(&s, &rules);
    if (!rules.failed)
        *ret = s;
    return rules.failed;
}
