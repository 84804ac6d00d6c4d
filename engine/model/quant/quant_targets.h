/* SPDX-License-Identifier: MIT
 *
 * Which modules of a model compressed-tensors quantized, and how: each entry of "config_groups" has
 * "targets", and "ignore" takes some away again. Each is the name of a module, "re:" and a regular
 * expression that matches from the name's start on, or a class, of which "Linear" alone is known.
 * A name counts before an expression, and that before a class. Called while a plan is made, on its
 * thread. */
#ifndef MODEL_QUANT_TARGETS_H
#define MODEL_QUANT_TARGETS_H

#include <jansson.h>

#include "file/config.h"

struct quant_targets;

/* From "quantization_config", which config_read has checked (borrowed until it is freed). −EINVAL
 * with a sentence: an expression is none; −E2BIG: there are too many. */
int quant_targets_new(struct quant_targets **ret, const json_t *quantization, struct err *err);
void quant_targets_free(struct quant_targets *t);

/* Whether the module ("model.layers.0.mlp.up_proj") is quantized, and how: 1, 0, or −errno with a
 * sentence. −E2BIG: an expression takes too long, or all of them on all modules so far. */
int quant_targets_find(struct quant_targets *t, const char *module, bool is_linear,
                       struct config_packing *ret, struct err *err);

#endif
