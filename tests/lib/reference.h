/* SPDX-License-Identifier: MIT
 *
 * A second, plain implementation of every family in f64, one token after the other and straight
 * from the formulas: what tests compare the engine with where there is no recorded result. */
#ifndef TESTS_LIB_REFERENCE_H
#define TESTS_LIB_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "file/config.h"

/* Logits [n, vocab] of one sequence of n tokens. The caller frees. */
double *reference_logits(const char *model_dir, const struct config *c, const uint32_t *ids, size_t n);
/* Of the layer that predicts a token more, c of config_ahead: logits [n, vocab] and its own output
 * ret_y [n, dim] from what the model gave, x [n, dim], and the tokens behind. The caller frees
 * both. */
double *reference_ahead(const char *model_dir, const struct config *c, const double *x, const uint32_t *ids,
                        size_t n, double **ret_y);

#endif
