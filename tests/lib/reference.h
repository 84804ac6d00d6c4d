/* SPDX-License-Identifier: MIT
 *
 * A second, plain implementation of every family in f64, one token after the other and straight
 * from the formulas: what tests compare the engine with where there is no recorded result. It
 * decodes stored types by itself. */
#ifndef TESTS_LIB_REFERENCE_H
#define TESTS_LIB_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "file/config.h"

/* Logits [n, vocab] of one sequence of n tokens. The caller frees. */
double *reference_logits(const char *model_dir, const struct config *c, const uint32_t *ids, size_t n);

#endif
