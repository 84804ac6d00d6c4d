/* SPDX-License-Identifier: MIT
 *
 * The slice of a model that one node holds: its units, the slots of the microbatches in flight, the
 * caches of generation. One function per task of a plan. Knows no rank, no message, no file but the
 * model's. One thread. */
#ifndef MODEL_STAGE_H
#define MODEL_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layer/kv_type.h"
#include "layer/layer.h"
#include "layer/preference.h"
#include "model/family.h"
#include "model/param_piece.h"
#include "model/quant/requant.h"
#include "model/slice.h"
#include "num/num.h"
#include "train/adamw.h"

struct maps;
struct stage;

#define STAGE_NO_UNIT SIZE_MAX

struct stage_spec {
    const char *model_dir; /* borrowed during stage_open */
    struct config config;
    struct tune tune;
    const struct tune *more; /* [nmore] of further adapters on the same weights, when training on the same
                                linears as `tune`'s; borrowed while it is measured or opened */
    size_t nmore;
    size_t first_layer, end_layer; /* layers [first, end); may be empty */
    bool embed, head;              /* also the first, the last unit */
    bool training;                 /* gradients and moments */
    /* A step's microbatches are those of so many groups, and the groups' gradients are added up as
     * a tree (num/sum_tree.h); 0 = 1. Of these the stage sees [first_group, end_group), a replica's
     * share; 0, 0 = all. */
    size_t groups, first_group, end_group;
    /* The stages of several replicas share out the update of what is trained: this one has the
     * moments of slice `updated` of `updates`, and updates that; 0 = 1. */
    size_t updated, updates;
    bool split_backward; /* the plan has I and W as tasks of their own */
    size_t slots;        /* microbatches in flight */
    /* Buffers of three kinds, each for one microbatch; 0 = one for each slot. With fewer buffers
     * for activations than slots, the forward of the other microbatches is done again. */
    size_t activations;          /* what the layers keep of a forward until its backward has ended */
    size_t bwd_x_only;           /* what they keep for backward_x only */
    size_t bwd_w_only;           /* what backward_x leaves for backward_w */
    bool by_layer;               /* of every layer only its input is kept, and its forward done again right
                                      before its backward, before either half of it */
    size_t tokens;               /* most tokens of a microbatch, or of a chunk of generation */
    size_t seqs;                 /* most sequences of a microbatch */
    struct slice slice;          /* with kv: one of several that share its layers (slice.h) */
    const struct gather *gather; /* borrowed while the stage is open: how they meet */
    size_t weight_bits;    /* 0: matrices as they are stored; 4, 8: quantized, from files under cache_dir */
    const char *cache_dir; /* borrowed during stage_open */
    bool stands_in;        /* it is only timed: what of the files is not on this node has stand-ins (st.h) */
    struct maps *maps;     /* borrowed: what it maps comes from there and stays there; NULL: its own */
    size_t positions;      /* longest sequence; of the KV cache when kv */
    bool kv;               /* generation, and nothing else */
    size_t kv_blocks;      /* with kv: serving. Blocks of STAGE_KV_BLOCK positions in the pool, which stands
                              where the cache of `positions` would; 0: none */
    /* With kv_blocks, where a layer has a state (stage_has_state): */
    size_t states;        /* sequences that have one at once, */
    size_t kept;          /* states beside them, in which pieces keep what they have reached, */
    size_t guesses;       /* and most positions of one that may be taken back, at most STAGE_GUESSES */
    size_t ring_blocks;   /* blocks of each state in layers with a window, which then have none of the pool's;
                              as stage_ring_blocks says, or 0: they have the pool's */
    enum kv_type kv_type; /* of keys and values in the pool, which are rounded to it */
    size_t logit_rows;    /* most rows whose logits are asked for at once, when serving */
    const struct slab
        *scratch;  /* borrowed: `used` bytes, as many as stage_measure says for `work`, which stages that
                                   never compute at once may share; NULL = its own */
    bool pairs;    /* training: sequences are pairs of answers, whose losses stage_loss_pairs computes */
    size_t sample; /* positions of a KV cache beside all else, for text that is generated between
                              steps; 0 = none, and none with kv */
};

/* Bytes a stage with this spec needs, before it exists: from the config alone, and of a model that
 * MLX quantized from what its config.json says of single layers. */
