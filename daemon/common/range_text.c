/* SPDX-License-Identifier: MIT */
#include "daemon/common/range_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void range_whole(char ret[RANGE_TEXT], double min, double max)
{
    if (min <= -0x1p63 && max >= 0x1p63)
        snprintf(ret, RANGE_TEXT, "a whole number");
    else if (max >= 0x1p63)
        snprintf(ret, RANGE_TEXT, "a whole number of at least %.0f", min);
    else
        snprintf(ret, RANGE_TEXT, "a whole number from %.0f to %.0f", min, max);
}

void range_number(char ret[RANGE_TEXT], double min, double max)
{
    if (isinf(min) && isinf(max))
        snprintf(ret, RANGE_TEXT, "a number");
    else if (isinf(max))
        snprintf(ret, RANGE_TEXT, "a number of at least %g", min);
    else
        snprintf(ret, RANGE_TEXT, "a number from %g to %g", min, max);
}

void range_words(char ret[RANGE_TEXT], const char *words)
{
    size_t used = 0;
    *ret = '\0';
    for (const char *at = words; *at && used < RANGE_TEXT;) {
        const size_t n = strcspn(at, "|");
        const char *before = at == words ? "" : at[n] ? ", " : " or ";
        used += (size_t)snprintf(ret + used, RANGE_TEXT - used, "%s%.*s", before, (int)n, at);
        at += n + (at[n] == '|');
    }
}
