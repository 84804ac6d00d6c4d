/* SPDX-License-Identifier: MIT
 *
 * A unit's inside, shared by unit.c and unit_grads.c. */
#ifndef MODEL_UNIT_IMPL_H
#define MODEL_UNIT_IMPL_H

#include "model/unit.h"

/* Has the block find the parameter's gradient where it is now. */
void unit_attach_grad(struct unit *u, const struct param *p);

#endif
