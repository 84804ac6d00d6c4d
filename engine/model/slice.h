/* SPDX-License-Identifier: MIT
 *
 * Tensor parallelism: several ranks share the layers of a stage. Each has a slice: runs of rows of
 * the matrices, which are runs of what these give. So it has some heads of the attention, some
 * columns of an MLP or of each expert, some rows of the vocabulary. It computes these with whole
 * inputs, and the ranks gather what they gave: no sum is split, so the bits are those of one rank.
 * Pure; called where a stage is planned, opened or computed. */
#ifndef MODEL_SLICE_H
#define MODEL_SLICE_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "file/config.h"
#include "model/tensor_def.h"

enum { SLICE_MOST = 8 };

/* Which one of how many; count 0 or 1: there is one, with everything. */
struct slice {
    size_t index, count;
};
static inline bool slice_is_part(struct slice s)
{
    return s.count > 1;
}

struct slice_rows {
    size_t first, n;
};
/* The rows of a slice; `grain` as of struct tensor_def. */
struct slice_rows slice_rows(struct slice s, size_t rows, size_t grain);
/* The config of a model that is no wider than the slice: with its heads and columns alone. */
struct config slice_config(const struct config *c, struct slice s);
/* Can so many ranks share the layers? If not, a sentence says what the model has that is not
 * shared (−ENOTSUP), or how many ranks there are at most (−EINVAL). */
int slice_check(const struct config *c, size_t count, bool training, struct err *err);

/* Rows that several ranks have gathered: each gives some columns. */
struct gather_columns {
    float *to;        /* [rows, width] all of them */
    const float *own; /* [rows, first[index + 1] − first[index]] what this rank gives;
                         `to`, where one has all columns */
    size_t rows;
    size_t width;                 /* of all of them */
    size_t first[SLICE_MOST + 1]; /* slice i has columns [first[i], first[i + 1]) */
    bool to_first;                /* the first slice alone wants them; `to` of others stays as it is */
};
/* How a stage gathers: it calls this for each product of its layers that is shared, in an order
 * that is the same on all ranks. −errno with `err` filled: what the stage computes is worth nothing
 * then, and it says so. */
struct gather {
    struct slice slice;
    int (*run)(void *owner, const struct gather_columns *what, struct err *err);
    void *owner; /* borrowed */
};

#endif
