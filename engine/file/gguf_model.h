/* SPDX-License-Identifier: MIT
 *
 * A model in a GGUF file, as the folder that it would be: its tensors under their names in
 * Hugging Face's files, and the small files beside them made of its metadata.
 * NAME-00001-of-00003.gguf names all of its parts. Any thread, one at a time. */
#ifndef FILE_GGUF_MODEL_H
#define FILE_GGUF_MODEL_H

#include "file/gguf.h"
#include "num/mat.h"

struct gguf_model;

/* Opens a file and all parts of a split one, without reading a tensor. */
int gguf_model_open(struct gguf_model **ret, const char *path, struct err *err);
void gguf_model_close(struct gguf_model *m);

size_t gguf_model_parts(const struct gguf_model *m);
const char *gguf_model_path(const struct gguf_model *m, size_t part);
const struct gguf *gguf_model_part(const struct gguf_model *m, size_t part);
/* The first, with all metadata. */
const struct gguf *gguf_model_head(const struct gguf_model *m);
/* In any part; NULL: in none. */
const struct gguf_tensor *gguf_model_find(const struct gguf_model *m, const char *name);

/* What a tensor is called in Hugging Face's files, and how its rows lie (`turn` of struct mat). */
enum { GGUF_MODEL_NAME = 160 };
struct gguf_alias {
    char name[GGUF_MODEL_NAME];
    size_t experts; /* it is a stack of so many: `name` ends before the number of one, `rest` is behind it; 0:
                       it is none */
    char rest[32];
    size_t turn;
    struct mat_heads row_heads, col_heads; /* as of struct st_tensor */
    struct mat_rest parts;
    enum gguf_number {
        GGUF_AS_IT_IS,
        GGUF_ONE_MORE,  /* a norm with 1 added */
        GGUF_MINUS_EXP, /* −e^x instead of x */
    } number;
    enum gguf_shape {
        GGUF_SAME_SHAPE,
        GGUF_TAPS, /* [channels, taps] of what has [channels, 1, taps] */
        GGUF_ROW,  /* [n] of what has [1, n]; or that */
    } shape;
    bool is_left_out; /* others say it, or it is computed */
};
/* −ENOTSUP: no model of ours has such a tensor. The sentence does not name the file. */
int gguf_alias(struct gguf_alias *ret, const struct gguf_model *m, const struct gguf_tensor *t,
               struct err *err);
/* The name of one of its experts, or of it. */
void gguf_alias_name(char ret[GGUF_MODEL_NAME], const struct gguf_alias *alias, size_t expert);

/* "config.json", "tokenizer.json" or "tokenizer_config.json" in a fresh
 * string. −ENOENT: it has none of that name. */
int gguf_model_file(char **ret, const struct gguf_model *m, const char *name, struct err *err);

#endif