struct stage_bytes {
    size_t mapped; /* weights, as stored */
    size_t params; /* trained values, gradients, moments; f32 copies of vectors */
    size_t slots;  /* all of them */
    size_t work;   /* scratch, worth nothing between two calls */
    size_t kv;
    size_t total;
};
int stage_measure(struct stage_bytes *ret, const struct stage_spec *spec, struct err *err);
/* Of a spec with all units of the model: `mapped` of each, ret [layers + 2]. The embedding's matrix
 * is in unit 0 alone, also where the head has the same. */
int stage_measure_units(size_t *ret, const struct stage_spec *spec, struct err *err);

/* Maps the shards it needs, binds every tensor, allocates. All mismatches are named in one
 * sentence. num: borrowed. */
int stage_open(struct stage **ret, struct num *num, const struct stage_spec *spec, struct err *err);
void stage_close(struct stage *stage);
/* What weight_bits took. */
void stage_requanted(const struct stage *stage, struct requant_told *ret);

/* Which adapter the calls below are about, 0 = spec.tune's, then those of spec.more; the first
 * where nothing was said. A microbatch keeps its adapter from stage_use_activations to its
 * backward. */
void stage_select_adapter(struct stage *s, size_t adapter);
/* None of them: the stage computes with the frozen weights alone, until one is selected again. */
void stage_select_no_adapter(struct stage *s);

/* --- a microbatch ----------------------------------------------------------------------------- */
/* Puts a microbatch's geometry into a slot: start [seqs + 1]. `drop` numbers the dropout masks
 * (step and microbatch); 0, for evaluation and scoring, drops nothing. */
int stage_begin(struct stage *s, size_t slot, struct seqs seqs, uint64_t drop, struct err *err);
/* Which group of its step the microbatch is of; 0 where nothing is said. On each stage the groups
 * go back one after the other, in ascending or descending order, and forward in ascending order. */
void stage_use_group(struct stage *s, size_t slot, size_t group);
/* Input of the stage: token ids on the embedding's stage, else activations [T, dim]; copied. */
int stage_input_ids(struct stage *s, size_t slot, const uint32_t *ids, struct err *err);
void stage_input(struct stage *s, size_t slot, const float *x);
/* Gives a slot two of the stage's buffers, by number, for a forward and its backward: one for its
 * activations, one for what only backward_x reads. Call it before stage_input, and before the
 * forward is done again. Where the spec says 0 buffers, slot i has buffer i of each kind. */
void stage_use_activations(struct stage *s, size_t slot, size_t activations, size_t bwd_x_only);
/* Gives a slot the buffer where stage_backward_x leaves what stage_backward_w reads. Call it before
 * stage_backward_x. */
void stage_use_bwd_w_only(struct stage *s, size_t slot, size_t bwd_w_only);
/* Layers. y [T, dim] receives the output; NULL on the head's stage, where it stays in the slot,
 * and where the forward is done again. */
void stage_forward(struct stage *s, size_t slot, float *y);
/* After stage_forward, with its y: the first unit of the model here whose output has a value that
 * is not finite. STAGE_NO_UNIT where the output of the stage is finite, or what came in was not. */
size_t stage_first_bad(const struct stage *s, size_t slot, const float *y);
/* Head's stage, after stage_forward: loss as xent_forward. With `xent->dscale` ≠ 0 the gradient
 * stays in the slot (and head weights get theirs: the one pass over the logits serves both). */
double stage_loss(struct stage *s, size_t slot, const struct xent *xent);
/* The same of a slot whose sequences 2i and 2i + 1 are the chosen and the rejected answer of a
 * pair: returns the sum of the pairs' losses. */
struct stage_pairs {
    const int32_t *labels; /* [T] borrowed, as xent has them */
    struct pair_loss how;
    double dscale;     /* as xent has it: 1 / pairs of the whole step; 0 = forward only */
    const double *ref; /* [pairs] borrowed: as preference_loss has it; NULL: 0 */
    double *logp;      /* [sequences] written: Σ log p of the supervised labels */
};
double stage_loss_pairs(struct stage *s, size_t slot, const struct stage_pairs *pairs);
/* dy [T, dim] (NULL on the head's stage). dx [T, dim] or NULL when the stage below wants none. */
void stage_backward_x(struct stage *s, size_t slot, const float *dy, float *dx);
void stage_backward_w(struct stage *s, size_t slot);
/* Both at once, with less memory; what a plan's B task does. */
void stage_backward(struct stage *s, size_t slot, const float *dy, float *dx);

