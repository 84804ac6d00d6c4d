/* SPDX-License-Identifier: MIT
 *
 * Which modules an adapter of PEFT lies on, and with which rank and alpha: PEFT's own rules of
 * matching (0.20, tuners_utils.py check_target_module_exists, other.py get_pattern_key). Called
 * while adapter_config.json is read. */
#ifndef MODEL_PEFT_RULES_H
#define MODEL_PEFT_RULES_H

#include <jansson.h>

#include "model/tune.h"

struct peft_rules;

/* Reads target_modules, exclude_modules, layers_to_transform, layers_pattern, rank_pattern and
 * alpha_pattern of `config`, which is borrowed until free; `usual` is the form of what no pattern
 * names. −EINVAL where one of them is not as PEFT writes it, named in the sentence. */
int peft_rules_new(struct peft_rules **ret, const json_t *config, struct tune_form usual, struct err *err);
/* For tune_ask_all; arg: the rules. */
int peft_rules_ask(void *arg, const char *module, size_t layer, struct tune_form *ret, struct err *err);
void peft_rules_free(struct peft_rules *rules);

#endif
