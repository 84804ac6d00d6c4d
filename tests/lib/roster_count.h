/* SPDX-License-Identifier: MIT
 *
 * How many members a roster has: tests count them, ringd looks at each. */
#ifndef TESTS_LIB_ROSTER_COUNT_H
#define TESTS_LIB_ROSTER_COUNT_H

#include "net/roster.h"

static inline size_t roster_active(const struct roster *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += r->at[i].status == ROSTER_ACTIVE;
    return n;
}

#endif
