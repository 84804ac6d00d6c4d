/* SPDX-License-Identifier: MIT
 *
 * A model family: what its tensors are called, and which a unit of a model holds. What they are
 * computed with follows from the config. Nothing
 * outside family.c and the parts of a block knows a tensor's name. Units: 0 embedding, 1 … layers,
 * layers + 1 final norm and head. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file/config.h"
#include "model/tensor_def.h"

struct moe_names;
struct family {
    const char *model_type;
    const struct moe_names *experts; /* NULL: what they are usually called */
};

/* NULL if we do not know the family. */
const struct family *family_find(const char *model_type);

/* Shows the tensors of a unit to `visit` in canonical order. Stops at the first that is not
 * answered with 0, and returns that answer; else 0. */
int family_tensors(const struct family *f, const struct config *c, size_t unit,
                   int (*visit)(void *arg, const struct tensor_def *def), void *arg);
size_t family_tensor_count(const struct family *f, const struct config *c, size_t unit);

/* Of config_ahead: the matrix of its layer that no other layer has. */
void family_ahead_linear(char ret[TENSOR_NAME], const struct config *c);

/* Multiply-adds of one token in a unit, at `positions` before it: what its share of the time is
 * proportional to. */
double family_cost(const struct family *f, const struct config *c, size_t unit, size_t positions);

#endif
