/* SPDX-License-Identifier: MIT
 *
 * A model in another form: weights of another type, quantized, or no longer quantized. Called by
 * ringctl, in one thread; no daemon is needed. */
#ifndef MODEL_CONVERT_H
#define MODEL_CONVERT_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "model/write/rewrite.h"

struct convert_request {
    const char *model, *out; /* a directory or a GGUF file; the latter must not exist, or be empty */
    enum dtype dtype;        /* as of struct rewrite_how */
    size_t bits, group;      /* as quant_is_known says; bits 0: weights are not quantized */
    size_t shard_bytes;      /* as of struct rewrite_how */
    bool (*stop)(void *arg); /* asked between tensors; NULL: never */
    void *arg;
};
/* Matrices that a job would quantize (stored_is_quantizable) become those of the same bits, if
 * their rows are whole groups. −ENOTSUP: the model is quantized already. */
int convert_run(const struct convert_request *req, struct rewrite_result *ret, struct err *err);

#endif
