/* SPDX-License-Identifier: MIT
 *
 * A tensor as a unit of a model lists it: its name, shape, and what may be done with it. */
#ifndef MODEL_TENSOR_DEF_H
#define MODEL_TENSOR_DEF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TENSOR_NAME = 96 };
#define SLICE_ANY SIZE_MAX

/* What of a layer a tensor belongs to. */
enum layer_part { LAYER_NORMS, LAYER_ATTENTION, LAYER_MLP, LAYER_PARTS };

/* Released files of some families have all experts of a layer in one tensor (stored.h): turned,
 * with rows of gate and up by turns; or as they are, all rows of gate before those of up. */
enum tensor_weave { WEAVE_NONE, WEAVE_TURNS, WEAVE_HALVES };

struct tensor_def {
    char name[TENSOR_NAME]; /* "model.layers.3.self_attn.q_proj.weight" */
    size_t rows, cols;      /* cols = 0: a vector of `rows` */
    enum layer_part part;
    size_t grain;  /* rows that stay with one rank where several share the tensor (slice.h), SLICE_ANY: any
                      number; 0: each has all of it */
    size_t taps;   /* a vector that files have as [rows / taps, 1, taps]: of a convolution; 0: as it is */
    bool linear;   /* LoRA may be put on it, unless it is fixed; FP8 and few bits in any case */
    bool fixed;    /* never trained: what balances a router, or chooses keys. A vector is written as f32 */
    bool plus_one; /* a norm's: what it multiplies by is 1 more */
    bool cold;     /* an expert's: only some tokens need it, so it is not read ahead */
    enum tensor_weave weave; /* an expert's */
};

/* How files have it: shape [3] is filled; returns the number of dimensions. */
static inline size_t tensor_shape(size_t rows, size_t cols, size_t taps, size_t shape[3])
{
    shape[0] = taps ? rows / taps : rows;
    shape[1] = taps ? 1 : cols;
    shape[2] = taps;
    return taps ? 3 : cols ? 2 : 1;
}

#endif
