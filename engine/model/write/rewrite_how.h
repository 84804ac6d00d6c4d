/* SPDX-License-Identifier: MIT
 *
 * How a model is rewritten: what merge.c and convert.c say to rewrite.c, and it to the plan. */
#ifndef MODEL_REWRITE_HOW_H
#define MODEL_REWRITE_HOW_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "file/config.h"
#include "model/family.h"

/* As mlx-lm has it. */
#define REWRITE_SHARD_BYTES ((size_t)5 << 30)

/* What is done to the linears of a model on their way. */
struct rewrite_change {
    void *owner;
    /* Before the first row of one: 1: it changes, 0: it stays as it is, or −errno. */
    int (*begin)(void *owner, const struct tensor_def *def, struct err *err);
    void (*row)(void *owner, size_t row, float *x); /* x [cols] */
    void (*end)(void *owner);                       /* also after an error */
};

struct rewrite_how {
    const char *model, *out;             /* the latter must not exist, or be an empty directory */
    const struct config *config;         /* borrowed: the model's, */
    const struct family *family;         /* and its family */
    const struct rewrite_change *change; /* borrowed; NULL: values stay */
    enum dtype
        dtype; /* of all that is written; DTYPE_COUNT: each tensor's own, BF16 for F8_E4M3, and of what is
                         in blocks or quantized the one that config.json says */
    size_t bits, group;      /* matrices are quantized; bits 0: they are not */
    size_t shard_bytes;      /* a file has no more, unless one tensor has; 0: REWRITE_SHARD_BYTES */
    bool (*stop)(void *arg); /* asked between tensors; NULL: never */
    void *arg;
};

#endif
