/* SPDX-License-Identifier: MIT */
#include "daemon/common/job_spec.h"

#include <errno.h>
#include <string.h>

#include "daemon/common/job_plan.h"
#include "daemon/common/spec_limits.h"
#include "engine/pipe/sched.h"

#define TRAIN JOB_SPEC_OF(JOB_TRAIN)
#define GENERATE JOB_SPEC_OF(JOB_GENERATE)
#define SCORE JOB_SPEC_OF(JOB_SCORE)
#define CHECK JOB_SPEC_OF_DATA
#define ROWS (TRAIN | SCORE | CHECK)

#define AT(member) FIELD_AT(struct job_spec, member)
#define TEXT(name, use, member, ...)                                                                         \
    {                                                                                                        \
        name, FIELD_TEXT, use, AT(member), .doc = __VA_ARGS__                                                \
    }
#define PATH(name, use, member, kind, ...)                                                                   \
    {                                                                                                        \
        name, FIELD_TEXT, use, AT(member), .path = kind, .doc = __VA_ARGS__                                  \
    }
#define FLAG(name, use, member, ...)                                                                         \
    {                                                                                                        \
        name, FIELD_FLAG, use, AT(member), .doc = __VA_ARGS__                                                \
    }
#define WHOLE(name, use, member, min, max, def, ...)                                                         \
    {                                                                                                        \
        name, FIELD_WHOLE, use, AT(member), min, max, def, .doc = __VA_ARGS__                                \
    }
#define NUMBER(name, use, member, min, max, def, ...)                                                        \
    {                                                                                                        \
        name, FIELD_NUMBER, use, AT(member), min, max, def, .doc = __VA_ARGS__                               \
    }
#define CHOICE(name, use, member, of, initial, ...)                                                          \
    {                                                                                                        \
        name, FIELD_CHOICE, use, AT(member), .choices = of, .def = initial, .doc = __VA_ARGS__               \
    }
#define LIST(name, use, member, of, ...)                                                                     \
    {                                                                                                        \
        name, FIELD_LIST, use, AT(member), .items = of, .doc = __VA_ARGS__                                   \
    }
#define OBJECT(name, use, member, ...)                                                                       \
    {                                                                                                        \
        name, FIELD_OBJECT, use, AT(member), .doc = __VA_ARGS__                                              \
    }

static const struct field_choice masks[] = {
    {"none", DATA_MASK_NONE}, {"prompt", DATA_MASK_PROMPT}, {"assistant", DATA_MASK_ASSISTANT}, {NULL, 0}};
static const struct field_choice overlongs[] = {
    {"truncate", DATA_TRUNCATE}, {"split", DATA_SPLIT}, {"drop", DATA_DROP}, {NULL, 0}};
static const struct field_choice weights[] = {{"stored", 0}, {"int8", 8}, {"int4", 4}, {NULL, 0}};
static const struct field_choice recomputes[] = {{"none", RECOMPUTE_NONE},
                                                 {"layer", RECOMPUTE_LAYER},
                                                 {"stage", RECOMPUTE_STAGE},
                                                 {"auto", RECOMPUTE_AUTO},
                                                 {NULL, 0}};
static const struct field_choice objectives[] = {{"time", false}, {"memory", true}, {NULL, 0}};
static const struct field_choice tune_types[] = {{"lora", false}, {"full", true}, {NULL, 0}};
static const struct field_choice inits[] = {{"random", true}, {NULL, 0}};
static const struct field_choice lr_kinds[] = {
    {"constant", LR_CONSTANT}, {"linear", LR_LINEAR}, {"cosine", LR_COSINE}, {NULL, 0}};

/* In the order of docs/openapi.json. A key with another meaning or default for another type of job
 * has two rows. */
