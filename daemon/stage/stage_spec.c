/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stage_spec.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/spec_limits.h"
#include "engine/pipe/sched.h"

/* A reader that remembers the first complaint, so that twenty fields are read without twenty
 * ifs. */
struct reader {
    const json_t *o;
    struct err *err;
    int failed;
};

static const char *text(struct reader *r, const char *key, const char *def)
{
    const json_t *v = json_object_get(r->o, key);
    if (!v || json_is_null(v))
        return def;
    if (!json_is_string(v) && !r->failed)
        r->failed = err_set(r->err, -EINVAL, "\"%s\" must be text", key);
    return json_string_value(v);
}

static double number(struct reader *r, const char *key, double def, double min, double max)
{
    const json_t *v = json_object_get(r->o, key);
    if (!v || json_is_null(v))
        return def;
    double x = json_number_value(v);
    if (json_is_number(v) && x >= min && x <= max)
        return x;
    if (!r->failed)
        r->failed = err_set(r->err, -EINVAL, "\"%s\" must be a number from %g to %g", key, min, max);
    return def; /* in range, as what is made of it must be */
}

static size_t count(struct reader *r, const char *key, size_t def, size_t min, size_t max)
{
    double x = number(r, key, (double)def, (double)min, (double)max);
    if (x != (double)(size_t)x && !r->failed)
        r->failed = err_set(r->err, -EINVAL, "\"%s\" must be a whole number", key);
    return r->failed ? def : (size_t)x;
}

static bool flag(struct reader *r, const char *key)
{
    const json_t *v = json_object_get(r->o, key);
    if (v && !json_is_boolean(v) && !json_is_null(v) && !r->failed)
        r->failed = err_set(r->err, -EINVAL, "\"%s\" must be true or false", key);
    return json_is_true(v);
}

static void demand(struct reader *r, bool ok, const char *sentence)
{
    if (!ok && !r->failed)
        r->failed = err_set(r->err, -EINVAL, "%s", sentence);
}

static size_t choice(struct reader *r, const char *key, const char *const *names, size_t n)
{
    const char *given = text(r, key, names[0]);
    size_t i = 0;
    while (i < n && given && strcmp(given, names[i]) != 0)
        i++;
    if (given && i < n)
        return i;
    if (!r->failed)
        r->failed = err_set(r->err, -EINVAL, "\"%s\" is %s, %s or %s", key, names[0], names[1], names[2]);
    return 0;
}

static void read_data(struct job_spec *s, struct reader *r, size_t seq_len)
{
    static const char *const masks[] = {"none", "prompt", "assistant"};
    static const char *const overlong[] = {"truncate", "split", "drop"};
    s->data = text(r, "data", NULL);
    s->mask = (enum data_mask)choice(r, "mask", masks, 3);
    s->overlong = (enum data_overlong)choice(r, "overlong", overlong, 3);
    s->fields = (struct data_fields){.text = text(r, "text_field", NULL),
                                     .prompt = text(r, "prompt_field", NULL),
                                     .completion = text(r, "completion_field", NULL),
                                     .messages = text(r, "messages_field", NULL),
                                     .tools = text(r, "tools_field", NULL)};
    s->template_args = json_object_get(r->o, "template_args");
    demand(r, !s->template_args || json_is_object(s->template_args), "\"template_args\" must be an object");
    s->seq_len = count(r, "seq_len", seq_len, 2, SPEC_SEQ_LEN_MAX);
    s->packing = flag(r, "packing");
    s->group_by_length = flag(r, "group_by_length");
}

