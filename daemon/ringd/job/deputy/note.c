/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/deputy/note.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/store/store.h"

enum { KEY = 80 };

void note_put(struct store *store, const char *word, const struct origin *of, json_t *note)
{
    char hex[33], key[KEY], *text = note ? json_dumps(note, JSON_COMPACT) : NULL;
    id_hex(hex, of->head);
    snprintf(key, sizeof key, "%.20s/%s/%llu", word, hex, (unsigned long long)of->job);
    if (text || !note)
        store_put_note(store, key, text);
    free(text);
    json_decref(note);
}

static const char *key_of_row(const json_t *row)
{
    return json_string_value(json_array_get(row, 0));
}

const json_t *note_of_row(const json_t *row, const char *word)
{
    const char *key = key_of_row(row);
    const size_t n = strlen(word);
    return key && !strncmp(key, word, n) && key[n] == '/' ? json_array_get(row, 1) : NULL;
}

void note_drop_row(struct store *store, const json_t *row)
{
    store_put_note(store, key_of_row(row), NULL);
}
