/* SPDX-License-Identifier: MIT
 *
 * The table of all that a spec may have. What reads it: job_spec.c for the daemon and the stage,
 * spec_options.c for ringctl's options and their help, stage_cell.c for the files that a stage may
 * open, and the tests that hold docs/openapi.json and docs/API.md against it. */
#include "daemon/common/job_plan.h"
#include "daemon/common/job_spec.h"
#include "engine/num/sum_tree.h"
#include "engine/pipe/sched.h"

#define TRAIN JOB_SPEC_OF(JOB_TRAIN)
#define GENERATE JOB_SPEC_OF(JOB_GENERATE)
#define SCORE JOB_SPEC_OF(JOB_SCORE)
#define SERVE JOB_SPEC_OF(JOB_SERVE)
#define EVAL JOB_SPEC_OF(JOB_EVAL)
#define CHAT JOB_SPEC_OF_CHAT
#define CHECK JOB_SPEC_OF_DATA
#define SWEEP JOB_SPEC_OF_SWEEP
#define DAEMON JOB_SPEC_OF_DAEMON
#define ROWS (TRAIN | SCORE | CHECK)
#define ANSWERS (GENERATE | SCORE | CHAT | SERVE)

/* `arg` stands for the value in the option's help. What is said behind the meaning is the row's
 * alone. */
#define AT(member) FIELD_AT(struct job_spec, member)
#define TEXT(name, use, member, arg, ...)                                                                    \
    {                                                                                                        \
        name, FIELD_TEXT, use, AT(member), 0, 0, 0, arg, .doc = __VA_ARGS__                                  \
    }
#define PATH(name, use, member, kind, arg, ...)                                                              \
    {                                                                                                        \
        name, FIELD_TEXT, use, AT(member), 0, 0, 0, arg, .path = kind, .doc = __VA_ARGS__                    \
    }
#define FLAG(name, use, member, ...)                                                                         \
    {                                                                                                        \
        name, FIELD_FLAG, use, AT(member), 0, 0, 0, "", .doc = __VA_ARGS__                                   \
    }
#define WHOLE(name, use, member, min, max, def, arg, ...)                                                    \
    {                                                                                                        \
        name, FIELD_WHOLE, use, AT(member), min, max, def, arg, .doc = __VA_ARGS__                           \
    }
#define NUMBER(name, use, member, min, max, def, arg, ...)                                                   \
    {                                                                                                        \
        name, FIELD_NUMBER, use, AT(member), min, max, def, arg, .doc = __VA_ARGS__                          \
    }
#define CHOICE(name, use, member, of, def, ...)                                                              \
    {                                                                                                        \
        name, FIELD_CHOICE, use, AT(member), 0, 0, def, "", .choices = of, .doc = __VA_ARGS__                \
    }
#define LIST(name, use, member, of, arg, ...)                                                                \
    {                                                                                                        \
        name, FIELD_LIST, use, AT(member), 0, 0, 0, arg, .items = of, .doc = __VA_ARGS__                     \
    }
#define OBJECT(name, use, member, arg, ...)                                                                  \
    {                                                                                                        \
        name, FIELD_OBJECT, use, AT(member), 0, 0, 0, arg, .doc = __VA_ARGS__                                \
    }
#define UNSAID(name, type, use, member, ...)                                                                 \
    {                                                                                                        \
        name, type, use, AT(member), .doc = __VA_ARGS__                                                      \
    }

/* Bounds of several rows. */
enum {
    STAGE_KV_TOKENS = 16 /* of a block */,
    BATCH_MAX = 65535,
    STEPS_MAX = 1 << 24,
    TOKENS_MAX = 1 << 20,
    SAMPLE_MAX = 4096,
    DAY_S = 86400
};
#define SEED_MAX 9e15   /* what JSON's numbers hold exactly */
#define IT_DEPENDS (-1) /* a default that is no value: the meaning says what it is then */
#define NOT_GIVEN 0     /* the same of a number that begins at 1 */

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
static const struct field_choice copies[] = {{"auto", true}, {"off", false}, {NULL, 0}};
static const struct field_choice elastics[] = {{"auto", false}, {"off", true}, {NULL, 0}};
static const struct field_choice losses[] = {
    {"shrink", ON_LOSS_SHRINK}, {"wait", ON_LOSS_WAIT}, {"stop", ON_LOSS_STOP}, {NULL, 0}};