/* After what decides whether there is LoRA, and where it starts. */
static void read_lora(struct job_spec *s, struct reader *r)
{
    s->targets = text(r, "target_modules", NULL);
    s->layers = text(r, "layers", NULL);
    s->num_layers = count(r, "num_layers", 0, 1, SPEC_LAYERS_MAX);
    s->rslora = flag(r, "rslora");
    s->rank = count(r, "rank", 8, 1, SPEC_RANK_MAX);
    s->alpha = number(r, "alpha", 16, SPEC_ALPHA_MIN, SPEC_ALPHA_MAX);
    s->dropout = number(r, "dropout", 0, 0, SPEC_DROPOUT_MAX);
    s->plus_ratio = number(r, "lora_plus_ratio", 1, SPEC_PLUS_RATIO_MIN, SPEC_PLUS_RATIO_MAX);
    const bool shaped = s->layers || s->num_layers || s->rslora;
    demand(r, !s->layers || !s->num_layers, "give --layers or --num-layers, not both");
    demand(
        r, !s->full || (!shaped && s->plus_ratio == 1),
        "--layers, --num-layers, --rslora and --lora-plus-ratio are for LoRA, not for --fine-tune-type full");
    demand(
        r, !s->init_adapter || !shaped,
        "--layers, --num-layers and --rslora shape a new adapter; the one of --init-adapter has its shape");
}

/* After what decides whether all of the model is trained. */
static void read_weights(struct job_spec *s, struct reader *r)
{
    const char *name = text(r, "weights", "stored");
    const bool is_8 = name && !strcmp(name, "int8"), is_4 = name && !strcmp(name, "int4");
    demand(r, is_8 || is_4 || (name && !strcmp(name, "stored")), "\"weights\" is stored, int8 or int4");
    s->weight_bits = is_8 ? 8 : is_4 ? 4 : 0;
    demand(r, !s->weight_bits || !s->full,
           "--weights int8 and int4 are for LoRA, not for --fine-tune-type full: quantized weights are not "
           "trained");
}

static void read_compute(struct job_spec *s, struct reader *r)
{
    const char *name = text(r, "compute", "f32");
    demand(r, name && !num_compute_from_name(name, &s->compute), "\"compute\" is f32, bf16 or int8");
    demand(r, s->compute == NUM_F32 || s->type != JOB_TRAIN,
           "--compute bf16 and int8 are for generate, chat and score: training is computed in f32");
}

static void read_recompute(struct job_spec *s, struct reader *r)
{
    static const char *const names[] = {[RECOMPUTE_NONE] = "none",
                                        [RECOMPUTE_LAYER] = "layer",
                                        [RECOMPUTE_STAGE] = "stage",
                                        [RECOMPUTE_AUTO] = "auto"};
    const char *name = text(r, "recompute", "auto");
    size_t i = 0;
    while (i <= RECOMPUTE_AUTO && !(name && !strcmp(name, names[i])))
        i++;
    demand(r, i <= RECOMPUTE_AUTO, "\"recompute\" is none, layer, stage or auto");
    s->recompute = i <= RECOMPUTE_AUTO ? (enum recompute)i : RECOMPUTE_AUTO;
}

static void read_samples(struct job_spec *s, struct reader *r)
{
    s->sample_prompt = text(r, "sample_prompt", NULL);
    s->sample_every = count(r, "sample_every", 0, 0, SPEC_STEPS_MAX);
    s->sample_tokens = count(r, "sample_tokens", 64, 1, SPEC_SAMPLE_TOKENS_MAX);
    demand(r, s->sample_prompt || !s->sample_every,
           "--sample-every says how often, and nothing says from what: give --sample-prompt TEXT too");
}

/* After the schedule. */
static void read_split(struct job_spec *s, struct reader *r)
{
    const char *objective = text(r, "objective", "time");
    s->save_memory = objective && !strcmp(objective, "memory");
    demand(r, s->save_memory || (objective && !strcmp(objective, "time")), "\"objective\" is time or memory");
    s->split = json_object_get(r->o, "split");
    s->split_nodes = json_object_get(r->o, "split_nodes");
    demand(r, !s->split || json_is_array(s->split), "\"split\" must be a list: the layers of each stage");
    demand(r, !s->split || !s->schedule || strcmp(s->schedule, "auto") != 0,
           "--schedule auto decides who gets which layers: \"split\" needs a schedule by name");
}

