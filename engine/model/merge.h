/* SPDX-License-Identifier: MIT
 *
 * An adapter put into the weights of its model: a Hugging Face directory that needs no adapter any
 * more. Called by ringctl, in one thread; no daemon is needed. Heap: one row of a weight, and the
 * factors of one linear. */
#ifndef MODEL_MERGE_H
#define MODEL_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "num/dtype.h"

struct merge_request {
    const char *model, *adapter, *out; /* directories; the last must not exist, or be empty */
    enum dtype dtype;        /* of everything written; DTYPE_COUNT: each tensor's own, BF16 for F8_E4M3 */
    bool (*stop)(void *arg); /* asked between tensors; NULL: never */
    void *arg;
};
struct merge_result {
    size_t linears, files, bytes; /* changed; written, of weights */
};
/* W + s·B·A, added in f64 and rounded once to f32 and once to the type written. All else is copied:
 * the files beside the weights, and config.json but for the type where that is another. What is
 * written lies in OUT.PID.tmp until it is complete; −ECANCELED after `stop`. */
int merge_run(const struct merge_request *req, struct merge_result *ret, struct err *err);

#endif