static const struct field spec_fields[] = {
    PATH("model", 0, model, FIELD_MODEL, "Absolute path of a Hugging Face directory, the same on every node",
         .missing = "--model DIR is needed"),
    PATH("adapter", TRAIN | GENERATE | SCORE, adapter, FIELD_READS,
         "Absolute path of an adapter to start with"),
    WHOLE("seed", TRAIN | GENERATE | SCORE, seed, 0, SPEC_SEED_MAX, 0, "Seed of all random choices"),
    CHOICE("weights", TRAIN | GENERATE | SCORE, weight_bits, weights, 0,
           "The weights of the model are quantized when they are opened"),
    CHOICE("compute", TRAIN | GENERATE | SCORE, compute, job_computes, NUM_F32,
           "Number type of products with many rows; training takes only f32"),
    FLAG("dry_run", TRAIN | GENERATE | SCORE, dry_run, "Refused: POST /v1/plan plans a job"),
    FLAG("forecast", GENERATE | SCORE, forecast, "The nodes time the model first: the plan then has `speed`"),
    LIST("ids", GENERATE | SCORE, ids, "integer", "Tokens, instead of a text"),
    TEXT("text", SCORE, text, "The text that is scored"),
    WHOLE("top_logprobs", SCORE, top_logprobs, 0, SPEC_TOP_LOGPROBS_MAX, 0,
          "Number of likeliest tokens to return in each place; with text or ids"),

    PATH("data", TRAIN, data, FIELD_READS, "Absolute path of JSON lines, or of a directory with them",
         .missing = "--data FILE|DIR is needed: what to train on"),
    PATH("data", SCORE, data, FIELD_READS, "Absolute path of JSON lines, or of a directory with them"),
    PATH("data", CHECK, data, FIELD_READS, "Absolute path of JSON lines, or of a directory with them",
         .missing = "--data FILE|DIR is needed"),
    CHOICE("mask", ROWS, mask, masks, DATA_MASK_NONE,
           "Tokens left out of the loss: none, the prompt, or all but the assistant's turns"),
    CHOICE("overlong", ROWS, overlong, overlongs, DATA_TRUNCATE, "What happens to a row longer than seq_len"),
    TEXT("text_field", ROWS, fields.text, "Key of texts, if it is not \"text\""),
    TEXT("prompt_field", ROWS, fields.prompt, "Key of prompts, if it is not \"prompt\""),
    TEXT("completion_field", ROWS, fields.completion, "Key of completions, if it is not \"completion\""),
    TEXT("messages_field", ROWS, fields.messages, "Key of conversations, if it is not \"messages\""),
    TEXT("tools_field", ROWS, fields.tools, "Key of tools, if it is not \"tools\""),
    OBJECT("template_args", 0, template_args, "Variables of the chat template"),
    WHOLE("seq_len", TRAIN | CHECK, seq_len, 2, SPEC_SEQ_LEN_MAX, 512, "Tokens of a row, at most"),
    WHOLE("seq_len", SCORE, seq_len, 2, SPEC_SEQ_LEN_MAX, 2048, "Tokens of a row, at most"),
    FLAG("packing", ROWS, packing, "Short rows share one row of the batch"),
    FLAG("group_by_length", ROWS, group_by_length, "Rows of a step have about the same length"),

    PATH("valid", TRAIN, valid, FIELD_READS, "Absolute path of rows for the validation loss"),
    PATH("adapter_out", TRAIN, adapter_out, FIELD_WRITES, "Absolute path of the folder for the result",
         .missing = "--adapter-out DIR is needed: where the result goes"),
    PATH("init_adapter", TRAIN, init_adapter, FIELD_READS, "Absolute path of an adapter to train further"),
    PATH("log", TRAIN, log, FIELD_APPENDS, "Absolute path of a file that gets a line of JSON for each step"),
    PATH("schedule", TRAIN, schedule, FIELD_MAY_READ,
         "A name from GET /v1/schedules, or the absolute path of a file", .text = "1f1b"),
    CHOICE("recompute", TRAIN, recompute, recomputes, RECOMPUTE_AUTO,
           "What is computed again instead of kept"),
    CHOICE("objective", TRAIN, save_memory, objectives, false, "Aim of schedule auto"),
    LIST("split", TRAIN, split, "integer", "The number of layers of each stage"),
    LIST("split_nodes", TRAIN, split_nodes, "string", "The names of the nodes the split is meant for"),
    WHOLE("chunks", TRAIN, chunks, 1, SCHED_MAX_CHUNKS, 0, "Stages on each node"),
    WHOLE("microbatches", TRAIN, microbatches, 1, SPEC_BATCH_MAX, 0,
          "Microbatches in a step; instead of micro_batch_size"),
    CHOICE("fine_tune_type", TRAIN, full, tune_types, false,
           "lora: an adapter is trained; full: the weights of the model"),
    CHOICE("init", TRAIN, random_init, inits, false, "Full fine-tuning from random weights"),
    FLAG("resume", TRAIN, resume, "Continue from the state in adapter_out"),
    FLAG("trace", TRAIN, trace, "Every step is recorded, for GET /v1/jobs/{id}/timelines"),
    FLAG("no_shuffle", TRAIN, no_shuffle, "Keep the rows in their order"),
    TEXT("target_modules", TRAIN, targets,
         "Which linear layers get an adapter: names with commas between them, a pattern, or all-linear"),
    TEXT("layers", TRAIN, layers, "Which layers get an adapter, as 0-3,8"),
    WHOLE("num_layers", TRAIN, num_layers, 1, SPEC_LAYERS_MAX, 0,
          "Number of last layers that get an adapter"),
    FLAG("rslora", TRAIN, rslora, "Scale by alpha / sqrt(rank)"),
    WHOLE("rank", TRAIN, rank, 1, SPEC_RANK_MAX, 8, "Rank of the adapter's factors"),
    NUMBER("alpha", TRAIN, alpha, SPEC_ALPHA_MIN, SPEC_ALPHA_MAX, 16,
           "The product of the factors is scaled by alpha / rank"),
    NUMBER("dropout", TRAIN, dropout, 0, SPEC_DROPOUT_MAX, 0,
           "Share of the adapter's inputs that training drops at random"),
    NUMBER("lora_plus_ratio", TRAIN, plus_ratio, SPEC_PLUS_RATIO_MIN, SPEC_PLUS_RATIO_MAX, 1,
           "How much faster B learns than A"),
    WHOLE("batch_size", TRAIN, batch, 1, SPEC_BATCH_MAX, 4, "Rows of a step"),
    WHOLE("micro_batch_size", TRAIN, micro_batch, 1, SPEC_MICRO_BATCH_MAX, 1,
          "Rows that are computed at once"),
    WHOLE("iters", TRAIN, iters, 0, SPEC_STEPS_MAX, 0, "Steps"),
    WHOLE("epochs", TRAIN, epochs, 0, SPEC_EPOCHS_MAX, 0, "Passes over the data; instead of iters"),
    WHOLE("eval_every", TRAIN, eval_every, 0, SPEC_STEPS_MAX, 0, "Steps between validations; 0: at the end"),
    WHOLE("save_every", TRAIN, save_every, 0, SPEC_STEPS_MAX, 0, "Steps between saves; 0: at the end"),
    TEXT("sample_prompt", TRAIN, sample_prompt, "Text that the model continues, to show its progress"),
    WHOLE("sample_every", TRAIN, sample_every, 0, SPEC_STEPS_MAX, 0, "Steps between samples; 0: at the end"),
    WHOLE("sample_tokens", TRAIN, sample_tokens, 1, SPEC_SAMPLE_TOKENS_MAX, 64,
          "Tokens of a sample, at most"),
    WHOLE("warmup", TRAIN, warmup, 0, SPEC_STEPS_MAX, 0, "Steps in which the learning rate rises"),
    NUMBER("lr", TRAIN, lr, 0, SPEC_LR_MAX, SPEC_LR_LORA,
           "Learning rate; without it 0.0002 for full fine-tuning"),
    CHOICE("lr_schedule", TRAIN, lr_kind, lr_kinds, LR_CONSTANT,
           "How the learning rate falls after the warmup"),
    NUMBER("weight_decay", TRAIN, weight_decay, 0, SPEC_WEIGHT_DECAY_MAX, 0, "Of AdamW"),
    NUMBER("max_grad_norm", TRAIN, max_grad_norm, 0, SPEC_GRAD_NORM_MAX, 0, "0: gradients are not clipped"),
    /* Read by sweep_read: each adapter then has a spec of its own. */
    {"sweep", FIELD_LIST, TRAIN, 0, 0, .items = "string",
     .doc = "Several adapters at once, as [\"lr=1e-4,3e-4\"]"},

    TEXT("prompt", GENERATE, prompt, "The text that the model continues"),
    LIST("messages", GENERATE, messages, "object",
         "A conversation, instead of a prompt: {\"role\", \"content\"}"),
    LIST("tools", GENERATE, tools, "object", "For the chat template"),
    FLAG("chat", GENERATE, chat, "The prompt is what a user says"),
    TEXT("system", GENERATE, system, "Instructions to the model, put before the prompt; with chat"),
    LIST("stop", GENERATE, stop, "string", "Texts that end the answer"),
    WHOLE("max_tokens", GENERATE, max_tokens, 1, SPEC_TOKENS_MAX, 64, "Tokens of the answer, at most"),
    NUMBER("temperature", GENERATE, temperature, 0, SPEC_TEMPERATURE_MAX, 0,
           "0: the likeliest token each time"),
    NUMBER("top_p", GENERATE, top_p, SPEC_TOP_P_MIN, 1, 1,
           "Choose only among the likeliest tokens whose probabilities add up to this"),
    WHOLE("keep_alive", GENERATE, keep_alive, 0, SPEC_KEEP_ALIVE_MAX, 0,
          "Seconds that the model stays loaded for the next turn; with messages"),
    WHOLE("max_kv_size", GENERATE, max_kv_size, 1, SPEC_TOKENS_MAX, SPEC_KV_SIZE,
          "Tokens of a conversation for which memory is reserved"),
    {.name = NULL},
};