static void read_train(struct job_spec *s, struct reader *r)
{
    read_data(s, r, 512);
    s->valid = text(r, "valid", NULL);
    s->adapter_out = text(r, "adapter_out", NULL);
    s->init_adapter = text(r, "init_adapter", NULL);
    s->log = text(r, "log", NULL);
    s->schedule = text(r, "schedule", "1f1b");
    read_recompute(s, r);
    read_split(s, r);
    s->chunks = count(r, "chunks", 0, 1, SCHED_MAX_CHUNKS);
    s->microbatches = count(r, "microbatches", 0, 1, SPEC_BATCH_MAX);
    const char *type = text(r, "fine_tune_type", "lora"), *init = text(r, "init", NULL);
    demand(r, type && (!strcmp(type, "lora") || !strcmp(type, "full")), "\"fine_tune_type\" is lora or full");
    demand(r, !init || !strcmp(init, "random"), "\"init\" can only be random");
    s->full = type && !strcmp(type, "full");
    s->random_init = init != NULL;
    s->resume = flag(r, "resume");
    s->shuffle = !flag(r, "no_shuffle");
    s->trace = flag(r, "trace");
    read_lora(s, r);
    s->batch = count(r, "batch_size", 4, 1, SPEC_BATCH_MAX);
    s->micro_batch = count(r, "micro_batch_size", 1, 1, SPEC_MICRO_BATCH_MAX);
    demand(r, !s->microbatches || !json_object_get(r->o, "micro_batch_size"),
           "--microbatches and --micro-batch-size both say how the rows of a step are cut up: give one");
    demand(r, s->microbatches <= s->batch,
           "--microbatches is more than the rows of a step: raise --batch-size");
    if (s->microbatches)
        s->micro_batch = (s->batch + s->microbatches - 1) / s->microbatches;
    demand(
        r, !s->microbatches || (s->batch + s->micro_batch - 1) / s->micro_batch == s->microbatches,
        "--batch-size cannot be cut into that many --microbatches of as many rows each: choose a multiple");
    s->iters = count(r, "iters", 0, 0, SPEC_STEPS_MAX);
    s->epochs = count(r, "epochs", 0, 0, SPEC_EPOCHS_MAX);
    s->eval_every = count(r, "eval_every", 0, 0, SPEC_STEPS_MAX);
    demand(r, s->valid || !s->eval_every,
           "--eval-every says how often, and nothing says on what: give --valid FILE|DIR too");
    s->save_every = count(r, "save_every", 0, 0, SPEC_STEPS_MAX);
    read_samples(s, r);
    s->warmup = count(r, "warmup", 0, 0, SPEC_STEPS_MAX);
    s->lr = number(r, "lr", s->full ? 2e-4 : 5e-4, 0, SPEC_LR_MAX);
    s->weight_decay = number(r, "weight_decay", 0, 0, SPEC_WEIGHT_DECAY_MAX);
    s->max_grad_norm = number(r, "max_grad_norm", 0, 0, SPEC_GRAD_NORM_MAX);
    const char *kind = text(r, "lr_schedule", "constant");
    demand(r, kind && !lr_kind_from_name(kind, &s->lr_kind), "\"lr_schedule\" is constant, linear or cosine");
    demand(r, s->data, "--data FILE|DIR is needed: what to train on");
    demand(r, s->adapter_out, "--adapter-out DIR is needed: where the result goes");
    demand(r, !s->group_by_length || s->shuffle,
           "--group-by-length sorts rows anew and --no-shuffle keeps their order: give one");
    demand(r, !s->iters || !s->epochs, "give --iters or --epochs, not both");
    demand(r, s->full || !s->random_init, "--init random makes sense only with --fine-tune-type full");
    demand(r, !s->full || !s->init_adapter,
           "--init-adapter is for LoRA; a full fine-tune starts from --model");
    demand(r, !s->resume || !s->init_adapter,
           "--resume continues the run in --adapter-out; it cannot start from --init-adapter too");
}

