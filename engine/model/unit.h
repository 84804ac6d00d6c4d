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
#include "model/quant_forms.h"
#include "model/tune.h"
#include "num/slab.h"

struct param {
    struct param_def def;
    float *w;         /* carved: the stage's slab */
    float *g, *m, *v; /* NULL when not training */
    size_t n;
};

struct unit {
    size_t index, ntensors, nparams, /* of the adapter chosen, */
        most,                        /* and of the one that has most here */
        sets;                        /* adapters on the same weights, 1 where there is one or none */
    bool fp8;                        /* linears may be stored as F8_E4M3 */
    bool joins;                      /* kv_b_proj is stored in two parts */
    bool later;        /* what is bound is only read where there is no quantized form of it: requant.c */
    struct st *made;   /* owned: the file with that form, or NULL */
    struct slab lists; /* owned: all lists below, and those of the block */
    struct tensor_def *defs; /* [ntensors] */
    struct block block;      /* weights and gradients, also of units that are no layer */
    struct lora *lora;       /* [ntensors] of the adapter chosen, as are `params` and the block's gradients of
                                factors; */
    struct lora *all_lora;   /* [sets · ntensors] of all, one after the other, */
    struct param *all_params; /* [sets · most] */
    size_t *all_nparams;      /* [sets] */
    float **all_a, **all_b;   /* [sets · ntensors] */
    float **
        vec; /* [ntensors] f32 copies of frozen vectors, and norms that are used with 1 more: norms are small and always wanted in
                                f32 */
    struct quant *quant;  /* [ntensors] of matrices that are quantized */
    float **scale;        /* [ntensors] the same of the scales of FP8 linears */
    float **joined;       /* [ntensors] and of what is stored in two parts, or NULL */
    struct param *params; /* [nparams] */
};

/* Names, shapes and LoRA ranks; no memory for values yet. tunes [sets] of several adapters may lie
 * on other linears each. */
int unit_init(struct unit *u, const struct family *f, const struct config *c, const struct tune *tunes,
              size_t sets, size_t index, struct err *err);
void unit_done(struct unit *u);

/* Which adapter the unit computes with from here on; the first where nothing was chosen. */
void unit_choose(struct unit *u, size_t set);

/* Carves what the unit needs beside the mapping. `training`: gradients and AdamW moments too.
 * Leaves the first adapter chosen. */
void unit_carve(struct unit *u, struct slab *slab, bool training);

/* Binds to the opened files; st may be NULL when everything is drawn at random. Mismatches are
 * appended to `complaints` (`size` bytes), all of them, by name; returns how many. Trained full
 * weights are copied to f32, vectors too. tunes as in unit_init; the first adapter is chosen
 * afterwards. */
size_t unit_bind(struct unit *u, const struct st *st, const struct tune *tunes, const struct config *c,
                 char *complaints, size_t size);

/* After its trained values have changed: norms that multiply by 1 more get it again. */
void unit_refresh(struct unit *u);

/* Bytes of the mapping that are the unit's matrices; weight_bits as in stage_spec, forms of a model
 * whose matrices differ, or NULL. */
size_t unit_mapped(const struct unit *u, const struct config *c, const struct quant_forms *forms,
                   size_t weight_bits);

/* A piece of the unit's values out of the chosen adapter's parameters, and into them. */
void unit_pack(const struct unit *u, const struct param_piece *piece, float *out);
void unit_unpack(struct unit *u, const struct param_piece *piece, const float *in);

#endif
