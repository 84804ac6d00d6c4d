/* SPDX-License-Identifier: MIT
 *
 * A tensor as a unit of a model lists it: its name, shape, and what may be done with it. */
#ifndef MODEL_TENSOR_DEF_H
#define MODEL_TENSOR_DEF_H

#include <stdbool.h>
#include <stddef.h>

enum { TENSOR_NAME = 96 };

/* What of a layer a tensor belongs to. */
enum layer_part { LAYER_NORMS, LAYER_ATTENTION, LAYER_MLP, LAYER_PARTS };

struct tensor_def {
    char name[TENSOR_NAME]; /* "model.layers.3.self_attn.q_proj.weight" */
    size_t rows, cols;      /* cols = 0: a vector of `rows` */
    enum layer_part part;
    bool linear;   /* LoRA may be put on it */
    bool fixed;    /* never trained, and f32 wherever it is written: what balances a router */
    bool plus_one; /* a norm's: what it multiplies by is 1 more */
    bool cold;     /* an expert's: only some tokens need it, so it is not read ahead */
};

#endif
