/* SPDX-License-Identifier: MIT */
#include "daemon/common/job_spec.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/job_plan.h"

/* The learning rate where nothing is said. */
#define LR_LORA 5e-4
#define LR_FULL 2e-4

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
    const bool shaped = s->layers || s->num_layers || s->rslora;
    demand(r, !s->layers || !s->num_layers, "--layers and --num-layers both choose layers: give one");
    demand(
        r, !s->full || (!shaped && s->plus_ratio == 1),
        "--layers, --num-layers, --rslora and --lora-plus-ratio are for LoRA, not for --fine-tune-type full");
    demand(
        r, !s->init_adapter || !shaped,
        "--layers, --num-layers and --rslora shape a new adapter; the one of --init-adapter has its shape");
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

static void check_train(struct job_spec *s, struct rules *r)
{
    demand(r, !has(r, "objective") || !strcmp(s->schedule, "auto"),
           "--objective needs --schedule auto: give that too");
    demand(r, !s->split || strcmp(s->schedule, "auto") != 0,
           "--schedule auto chooses the split itself: \"split\" needs a schedule by name");
    check_lora(s, r);
    check_serve_as(s, r);
    cut_batch(s, r);
    demand(r, s->valid || !s->eval_every, "--eval-every needs rows to evaluate: give --valid FILE|DIR too");
    demand(r, !s->early_stop || s->eval_every,
           "--early-stop counts evaluations: give --valid FILE|DIR and --eval-every N too");
    demand(r, s->sample_prompt || !s->sample_every,
           "--sample-every needs a text to begin with: give --sample-prompt TEXT too");
    if (!has(r, "lr"))
        s->lr = s->full ? LR_FULL : LR_LORA;
    demand(r, !s->group_by_length || !s->no_shuffle,
           "--group-by-length sorts the rows and --no-shuffle keeps their order: give only one of them");
    demand(r, !s->iters || !s->epochs, "--iters and --epochs both set the length of the training: give one");
    demand(r, !s->weight_bits || !s->full,
           "--weights int8 and int4 are for LoRA, not for --fine-tune-type full: quantized weights are not "
           "trained");
    demand(r, s->compute == NUM_F32,
           "--compute bf16 and int8 are for generate, chat and score: training is computed in f32");
}

enum { LIKELY_MAX = 100000 }; /* tokens in one event, which has 16 MiB */

static void check_generate(const struct job_spec *s, struct rules *r)
{
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
        if (!r->failed && (!path || *path != '/'))
            r->failed = err_set(r->err, -EINVAL,
                                "--adapter: the folder of \"%s\" must be a text with an absolute path", name);
        if (!r->failed && !strcmp(name, served))
            r->failed = err_set(r->err, -EINVAL,
                                "--adapter: \"%s\" is what clients call the model without adapters; give "
                                "another NAME=DIR",
                                name);
    }
}

static void check_serve(const struct job_spec *s, struct rules *r)
{
    demand(r, s->model, "--model DIR is needed, or a word: list, show, stop or adapter");
    demand(r, !s->model || *job_served_name(s),
           "--model ends with a slash, so the model has no name: give --name NAME, or leave the slash out");
    demand(r, !s->draft_bits || s->draft_model, "--draft-weights needs --draft-model");
    demand(r, s->draft_max || !s->draft_model,
           "--draft-model guesses nothing with --draft-max 0: give another --draft-max, or leave one out");
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
    const int r = fields_read(&s, job_spec_fields(), JOB_SPEC_OF_DATA, json, err);
    if (!r)
        *ret = s;
    return r;
}
