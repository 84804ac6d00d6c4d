/* SPDX-License-Identifier: MIT */
#include "daemon/stage/token_json.h"

#include <stdlib.h>
#include <string.h>

json_t *token_text(const char *text, size_t n)
{
    static const char shown[] = "\xef\xbf\xbd";
    char *copy = malloc(3 * n + 1);
    size_t size = 0;
    for (size_t i = 0; copy && i < n; i++) {
        const size_t wide = text[i] ? 1 : sizeof shown - 1;
        memcpy(copy + size, text[i] ? &text[i] : shown, wide);
        size += wide;
    }
    json_t *ret = copy ? json_stringn(copy, size) : NULL;
    free(copy);
    return ret ? ret : json_string("");
}

json_t *token_json(struct tokenizer *tok, uint32_t id, json_t *logprob)
{
    struct err quiet;
    char *text = NULL;
    size_t n;
    json_t *o = json_pack("{s:I s:o}", "id", (json_int_t)id, "logprob", logprob);
    if (tok && !tokenizer_decode(tok, &id, 1, false, &text, &n, &quiet))
        json_object_set_new(o, "text", token_text(text, n));
    free(text);
    return o;
}

json_t *token_json_top(struct tokenizer *tok, const struct likely *likely, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, token_json(tok, likely[i].id, json_real((double)likely[i].logprob)));
    return list;
}
