/* SPDX-License-Identifier: MIT
 *
 * Matrices quantized into a file, some MiB at a time: words, and beside them scales and biases in
 * BF16, as stored.h finds them. Called by whoever writes such files, on the computing thread. */
#ifndef MODEL_QUANT_OUT_H
#define MODEL_QUANT_OUT_H

#include "file/st.h"
#include "model/stored.h"
#include "num/gemm.h"

struct quant_out {
    const char *name; /* of the words, borrowed: "X.weight" */
    size_t experts;   /* a stack of so many matrices, 0: it is one */
    size_t bits, group;
};

/* The three tensors of a matrix, or of a stack of its like. names: room for those of the sides,
 * borrowed by `ret`. */
enum { QUANT_OUT_TENSORS = 3 };
void quant_out_list(struct st_out_tensor ret[QUANT_OUT_TENSORS], char names[2][STORED_NAME],
                    const struct quant_out *q, const struct tensor_def *def);

/* Writes a matrix behind those of its stack that were written before. −EDOM: a weight is not
 * finite, or too large. */
int quant_out_put(const struct quant_out *q, struct st_writer *out, struct num *num, struct mat w,
                  struct err *err);

#endif
