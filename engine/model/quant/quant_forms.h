/* SPDX-License-Identifier: MIT
 *
 * Which matrices of a model quantized by mlx-lm differ from the rest: config.json names them under
 * "quantization", with bits and groups of their own, or false. compressed-tensors has patterns of
 * those it has and has not. Those of a GGUF file all may differ. Only a plan's memory needs it:
 * where there are files, shapes say it. Used by stage_measure, on the planning thread. */
#ifndef MODEL_QUANT_FORMS_H
#define MODEL_QUANT_FORMS_H

#include "file/config.h"
#include "model/tensor_def.h"

struct quant_forms;

/* From DIR/config.json. NULL, without an error, for a model that is not stored like this. */
int quant_forms_open(struct quant_forms **ret, const char *dir, const struct config *c, struct err *err);
void quant_forms_close(struct quant_forms *forms);

/* What a matrix takes: bits (0: it is not quantized) in groups. */
struct quant_form {
    size_t bits, group;
    enum quant_kind kind;
    bool is_own; /* it is named: also if it is one, as a router, that is usually left as it is */
};
struct quant_form quant_form_of(const struct quant_forms *forms, const struct tensor_def *def,
                                const struct config *c);

/* Bytes of a matrix of a model that compressed-tensors quantized (config.compressed), with scales
 * and zeros where it is of whole numbers. −errno with a sentence: config.json does not say it. */
int quant_form_compressed(size_t *ret, const struct quant_forms *forms, const struct tensor_def *def,
                          const struct config *c, struct err *err);

/* Bytes of a matrix of a model whose files alone say it (config.mixed). */
size_t quant_form_bytes(const struct quant_forms *forms, const struct tensor_def *def);

#endif
