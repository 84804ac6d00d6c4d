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
#include "model/family.h"
#include "model/param_piece.h"
#include "model/requant.h"
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
    bool split_backward;           /* the plan has I and W as tasks of their own */
    size_t slots;                  /* microbatches in flight */
    /* Buffers of three kinds, each for one microbatch; 0 = one for each slot. With fewer buffers
     * for activations than slots, the forward of the other microbatches is done again. */
    size_t activations;    /* what the layers keep of a forward until its backward has ended */
    size_t bwd_x_only;     /* what they keep for backward_x only */
    size_t bwd_w_only;     /* what backward_x leaves for backward_w */
    bool by_layer;         /* of every layer only its input is kept, and its forward done again right
                                      before its backward, before either half of it */
    size_t tokens;         /* most tokens of a microbatch, or of a chunk of generation */
    size_t seqs;           /* most sequences of a microbatch */
    size_t weight_bits;    /* 0: matrices as they are stored; 4, 8: quantized, from files under cache_dir */
    const char *cache_dir; /* borrowed during stage_open */
    bool stands_in;        /* it is only timed: what of the files is not on this node has stand-ins (st.h) */
    struct maps *maps;     /* borrowed: what it maps comes from there and stays there; NULL: its own */
    size_t positions;      /* longest sequence; of the KV cache when kv */
    bool kv;               /* generation, and nothing else */
    size_t kv_blocks;      /* with kv: serving. Blocks of STAGE_KV_BLOCK positions in the pool, which stands
                              where the cache of `positions` would; 0: none */
    enum kv_type kv_type;  /* of keys and values in the pool, which are rounded to it */
    size_t logit_rows;     /* most rows whose logits are asked for at once, when serving */
    const struct slab
        *scratch;  /* borrowed: `used` bytes, as many as stage_measure says for `work`, which stages that
                                   never compute at once may share; NULL = its own */
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

/* --- a microbatch ----------------------------------------------------------------------------- */
/* Puts a microbatch's geometry into a slot: start [seqs + 1]. `drop` numbers the dropout masks
 * (step and microbatch); 0, for evaluation and scoring, drops nothing. */
int stage_begin(struct stage *s, size_t slot, struct seqs seqs, uint64_t drop, struct err *err);
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
/* dy [T, dim] (NULL on the head's stage). dx [T, dim] or NULL when the stage below wants none. */
void stage_backward_x(struct stage *s, size_t slot, const float *dy, float *dx);
void stage_backward_w(struct stage *s, size_t slot);
/* Both at once, with less memory; what a plan's B task does. */
void stage_backward(struct stage *s, size_t slot, const float *dy, float *dx);

/* --- a step ----------------------------------------------------------------------------------- */
/* Gradient of a tied embedding that lies on the head's stage: [vocab·dim] floats, NULL if this
 * stage has none. */
float *stage_tied_grad(struct stage *s);
size_t stage_tied_elements(const struct stage *s);
/* The embedding's stage adds the head's part, once a step. */
void stage_add_tied_grad(struct stage *s, const float *grad);
/* partial + Σ g² over my parameters from the last unit to the first: a chain over stages gives the
 * same bits as one stage. Not finite where a gradient is not; then ret_unit is the last unit of the
 * model with such a gradient here, else STAGE_NO_UNIT. */
double stage_sumsq(struct stage *s, double partial, size_t *ret_unit);
/* Forgets the gradients, as stage_update does after it has applied them. */
void stage_skip_update(struct stage *s);
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
 * stage). */
int stage_decode(struct stage *s, const uint32_t *ids, const float *x, float *y, size_t n, size_t at,
                 struct err *err);
/* Calls of up to so many positions give the bits of as many calls of one position: what is computed
 * again of a text gives the same text. Longer calls add up in another order. */
enum { STAGE_DECODE_ALIKE = 4 };
/* Head's stage, after stage_decode: logits [vocab] of the last position; valid until the next
 * call. */
const float *stage_logits(struct stage *s);
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
enum { STAGE_KV_BLOCK = 16 }; /* positions */
#define STAGE_NO_ADAPTER UINT32_MAX

/* Rows of one sequence, at positions at … at+n−1: a token to go on from, or a piece of a prompt.
 * All positions before `at` are in the pool, or in pieces of this call. */
struct stage_piece {
    const uint32_t *blocks; /* borrowed: positions 16i … 16i+15 lie in block blocks[i], */
    size_t nblocks;         /* for all positions before at + n */
    size_t at, n;
    uint32_t adapter; /* 0: spec.tune's, then those of spec.more; STAGE_NO_ADAPTER: none */
};
/* All rows of all pieces, in their order, at most spec.tokens. ids [rows] on the embedding's stage,
 * else x [rows, dim]; y [rows, dim], or NULL on the head's stage. It is fastest if pieces with the
 * same adapter follow one another. Refused, with nothing changed: a position beyond the table or
 * spec.positions, a block, an adapter or an id that there is not. */
int stage_rows(struct stage *s, const struct stage_piece *pieces, size_t npieces, const uint32_t *ids,
               const float *x, float *y, struct err *err);
/* Head's stage, after stage_rows: logits [n, vocab] of n of its rows, by number, at most
 * spec.logit_rows; valid until the next call. */
int stage_rows_logits(struct stage *s, const uint32_t *rows, size_t n, const float **ret_logits,
                      struct err *err);
/* As stage_logprob, of row `at` of those logits. */
float stage_rows_logprob(struct stage *s, size_t at, uint32_t id, struct likely *likely, size_t top);
/* Head's stage, after stage_rows: hidden [n, dim] of n of its rows after the final norm, as
 * embeddings have it. */
int stage_rows_hidden(struct stage *s, const uint32_t *rows, size_t n, float *hidden, struct err *err);

#endif