/* From here on `done` is called whenever a backward, or the half of it that is about weights, has
 * gone through a unit: index in the model. NULL: no more. */
void stage_watch(struct stage *s, void (*done)(void *owner, size_t unit), void *owner);

/* --- a step ----------------------------------------------------------------------------------- */
/* Gradient of a tied embedding that lies on the head's stage, its own slice: NULL if this stage has
 * none. */
float *stage_tied_grad(struct stage *s);
size_t stage_tied_elements(const struct stage *s);      /* vocab · dim, */
size_t stage_tied_grad_elements(const struct stage *s); /* of the slice */
/* The embedding's stage adds the head's part, once a step. */
void stage_add_tied_grad(struct stage *s, const float *grad);
/* Of a slice whose matrices are trained: gathers the rows of the step's gradients that the others
 * have. Before all that follows, and before what is above. */
void stage_gather_grads(struct stage *s);
/* partial + Σ g² over my parameters from the last unit to the first: a chain over stages gives the
 * same bits as one stage. Not finite where a gradient is not; then ret_unit is the last unit of the
 * model with such a gradient here, else STAGE_NO_UNIT. */
double stage_sumsq(struct stage *s, double partial, size_t *ret_unit);
/* The same where several replicas have a slice each: first the sums of squares of the own slice,
 * chunk by chunk (num/vec.h), out [stage_squares_count(s, slice)]; then of all of them the sum, in
 * the same order. squares [slices]. */
size_t stage_squares_count(const struct stage *s, size_t slice);
void stage_squares(struct stage *s, double *out);
double stage_sum_squares(struct stage *s, double partial, const double *const *squares, size_t *ret_unit);
/* Forgets the gradients, as stage_update does after it has applied them. */
void stage_skip_update(struct stage *s);

/* --- gradients of several replicas (stage_grads.c) -------------------------------------------- */
/* Where other replicas have the other groups, their sums are joined before all that is above. */

/* Of an adapter's gradient, or of its values, those in a slice: the last unit's first. */
size_t stage_shared_values(const struct stage *s, enum unit_shared what, size_t adapter, size_t slice);
/* What is left of this replica's groups: of the nodes that sum_tree_roots lists, one after the
 * other, a part of each: out [nodes, part->n]. */
void stage_pack_grads(struct stage *s, const struct param_share *part, float *out);
/* What a replica with groups [first_group, end_group) has packed. */
enum { GRAD_SHARES = 8 };
struct grad_share {
    size_t first_group, end_group;
    float *sums; /* [nodes, n] borrowed, and written */
};
/* Does a part lie in units [unit, …) of the model alone? */
bool stage_part_is_above(struct stage *s, const struct param_share *part, size_t unit);
/* Adds up the shares of all replicas in the order of their groups, puts the sum in its place, and
 * returns it: [n], in one of the shares. */
const float *stage_join_grads(struct stage *s, const struct param_share *part,
                              const struct grad_share *shares, size_t nshares);
/* The sum that another replica has made, in its place. */
void stage_unpack_grads(struct stage *s, const struct param_share *part, const float *sum);
/* After stage_update: a part of the own slice of the values, and one of another replica's. */
void stage_pack_values(struct stage *s, const struct param_share *part, float *out);
void stage_unpack_values(struct stage *s, const struct param_share *part, const float *in);

void stage_update(struct stage *s, float gscale, const struct adamw *opt, uint64_t step);
/* The embedding's updated weights for a head that is tied to it on another stage. */
const float *stage_tied_weight(const struct stage *s);
void stage_set_tied_weight(struct stage *s, const float *w);

/* --- parameters ------------------------------------------------------------------------------- */
/* A piece of a unit this stage holds: its values out and in. */
void stage_pack(const struct stage *s, const struct param_piece *piece, float *out);
void stage_unpack(struct stage *s, const struct param_piece *piece, const float *in);

/* --- generation ------------------------------------------------------------------------------- */
/* The next n ≤ spec.tokens positions, first at `at`; x in or ids in, y out (NULL on the head's
 * stage). A stage with a linear layer goes on where the last call ended, or from 0. One whose cache
 * keeps only a window begins at most stage_steps_back before the farthest position, or at 0. */
int stage_decode(struct stage *s, const uint32_t *ids, const float *x, float *y, size_t n, size_t at,
                 struct err *err);
