/* SPDX-License-Identifier: MIT
 *
 * Writes a model as vLLM's llm-compressor quantizes it (compressed-tensors). Packed here, without
 * the engine's own reading. */
#ifndef TESTS_LIB_COMPRESSED_H
#define TESTS_LIB_COMPRESSED_H

#include "file/config.h"

struct compressed_how {
    const char *format; /* "pack-quantized", "int-quantized", "float-quantized", "mxfp4-pack-quantized" */
    size_t bits, wide;  /* columns that share a scale; 0: a row has one */
    bool zeros;         /* asymmetric */
    bool tensor;        /* of FP8: one scale for all of a matrix, */
    bool blocks;        /* or one for each 128 × 128; else one for each row */
    enum dtype side;    /* of scales, and of all that is not quantized */
    const char *left;   /* of matrices that are not quantized beside the usual, an expression; or NULL */
};

/* From the model in `plain` (f32, one file) into `dir`. The weights of `plain` become what
 * those of `dir` stand for. Head, embedding and routers are left. Writes no
 * config.json. */
void compressed_convert(const char *plain, const char *dir, const struct config *c,
                        struct compressed_how how);

/* What config.json says of it: ,"quantization_config":{…},"torch_dtype":… */
void compressed_config(char *ret, size_t size, struct compressed_how how);

#endif
