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
#include "engine/train/data.h"
#include "engine/num/num.h"
#include "engine/train/lr.h"

enum recompute { RECOMPUTE_NONE, RECOMPUTE_LAYER, RECOMPUTE_STAGE, RECOMPUTE_AUTO };

struct job_spec {
    enum job_type type;
    const json_t *json; /* borrowed: strings below point into it */
    const char *model, *adapter, *data, *valid, *adapter_out, *init_adapter, *log, *schedule, *targets,
        *layers, *prompt, *text;
    const char *system;        /* with chat */
    const char *sample_prompt; /* of a training job, or NULL: text to go on from every sample_every steps */
    const json_t *messages, *tools,
        *template_args; /* of a conversation; NULL where the prompt is all of it */
    const json_t *ids, *stop;
    size_t weight_bits; /* 8 or 4: --weights int8, int4; 0: stored */
    enum num_compute compute;
    bool chat;                 /* the prompt goes through the chat template */
    struct data_fields fields; /* of data: what its keys are called, */
    enum data_mask mask;       /* and what of it is trained */
    enum data_overlong overlong;
    bool packing, group_by_length;
    bool full, random_init, resume, no_shuffle, rslora, dry_run, forecast;
    bool trace; /* every step is recorded for people to look at */
    enum recompute recompute;
    bool save_memory;          /* --objective memory */
    const json_t *split;       /* layers of each stage as asked for, or NULL */
    const json_t *split_nodes; /* names of the nodes that is meant for, or NULL */
    size_t microbatches;       /* of a step, 0 = as many as micro_batch makes */
    size_t chunks;             /* stages per node, 0 = what the schedule usually has */
    size_t rank, num_layers, batch, micro_batch, seq_len, iters, epochs, eval_every, save_every, warmup,
        max_tokens, sample_every, sample_tokens, top_logprobs;
    size_t
        keep_alive; /* seconds that the model stays loaded after an answer, for what is said next; 0: not at all */
    size_t max_kv_size; /* with it: room for the conversation grows by so many positions */
    double alpha, dropout, plus_ratio, lr, weight_decay, max_grad_norm, temperature, top_p;
    enum lr_kind lr_kind;
    uint64_t seed;
};

/* Every key of a spec, and which jobs have it: bits for `use`, one for each type, and one for what
 * job_spec_read_data reads. A field is added in this table, and its member in the struct. */
#define JOB_SPEC_OF(type) (1U << (type))
#define JOB_SPEC_OF_DATA JOB_SPEC_OF(JOB_TYPES)
const struct field *job_spec_fields(void);

/* Reads and checks {"model": …, …}; every complaint names the option, its value and what is
 * allowed. */
int job_spec_read(struct job_spec *ret, enum job_type type, const json_t *json, struct err *err);

/* The part that is about data sets, as ringctl data check has it: model, data, and how it is
 * read. */
int job_spec_read_data(struct job_spec *ret, const json_t *json, struct err *err);

#endif
