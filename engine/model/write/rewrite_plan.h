/* SPDX-License-Identifier: MIT
 *
 * What there is to write of a model: every tensor, its type, and the file it goes to. The inside of
 * rewrite.c. */
#ifndef MODEL_REWRITE_PLAN_H
#define MODEL_REWRITE_PLAN_H

#include <jansson.h>

#include "file/st.h"
#include "model/write/rewrite_how.h"
#include "model/stored.h"

struct rewrite_item {
    const struct st_tensor *other; /* borrowed: what no unit of the model lists; NULL: `def` says it */
    struct tensor_def def;
    size_t unit, index; /* whose tensor it is, and which of that unit's */
    size_t experts;     /* it is written into a stack of so many; 0: by itself */
    size_t ways;        /* the same, as transformers has it: that many tensors by turns; 0: by itself */
    bool is_first;      /* of its stack, or by itself */
    enum dtype dtype;   /* written as, */
    size_t bits;        /* or quantized; 0: not */
    size_t bytes;       /* of the tensor it is the first of, else 0 */
    size_t shard;
};

struct rewrite_plan {
    struct rewrite_item *items; /* owned; in the order of units, then the others */
    size_t n, room, nshards, bytes;
    size_t quantized; /* items that are */
    json_t *left;     /* owned: {module: false} of matrices that have no whole groups */
};

/* −EINVAL: a tensor is missing, misshapen, or has too long a name; −ENOTSUP: one is of a type that
 * cannot be written. */
int rewrite_plan_make(struct rewrite_plan *p, const struct rewrite_how *how, const struct st *st,
                      struct err *err);
void rewrite_plan_done(struct rewrite_plan *p);

/* What the tensor is called where it is written. */
void rewrite_item_name(char ret[512], const struct rewrite_item *item);

/* What no unit lists as a matrix: all but its last extent are rows. */
struct tensor_def rewrite_other_def(const struct st_tensor *t);

#endif
