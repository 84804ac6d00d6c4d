/* SPDX-License-Identifier: MIT
 *
 * The container of a GGUF file (github.com/ggml-org/ggml, docs/gguf.md): keys with values, and
 * where each tensor lies. Little-endian, versions 2 and 3. Files are untrusted: every count is
 * checked against the bytes that are there before anything is allocated for it, and every tensor
 * lies inside the file, aligned, and on no other's bytes. What keys and names mean, others know. */
#ifndef FILE_GGUF_H
#define FILE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "num/block.h"
#include "num/dtype.h"

enum { GGUF_MAX_DIMS = 4, GGUF_NAME = 64 /* bytes of a tensor's name, without the NUL */ };

/* Types of values, by their numbers in files. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES,
};

struct gguf_text {
    const char *at; /* borrowed: the file; no NUL behind it */
    size_t n;
};

/* A value, or the elements of an array. */
struct gguf_value {
    struct gguf_text key;
    enum gguf_type type; /* of an array its elements' */
    bool is_array;
    size_t count;      /* 1 where it is no array */
    const uint8_t *at; /* the first of them, as stored; borrowed: the file */
};

struct gguf_tensor {
    char name[GGUF_NAME + 1];
    size_t ndim, extent[GGUF_MAX_DIMS]; /* as GGUF has them: the first is along a row */
    enum dtype dtype;                   /* DTYPE_COUNT where it is stored in blocks */
    enum block_type block;
    size_t at, bytes; /* in the file */
};

struct gguf;

/* Reads the head of the file, and no tensor. The sentence names the file and what is wrong. */
int gguf_open(struct gguf **ret, const char *path, struct err *err);
/* The same of bytes, which are copied: the head at least; the file has `file_bytes`. −ENODATA: the
 * head is longer than what was given. The sentence names no file. */
int gguf_parse(struct gguf **ret, const void *bytes, size_t n, uint64_t file_bytes, struct err *err);
void gguf_close(struct gguf *g);

size_t gguf_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, size_t i);       /* in the file's order */
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name); /* NULL: there is none */
const struct gguf_value *gguf_value(const struct gguf *g, const char *key);  /* NULL: there is none */
const char *gguf_type_name(const struct gguf_value *v);                      /* "u32", "array of string" */

/* Element i of what has so many. false: it is not of this kind. A whole number of any width counts,
 * and for a real also f32 and f64. */
bool gguf_whole(const struct gguf_value *v, size_t i, int64_t *ret);
bool gguf_real(const struct gguf_value *v, size_t i, double *ret);
bool gguf_bool(const struct gguf_value *v, bool *ret);
/* Steps through strings: start with `at` {NULL}; false behind the last, and of other types. */
bool gguf_next_text(const struct gguf_value *v, size_t *i, struct gguf_text *at);

#endif
