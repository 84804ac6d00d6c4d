/* SPDX-License-Identifier: MIT
 *
 * An adapter put into the weights of its model: a Hugging Face directory that needs no adapter any
 * more. Called by ringctl, in one thread; no daemon is needed. Heap: some rows of a weight, and the
 * factors of one linear. */
#ifndef MODEL_MERGE_H
#define MODEL_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "model/write/rewrite.h"

struct merge_request {
    const char *model, *adapter, *out; /* directories; the last must not exist, or be empty */
    enum dtype dtype;                  /* as of struct rewrite_how */
    bool (*stop)(void *arg);           /* asked between tensors; NULL: never */
    void *arg;
};
/* W + s·B·A, added in f64 and rounded once to f32 and once to the type written. All else is as
 * rewrite_run has it. */
int merge_run(const struct merge_request *req, struct rewrite_result *ret, struct err *err);

#endif
