/* SPDX-License-Identifier: MIT
 *
 * What all stage processes of a job agree on, made by the head's stage and handed round as JSON: the only
 * thing a node is told. */
#ifndef DAEMON_STAGE_PLAN_H
#define DAEMON_STAGE_PLAN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"
#include "engine/model/stage.h"

enum { JOB_MAX_RANKS = 16 };
enum job_type { JOB_TRAIN, JOB_GENERATE, JOB_SCORE, JOB_TYPES };
const char *job_type_name(enum job_type type); /* "train", "generate", "score" */

struct job_plan {
    enum job_type type;
    char model[4096]; /* directory, the same path on every node */
    char fingerprint[33];
    size_t ranks;
    size_t first[JOB_MAX_RANKS + 1]; /* layers first[r] … first[r+1]−1 on rank r */
    char schedule[32];
    size_t microbatches; /* of a training step */
    struct tune tune;
    bool training, kv;
    size_t tokens, seqs, positions, weight_bits; /* as in stage_spec */
    size_t vocab, dim;
    size_t slots[JOB_MAX_RANKS];
    size_t bytes[JOB_MAX_RANKS]; /* predicted memory */
};

json_t *job_plan_encode(const struct job_plan *plan);
int job_plan_decode(struct job_plan *ret, const json_t *json, struct err *err);

/* What rank r opens. */
struct stage_spec job_plan_stage(const struct job_plan *plan, const struct config *config, size_t rank);

#endif
