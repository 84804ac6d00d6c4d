/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called for every row that goes to another node or comes from one. */
#include "daemon/ringd/api/job_row.h"

#include <string.h>

#include "daemon/common/job_plan.h"
#include "daemon/ringd/job/job_state.h"

/* COUNT: not below 0; MOMENT: the same, or null; TEXTS: a list, of JOB_MAX_ADAPTERS at most. */
enum row_value { TEXT, COUNT, MOMENT, NUMBER, TRUTH, TEXTS };

static const struct {
    const char *key;
    enum row_value kind;
    bool is_needed;
} keys[] = {{"id", COUNT, true},       {"type", TEXT, true},       {"state", TEXT, true},
            {"created", MOMENT, true}, {"started", MOMENT, false}, {"ended", MOMENT, false},
            {"step", COUNT, false},    {"steps", COUNT, false},    {"loss", NUMBER, false},
            {"error", TEXT, false},    {"unsaved", TEXT, false},   {"idle", TRUTH, false},
            {"model", TEXT, false},    {"tokens", COUNT, false},   {"seconds", MOMENT, false},
            {"deputy", TEXT, false},   {"serves", TEXT, false},    {"serves_with", TEXTS, false}};

/* Cut at a character's edge; what steers terminals becomes a question mark. */
static json_t *clean(const json_t *value)
{
    const char *from = json_string_value(value);
    size_t n = strnlen(from, JOB_ROW_TEXT);
    char text[JOB_ROW_TEXT];
    while (n && from[n] && ((unsigned char)from[n] & 0xc0) == 0x80)
        n--;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)from[i], next = i + 1 < n ? (unsigned char)from[i + 1] : 0;
        text[i] = c < 0x20 || c == 0x7f ? '?' : from[i];
        if (c == 0xc2 && next >= 0x80 && next < 0xa0) { /* a control character of two bytes */
            text[i++] = '?';
            text[i] = '?';
        }
    }
    return json_stringn(text, n);
}

static json_t *clean_all(const json_t *list)
{
    json_t *texts = json_array(), *text;
    size_t i;
    json_array_foreach (list, i, text)
        if (json_is_string(text) && i < JOB_MAX_ADAPTERS)
            json_array_append_new(texts, clean(text));
    return texts;
}

/* NULL: not what that key holds. */
static json_t *read_value(enum row_value kind, const json_t *value)
{
    const bool is_count = json_is_integer(value) && json_integer_value(value) >= 0;
    switch (kind) {
    case TEXT: return json_is_string(value) ? clean(value) : NULL;
    case COUNT: return is_count ? json_incref((json_t *)value) : NULL;
    case MOMENT: return is_count || json_is_null(value) ? json_incref((json_t *)value) : NULL;
    case NUMBER: return json_is_number(value) ? json_incref((json_t *)value) : NULL;
    case TRUTH: return json_is_boolean(value) ? json_incref((json_t *)value) : NULL;
    case TEXTS: return json_is_array(value) ? clean_all(value) : NULL;
    }
    return NULL;
}

json_t *job_row_read(const json_t *heard)
{
    json_t *row = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = read_value(keys[i].kind, json_object_get(heard, keys[i].key));
        if (value) {
            json_object_set_new(row, keys[i].key, value);
        } else if (keys[i].is_needed) {
            json_decref(row);
            return NULL;
        } else if (keys[i].kind != TRUTH && json_object_get(heard, keys[i].key)) {
            json_object_set_new(row, keys[i].key, json_null());
        }
    }
    if (json_integer_value(json_object_get(row, "id")) > 0 &&
        job_state_is_known(json_string_value(json_object_get(row, "state"))))
        return row;
    json_decref(row);
    return NULL;
}

bool job_row_ended(const json_t *row)
{
    const char *state = json_string_value(json_object_get(row, "state"));
    return state && (!strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "cancelled"));
}
