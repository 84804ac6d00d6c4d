/* SPDX-License-Identifier: MIT
 *
 * Which families there are, as config.c says it to users. */
#ifndef TESTS_LIB_KNOWN_FAMILIES_H
#define TESTS_LIB_KNOWN_FAMILIES_H

#include <stdbool.h>

/* has: called with the name of each, and `of`. The test fails with `lack`, behind the name, where
 * it says no. */
void known_families_all(bool (*has)(const void *of, const char *family), const void *of, const char *lack);

#endif