/* How many positions the caches of these layers can go back: SIZE_MAX where they keep all. */
size_t stage_steps_back(const struct stage_spec *spec);
/* Calls of up to so many positions give the bits of as many calls of one position: what is computed
 * again of a text gives the same text. Longer calls add up in another order. */
enum { STAGE_DECODE_ALIKE = 4 };
/* Head's stage, after stage_decode: logits [vocab] of the last position; valid until the next call.
 * Of slices all call it, and the first alone gets them. NULL: stage_gathered says why. */
const float *stage_logits(struct stage *s);
/* −errno with `err` filled, once a slice could not gather: what it computed since is worth
 * nothing. */
int stage_gathered(const struct stage *s, struct err *err);
/* Of those logits, before any choice changes them: the log-probability of token `id`, and the `top`
 * likeliest tokens. */
float stage_logprob(struct stage *s, uint32_t id, struct likely *likely, size_t top);

/* --- serving: rows of many sequences (stage_rows.c) ------------------------------------------- */
/* The caller owns the pool's blocks: it says which block holds what. Sequences whose texts begin
 * alike may share blocks that are full. A block is not cleared when it is used again.
 *
 * Batch invariance: the bits of a row depend on the tokens of its own sequence up to it, on their
 * positions and on their adapter. They do not depend on the other rows of the call, on how a prompt
 * is cut into pieces, on which blocks hold it, on the number of threads, or on how the model is cut
 * into stages. They are those of stage_decode for up to STAGE_DECODE_ALIKE positions, where keys
 * and values are F32. CPUs with vectors of another width have other bits. */
enum { STAGE_KV_BLOCK = 16, STAGE_GUESSES = 64 }; /* positions */
#define STAGE_NO_ADAPTER UINT32_MAX

/* Rows of one sequence, at positions at … at+n−1: a token to go on from, or a piece of a prompt.
 * All positions before `at` are in the pool, or in pieces of this call. */
struct stage_piece {
    const uint32_t *blocks; /* borrowed: positions 16i … 16i+15 lie in block blocks[i], */
    size_t nblocks;         /* for all positions before at + n */
    size_t at, n;
    uint32_t adapter; /* 0: spec.tune's, then those of spec.more; STAGE_NO_ADAPTER: none */
    /* Which of spec.states is the sequence's, where a layer has a state; a call has one piece of
     * each. A piece at position 0 begins it again; another goes on where the last one with this
     * state ended, or before, but behind all positions that may not be taken back. */
    uint32_t state;
    uint32_t from;    /* it begins as this kept state was before the call, from 1 on; 0: as it is */
    uint32_t keep;    /* what stays is kept there, for others; 0: nowhere */
    uint32_t guessed; /* so many positions, the last before at + n, may be taken back */
};
/* Has one of the spec's layers a state, which a piece goes on from, beside blocks of the pool, or
 * instead? Linear layers have one, and with rings those with a window. */
bool stage_has_state(const struct stage_spec *spec);
/* What a ring needs for a window, and for the rows and guesses behind it. */
size_t stage_ring_blocks(const struct config *c);
/* All rows of all pieces, in their order, at most spec.tokens. ids [rows] on the embedding's stage,
 * else x [rows, dim]; y [rows, dim], or NULL on the head's stage. Of a config that is ahead it is
 * both ids and x: what stage_rows_hidden gave before that token, or y. It is fastest if pieces with
 * the same adapter follow one another. Refused, with nothing changed: a position beyond the table
 * or spec.positions, a block, an adapter, a state or an id that there is not; a state that does not
 * go on from there, or has two pieces. */
int stage_rows(struct stage *s, const struct stage_piece *pieces, size_t npieces, const uint32_t *ids,
               const float *x, float *y, struct err *err);
/* Head's stage, after stage_rows: logits [n, vocab] of n of its rows, by number, at most
 * spec.logit_rows; valid until the next call. Of slices as stage_logits. */
int stage_rows_logits(struct stage *s, const uint32_t *rows, size_t n, const float **ret_logits,
                      struct err *err);
/* As stage_logprob, of row `at` of those logits. */
float stage_rows_logprob(struct stage *s, size_t at, uint32_t id, struct likely *likely, size_t top);
/* Head's stage, after stage_rows: hidden [n, dim] of n of its rows after the final norm, as
 * embeddings have it. */
int stage_rows_hidden(struct stage *s, const uint32_t *rows, size_t n, float *hidden, struct err *err);

#endif
