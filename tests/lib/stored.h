/* SPDX-License-Identifier: MIT
 *
 * The numbers of a stored tensor, decoded bit by bit and not as the engine does. */
#ifndef TESTS_LIB_STORED_H
#define TESTS_LIB_STORED_H

#include "file/st.h"

/* [elements], F8_E4M3 times the scales of its blocks of 128 × 128. The test fails if it is not
 * there. The caller frees. */
double *stored_numbers(const struct st *st, const char *name);

#endif
