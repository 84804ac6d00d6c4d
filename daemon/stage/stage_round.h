/* SPDX-License-Identifier: MIT
 *
 * What the head gives for a round, and gets back from it. Filled in by those who drive a job on
 * rank 0, read and written by that rank's tasks (stage_task.c); main thread of ringd-stage. */
#ifndef DAEMON_STAGE_ROUND_H
#define DAEMON_STAGE_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/layer/layer.h"
#include "engine/model/param_piece.h"
#include "engine/model/stage.h"

/* What the head gives for a microbatch and gets back. */
struct head_mb {
    const uint32_t *ids;   /* [T] borrowed */
    const int32_t *labels; /* [T] borrowed; NULL for DECODE */
    double loss;           /* out: Σ −log p over the supervised labels; of pairs, Σ of their losses */
    double *logp; /* [sequences] out, of pairs: Σ log p of the supervised labels of each; else NULL */
};
/* Where a step first had a value that is not finite: in the output of a unit, with a microbatch of
 * the round; or, where all outputs and losses are finite, in the gradients of a unit's parameters.
 */
enum bad_kind { BAD_NONE, BAD_OUTPUT, BAD_GRADIENT };
struct bad_value {
    uint32_t kind, mb, unit, rank; /* mb: of BAD_OUTPUT alone */
};
/* Whether a comes before b in the order of computing. */
static inline bool bad_value_is_before(const struct bad_value *a, const struct bad_value *b)
{
    if (a->kind == BAD_NONE || b->kind == BAD_NONE || a->kind != b->kind)
        return a->kind != BAD_NONE && (b->kind == BAD_NONE || a->kind < b->kind);
    return a->kind == BAD_GRADIENT ? a->unit > b->unit : a->mb != b->mb ? a->mb < b->mb : a->unit < b->unit;
}

/* A step of a round that trains. */
struct head_step {
    struct adamw opt;
    double max_norm;      /* 0 = no clipping */
    double grad_norm;     /* out */
    struct bad_value bad; /* out: as the ranks say */
    double busy;          /* out: seconds all ranks computed in training since the step that ended before */
    uint64_t update;      /* number of this update of the moments, from 1; 0: the step is not applied */
};
struct head_round {
    struct head_mb *mb; /* [go.microbatches] */
    /* TRAIN */
    struct head_step *steps; /* [go.nsteps] */
    /* As soon as losses and norm of a step are known, before it is applied: decides `update`. */
    int (*stepped)(void *owner, size_t step, struct err *err);
    /* DECODE */
    uint32_t token;        /* out */
    float logprob;         /* out, with go.logprobs: of that token */
    struct likely *likely; /* out: [go.top], NULL where that is 0 */
    /* SAVE: called with every piece's values; LOAD: called to fill them. May be NULL. */
    int (*piece)(void *owner, const struct param_piece *piece, float *values, struct err *err);
    void *owner; /* of both */
};

#endif
