/* SPDX-License-Identifier: MIT
 *
 * Turns a model made for a test into an FP8 checkpoint as they are released: linears as F8_E4M3
 * (drawn anew) with a scale for each block of 128 × 128, also of the partial ones at the edges; all
 * else as it was. */
#ifndef TESTS_LIB_FP8_H
#define TESTS_LIB_FP8_H

#include "file/config.h"

void fp8_convert(const char *dir, const struct config *c);

#endif
