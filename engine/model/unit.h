/* SPDX-License-Identifier: MIT
 *
 * One unit of the model on this node: its tensors bound to the mapping (frozen ones are views,
 * never copies), its trained parameters with gradients and optimizer state. */
#ifndef MODEL_UNIT_H
#define MODEL_UNIT_H

#include <stdbool.h>
#include <stddef.h>

#include "file/st.h"
#include "model/block.h"
#include "model/family.h"
#include "model/param_piece.h"
#include "model/quant/quant_forms.h"
#include "model/slice.h"
#include "model/tune.h"
#include "num/slab.h"
#include "num/sum_tree.h"

struct param {
    struct param_def def;
    float *w;         /* carved: the stage's slab */
    float *g, *m, *v; /* NULL when not training; m and v have the own slice's values; g is in */
    float *sums;      /* one of the buffers, [buffers · n] */
    size_t n;
    struct param_slice own; /* what is updated here */
};

/* How a step's gradients are added up: in groups of microbatches, and the groups as a tree
 * (num/sum_tree.h). Of `groups` groups the unit sees [first, end). Of every parameter it updates
 * slice `slice` of `slices`. */
struct grad_groups {
    size_t groups, first, end;
    size_t slice, slices;
};

/* Where the unit is in the sum of one adapter's gradients. */
struct grad_sum {
    struct sum_tree tree; /* of groups that are added up; */
    bool is_ended;        /* there are no more: what comes begins another sum */
    bool is_open;         /* and another one is being: */
    uint32_t group, buffer;
    uint32_t used; /* buffers that hold something, a bit each */
};

struct unit {
    struct slice slice;     /* which rows of its tensors it has, of those that are shared */
    size_t *first;          /* [ntensors] the first of these, and how many the whole tensor has: */
    size_t *whole;          /* [ntensors]; defs say how many are here */
    bool has_all;           /* of a slice that trains all rows are here; what it computes forward with */
    struct mat *all_rows;   /* is cut out of them: [ntensors] whole matrices, */
    struct slice_rows *cut; /* [ntensors] and which rows those are */
    size_t index, ntensors, nparams, /* of the adapter chosen, */
        most,                        /* and of the one that has most here */
        sets;                        /* adapters on the same weights, 1 where there is one or none */
    bool fp8;                        /* linears may be stored as F8_E4M3, */
    bool fp8_rows;                   /* with a scale for each row */
    bool joins;                      /* kv_b_proj is stored in two parts */
    bool later;        /* what is bound is only read where there is no quantized form of it: requant.c */
    struct st *made;   /* owned: the file with that form, or NULL */
    struct slab lists; /* owned: all lists below, and those of the block */
    struct tensor_def *defs; /* [ntensors] */
    struct block block;      /* weights and gradients, also of units that are no layer */
    struct lora *lora;       /* [ntensors] of the adapter chosen, as are `params` and the block's gradients of
                                factors; */
    struct lora *all_lora;   /* [sets · ntensors] of all, one after the other, */
    struct param *all_params;        /* [sets · most] */
    size_t *all_nparams;             /* [sets] */
    float **all_a, **all_b, **all_m; /* [sets · ntensors] */
    bool *stale; /* [sets] the factors have changed since the gains of its magnitudes were made */
    float **
        vec; /* [ntensors] f32 copies of frozen vectors, and norms that are used with 1 more: norms are small and always wanted in
                                f32 */
    struct quant *quant;        /* [ntensors] of matrices that are quantized, */
    struct quant *cut_quant;    /* [ntensors] and of what is cut out of them */
    float **scale;              /* [ntensors] the same of the scales of FP8 linears */
    float **joined;             /* [ntensors] and of what is stored in two parts, or NULL */
    struct param *params;       /* [nparams] */
    struct grad_groups groups;  /* and in how many buffers their gradients are added up: */
    size_t buffers;             /* 0 when not training */
    struct grad_sum *all_grads; /* [sets] */
    struct grad_sum *grads;     /* of the adapter chosen */
    /* Of the head's unit: a gradient for a weight that another unit has. */
    size_t lent_n, lent_rows;
    float *lent_g, *lent_sums; /* as in a param */
};

