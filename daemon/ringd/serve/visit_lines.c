/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/serve/visit_lines.h"

enum { LINES = 100, SECOND_US = 1000000 };

bool visit_lines_take(struct visit_lines *lines, struct instant now, uint64_t *ret_left_out)
{
    if (clock_since_us(now, lines->since) >= SECOND_US) {
        lines->since = now;
        lines->n = 0;
    }
    if (lines->n == LINES) {
        lines->left_out++;
        return false;
    }
    lines->n++;
    *ret_left_out = lines->left_out;
    lines->left_out = 0;
    return true;
}
