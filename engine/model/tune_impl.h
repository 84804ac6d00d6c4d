/* SPDX-License-Identifier: MIT
 *
 * Which linears a target names: the inside of tune.c and target.c. */
#ifndef MODEL_TUNE_IMPL_H
#define MODEL_TUNE_IMPL_H

#include "model/tune.h"

/* Does one of the targets name the linear whose weight is called `tensor`, and in which form are
 * its factors there? */
bool target_form(const struct tune *tune, const char *tensor, struct tune_form *ret);

#endif
