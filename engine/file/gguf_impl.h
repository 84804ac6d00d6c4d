/* SPDX-License-Identifier: MIT
 *
 * Inside of struct gguf, shared by gguf_head.c (which fills it) and gguf.c. Nobody else includes
 * this. */
#ifndef FILE_GGUF_IMPL_H
#define FILE_GGUF_IMPL_H

#include "file/gguf.h"

struct gguf {
    uint8_t *bytes; /* owned: the head; values and keys lie in it */
    size_t n;
    struct gguf_value *values; /* owned: [nvalues] in the file's order */
    size_t nvalues;
    struct gguf_tensor *tensors; /* owned: [ntensors] in the file's order */
    size_t ntensors;
};

/* Of an element; 0: a string or an array. */
size_t gguf_type_bytes(enum gguf_type type);

#endif