const struct field *job_spec_fields(void)
{
    return spec_fields;
}

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
    demand(r, !s->layers || !s->num_layers, "give --layers or --num-layers, not both");
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

static void cut_batch(struct job_spec *s, struct rules *r)
{
    demand(r, !s->microbatches || !has(r, "micro_batch_size"),
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
    demand(r, !s->split || strcmp(s->schedule, "auto") != 0,
           "--schedule auto chooses the split itself: \"split\" needs a schedule by name");
    check_lora(s, r);
    cut_batch(s, r);
    demand(r, s->valid || !s->eval_every, "--eval-every needs rows to evaluate: give --valid FILE|DIR too");
    demand(r, s->sample_prompt || !s->sample_every,
           "--sample-every needs a text to begin with: give --sample-prompt TEXT too");
    if (s->full && !has(r, "lr"))
        s->lr = SPEC_LR_FULL;
    demand(r, !s->group_by_length || !s->no_shuffle,
           "--group-by-length sorts the rows and --no-shuffle keeps their order: give only one of them");
    demand(r, !s->iters || !s->epochs, "give --iters or --epochs, not both");
    demand(r, !s->weight_bits || !s->full,
           "--weights int8 and int4 are for LoRA, not for --fine-tune-type full: quantized weights are not "
           "trained");
    demand(r, s->compute == NUM_F32,
           "--compute bf16 and int8 are for generate, chat and score: training is computed in f32");
}

static void check_generate(const struct job_spec *s, struct rules *r)
{
    demand(r, !s->chat || s->prompt, "--chat is for a PROMPT in words, not for --ids");
    demand(r, !s->system || s->chat, "--system needs --chat: a plain text has no instructions");
    demand(r, !s->template_args || s->chat || s->messages,
           "--template-arg needs --chat: a plain text has no template");
    demand(r, !s->messages || (!s->prompt && !s->ids), "\"messages\" are the prompt: give no other");
    demand(r, !s->keep_alive || s->messages,
           "\"keep_alive\" needs \"messages\": only a conversation goes on");
    demand(r, s->prompt || s->ids || s->messages, "a PROMPT, or --ids, is needed");
}

static void check_score(const struct job_spec *s, struct rules *r)
{
    demand(r, !!s->text + !!s->ids + !!s->data == 1, "give one of --text, --ids and --data");
    demand(r, !s->top_logprobs || !s->data,
           "--top-logprobs needs --text or --ids: ringd shows no single tokens of a data set");
}

int job_spec_read(struct job_spec *ret, enum job_type type, const json_t *json, struct err *err)
{
    struct job_spec s = {.type = type, .json = json};
    struct rules rules = {json, err, 0};
    const int r = fields_read(&s, spec_fields, JOB_SPEC_OF(type), json, err);
    if (r)
        return r;
    switch (type) {
    case JOB_TRAIN: check_train(&s, &rules); break;
    case JOB_GENERATE: check_generate(&s, &rules); break;
    default: check_score(&s, &rules); break;
    }
    if (!rules.failed)
        *ret = s;
    return rules.failed;
}

int job_spec_read_data(struct job_spec *ret, const json_t *json, struct err *err)
{
    struct job_spec s = {.type = JOB_TRAIN, .json = json};
    const int r = fields_read(&s, spec_fields, JOB_SPEC_OF_DATA, json, err);
    if (!r)
        *ret = s;
    return r;
}
