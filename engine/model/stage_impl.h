/* SPDX-License-Identifier: MIT
 *
 * The stage's inside, shared by stage.c (open, measure, close), stage_run.c (tasks) and
 * stage_rows.c (serving). */
#ifndef MODEL_STAGE_IMPL_H
#define MODEL_STAGE_IMPL_H

#include "model/quant/requant.h"
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
    size_t tokens, group;
    uint64_t drop;
    uint32_t *start, *pos, *ids; /* [seqs + 1], [tokens], [tokens] */
    float *input;                /* [tokens, dim] */
    struct kept in;
    float *dtop;    /* head's stage: gradient of the last layer's output */
    float *dbottom; /* embedding's stage, full: gradient of the embedding's output */
};

/* Positions that a state has taken in, and further ones that may be taken back. */
struct state_at {
    size_t reached, logged;
};

struct stage {
    struct num *num; /* borrowed */
    struct stage_spec spec;
    struct config own;         /* spec.config, of a slice with its heads and columns alone */
    struct part_gather gather; /* of a slice */
    struct quant head_quant;   /* of a slice: what its rows of a tied head are quantized with */
    struct mat whole_head;     /* of a slice that trains: the head with all its rows */
    const struct family *family;
    struct tune *tunes;      /* [1 + spec.nmore] owned: of every adapter, */
    const struct tune *tune; /* and of the one chosen, NULL where none is */
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

    void (*watch)(void *owner, size_t unit); /* NULL: nobody watches */
    void *watcher;                           /* borrowed */

    struct slot *slot; /* [spec.slots] */
    /* The buffers of spec.activations and its like; owned arrays. A slot that is given a buffer
     * carves it again. */
    char **activations, **bwd_x_only, **bwd_w_only;
    struct block_work *block_work; /* [layers] owned: they lie on each other, for layers work one at a time */
    struct block_work *cached_work;   /* [layers] owned, likewise; generation */
    struct block_dys *shared_dys;     /* [layers] owned, likewise; fused backward */
    struct block_saved *shared_saved; /* [layers] owned, likewise; by layer */
    float *ping[2];                   /* [tokens, dim] */
    float *both;                      /* [tokens, 2·dim] of a config that is ahead: what eh_proj reads */
    float *hn, *dh, *rstd;            /* head: [tokens, dim] twice, [tokens] */
    float *logprob, *weight;          /* head, pairs: [tokens] twice */
    float *tied_weight;               /* head's own copy where the embedding lies elsewhere and is trained */
    struct mat head_w;
    float *logits;     /* [rows, vocab] */
    float *own_logits; /* [rows, head_w.rows] of a slice; one that trains has those of a loss's rows */
    size_t decoded;    /* rows in ping[0] of the last stage_decode */
    bool has_state;    /* as stage_has_state says, and so: */
    size_t reached;    /* position behind the last stage_decode, */
    size_t farthest;   /* and behind all of them since position 0 */
    union part_kv *kv; /* [layers] */

    union part_pool *pool;      /* [layers] serving only, and so is: */
    struct paged_span *spans;   /* [tokens] those of the last call, */
    uint32_t *set, *pos;        /* and [tokens] its rows' adapters and positions; */
    struct state_piece *pieces; /* [tokens] likewise; */
    struct state_at *states;    /* [2, spec.states + spec.kept] where each is, and would be */
};

size_t stage_sets(const struct stage_spec *spec); /* adapters */
/* stage_carve.c */
bool stage_trains_all(const struct stage_spec *spec);
struct grad_groups stage_groups(const struct stage_spec *spec);
/* How many buffers of each kind there are: */
size_t stage_activations(const struct stage_spec *spec);
size_t stage_bwd_x_only(const struct stage_spec *spec);
size_t stage_bwd_w_only(const struct stage_spec *spec);
/* Each takes from a slab what the stage keeps there; without a base it only counts. */
void stage_carve_params(struct stage *s, struct slab *slab);
void stage_carve_slots(struct stage *s, struct slab *slab);
void stage_carve_work(struct stage *s, struct slab *slab);
void stage_carve_kv(struct stage *s, struct slab *slab);

/* stage_cache.c */
size_t stage_cached(const struct stage_spec *spec); /* positions of its contiguous KV cache, 0 = none */
/* Rows of that cache in layers with a window: what a query sees before the newest call's tokens,
 * and these. 0: as many as positions. */
size_t stage_ring(const struct stage_spec *spec);

/* stage_run.c */
/* The numbers by which gradients are rounded from here on: of a step and a microbatch, so that
 * every way to share the work draws the same. */
void stage_set_noise(const struct stage *s, const struct slot *slot);
struct part_gather *stage_gather(struct stage *s); /* NULL: the stage is no slice */
/* Logits of rows of h [n, dim]; −errno where they were not gathered. */
int stage_multiply_head(struct stage *s, const float *h, size_t n);
/* Where in the tables of rotation position 0 lies of a text that has at most so many positions. A
 * cache cannot change over to the rows of longer texts, so its whole room decides. */
size_t stage_first_row(const struct stage *s, size_t longest);
/* The inputs of layer 0. */
void stage_embed(const struct stage *s, float *y, const uint32_t *ids, size_t n);
/* Before what the head multiplies, and behind what comes back. */
void stage_scale_logits(const struct stage *s, float *h, size_t rows);
int stage_check_ids(const struct stage *s, const uint32_t *ids, size_t n, struct err *err);
struct rmsnorm_dims stage_head_dims(const struct stage *s, size_t tokens);

/* After the last microbatch of a step: the sums are where their parameters look; once more does
 * nothing. */
void stage_end_groups(struct stage *s);

/* stage_bind.c: maps the shards that hold a tensor of this stage; binds every tensor of its
 * units. */
int stage_open_files(struct stage *s, struct err *err);
int stage_bind(struct stage *s, struct err *err);
/* A tied head on a stage without the embedding still reads the embedding's tensor. */
bool stage_head_borrows(const struct stage *s);

#endif