static const struct field_choice nans[] = {{"stop", ON_NAN_STOP}, {"skip", ON_NAN_SKIP}, {NULL, 0}};
static const struct field_choice tasks[] = {{"auto", EVAL_AUTO},
                                            {"multiple-choice", EVAL_CHOICE},
                                            {"generation", EVAL_GENERATION},
                                            {"perplexity", EVAL_PERPLEXITY},
                                            {NULL, 0}};
static const struct field_choice objectives[] = {{"time", false}, {"memory", true}, {NULL, 0}};
static const struct field_choice tune_types[] = {{"lora", false}, {"full", true}, {NULL, 0}};
static const struct field_choice inits[] = {{"random", true}, {NULL, 0}};
static const struct field_choice lr_kinds[] = {
    {"constant", LR_CONSTANT}, {"linear", LR_LINEAR}, {"cosine", LR_COSINE}, {NULL, 0}};

/* In the order of the help. A key with another meaning, range or default for another use has a row
 * for each. */
static const struct field spec_fields[] = {
    /* The model. */
    PATH("model", TRAIN | GENERATE | SCORE | EVAL, model, FIELD_MODEL, "DIR",
         "model: a Hugging Face directory or a GGUF file with the same path on every node, or ORG/NAME or "
         "ORG/NAME@REVISION on a hub, which then comes to each node",
         .missing = "--model DIR is needed"),
    PATH("model", SERVE, model, FIELD_MODEL, "DIR",
         "model: a Hugging Face directory or a GGUF file with the same path on every node, or ORG/NAME or "
         "ORG/NAME@REVISION on a hub, which then comes to each node"), /* list and stop take none */
    PATH("model", CHAT, model, FIELD_MODEL, "DIR",
         "model with a chat template: a Hugging Face directory or a GGUF file with the same path on every "
         "node, or ORG/NAME or ORG/NAME@REVISION on a hub, which then comes to each node",
         .missing = "--model DIR is needed"),
    PATH("model", CHECK, model, FIELD_MODEL, "DIR",
         "model with the tokenizer and chat template, as a Hugging Face directory or a GGUF "
         "file",
         .missing = "--model DIR is needed"),
    PATH("adapter", GENERATE | SCORE | EVAL | CHAT, adapter, FIELD_ADAPTER, "DIR",
         "apply this adapter to the model: a directory, or ORG/NAME or ORG/NAME@REVISION of the store or a "
         "hub"),
    CHOICE("weights", TRAIN | ANSWERS | EVAL, weight_bits, weights, 0,
           "take the weights of the model as they are stored, or quantize them to 8 or 4 "
           "bits when the job "
           "starts"),
    CHOICE("compute", TRAIN, compute, job_computes, NUM_F32,
           "number type of products with the weights of the model, forward and back: f32; bf16, up to 1.8 "
           "times as fast where CPUs have AVX512_BF16; int8, for LoRA, up to twice as fast where they have "
           "VNNI; either more than that where they have AMX. What is trained, sums and all else stay f32"),
    CHOICE("compute", ANSWERS | EVAL, compute, job_computes, NUM_F32,
           "number type of products: f32; bf16, up to twice as fast for prompts and data sets "
           "where CPUs have AVX512_BF16, and three times with AMX; int8, for weights of 8 or 4 bits. "
           "bf16 and int8 are slightly less exact"),

    /* Serving. */
    TEXT("name", SERVE, served_name, "NAME",
         "name of the model for clients (default: the last part of --model)"),
    {"adapters", FIELD_OBJECT, SERVE, AT(adapters), 0, 0, 0, "NAME=DIR", .path = FIELD_ADAPTER,
     .spelling = "adapter",
     .doc = "also serve the model with this adapter, a directory or ORG/NAME, under the name NAME "
            "(default: the last part of DIR); up to 16 of them"},
    WHOLE("max_context", SERVE, max_context, 2, TOKENS_MAX, NOT_GIVEN, "N",
          "limit a prompt and its answer together to this many tokens (default: what the "
          "model was made for, "
          "at most 8192)"),
    WHOLE("max_kv_size", SERVE, max_kv_size, STAGE_KV_TOKENS, 1 << 26, NOT_GIVEN, "N",
          "reserve memory for this many tokens of all requests together (default: four times "
          "--max-context)"),
    WHOLE("max_num_seqs", SERVE, max_num_seqs, 1, JOB_SERVED_MAX, 32, "N",
          "work on this many requests at once, on each node"),
    WHOLE("prefill_step_size", SERVE, prefill_step, 1, 4096, 128, "N",
          "read prompts in pieces of this many tokens; answers under way wait for one piece "
          "at most"),
    WHOLE("draft_max", SERVE, draft_max, 0, JOB_DRAFT_MAX, 16, "N",
          "guess this many tokens of an answer at most, from the text before them or with "
          "--draft-model or --draft-mtp, where that is faster; the answers are the same; 0: none"),
    PATH("draft_model", SERVE, draft_model, FIELD_MODEL, "DIR",
         "also guess tokens with this smaller model of the same vocabulary: a directory, a "
         "GGUF file or a name as of --model, on the head's node alone"),
    FLAG("draft_mtp", SERVE, draft_mtp,
         "also guess tokens with the model's own layer that predicts a further token (multi-token "
         "prediction), on the head's node; for DeepSeek-V3, GLM-4.5, Qwen3-Next and Qwen3.5, where the "
         "files have it"),
    CHOICE("draft_weights", SERVE, draft_bits, weights, 0,
           "take the weights of --draft-model as they are stored, or quantize them to 8 or 4 "
           "bits"),
    CHOICE("kv", SERVE, kv_type, job_kv_types, KV_F32,
           "number type of stored keys and values: f32; bf16, for half the memory; int8, for about a "
           "quarter. bf16 and int8 are slightly less exact"),

    /* Generation. */
    WHOLE("max_tokens", GENERATE, max_tokens, 1, TOKENS_MAX, 64, "N", "generate at most this many tokens"),
    WHOLE("max_tokens", CHAT, max_tokens, 1, TOKENS_MAX, 512, "N",
          "generate at most this many tokens for each answer; the default is not for a model "
          "that is served"),
    NUMBER("temperature", GENERATE, temperature, 0, 100, 0, "X",
           "scale of randomness in the choice of tokens; 0 always takes the likeliest token"),
    NUMBER("temperature", CHAT, temperature, 0, 100, 0.7, "X",
           "scale of randomness in the choice of tokens; 0 always takes the likeliest token"),
    NUMBER("top_p", GENERATE, top_p, 1e-6, 1, 1, "P",
           "choose only among the likeliest tokens whose probabilities add up to this"),
    NUMBER("top_p", CHAT, top_p, 1e-6, 1, 0.9, "P",
           "choose only among the likeliest tokens whose probabilities add up to this"),
    WHOLE("top_k", GENERATE | CHAT, top_k, 0, 1 << 24, 0, "K",
          "choose only among this many of the likeliest tokens; 0 does not limit them"),
    NUMBER("min_p", GENERATE | CHAT, min_p, 0, 1, 0, "P",
           "choose only among tokens with at least this share of the likeliest token's "
           "probability"),
    NUMBER("repetition_penalty", GENERATE | CHAT, repetition_penalty, 0.01, 100, 1, "X",
           "make tokens less likely that the prompt or the answer has already: divide their "
           "positive logits "
           "by this, multiply the others; 1 does nothing"),
    NUMBER("presence_penalty", GENERATE | CHAT, presence_penalty, -100, 100, 0, "X",
           "subtract this from the logit of each token that the answer has already"),
    NUMBER("frequency_penalty", GENERATE | CHAT, frequency_penalty, -100, 100, 0, "X",
           "subtract this from a token's logit once for each time that the answer has it"),
    WHOLE("repeat_last_n", GENERATE | CHAT, repeat_last_n, 0, JOB_REPEAT_MAX, 64, "N",
          "let the penalties look at this many of the last tokens"),
    OBJECT("logit_bias", GENERATE | CHAT, logit_bias, "ID=X",
           "add this number, from -100 to 100, to the logit of the token with this id"),
    FLAG("logprobs", GENERATE, logprobs,
         "with --json: also print the log-probability of each generated token, before "
         "penalties and cuts"),
    WHOLE("top_logprobs", GENERATE, top_logprobs, 0, 20, 0, "N",
          "with --logprobs: also print this many of the likeliest tokens at each position"),
    WHOLE("seed", GENERATE, seed, 0, SEED_MAX, 0, "N", "seed of the random choice of tokens"),
    WHOLE("seed", CHAT, seed, 0, SEED_MAX, 0, "N",
          "seed of the random choice of tokens in the first answer; each later answer uses "
          "the next seed"),
    LIST("stop", GENERATE, stop, "string", "TEXT", "end the answer where such a text appears"),
    LIST("ids", GENERATE, ids, "integer", "1,2,3", "prompt as token ids, instead of a text"),
    FLAG("chat", GENERATE, chat,
         "render the prompt with the model's chat template, as a message of the user"),
    TEXT("system", GENERATE, system, "S",
         "with --chat: put these instructions to the model before the message"),
    TEXT("system", CHAT, system, "S", "put these instructions to the model before the conversation"),
    OBJECT("template_args", GENERATE, template_args, "NAME=VALUE",
           "with --chat: variables of the template, such as enable_thinking=false",
           .spelling = "template-arg"),
    WHOLE("keep_alive", CHAT, keep_alive, 0, DAY_S, 300, "SECONDS",
          "keep the model and the conversation in memory for this time after an answer; "
          "another job frees "
          "them earlier; 0 frees them at once"),
    WHOLE("max_kv_size", CHAT, max_kv_size, 1, TOKENS_MAX, 4096, "N",
          "reserve memory for this many tokens of the conversation; a longer conversation is "
          "computed "
          "again, with memory for as many tokens more"),

    /* Scoring. */
    TEXT("text", SCORE, text, "S", "text to score"),
    LIST("ids", SCORE, ids, "integer", "1,2,3", "text to score as token ids, instead of --text"),
    PATH("data", SCORE, data, FIELD_READS, "FILE|DIR",
         "data set to score, as for training, instead of --text; in a directory, its "
         "test.jsonl"),
    WHOLE("top_logprobs", SCORE, top_logprobs, 0, 20, 0, "N",
          "with --text or --ids: also print this many of the likeliest tokens at each "
          "position"),

    /* Evaluation. */
    PATH("data", EVAL, data, FIELD_READS, "FILE|DIR",
         "questions, as JSON lines or a JSON array; in a directory, its test.jsonl",
         .missing = "--data FILE|DIR is needed: what to evaluate with"),
    CHOICE(
        "task", EVAL, task, tasks, EVAL_AUTO,
        "multiple-choice: is the right one of \"choices\" the likeliest; generation: does the model write "
        "the \"completion\" behind the \"prompt\"; perplexity: how likely is \"text\"; auto: what fits the "
        "keys of the first row"),
    WHOLE("limit", EVAL, limit, 1, 1 << 30, NOT_GIVEN, "N", "take only this many rows, the first ones"),
    WHOLE("seq_len", EVAL, seq_len, 2, TOKENS_MAX, 2048, "N",
          "limit a sequence to this many tokens, and to those that the model was made for: longer texts "
          "are scored in windows, longer prompts lose their beginning"),
    WHOLE("max_tokens", EVAL, max_tokens, 1, TOKENS_MAX, 256, "N",
          "of generation: at most this many tokens for each answer"),
    LIST("stop", EVAL, stop, "string", "TEXT",
         "of generation: end an answer where such a text appears (default: an empty line)"),

    /* Data sets. */
    PATH("data", TRAIN, data, FIELD_READS, "FILE|DIR",
         "rows to learn, as JSON lines or a JSON array: texts, prompts with completions, "
         "conversations, "
         "instructions, or token ids; in a directory, its train.jsonl",
         .missing = "--data FILE|DIR is needed: what to train on"),
    PATH("data", CHECK, data, FIELD_READS, "FILE|DIR",
         "rows to check, as for train; in a directory, ringctl checks train, valid and test",
         .missing = "--data FILE|DIR is needed"),
    CHOICE("mask", ROWS, mask, masks, DATA_MASK_NONE,
           "exclude tokens from training: none; prompt: those before the completion or the "
           "last turn; "
           "assistant: all but the assistant's turns and their end tokens"),
    WHOLE("seq_len", TRAIN | CHECK, seq_len, 2, TOKENS_MAX, 512, "N", "limit each row to this many tokens"),
    WHOLE("seq_len", SCORE, seq_len, 2, TOKENS_MAX, 2048, "N", "limit each row to this many tokens"),
    CHOICE("overlong", ROWS, overlong, overlongs, DATA_TRUNCATE,
           "what happens to a row longer than --seq-len: truncate cuts its end, split makes "
           "several rows, "
           "drop leaves it out"),
    TEXT("text_field", ROWS | EVAL, fields.text, "KEY",
         "name of the field with a row's text (default: text)"),
    TEXT("prompt_field", ROWS | EVAL, fields.prompt, "KEY",
         "name of the field with a row's prompt (default: prompt)"),
    TEXT("completion_field", ROWS | EVAL, fields.completion, "KEY",
         "name of the field with a row's completion (default: completion)"),
    TEXT("messages_field", ROWS, fields.messages, "KEY",
         "name of the field with a conversation's turns (default: messages or conversations)"),
    TEXT("tools_field", ROWS, fields.tools, "KEY",
         "name of the field with the functions that a conversation may use (default: tools)"),
    OBJECT("template_args", ROWS | CHAT, template_args, "NAME=VALUE",
           "variables of the chat template, such as enable_thinking=false", .spelling = "template-arg"),
    FLAG("packing", TRAIN | CHECK, packing,
         "pack several rows into --seq-len tokens, each with its own positions and "
         "attention; options that "
         "count rows then count packs"),
    FLAG("group_by_length", TRAIN, group_by_length,
         "put rows of similar length into the same step, so that nodes wait less for each "
         "other"),

    CHOICE("loss", TRAIN | CHECK, loss, job_losses, LOSS_NLL,
           "what training makes small: nll, how unlikely the tokens of the rows are; dpo, of rows with two "
           "answers, how much the adapter prefers the rejected one, compared with the model without "
           "adapter; orpo, the same without that comparison, and how unlikely the chosen one is"),
    NUMBER(
        "beta", TRAIN | SWEEP, beta, 1e-6, 1000, 0.1, "X",
        "of --loss dpo: a larger value keeps the adapter closer to the model; of --loss orpo: the weight of "
        "the preference beside the chosen answer"),

    /* The result, and what it begins with. */
    PATH("adapter_out", TRAIN, adapter_out, FIELD_WRITES, "DIR",
         "write the adapter, or with --fine-tune-type full the model, to this directory; "
         "ringctl fetches the "
         "result if the daemon cannot write there",
         .missing = "--adapter-out DIR is needed: where the result goes"),
    TEXT("serve_as", TRAIN, serve_as, "NAME[@DEPLOYMENT]",
         "serve the adapter under this name beside the model of a deployment (see `ringctl serve`) "
         "on any node: each one that is saved, and the last; without @DEPLOYMENT, of the only one "
         "with the same --model"),
    CHOICE("fine_tune_type", TRAIN, full, tune_types, false, "train an adapter, or all weights of the model"),
    CHOICE("init", TRAIN, random_init, inits, false,
           "begin with random weights instead of the model's weights"),
    PATH("init_adapter", TRAIN, init_adapter, FIELD_ADAPTER, "DIR",
         "begin with this adapter, a directory or ORG/NAME, and keep its rank and layers"),
    FLAG("resume", TRAIN, resume, "continue the run in --adapter-out"),

    /* The adapter. */
    WHOLE("rank", TRAIN | SWEEP, rank, 1, 4096, 8, "N", "rank of the adapter"),
    NUMBER("alpha", TRAIN | SWEEP, alpha, 1e-6, 1e6, 16, "X",
           "scale of the adapter; ringd divides it by the rank"),
    FLAG("rslora", TRAIN, rslora,
         "divide --alpha by the square root of the rank, not by the rank (rank-stabilized "
         "LoRA)"),
    CHOICE(
        "lora_init", TRAIN | SWEEP, lora_init, job_lora_inits, LORA_INIT_UNIFORM,
        "what the matrices A and B of the adapter begin with, as PEFT's init_lora_weights: uniform or "
        "gaussian random numbers in A and zeros in B; orthogonal, random numbers in both, whose product is "
        "zero; pissa, the principal singular vectors of the weight, and the adapter is saved with twice the "
        "rank"),
    FLAG("dora", TRAIN, dora,
         "train DoRA: a LoRA with a magnitude for each output, as PEFT's use_dora and mlx-lm's dora"),
    NUMBER("lora_plus_ratio", TRAIN | SWEEP, plus_ratio, 1e-3, 1e4, 1, "X",
           "use LoRA+: the learning rate of matrix B is this many times --lr"),
    NUMBER("layer_lr_decay", TRAIN | SWEEP, layer_decay, 1e-3, 1, 1, "X",
           "multiply the learning rate of each layer below the last by this once more: with 0.9, the last "
           "layer learns at --lr and the one below it at 0.9 of that"),
    WHOLE("num_layers", TRAIN, num_layers, 1, 65535, NOT_GIVEN, "N",
          "put the adapter on this many of the last layers only"),
    TEXT("layers", TRAIN, layers, "FIRST-LAST", "put the adapter on these layers only, counted from 0"),
    NUMBER("dropout", TRAIN | SWEEP, dropout, 0, 0.99, 0, "P",
           "share of the adapter's inputs that training drops at random"),
    TEXT("target_modules", TRAIN, targets, "LIST",
         "put the adapter on these linear layers: last words of their names, such as "
         "q_proj,mlp.up_proj,experts.*.up_proj, or all-linear (default: queries and values "
         "of the "
         "attention)"),

    /* Steps. */
    WHOLE("batch_size", TRAIN, batch, 1, BATCH_MAX, 4, "N", "number of rows in a step"),
    WHOLE("micro_batch_size", TRAIN, micro_batch, 1, 4096, 1, "N",
          "number of rows in a microbatch, which passes through the ring as a unit"),
    WHOLE("iters", TRAIN, iters, 1, STEPS_MAX, NOT_GIVEN, "N", "number of steps to train"),
    WHOLE("epochs", TRAIN, epochs, 1, 1 << 20, NOT_GIVEN, "N",
          "number of passes over the data, instead of --iters (default: 1, if --iters is not "
          "given)"),
    FLAG("no_shuffle", TRAIN, no_shuffle, "keep the rows in the order of the data"),
    WHOLE("seed", TRAIN | SWEEP, seed, 0, SEED_MAX, 0, "N", "seed of all random choices"),

    /* The optimizer. */
    NUMBER("lr", TRAIN | SWEEP, lr, 0, 100, IT_DEPENDS, "X",
           "learning rate (default: 5e-4 for an adapter, 2e-4 for a whole model; of --loss dpo 5e-6, of orpo "
           "8e-5 and 8e-6)"),
    LIST("sweep", TRAIN, sweep, "string", "OPTION=V,V",
         "train one adapter for each value of an option (lr, rank, alpha, seed, ...), all at "
         "once on the "
         "same weights. Several of these train all combinations. Each result gets a folder in "
         "--adapter-out"),
    CHOICE("lr_schedule", TRAIN | SWEEP, lr_kind, lr_kinds, LR_CONSTANT, "how the learning rate falls"),
    WHOLE("warmup", TRAIN | SWEEP, warmup, 0, STEPS_MAX, 0, "N",
          "number of steps in which the learning rate rises"),
    NUMBER("weight_decay", TRAIN | SWEEP, weight_decay, 0, 100, 0, "X", "weight decay of AdamW"),
    NUMBER("max_grad_norm", TRAIN | SWEEP, max_grad_norm, 0, 1e9, 0, "X",
           "clip gradients to this norm; 0 does not clip"),

    /* The pipeline. */
    PATH("schedule", TRAIN, schedule, FIELD_MAY_READ, "auto|" SCHED_CHOICES "|FILE",
         "order of work in the pipeline. auto measures the nodes and chooses the fastest "
         "schedule, split of "
         "layers and microbatches. A file is a custom schedule: see `ringctl schedule`",
         .text = "1f1b"),
    TEXT(
        "parallel", TRAIN, parallel, "auto|dp=D,tp=T,pp=P|pp=P+Q",
        "train D replicas of a pipeline of P nodes, which share the microbatches of each step (default: dp=1 "
        "on all nodes); the result is the same to the bit. pp=1+2: one replica on the node that is asked, "
        "one on the next two. With tp=T, T nodes share each stage, in each replica. auto measures the nodes "
        "and chooses dp, tp, pp and nodes; with it --schedule is auto, too, unless given. It also chooses "
        "the "
        "rows of a microbatch, which changes last bits: give --micro-batch-size to keep them"),
    TEXT("parallel", GENERATE, parallel, "auto|tp=T,pp=P",
         "cut the model into P stages, and have T nodes share each of them: they compute each token together "
         "(default: tp=1 on all nodes); the result is the same to the bit. auto measures the nodes and "
         "chooses tp, pp and nodes so that all of the answer is there first"),
    TEXT("parallel", CHAT | SERVE, parallel, "tp=T,pp=P",
         "cut the model into P stages, and have T nodes share each of them: they compute each token together "
         "(default: tp=1 on all nodes); the result is the same to the bit"),
    WHOLE("grad_groups", TRAIN, grad_groups, 1, SUM_TREE_LEAVES, NOT_GIVEN, "N",
          "add gradients up in N groups of microbatches, and these as a tree: a replica takes whole groups. "
          "Each "
          "doubling takes memory for one more gradient (default: 8 for an adapter, 2 for a whole model)"),
    WHOLE(
        "zero", TRAIN, zero, 0, 1, 0, "0|1",
        "1: divide AdamW's moments and its work among the replicas of a full fine-tuning. It saves "
        "memory; no copies are kept then (--copies), so a job that loses a node goes on from its last save"),
    CHOICE("objective", TRAIN, save_memory, objectives, false,
           "aim of --schedule auto: the shortest step, or the least memory on the fullest node"),
    WHOLE("chunks", TRAIN, chunks, 1, SCHED_MAX_CHUNKS, NOT_GIVEN, "N",
          "number of stages on each node, for interleaved-1f1b and looped-bfs (default: 2)"),
    CHOICE("copies", TRAIN, copies, copies, true,
           "after each step, each node keeps what it trains in memory, and a copy of what "
           "its neighbour "
           "trains; with each save also on its disk. A job that loses a stage, a node or all "
           "nodes goes on "
           "from there. auto: where there is memory for it"),
    CHOICE("recompute", TRAIN, recompute, recomputes, RECOMPUTE_AUTO,
           "recompute forwards to save memory: none, of each layer, of each node's whole "
           "stage, or auto: on "
           "nodes that lack memory, and on all nodes once memory has run out"),
    WHOLE("microbatches", TRAIN, microbatches, 1, BATCH_MAX, NOT_GIVEN, "N",
          "number of microbatches in a step, instead of --micro-batch-size"),

    /* What is seen of it on the way. */
    PATH("valid", TRAIN, valid, FIELD_READS, "FILE|DIR",
         "rows to evaluate, in the form of --data; in a directory, its valid.jsonl"),
    {"eval_data", FIELD_OBJECT, TRAIN, AT(eval_data), 0, 0, 0, "NAME=FILE|DIR", .path = FIELD_READS,
     .doc =
         "also evaluate these rows whenever --valid is, under the name NAME (default: the last part of the "
         "path); up to 8 of them, each with a curve of its own"},
    PATH("eval_questions", TRAIN, eval_questions, FIELD_READS, "FILE|DIR",
         "let the model answer these questions whenever --valid is evaluated, and count the exact matches: "
         "rows "
         "with \"prompt\" and \"completion\", as for `ringctl eval`; in a directory, its test.jsonl"),
    WHOLE("eval_every", TRAIN, eval_every, 0, STEPS_MAX, 0, "N",
          "number of steps between evaluations; 0 evaluates once before and once after "
          "training"),
    WHOLE("early_stop", TRAIN, early_stop, 0, STEPS_MAX, 0, "N",
          "end after N evaluations without a better loss, and keep the best adapter or model "
          "in the folder "
          "best of --adapter-out; 0 trains to the end"),
    TEXT("sample_prompt", TRAIN, sample_prompt, "TEXT",
         "let the model continue this text from time to time, to show its progress"),
    WHOLE("sample_every", TRAIN, sample_every, 0, STEPS_MAX, 0, "N",
          "number of steps between samples; 0 prints one at the end"),
    WHOLE(
        "sample_tokens", TRAIN, sample_tokens, 1, SAMPLE_MAX, 64, "N",
        "limit each sample, and each answer to --eval-questions, to this many tokens"), /* it is an event of its job */
    WHOLE("save_every", TRAIN, save_every, 0, STEPS_MAX, 0, "N",
          "number of steps between saves; 0 saves every five minutes, and at the end"),
    CHOICE("on_nan", TRAIN, on_nan, nans, ON_NAN_STOP,
           "when the loss or a gradient of a step is not finite: stop saves the state before "
           "that step and "
           "ends the job; skip leaves the step out and goes on"),
    CHOICE("elastic", TRAIN, is_fixed, elastics, false,
           "auto: if enough steps are left, the job moves to more nodes when one joins or "
           "comes back, and "
           "its layers move when a node becomes slow; off: they do not"),
    WHOLE("keep_alive", SERVE, unload_after, 0, DAY_S, 0, "SECONDS",
          "let the memory go after so long without a request; the next request loads the model again, and "
          "waits for it; 0: it stays loaded"),
    CHOICE("elastic", SERVE, is_fixed, elastics, false,
           "auto: the model is spread over more nodes when one joins or comes back; off: it stays where it "
           "is until it loses a node"),
    CHOICE("on_loss", TRAIN | ANSWERS | EVAL, on_loss, losses, ON_LOSS_SHRINK,
           "when a node is lost: go on without it after --wait-for, wait until it is back, "
           "or end the job"),
    WHOLE("wait_for", TRAIN, wait_for, 0, 7 * DAY_S, 60, "SECONDS",
          "wait so long for a node that was lost, before the job goes on without it"),
    WHOLE("wait_for", ANSWERS | EVAL, wait_for, 0, 7 * DAY_S, 10, "SECONDS",
          "wait so long for a node that was lost, before the job goes on without it"),
    PATH("log", TRAIN, log, FIELD_APPENDS, "FILE", "write one JSON line for each step to this file"),
    FLAG("forecast", GENERATE | SCORE | SERVE, forecast,
         "time the nodes first, to forecast the speed; `ringctl job` compares the forecast "
         "with the measured "
         "speed"),

    /* What has no option: other clients say it, or ringctl by itself. */
    UNSAID("prompt", FIELD_TEXT, GENERATE, prompt, "the text that the model continues"),
    UNSAID("messages", FIELD_LIST, GENERATE, messages,
           "a conversation, instead of a prompt: {\"role\", \"content\"}", .items = "object"),
    UNSAID("tools", FIELD_LIST, GENERATE, tools, "functions for the chat template", .items = "object"),
    UNSAID("keep_alive", FIELD_WHOLE, GENERATE, keep_alive,
           "seconds that the model stays loaded for the next turn; with messages", .max = DAY_S),
    UNSAID("max_kv_size", FIELD_WHOLE, GENERATE, max_kv_size,
           "tokens of a conversation for which memory is reserved", .min = 1, .max = TOKENS_MAX, .def = 4096),
    UNSAID("split", FIELD_LIST, TRAIN, split,
           "number of layers of each stage; of replicas with unlike numbers of nodes those of each node, one "
           "replica after the other",
           .items = "integer"),
    UNSAID("split_nodes", FIELD_LIST, TRAIN, split_nodes, "names of the nodes that the split is meant for",
           .items = "string"),
    UNSAID("packing", FIELD_FLAG, SCORE, packing, "pack several rows into seq_len tokens"),
    UNSAID("trace", FIELD_FLAG, TRAIN, trace, "record every step, for GET /v1/jobs/{id}/timelines"),
    UNSAID("dry_run", FIELD_FLAG, TRAIN | GENERATE | SCORE | SERVE | EVAL, dry_run,
           "refused: POST /v1/plan plans a job"),

    /* What the daemon adds. */
    UNSAID("kept_in", FIELD_TEXT, DAEMON, kept_in, "where the result stays, to be fetched"),
    UNSAID("rescue_dir", FIELD_TEXT, DAEMON, rescue_dir,
           "where the result goes if there is no room in adapter_out", .path = FIELD_WRITES),
    UNSAID("said", FIELD_OBJECT, DAEMON, said,
           "of a job that was interrupted: the latest step of each kind of event"),
    UNSAID("so_far", FIELD_OBJECT, DAEMON, so_far,
           "of a generation that was interrupted: what has been read and generated (so_far.h)"),
    UNSAID("log_from", FIELD_WHOLE, DAEMON, log_from,
           "bytes of log that were there at the last save, or before the job", .max = FIELD_ANY),
    UNSAID("log_step", FIELD_WHOLE, DAEMON, log_step, "the last step that is in them", .max = FIELD_ANY),
    UNSAID("submitted", FIELD_WHOLE, DAEMON, submitted, "when the job was, in seconds since 1970",
           .max = FIELD_ANY),
    {"changes", FIELD_WHOLE, DAEMON, 0, 0, .max = FIELD_ANY,
     .doc = "of a job that serves: how often its adapters were changed"},
    UNSAID("is_again", FIELD_FLAG, DAEMON, is_again,
           "of a job that serves: it was planned before, here or on another head"),
    UNSAID("goes_on", FIELD_FLAG, DAEMON, goes_on,
           "of a job that was interrupted: it has saved a state in adapter_out"),
    UNSAID("state_dir", FIELD_TEXT, DAEMON, state_dir, "the daemon's own folder"),
    {.name = NULL},
};

const struct field *job_spec_fields(void)
{
    return spec_fields;
}
