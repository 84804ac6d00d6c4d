/* SPDX-License-Identifier: MIT
 *
 * Which families there are, as config.c says it to users. */
#ifndef TESTS_LIB_KNOWN_FAMILIES_H
#define TESTS_LIB_KNOWN_FAMILIES_H

#include <stdbool.h>

/* has: called with the name of each. The test fails with `lack`, behind the name, where it says
 * no. */
void known_families_all(bool (*has)(const char *family), const char *lack);

#endif
