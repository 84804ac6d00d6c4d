/* SPDX-License-Identifier: MIT */
#include "daemon/stage/stop_text.h"

#include <string.h>

size_t stop_text_find(const json_t *stops, const char *text, size_t n, size_t before)
{
    for (size_t i = 0; i < json_array_size(stops); i++) {
        const char *stop = json_string_value(json_array_get(stops, i));
        const size_t len = stop ? strlen(stop) : 0, from = before > len ? before - len : 0;
        const char *at = len ? memmem(text + from, n - from, stop, len) : NULL;
        if (at)
            return (size_t)(at - text);
    }
    return n;
}