/* Which unit of the model, and which slice of it; has_all: one that trains. */
struct unit_which {
    size_t index;
    struct slice slice;
    bool has_all;
};
/* Names, shapes and LoRA ranks; no memory for values yet. tunes [sets] of several adapters may lie
 * on other linears each. c: of the whole model; of a slice the unit has matrices in part, and
 * vectors and factors whole, for they are small. */
int unit_init(struct unit *u, const struct family *f, const struct config *c, const struct tune *tunes,
              size_t sets, struct unit_which which, struct err *err);
void unit_done(struct unit *u);
/* A tensor as files have it. */
struct tensor_def unit_whole(const struct unit *u, size_t tensor);

/* Which adapter the unit computes with from here on; the first where nothing was chosen. */
void unit_choose(struct unit *u, size_t set);
/* With none, until one is chosen. */
void unit_choose_none(struct unit *u);

/* Carves what the unit needs beside the mapping. groups: gradients and AdamW moments too; NULL: it
 * is not trained. Leaves the first adapter chosen. */
void unit_carve(struct unit *u, struct slab *slab, const struct grad_groups *groups);
/* After that: a gradient [rows, cols] that the unit makes for a weight of another, whose rows
 * slices share. */
void unit_carve_lent(struct unit *u, struct slab *slab, size_t rows, size_t cols);

/* Binds to the opened files; st may be NULL when everything is drawn at random. Mismatches are
 * appended to `complaints` (`size` bytes), all of them, by name; returns how many. Trained full
 * weights are copied to f32, vectors too. tunes as in unit_init; the first adapter is chosen
 * afterwards. */
size_t unit_bind(struct unit *u, const struct st *st, const struct tune *tunes, const struct config *c,
                 char *complaints, size_t size);

/* Once everything is bound, for it is kept with each matrix: what a router gives decides, so its
 * small products are not rounded; and each matrix draws numbers of its own, wherever the unit
 * is. */
void unit_bind_products(struct unit *u, const struct config *c);
/* After that: of a slice that has all rows, what it computes forward with is its own rows from here
 * on. */
void unit_cut(struct unit *u);

/* After its trained values have changed: norms that multiply by 1 more get it again, and unit_ready
 * has something to do. */
void unit_refresh(struct unit *u);
/* Before the unit computes: what follows from the factors of all adapters, where they have
 * changed. */
void unit_ready(struct unit *u, struct num *num);
/* Once all is bound: what new factors take from the weights they belong to (magnitudes). Their
 * parameters have no better values yet. −ENOMEM. */
int unit_begin_factors(struct unit *u, struct num *num, const struct tune *tunes);

/* Bytes of the mapping that are the unit's matrices; weight_bits as in stage_spec, forms of a model
 * whose matrices differ, or NULL. −errno with a sentence, as quant_form_compressed. */
int unit_mapped(size_t *ret, const struct unit *u, const struct config *c, const struct quant_forms *forms,
                size_t weight_bits, struct err *err);

/* --- gradients of the chosen adapter (unit_grads.c) ------------------------------------------- */

/* What is computed from here on is added to the gradient of that group. Groups come one after the
 * other, in ascending or descending order. */
void unit_add_to_group(struct unit *u, struct num *num, size_t group);
/* No further microbatch comes: leaves the sum in the parameters' g. Where the unit sees a part of
 * the groups and more than one node of their tree is left, g is the first of these. */
void unit_end_groups(struct unit *u, struct num *num);
/* Forgets all gradients. */
void unit_drop_grads(struct unit *u);
/* How many values of an adapter's go from replica to replica (param_piece.h). */
size_t unit_shared_values(const struct unit *u, enum unit_shared what, size_t set, size_t slice);
/* After unit_end_groups: a part of a node that is left. */
void unit_pack_grads(const struct unit *u, struct sum_node node, const struct param_share *part, float *out);
/* Of the sum of all groups, into g. */
void unit_unpack_grads(struct unit *u, const struct param_share *part, const float *in);
/* Of the trained values; once all are unpacked, the caller calls unit_refresh. */
void unit_pack_values(const struct unit *u, const struct param_share *part, float *out);
void unit_unpack_values(struct unit *u, const struct param_share *part, const float *in);

/* A piece of the unit's values out of the chosen adapter's parameters, and into them; of moments,
 * what is here of them: the rest of `out` stays as it is. */
void unit_pack(const struct unit *u, const struct param_piece *piece, float *out);
void unit_unpack(struct unit *u, const struct param_piece *piece, const float *in);

#endif
