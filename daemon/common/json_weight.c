/* SPDX-License-Identifier: MIT */
#include "daemon/common/json_weight.h"

#include <string.h>

enum {
    WEIGHT_NUMBER = 32,
    WEIGHT_TEXT = 48,  /* and its bytes */
    WEIGHT_ARRAY = 64, /* and 8 for each place, as many as twice what is used */
    WEIGHT_OBJECT = 256,
    WEIGHT_MEMBER = 64, /* and its key */
    PLACE = 16,
};

size_t json_weight(const json_t *value)
{
    const json_t *item;
    const char *key;
    size_t i, sum;
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_INTEGER:
    case JSON_REAL: return WEIGHT_NUMBER;
    case JSON_STRING: return WEIGHT_TEXT + json_string_length(value);
    case JSON_ARRAY:
        sum = WEIGHT_ARRAY;
        json_array_foreach (value, i, item)
            sum += PLACE + json_weight(item);
        return sum;
    case JSON_OBJECT:
        sum = WEIGHT_OBJECT;
        json_object_foreach ((json_t *)value, key, item)
            sum += WEIGHT_MEMBER + strlen(key) + json_weight(item);
        return sum;
    default: return 0; /* null, true and false are there once */
    }
}
