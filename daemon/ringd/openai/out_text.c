/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/out_text.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

void out_text_add(struct out_text *out, const char *data, size_t n)
{
    if (out->cap - out->len <= n || !out->data) {
        out->cap = 2 * (out->len + n) + 64;
        out->data = xrealloc(out->data, out->cap);
    }
    if (n > 0)
        memcpy(out->data + out->len, data, n);
    out->len += n;
    out->data[out->len] = '\0';
}

void out_text_json(struct out_text *out, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text)
        out_text_add(out, text, strlen(text));
    free(text);
    json_decref(value);
}

static void add_words(struct out_text *out, const char *words)
{
    out_text_add(out, words, strlen(words));
}

void out_text_event(struct out_text *out, const char *name, json_t *value)
{
    if (name) {
        add_words(out, "event: ");
        add_words(out, name);
        add_words(out, "\n");
    }
    add_words(out, "data: ");
    out_text_json(out, value);
    add_words(out, "\n\n");
}

void out_text_clear(struct out_text *out)
{
    out->len = 0;
    if (out->data)
        *out->data = '\0';
}

void out_text_done(struct out_text *out)
{
    free(out->data);
    *out = (struct out_text){0};
}
