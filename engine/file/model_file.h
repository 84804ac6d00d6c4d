/* SPDX-License-Identifier: MIT
 *
 * The small files of a model: those of its folder, or, where a GGUF file is named instead, what
 * they would be. */
#ifndef FILE_MODEL_FILE_H
#define FILE_MODEL_FILE_H

#include <stddef.h>

#include "err.h"

/* As input_read of MODEL/NAME. −ENOENT: the model has none of that name. */
int model_file_read(const char *model, const char *name, size_t limit, char **ret, size_t *ret_n,
                    struct err *err);
/* The names of all of them, with a NULL at the end, where the model is a file; NULL: it is a
 * folder. */
const char *const *model_file_told(const char *model);
/* What a sentence calls this file, in a fresh string: MODEL/NAME, or the GGUF file that it is
 * in. NULL without memory. */
char *model_file_name(const char *model, const char *name);

#endif
