/* SPDX-License-Identifier: MIT
 *
 * Inside of gguf_names.c and gguf_folder.c: the small files of a model, each made of metadata as
 * JSON that the caller lets go of. Sentences do not name the file. Nobody else includes this. */
#ifndef FILE_GGUF_MODEL_IMPL_H
#define FILE_GGUF_MODEL_IMPL_H

#include <jansson.h>

#include "file/gguf_model.h"

/* gguf_config.c */
int gguf_config(json_t **ret, const struct gguf_model *m, struct err *err);
const char *gguf_config_architecture(const struct gguf *g);
size_t gguf_config_head_width(const struct gguf *g);

/* gguf_rope.c: the factors of rope_freqs.weight as the rule of Llama 3 that they follow. */
int gguf_rope_scaling(json_t **ret, const float *factor, size_t n, double base, struct err *err);

/* gguf_tokenizer.c */
int gguf_tokenizer(json_t **ret, const struct gguf *g, struct err *err);
int gguf_tokenizer_config(json_t **ret, const struct gguf *g, struct err *err);
/* The ids that end an answer, as many as `most`. */
size_t gguf_tokenizer_ends(const struct gguf *g, int64_t *ret, size_t most);
bool gguf_tokenizer_bos(const struct gguf *g, int64_t *ret);

#endif