static void read_chat(struct job_spec *s, struct reader *r)
{
    s->messages = json_object_get(r->o, "messages");
    s->tools = json_object_get(r->o, "tools");
    s->template_args = json_object_get(r->o, "template_args");
    s->chat = flag(r, "chat");
    s->system = text(r, "system", NULL);
    demand(r, !s->messages || json_is_array(s->messages), "\"messages\" must be a list");
    demand(r, !s->tools || json_is_array(s->tools), "\"tools\" must be a list");
    demand(r, !s->template_args || json_is_object(s->template_args), "\"template_args\" must be an object");
    demand(r, !s->chat || s->prompt, "--chat is for a PROMPT in words, not for --ids");
    demand(r, !s->system || s->chat, "--system belongs to --chat: a plain text has nobody who is told");
    demand(r, !s->template_args || s->chat || s->messages,
           "--template-arg belongs to --chat: nothing else has a template");
    demand(r, !s->messages || (!s->prompt && !s->ids), "\"messages\" are the prompt: give no other");
}

int job_spec_read(struct job_spec *ret, enum job_type type, const json_t *json, struct err *err)
{
    struct reader r = {json, err, 0};
    struct job_spec s = {.type = type, .json = json};
    s.model = text(&r, "model", NULL);
    s.adapter = text(&r, "adapter", NULL);
    s.seed = (uint64_t)number(&r, "seed", 0, 0, SPEC_SEED_MAX);
    s.ids = json_object_get(json, "ids");
    s.dry_run = flag(&r, "dry_run");
    s.forecast = type != JOB_TRAIN && flag(&r, "forecast");
    demand(&r, s.model, "--model DIR is needed");
    demand(&r, !s.ids || json_is_array(s.ids), "\"ids\" must be a list of token ids");
    if (type == JOB_TRAIN)
        read_train(&s, &r);
    read_weights(&s, &r);
    read_compute(&s, &r);
    if (type == JOB_GENERATE) {
        s.prompt = text(&r, "prompt", NULL);
        s.stop = json_object_get(json, "stop");
        s.max_tokens = count(&r, "max_tokens", 64, 1, SPEC_TOKENS_MAX);
        s.temperature = number(&r, "temperature", 0, 0, SPEC_TEMPERATURE_MAX);
        s.top_p = number(&r, "top_p", 1, SPEC_TOP_P_MIN, 1);
        s.keep_alive = count(&r, "keep_alive", 0, 0, SPEC_KEEP_ALIVE_MAX);
        s.max_kv_size = count(&r, "max_kv_size", SPEC_KV_SIZE, 1, SPEC_TOKENS_MAX);
        read_chat(&s, &r);
        demand(&r, !s.keep_alive || s.messages,
               "\"keep_alive\" belongs to \"messages\": who else has more to say");
        demand(&r, s.prompt || s.ids || s.messages, "a PROMPT, or --ids, is needed");
    }
    if (type == JOB_SCORE) {
        s.text = text(&r, "text", NULL);
        read_data(&s, &r, 2048);
        s.top_logprobs = count(&r, "top_logprobs", 0, 0, SPEC_TOP_LOGPROBS_MAX);
        demand(&r, !!s.text + !!s.ids + !!s.data == 1, "give one of --text, --ids and --data");
        demand(&r, !s.top_logprobs || !s.data,
               "--top-logprobs belongs to --text and --ids: of a data set no single tokens are shown");
    }
    if (!r.failed)
        *ret = s;
    return r.failed;
}

int job_spec_read_data(struct job_spec *ret, const json_t *json, struct err *err)
{
    struct reader r = {json, err, 0};
    struct job_spec s = {.type = JOB_TRAIN, .json = json};
    s.model = text(&r, "model", NULL);
    read_data(&s, &r, 512);
    demand(&r, s.model, "--model DIR is needed");
    demand(&r, s.data, "--data FILE|DIR is needed");
    if (!r.failed)
        *ret = s;
    return r.failed;
}
