/* SPDX-License-Identifier: MIT
 *
 * Gradients of a whole chain against central differences of its own loss. */
#ifndef TESTS_LIB_SLOPE_H
#define TESTS_LIB_SLOPE_H

#include "tests/lib/chain.h"

/* Computes the gradients of the microbatch's summed loss with one backward pass and compares that
 * of every parameter with the slope of the loss, once along the gradient itself (its length must be
 * right) and once along a random direction (nothing may be missing). The parameters are as before
 * afterwards. */
void check_slopes(struct chain *c, const struct microbatch *mb);

#endif
