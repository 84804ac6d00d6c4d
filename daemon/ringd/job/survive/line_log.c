/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/line_log.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/common/job_plan.h"
#include "daemon/common/job_spec.h"
#include "daemon/common/xalloc.h"

enum { SO_FAR_BYTES = 4096 /* of such a line, at most */ };

struct line_log_line {
    struct line_log_line *next;
    size_t n;
    char text[]; /* [n] an object */
};

/* --- how far lines went ----------------------------------------------------------------------- */

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

static uint64_t step_of(const json_t *line)
{
    return (uint64_t)json_integer_value(json_object_get(line, "step"));
}

static json_t *parse(const char *text, size_t n)
{
    json_t *line = json_loadb(text, n, 0, NULL);
    if (json_is_object(line))
        return line;
    json_decref(line);
    return NULL;
}

bool line_log_keeps(const char *kind)
{
    static const char *const kinds[] = {"step", "valid", "sample", "skipped", "so-far"};
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && strcmp(kind, kinds[i]) != 0)
        i++;
    return i < sizeof kinds / sizeof *kinds;
}

/* Another node's words: the next head makes use of them. */
static bool is_line(const json_t *line, size_t n)
{
    const char *kind = text_of(line, "ev");
    return line_log_keeps(kind) && json_is_integer(json_object_get(line, "step")) &&
           json_integer_value(json_object_get(line, "step")) >= 0 &&
           strlen(text_of(line, "adapter")) <= JOB_ADAPTER_NAME &&
           (n <= SO_FAR_BYTES || strcmp(kind, "so-far") != 0);
}

/* `before` has that line as well. False: it speaks of more adapters than a job has. */
static bool pass(json_t *before, json_t *line)
{
    const char *kind = text_of(line, "ev"), *adapter = text_of(line, "adapter");
    if (!json_object_get(before, kind))
        json_object_set_new(before, kind, json_object());
    json_t *of = json_object_get(before, kind);
    if (!json_object_get(of, adapter) && json_object_size(of) >= JOB_MAX_ADAPTERS)
        return false;
    json_object_set_new(of, adapter,
                        strcmp(kind, "so-far") ? json_integer((json_int_t)step_of(line)) : json_incref(line));
    return true;
}

/* --- lines ------------------------------------------------------------------------------------ */

static bool drop_first(struct line_log *l)
{
    struct line_log_line *first = l->first;
    json_t *line = parse(first->text, first->n);
    const bool is_good = pass(l->before, line);
    json_decref(line);
    l->first = first->next;
    if (!l->first)
        l->end = NULL;
    l->bytes -= first->n;
    free(first);
    return is_good;
}

static bool append(struct line_log *l, const char *text, size_t n)
{
    struct line_log_line *line = xmalloc(sizeof *line + n);
    line->next = NULL;
    line->n = n;
    memcpy(line->text, text, n);
    *(l->end ? l->end : &l->first) = line;
    l->end = &line->next;
    l->bytes += n;
    bool is_good = true;
    while (is_good && l->bytes > LINE_LOG_BYTES)
        is_good = drop_first(l);
    return is_good;
}

static bool add_one(struct line_log *l, const char *text, size_t n)
{
    json_t *line = parse(text, n), *said = json_object_get(line, "said");
    const bool begins = !strcmp(text_of(line, "ev"), "said") && json_is_object(said);
    bool is_good = begins;
    if (begins) {
        line_log_clear(l);
        l->before = json_incref(said);
    } else if (l->before && is_line(line, n)) {
        is_good = append(l, text, n);
    }
    json_decref(line);
    return is_good;
}

void line_log_add(struct line_log *l, const json_t *event)
{
    const char *at = json_string_value(json_object_get(event, "lines"));
    bool is_good = at;
    for (const char *end; is_good && *at; at = end + 1) {
        end = strchr(at, '\n');
        is_good = end && add_one(l, at, (size_t)(end - at));
    }
    if (!is_good)
        line_log_clear(l);
}

json_t *line_log_encode(const struct line_log *l, uint64_t from)
{
    if (!l->before)
        return NULL;
    json_t *before = json_deep_copy(l->before), *lines = json_array();
    for (const struct line_log_line *at = l->first; at; at = at->next) {
        json_t *line = parse(at->text, at->n);
        if (step_of(line) >= from || json_array_size(lines) || !pass(before, line))
            json_array_append(lines, line);
        json_decref(line);
    }
    return json_pack("{s:o s:o}", "before", before, "lines", lines);
}

void line_log_clear(struct line_log *l)
{
    for (struct line_log_line *at = l->first, *next; at; at = next) {
        next = at->next;
        free(at);
    }
    json_decref(l->before);
    *l = (struct line_log){0};
}
