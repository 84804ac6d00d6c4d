/* SPDX-License-Identifier: MIT
 *
 * The job as the user asked for it: ringctl's options as one checked struct. The head's daemon and
 * its stage read it. Pure: any thread. */
#ifndef DAEMON_JOB_SPEC_H
#define DAEMON_JOB_SPEC_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/common/fields.h"
#include "daemon/common/job_type.h"
#include "engine/err.h"
#include "engine/layer/kv_type.h"
#include "engine/layer/preference.h"
#include "engine/model/tune.h"
#include "engine/pipe/plan.h"
#include "engine/train/data.h"
#include "engine/train/eval_set.h"
#include "engine/num/num.h"
#include "engine/train/lr.h"

/* What becomes of a job that loses a node. */
enum on_loss { ON_LOSS_SHRINK, ON_LOSS_WAIT, ON_LOSS_STOP };
/* What becomes of a step whose loss or gradient is not finite. */
enum on_nan { ON_NAN_STOP, ON_NAN_SKIP };
enum recompute { RECOMPUTE_NONE, RECOMPUTE_LAYER, RECOMPUTE_STAGE, RECOMPUTE_AUTO };

/* Of penalties: the most tokens that they look at, and the most biases. */
enum { JOB_REPEAT_MAX = 1024, JOB_BIASES_MAX = 1024 };
enum { JOB_EVAL_SETS = 8 }; /* beside --valid */

struct job_spec {
    enum job_type type;
    const json_t *json; /* borrowed: strings below point into it */
    const char *model, *adapter, *data, *valid, *adapter_out, *init_adapter, *log, *schedule, *targets,
        *layers, *prompt, *text;
    const char *system;        /* with chat */
    const char *serve_as;      /* of a training job, or NULL: NAME or NAME@DEPLOYMENT */
    const char *sample_prompt; /* of a training job, or NULL: text to go on from every sample_every steps */
    const char
        *eval_questions;     /* of a training job, or NULL: a file of prompts and what belongs behind them */
    const json_t *eval_data; /* of a training job: {name of a further set to evaluate: path}, or NULL */
    const json_t *messages, *tools,
        *template_args;       /* of a conversation; NULL where the prompt is all of it */
    const json_t *logit_bias; /* {id of a token: what is added to its logit}, or NULL; checked by the head */
    const json_t *ids, *stop;
    /* Of a job that serves: what clients call the model, and the model with each adapter; positions
     * of a request, 0: as many as the model was made for; sequences and rows of a prompt in a
     * microbatch; how keys and values are kept. */
    const char *served_name;
    const json_t *adapters;  /* {name for clients: folder}, or NULL: none */
    const char *draft_model; /* one that guesses tokens, on the head alone; NULL: there is none */
    size_t draft_bits;       /* of it, as weight_bits */
    bool draft_mtp;          /* the model's own layer that predicts a token more guesses */
    size_t max_context, max_num_seqs, prefill_step, draft_max;
    enum kv_type kv_type;
    const json_t *sweep; /* texts as "lr=1e-4,3e-4", or NULL: several adapters at once */
    size_t weight_bits;  /* 8 or 4: --weights int8, int4; 0: stored */
    enum num_compute compute;
    enum eval_task task; /* of a job that evaluates, and of how many rows; 0: all */
    size_t limit;
    bool logprobs;             /* of each token that is generated */
    bool chat;                 /* the prompt goes through the chat template */
    struct data_fields fields; /* of data: what its keys are called, */
    enum data_mask mask;       /* and what of it is trained */
    enum data_overlong overlong;
    enum loss_kind loss;
    enum lora_init lora_init;
    bool packing, group_by_length;
    bool full, random_init, resume, no_shuffle, rslora, dora, dry_run, forecast;
    bool trace; /* every step is recorded for people to look at */
    enum recompute recompute;
    bool copies;
    bool is_fixed; /* it stays on the nodes that it began on */
    enum on_loss on_loss;
    enum on_nan on_nan;
    size_t early_stop;                /* end after so many evaluations without a better loss; 0: never */
    size_t wait_for;                  /* seconds, with ON_LOSS_SHRINK */
    bool save_memory;                 /* --objective memory */
    const json_t *split;              /* layers of each stage as asked for, or NULL */
    const json_t *split_nodes;        /* names of the nodes that is meant for, or NULL */
    const char *parallel;             /* as it was asked for, or NULL: */
    bool any_parallel;                /* auto: whatever is fastest, or */
    size_t replicas, places;          /* of the pipeline, and nodes of each; 0: not said */
    size_t unlike[PLAN_MAX_REPLICAS]; /* nodes of each replica, where these are not as many; else 0 */
    size_t slices;                    /* nodes that share a stage; 0: not said */
    size_t grad_groups;   /* of a step's microbatches, whose gradients are added up first; 0: not said */
    size_t zero;          /* 1: replicas share out moments and update of what is trained */
    size_t microbatches;  /* of a step, 0 = as many as micro_batch makes */
    bool has_micro_batch; /* micro_batch was asked for */
    size_t chunks;        /* stages per node, 0 = what the schedule usually has */
    size_t rank, num_layers, batch, micro_batch, seq_len, iters, epochs, eval_every, save_every, warmup,
        max_tokens, top_k, repeat_last_n, sample_every, sample_tokens, top_logprobs;
    size_t
        keep_alive; /* seconds that the model stays loaded after an answer, for what is said next; 0: not at all */
    size_t
        unload_after; /* of a job that serves: seconds without a request until it lets its memory go; 0: never */
    size_t max_kv_size; /* with it: room for the conversation grows by so many positions; of a job that
                           serves: positions of all requests together, 0: of four */
    double beta, alpha, dropout, plus_ratio, layer_decay, lr, weight_decay, max_grad_norm, temperature, top_p,
        min_p, repetition_penalty, presence_penalty, frequency_penalty;
    enum lr_kind lr_kind;
    uint64_t seed;
    /* The daemon's own words, NULL where it says nothing: where a result stays that its user
     * fetches, where one goes that finds no room in adapter_out, and what no job may write to. */
    const char *kept_in, *rescue_dir, *state_dir;
    const json_t *said;   /* {kind of event: {adapter: step}}, of a job that was interrupted; or NULL */
    const json_t *so_far; /* of a generation that was interrupted, or NULL (stage/so_far.h) */
    /* With `said`: so many bytes of --log hold all lines up to that step; those behind are looked
     * at. */
    size_t log_from, log_step;
    size_t submitted; /* when, in seconds since 1970 */
    bool is_again;    /* of a job that serves: it was planned before, here or on another head */
    bool goes_on;     /* it has saved a state before, which is to be in adapter_out */
};

