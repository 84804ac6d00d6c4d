/* SPDX-License-Identifier: MIT */
#include "daemon/common/json_list.h"

#include <string.h>

bool json_list_has(const json_t *list, const char *text)
{
    size_t i;
    json_t *one;
    json_array_foreach (list, i, one)
        if (json_is_string(one) && !strcmp(json_string_value(one), text))
            return true;
    return false;
}
