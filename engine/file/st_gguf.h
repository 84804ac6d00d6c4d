/* SPDX-License-Identifier: MIT
 *
 * Inside of st.c: the tensors of a GGUF file as those of a set. Nobody else includes this. */
#ifndef FILE_ST_GGUF_H
#define FILE_ST_GGUF_H

#include "file/st_impl.h"

/* Adds a model's parts: of those with a wanted tensor (want NULL: of all) the tensors, and of all of
 * them the names, as keys of `names`. */
int st_gguf_add(struct st *st, json_t *names, const char *path, bool (*want)(void *arg, const char *name),
                void *arg, bool map, struct err *err);

#endif
