/* SPDX-License-Identifier: MIT */
#include "daemon/common/layers_text.h"

#include <stdio.h>
#include <string.h>

void layers_text_add(char *text, size_t size, size_t from, size_t to)
{
    char range[48];
    const size_t used = strlen(text);
    if (to <= from)
        return;
    int n = snprintf(range, sizeof range, "%s%zu", used ? "," : "", from);
    if (to > from + 1)
        n += snprintf(range + n, sizeof range - (size_t)n, "-%zu", to - 1);
    if (used + (size_t)n < size)
        memcpy(text + used, range, (size_t)n + 1);
}
