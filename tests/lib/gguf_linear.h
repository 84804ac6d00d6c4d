/* SPDX-License-Identifier: MIT
 *
 * Linear layers as llama.cpp lays them out, told from its converter's description, row by row: the
 * engine's own code is not used. Called by gguf_model.c. */
#ifndef TESTS_LIB_GGUF_LINEAR_H
#define TESTS_LIB_GGUF_LINEAR_H

#include "file/config.h"
#include "file/st.h"
#include "tests/lib/gguf.h"

/* Where row `at` of the tensor goes; of convolutions and vectors an element. Of in_proj_qkvz rows
 * of z follow all the others. Of tensors of other layers `at`. */
size_t gguf_linear_row(const struct config *c, const char *name, size_t at);
/* Which column of Hugging Face's stands at place `at`. */
size_t gguf_linear_col(const struct config *c, const char *name, size_t at);
/* How many rows of the tensor go to the first of two tensors; 0: there is one. */
size_t gguf_linear_first(const struct config *c, const char *name);
/* What it is called behind the number of a layer; NULL: as elsewhere. */
const char *gguf_linear_name(const char *rest);
/* Keys, the architecture's name in front. */
void gguf_linear_keys(struct gguf_out *out, const char *arch, const struct config *c);

#endif
