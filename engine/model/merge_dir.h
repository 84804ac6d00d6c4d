/* SPDX-License-Identifier: MIT
 *
 * The directory a merged model is written to: under another name until it is complete, with what
 * lies beside the weights copied, and an index where there are several files. The inside of
 * merge.c. */
#ifndef MODEL_MERGE_DIR_H
#define MODEL_MERGE_DIR_H

#include <stdbool.h>
#include <stddef.h>

#include "err.h"
#include "num/dtype.h"

struct merge_dir;
/* Refuses an `out` that exists and is not an empty directory. */
int merge_dir_open(struct merge_dir **ret, const char *out, struct err *err);
/* Where `file` is written now. */
int merge_dir_path(const struct merge_dir *d, const char *file, char ret[4096], struct err *err);
/* Puts a tensor into the index. */
int merge_dir_list(struct merge_dir *d, const char *tensor, const char *file, size_t bytes, struct err *err);
/* Copies config.json, tokenizer and the like; `dtype` is put into the config unless it is
 * DTYPE_COUNT, and what said how the weights were quantized is left out. */
int merge_dir_copy(struct merge_dir *d, const char *model, enum dtype dtype, struct err *err);
/* Gives the directory its name. */
int merge_dir_finish(struct merge_dir *d, bool index, struct err *err);
/* Removes what has not been finished. */
void merge_dir_free(struct merge_dir *d);

#endif
