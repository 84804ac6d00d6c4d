/* SPDX-License-Identifier: MIT
 *
 * JSON in tests: read, and compared with a text. Behind cmocka.h. */
#ifndef TESTS_JSON_IS_H
#define TESTS_JSON_IS_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static inline json_t *json_of(const char *text)
{
    json_error_t where;
    json_t *json = json_loads(text, JSON_DECODE_ANY, &where);
    if (!json)
        fail_msg("%s: %s", where.text, text);
    return json;
}

/* Takes over the reference. */
static inline void json_is(json_t *json, const char *want)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text || strcmp(text, want) != 0)
        fail_msg("is\n%s\nand should be\n%s", text ? text : "nothing", want);
    free(text);
    json_decref(json);
}

#endif
