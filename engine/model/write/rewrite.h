/* SPDX-License-Identifier: MIT
 *
 * A model written in another form: from any that is read into a Hugging Face directory, or into one
 * as mlx-lm quantizes it. Called by merge.c and convert.c, in one thread. Heap: what a layer has
 * beside its matrices, and some rows of one. */
#ifndef MODEL_REWRITE_H
#define MODEL_REWRITE_H

#include <stddef.h>

#include "err.h"
#include "model/write/rewrite_how.h"

struct rewrite_result {
    size_t changed, quantized; /* linears; matrices */
    size_t files, bytes;       /* written, of weights */
};
/* What is no matrix of the model keeps its numbers; the small files beside the weights are copied.
 * What is written lies in OUT.PID.tmp until it is complete. −ECANCELED after `stop`; −EINVAL: the
 * model lacks a tensor, or none can be quantized. */
int rewrite_run(const struct rewrite_how *how, struct rewrite_result *ret, struct err *err);

#endif
