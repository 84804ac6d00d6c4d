/* SPDX-License-Identifier: MIT
 *
 * The stage's inside, shared by stage.c (open, measure, close), stage_run.c (tasks) and
 * stage_rows.c (serving). */
#ifndef MODEL_STAGE_IMPL_H
#define MODEL_STAGE_IMPL_H

#include "model/requant.h"
#include "model/stage.h"
#include "model/unit.h"

/* Pointers into the buffers that a slot has at present, to each part of what its layers keep. */
struct kept {
    float **x;                 /* [layers + 1] inputs of each layer, the first the slot's; last = output */
    struct block_saved *saved; /* [layers]; by layer: shared_saved is used */
    struct block_dys *dys;     /* [layers]; split backward only */
    float **dy;                /* [layers] output gradients; split backward only */
};

struct slot {
    struct seqs seqs;
    size_t tokens;
    uint64_t drop;
    uint32_t *start, *pos, *ids; /* [seqs + 1], [tokens], [tokens] */
    float *input;                /* [tokens, dim] */
    struct kept in;
    float *dtop;    /* head's stage: gradient of the last layer's output */
    float *dbottom; /* embedding's stage, full: gradient of the embedding's output */
};

struct stage {
    struct num *num; /* borrowed */
    struct stage_spec spec;
    const struct family *family;
    struct tune *tunes;      /* [1 + spec.nmore] owned: of every adapter, */
    const struct tune *tune; /* and of the one chosen */
    size_t layers;           /* of this stage */
    size_t lowest;           /* lowest layer here that gets a gradient, counted from the stage's first */
    struct st *st;           /* owned */
    struct rope ropes[ROPE_TABLES];
    size_t long_row; /* where in them the rows of longer texts begin; 0: there are none of their own */
    size_t nunits;
    struct unit *units;        /* [nunits] owned: embedding?, layers, head? */
    struct unit *embed, *head; /* into units, or NULL */
    struct unit *layer0;       /* first layer's unit */
    struct unit lender; /* the embedding, where only a tied head needs it; index of none: ntensors = 0 */
    struct requant_told told;
    struct slab params, slots, work, kvs; /* owned, but for `work` of spec.scratch */

    struct slot *slot; /* [spec.slots] */
    /* The buffers of spec.activations and its like; owned arrays. A slot that is given a buffer
     * carves it again. */
    char **activations, **bwd_x_only, **bwd_w_only;
    struct block_work *block_work; /* [layers] owned: they lie on each other, for layers work one at a time */
    struct block_work *cached_work;   /* [layers] owned, likewise; generation */
    struct block_dys *shared_dys;     /* [layers] owned, likewise; fused backward */
    struct block_saved *shared_saved; /* [layers] owned, likewise; by layer */
    float *ping[2];                   /* [tokens, dim] */
    float *hn, *dh, *rstd;            /* head: [tokens, dim] twice, [tokens] */
    float *tied_grad;                 /* head's part of a tied, trained embedding */
    float *tied_weight;               /* head's own copy where the embedding lies elsewhere and is trained */
    struct mat head_w;
    float *logits;     /* [vocab] */
    size_t decoded;    /* rows in ping[0] of the last stage_decode */
    union part_kv *kv; /* [layers] */

    union part_pool *pool;    /* [layers] serving only, and so is: */
    struct paged_span *spans; /* [tokens] those of the last call, */
    uint32_t *set, *pos;      /* and [tokens] its rows' adapters and positions */
};

size_t stage_cached(const struct stage_spec *spec); /* positions of its contiguous KV cache, 0 = none */
size_t stage_sets(const struct stage_spec *spec);   /* adapters */

/* stage_run.c */
/* Where in the tables of rotation position 0 lies of a text that has at most so many positions. A
 * cache cannot change over to the rows of longer texts, so its whole room decides. */
size_t stage_first_row(const struct stage *s, size_t longest);
/* The inputs of layer 0. */
void stage_embed(const struct stage *s, float *y, const uint32_t *ids, size_t n);
/* Before what the head multiplies, and behind what comes back. */
void stage_scale_logits(const struct stage *s, float *h, size_t rows);
int stage_check_ids(const struct stage *s, const uint32_t *ids, size_t n, struct err *err);
struct rmsnorm_dims stage_head_dims(const struct stage *s, size_t tokens);

/* stage_bind.c: maps the shards that hold a tensor of this stage; binds every tensor of its
 * units. */
int stage_open_files(struct stage *s, struct err *err);
int stage_bind(struct stage *s, struct err *err);
/* A tied head on a stage without the embedding still reads the embedding's tensor. */
bool stage_head_borrows(const struct stage *s);

#endif
