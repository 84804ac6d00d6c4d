/* SPDX-License-Identifier: MIT
 *
 * The directory a rewritten model goes to: under another name until it is complete, with what lies
 * beside the weights copied, and an index where there are several files. The inside of
 * rewrite.c. */
#ifndef MODEL_REWRITE_DIR_H
#define MODEL_REWRITE_DIR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "num/dtype.h"

struct rewrite_dir;
/* Refuses an `out` that exists and is not an empty directory. */
int rewrite_dir_open(struct rewrite_dir **ret, const char *out, struct err *err);
/* −ENOSPC: its disk has not so many bytes free. */
int rewrite_dir_check_room(const struct rewrite_dir *d, size_t bytes, struct err *err);
/* Where `file` is written now. */
int rewrite_dir_path(const struct rewrite_dir *d, const char *file, char ret[4096], struct err *err);
/* Puts a tensor into the index. */
int rewrite_dir_list(struct rewrite_dir *d, const char *tensor, const char *file, size_t bytes,
                     struct err *err);

/* What config.json says of the weights, where it differs from the model's. */
struct rewrite_says {
    const char *architecture; /* of the model, or of its text part */
    bool differs;             /* else it is copied as it is */
    enum dtype dtype;         /* DTYPE_COUNT: what it said */
    size_t bits, group;       /* as mlx-lm quantizes; bits 0: they are not quantized */
    const json_t *left;       /* borrowed: {module: false} of matrices that are not; or NULL */
};
/* Copies config.json, tokenizer and the like. */
int rewrite_dir_copy(struct rewrite_dir *d, const char *model, const struct rewrite_says *says,
                     struct err *err);
/* Gives the directory its name. */
int rewrite_dir_finish(struct rewrite_dir *d, bool index, struct err *err);
/* Removes what has not been finished. */
void rewrite_dir_free(struct rewrite_dir *d);

#endif
