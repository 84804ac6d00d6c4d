/* SPDX-License-Identifier: MIT
 *
 * A whole model as a chain of stages in one process, moved by hand: what a ring does, without the
 * ring. Tests compare chains that are cut differently. Looks into the stages, for the engine itself
 * never reads gradients. */
#ifndef TESTS_LIB_CHAIN_H
#define TESTS_LIB_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/adapter.h"
#include "model/stage.h"
#include "model/unit.h"

enum { CHAIN_MAX = 8 };

/* Where each stage ends: stage i holds layers [end[i − 1], end[i]), the first the embedding, the
 * last the head. */
struct chain_cut {
    size_t n, end[CHAIN_MAX];
};

struct chain_spec {
    const char *model_dir; /* borrowed */
    struct config config;
    struct tune tune;
    const struct tune *more; /* [nmore] borrowed: of further adapters on the same weights */
    size_t nmore;
    struct chain_cut cut; /* ends beyond the last layer are taken as the last layer */
    bool training, split_backward, by_layer, kv;
    size_t slots, tokens, seqs, positions;
    size_t sample;                         /* as in stage_spec */
    size_t weight_bits;                    /* as in stage_spec, */
    const char *cache_dir;                 /* this too */
    size_t groups, first_group, end_group; /* as in stage_spec, */
    size_t updated, updates;               /* these too */
    struct pair_loss how; /* LOSS_NLL, or sequences are pairs, whose references are CHAIN_REF each */
};
#define CHAIN_REF 0.3

struct chain {
    struct chain_spec spec;
    const struct family *family;
    struct tune first;              /* that of adapter 0; spec.tune is the chosen one's */
    struct num *num;                /* owned */
    struct slab scratch;            /* owned: of all stages */
    struct stage *stage[CHAIN_MAX]; /* owned */
    float *act[CHAIN_MAX];          /* [tokens, dim] owned: input of stage i, as the last forward left it */
    float *grad[CHAIN_MAX];         /* [tokens, dim] owned: its gradient, as the last backward left it */
};

struct microbatch {
    struct seqs seqs;
    const uint32_t *ids;
    const int32_t *labels;
    uint64_t drop;
    size_t group;
};

/* Any failure fails the test. */
void chain_open(struct chain *c, const struct chain_spec *spec);
void chain_close(struct chain *c);
size_t chain_first(const struct chain *c, size_t stage); /* its first layer */

/* The adapter all that follows is about. */
void chain_choose(struct chain *c, size_t adapter);

/* The summed loss; dscale and logprob as in struct xent, which pairs do not write. */
double chain_forward(struct chain *c, size_t slot, const struct microbatch *mb, float dscale, float *logprob);
/* B, or with split_backward I of every stage and then W. Stages below the lowest trained layer are
 * left out.
 */
void chain_backward(struct chain *c, size_t slot);
void chain_backward_x(struct chain *c, size_t slot);
void chain_backward_w(struct chain *c, size_t slot);

/* Brings the two halves of a tied embedding's gradient together: once a step, after the last
 * backward. */
void chain_tie(struct chain *c);
double chain_norm(struct chain *c); /* of all gradients */
void chain_update(struct chain *c, const struct adamw *opt, uint64_t step);

/* Logits [vocab] after n ids that begin at position `at`. */
const float *chain_decode(struct chain *c, const uint32_t *ids, size_t n, size_t at);

/* The parameter of that name on whichever stage has it. */
struct param *chain_param(struct chain *c, const char *name);
void chain_clear_grads(struct chain *c);
/* After values were changed from outside: an embedding reaches a tied head on another stage, norms
 * that multiply by 1 more get it again. */
void chain_sync_values(struct chain *c);

/* All parameters in unit order: values, with `state` also moments; or gradients. The caller
 * frees. */
size_t chain_elements(const struct chain *c, bool state);
float *chain_pack(struct chain *c, bool state);
void chain_unpack(struct chain *c, const float *in, bool state);
float *chain_pack_grads(struct chain *c);
void chain_load(struct chain *c, const struct adapter_in *in);

/* What a run gives: of each step, and in the end. */
enum { CHAIN_STEPS = 3 };
struct chain_result {
    double loss[CHAIN_STEPS], norm[CHAIN_STEPS];
    float *state; /* [n] owned: values and moments */
    size_t n;
};
/* In each of n cuts, whether backwards are halved and forwards are done again (by_layer) or not,
 * `train` gives the bits that it gives as `spec` is. */
void chain_check_cuts(struct chain_spec spec, const struct chain_cut *cuts, size_t n,
                      struct chain_result (*train)(const struct chain_spec *));

#endif
