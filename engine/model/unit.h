/* SPDX-License-Identifier: MIT
 *
 * One unit of the model on this node: its tensors bound to the mapping (frozen ones are views, never copies),
 * its trained parameters with gradients and optimizer state. */
#ifndef MODEL_UNIT_H
#define MODEL_UNIT_H

#include <stdbool.h>
#include <stddef.h>

#include "file/safetensors.h"
#include "model/family.h"
#include "model/tune.h"
#include "num/slab.h"

struct param {
    struct param_def def;
    float *w;         /* carved: the stage's slab */
    float *g, *m, *v; /* NULL when not training */
    size_t n;
};

struct unit {
    size_t index;
    size_t ntensors;
    struct tensor_def defs[UNIT_MAX_TENSORS];
    struct unit_weights weights;
    struct unit_grads grads;
    struct lora lora[UNIT_MAX_TENSORS];
    size_t nparams;
    struct param params[UNIT_MAX_PARAMS];
    float *vec[UNIT_MAX_TENSORS]; /* f32 copies of frozen vectors: norms are small and always wanted in f32 */
};

/* Names, shapes and LoRA ranks; no memory yet. */
void unit_init(struct unit *u, const struct family *f, const struct config *c, const struct tune *tune,
               size_t index);

/* Carves what the unit needs beside the mapping. `training`: gradients and AdamW moments too. */
void unit_carve(struct unit *u, struct slab *slab, bool training);

/* Binds to the opened files; st may be NULL when everything is drawn at random. Mismatches are appended to
 * `complaints` (`size` bytes), all of them, by name; returns how many. Trained full weights are copied to
 * f32, vectors too. */
size_t unit_bind(struct unit *u, const struct st *st, const struct tune *tune, const struct config *c,
                 char *complaints, size_t size);

/* All parameters of the unit as one run of floats (w of each, then with `state` all m, then all v). */
void unit_pack(const struct unit *u, float *out, bool state);
void unit_unpack(struct unit *u, const float *in, bool state);

#endif
