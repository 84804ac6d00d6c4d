/* SPDX-License-Identifier: MIT
 *
 * Drawn numbers for tests, the same in every run. */
#ifndef TESTS_LIB_DRAW_H
#define TESTS_LIB_DRAW_H

#include <stddef.h>

/* n floats, normal around 0, for the caller to free; other ones for another purpose. */
float *random_floats(size_t n, const char *purpose);

#endif
