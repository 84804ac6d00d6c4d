/* SPDX-License-Identifier: MIT
 *
 * Keys for JSON objects of a fuzzer, out of the tables that the program reads them by. */
#ifndef TESTS_FUZZ_KEYS_H
#define TESTS_FUZZ_KEYS_H

#include "daemon/common/fields.h"
#include "tests/fuzz/lib/fuzz.h"

enum { KEYS_MAX = 255 }; /* as many as a byte of the input picks from */

static inline void keys_add_one(const char *keys[KEYS_MAX + 1], const char *key)
{
    size_t n = 0;
    while (keys[n] && strcmp(keys[n], key) != 0)
        n++;
    expect(n < KEYS_MAX);
    keys[n] = key;
}

/* Those of the table, each once; the list ends with NULL. */
static inline void keys_add(const char *keys[KEYS_MAX + 1], const struct field *table)
{
    for (; table->name; table++)
        keys_add_one(keys, table->name);
}

#endif
