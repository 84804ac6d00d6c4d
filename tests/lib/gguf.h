/* SPDX-License-Identifier: MIT
 *
 * Writes GGUF files: keys, values and tensors one by one, or a whole model of random blocks. What a
 * block stands for is told here value by value, after the formulas of the format: the engine's own
 * code is not used. */
#ifndef TESTS_LIB_GGUF_H
#define TESTS_LIB_GGUF_H

#include <stdint.h>
#include <stdio.h>

#include "file/config.h"
#include "num/block.h"

/* A file in the making. */
struct gguf_out {
    FILE *keys, *infos, *data;
    char *text[3];
    size_t n[3], nkeys, ninfos;
};
void gguf_begin(struct gguf_out *o);
void gguf_put_whole(struct gguf_out *o, const char *key, uint32_t value);
void gguf_put_real(struct gguf_out *o, const char *key, float value);
void gguf_put_flag(struct gguf_out *o, const char *key, bool value);
void gguf_put_text(struct gguf_out *o, const char *key, const char *value);
void gguf_put_texts(struct gguf_out *o, const char *key, const char *const *list, size_t n);
void gguf_put_wholes(struct gguf_out *o, const char *key, const int32_t *list, size_t n);
void gguf_put_reals(struct gguf_out *o, const char *key, const float *list, size_t n);
/* Each 0 or 1. */
void gguf_put_flags(struct gguf_out *o, const char *key, const uint8_t *list, size_t n);
/* type: GGUF's number of it. extent as GGUF has it, the row first. */
void gguf_put_tensor(struct gguf_out *o, const char *name, unsigned type, size_t ndim, const size_t *extent,
                     const void *data, size_t bytes);
/* parts: the file is one of so many; 0 or 1: it is all. */
void gguf_end(struct gguf_out *o, const char *path);

/* GGUF's number of a type of blocks. */
unsigned gguf_number(enum block_type type);
/* Value i of a block. */
float gguf_block_value(enum block_type type, const uint8_t *block, size_t i);

struct gguf_how {
    enum block_type block; /* of matrices whose rows are whole blocks; BLOCK_NONE: F32 */
    enum block_type rest;  /* of the second of two tensors that make a matrix, if not the same */
    bool kv_b_parts;       /* latent attention in the newer form */
    bool split;            /* into PATH-00001-of-00002.gguf and the second; `path` ends before that */
};
/* From the model in `plain` (f32, one file), whose weights become what the blocks stand for. */
void gguf_convert(const char *plain, const char *path, const struct config *c, struct gguf_how how);

#endif
