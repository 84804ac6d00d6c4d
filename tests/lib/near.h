/* SPDX-License-Identifier: MIT
 *
 * How tests compare rows of floats, and how they insist that a call worked. A failed comparison
 * says where and by how much. */
#ifndef TESTS_LIB_NEAR_H
#define TESTS_LIB_NEAR_H

#include <stddef.h>

#include "err.h"

/* Fails the test with the engine's own sentence where r is not 0. */
void must(int r, const struct err *err);

/* Fails unless r is `code` and the sentence contains `part`. */
void must_refuse(int r, int code, const struct err *err, const char *part);

double near_max(const float *x, size_t n); /* largest magnitude */
double near_difference(const float *got, const float *want,
                       size_t n); /* largest; NaN anywhere gives infinity */

/* By how much the log-probabilities of logits [rows, vocab] are off, as a part of themselves: of
 * the roots of the mean squares. */
double near_logprobs(const float *got, const float *want, size_t rows, size_t vocab);

/* Within `tolerance`. */
void assert_near(const float *got, const float *want, size_t n, double tolerance, const char *what);
/* Within `tolerance` times the largest magnitude wanted. */
void assert_near_max(const float *got, const float *want, size_t n, double tolerance, const char *what);
void assert_same_bits(const float *got, const float *want, size_t n, const char *what);

#endif