/* Every key of a spec, and which jobs have it: bits for `use`. There is one for each type, one for
 * what job_spec_read_data reads, one for what the daemon adds, which no user may say, one for the
 * options of ringctl chat, which makes jobs that generate, and one for what adapters that are
 * trained together may differ in. A field is added in the table of spec_fields.c, and its member in
 * the struct. */
#define JOB_SPEC_OF(type) (1U << (type))
#define JOB_SPEC_OF_DATA JOB_SPEC_OF(JOB_TYPES)
#define JOB_SPEC_OF_DAEMON JOB_SPEC_OF(JOB_TYPES + 1)
#define JOB_SPEC_OF_CHAT JOB_SPEC_OF(JOB_TYPES + 2)
#define JOB_SPEC_OF_SWEEP JOB_SPEC_OF(JOB_TYPES + 3)
const struct field *job_spec_fields(void);

/* Reads and checks {"model": …, …}; every complaint names the option, its value and what is
 * allowed. */
int job_spec_read(struct job_spec *ret, enum job_type type, const json_t *json, struct err *err);

/* What clients call the model of a job that serves: its name, or the last part of its path. */
const char *job_served_name(const struct job_spec *spec);

/* May clients call an adapter that? The name is a part of a path of the API, and of
 * NAME@DEPLOYMENT. */
enum { JOB_ADAPTER_NAME = 64 }; /* bytes, at most */
bool job_adapter_is_name(const char *name);
/* NAME~N: what the adapter NAME was before it was replaced, for answers that began with it. The
 * daemon alone gives such names. */
enum { JOB_FORMER_NAME = JOB_ADAPTER_NAME + 21 };
bool job_adapter_is_former(const char *name);
/* Of NAME@DEPLOYMENT both; ret_deployment: "" if there is none. False: it is neither that nor a
 * name. */
bool job_read_serve_as(const char *text, char ret_name[JOB_ADAPTER_NAME + 1], const char **ret_deployment);

/* The part that is about data sets, as ringctl data check has it: model, data, and how it is
 * read. */
int job_spec_read_data(struct job_spec *ret, const json_t *json, struct err *err);

#endif
