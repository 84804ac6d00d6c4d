/* SPDX-License-Identifier: MIT */
#include "train/eval_set.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/textbuf.h"
#include "train/jsonl.h"

struct eval_reader {
    const struct eval_request *req; /* borrowed, as all here */
    const char *path;
    struct jsonl *in;
    struct eval_set *set;
    struct err *err;
};

const char *eval_task_name(enum eval_task task)
{
    static const char *const names[EVAL_TASKS] = {"auto", "multiple-choice", "generation", "perplexity"};
    return names[task];
}

static int bad(const struct eval_reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(const struct eval_reader *r, const char *fmt, ...)
{
    struct err what;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what.text, sizeof what.text, fmt, ap);
    va_end(ap);
    return err_set(r->err, -EBADMSG, "%s:%zu: %s", r->path, jsonl_line(r->in), what.text);
}

static int no_memory(const struct eval_reader *r)
{
    return err_set(r->err, -ENOMEM, "%s:%zu: no memory for so much data; give --limit N", r->path,
                   jsonl_line(r->in));
}

/* --- texts ------------------------------------------------------------------------------------ */

static int copy_text(const struct eval_reader *r, struct eval_text *ret, const char *before, const char *text,
                     const char *after)
{
    char *all;
    const int n = asprintf(&all, "%s%s%s", before, text, after);
    if (n < 0)
        return no_memory(r);
    *ret = (struct eval_text){all, (size_t)n};
    return 0;
}

static bool is_text(const json_t *value)
{
    return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
}

/* A list of texts, or one text alone. */
static int copy_texts(const struct eval_reader *r, struct eval_row *row, const char *key, const json_t *list)
{
    const size_t n = json_is_array(list) ? json_array_size(list) : 1;
    if (!n || n > EVAL_CHOICES_MAX)
        return bad(r, "\"%s\" has %zu texts; 1 to %d are possible", key, n, EVAL_CHOICES_MAX);
    row->answers = calloc(n, sizeof *row->answers);
    if (!row->answers)
        return no_memory(r);
    int e = 0;
    for (size_t i = 0; i < n && !e; i++) {
        const json_t *one = json_is_array(list) ? json_array_get(list, i) : list;
        if (!is_text(one) || !json_string_length(one))
            e = bad(r, "entry %zu of \"%s\" must be a text that is not empty and has no character U+0000",
                    i + 1, key);
        else if (!(e = copy_text(r, &row->answers[i], "", json_string_value(one), "")))
            row->nanswers++;
    }
    return e;
}

/* --- contexts --------------------------------------------------------------------------------- */

static const char *prompt_key(const struct eval_reader *r)
{
    return r->req->fields.prompt ? r->req->fields.prompt : "prompt";
}

static const char *text_key(const struct eval_reader *r)
{
    return r->req->fields.text ? r->req->fields.text : "text";
}

static const char *context_key(const struct eval_reader *r, const json_t *row)
{
    const char *const keys[] = {prompt_key(r), "question", text_key(r)};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_object_get(row, keys[i]))
            return keys[i];
    return NULL;
}

static int read_context(const struct eval_reader *r, struct eval_row *to, const json_t *row)
{
    const char *key = context_key(r, row);
    const json_t *value = key ? json_object_get(row, key) : NULL;
    if (!key)
        return bad(r,
                   "a row of the task %s needs \"%s\", \"question\" or \"%s\"; name another key with "
                   "--prompt-field",
                   eval_task_name(r->set->task), prompt_key(r), text_key(r));
    if (!is_text(value))
        return bad(r, "\"%s\" must be a text without the character U+0000", key);
    const bool is_question = !strcmp(key, "question") && strcmp(prompt_key(r), key) != 0;
    return copy_text(r, &to->context, is_question ? "Question: " : "", json_string_value(value),
                     is_question ? "\nAnswer:" : "");
}

/* --- multiple choice -------------------------------------------------------------------------- */

/* The number of a choice that a text names; −1: none. */
static int choice_named(const struct eval_row *row, const json_t *labels, const char *text)
{
    const size_t n = row->nanswers;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(row->answers[i].text, text))
            return (int)i;
    for (size_t i = 0; i < n && i < json_array_size(labels); i++) {
        const char *label = json_string_value(json_array_get(labels, i));
        if (label && !strcmp(label, text))
            return (int)i;
    }
    if (*text && !text[1] && *text >= 'A' && (size_t)(*text - 'A') < n)
        return *text - 'A';
    char *end;
    errno = 0;
    const unsigned long number = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && number < n ? (int)number : -1;
}

static int read_right(const struct eval_reader *r, struct eval_row *to, const json_t *row,
                      const json_t *labels)
{
    static const char *const keys[] = {"answer", "answerKey", "label"};
    const json_t *value = NULL;
    const char *key = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !value; i++)
        value = json_object_get(row, key = keys[i]);
    if (!value)
        return bad(r, "has no \"answer\", \"answerKey\" or \"label\", so no choice is right");
    json_int_t at = json_integer_value(value);
    if (json_is_string(value))
        at = choice_named(to, labels, json_string_value(value));
    if ((!json_is_string(value) && !json_is_integer(value)) || at < 0 || (size_t)at >= to->nanswers)
        return bad(r,
                   "\"%s\" names none of the %zu choices: give a number from 0 to %zu, the text of a choice, "
                   "its label, or a letter from A",
                   key, to->nanswers, to->nanswers - 1);
    to->right = (size_t)at;
    return 0;
}

static int read_choice(const struct eval_reader *r, struct eval_row *to, const json_t *row)
{
    const json_t *choices = json_object_get(row, "choices"),
                 *texts = json_is_object(choices) ? json_object_get(choices, "text") : choices;
    if (!json_is_array(texts) || json_array_size(texts) < 2)
        return bad(r, "\"choices\" must be a list of at least two texts, or {\"text\": […], \"label\": […]}");
    int e = read_context(r, to, row);
    if (!e)
        e = copy_texts(r, to, "choices", texts);
    return e ? e : read_right(r, to, row, json_object_get(choices, "label"));
}

/* --- the other tasks -------------------------------------------------------------------------- */

static const char *completion_key(const struct eval_reader *r, const json_t *row)
{
    if (r->req->fields.completion)
        return r->req->fields.completion;
    return json_object_get(row, "completion") ? "completion" : "answer";
}

static int read_generation(const struct eval_reader *r, struct eval_row *to, const json_t *row)
{
    const char *key = completion_key(r, row);
    const json_t *answers = json_object_get(row, key);
    if (!answers)
        return bad(r, "has no \"completion\" or \"answer\" to compare with; name another key with "
                      "--completion-field");
    const int e = read_context(r, to, row);
    return e ? e : copy_texts(r, to, key, answers);
}

static int read_text(const struct eval_reader *r, struct eval_row *to, const json_t *row)
{
    const json_t *text = json_object_get(row, text_key(r));
    if (!is_text(text) || !json_string_length(text))
        return bad(r,
                   "\"%s\" must be a text that is not empty and has no character U+0000; name another "
                   "key with --text-field",
                   text_key(r));
    return copy_text(r, &to->context, "", json_string_value(text), "");
}

/* --- rows ------------------------------------------------------------------------------------- */

static enum eval_task task_of(const struct eval_reader *r, const json_t *row)
{
    if (json_object_get(row, "choices"))
        return EVAL_CHOICE;
    if (context_key(r, row) && json_object_get(row, completion_key(r, row)))
        return EVAL_GENERATION;
    return json_object_get(row, text_key(r)) ? EVAL_PERPLEXITY : EVAL_AUTO;
}

static int add_row(struct eval_reader *r, const json_t *row)
{
    static int (*const readers[EVAL_TASKS])(const struct eval_reader *, struct eval_row *, const json_t *) = {
        [EVAL_CHOICE] = read_choice, [EVAL_GENERATION] = read_generation, [EVAL_PERPLEXITY] = read_text};
    struct eval_set *set = r->set;
    if (set->task == EVAL_AUTO && (set->task = task_of(r, row)) == EVAL_AUTO)
        return bad(r, "no task fits its keys: multiple-choice needs \"choices\" and \"answer\", generation "
                      "\"prompt\" and \"completion\", perplexity \"text\"");
    if (array_reserve((void **)&set->rows, &set->room, set->n + 1, sizeof *set->rows))
        return no_memory(r);
    struct eval_row *to = &set->rows[set->n++];
    *to = (struct eval_row){.line = jsonl_line(r->in)};
    return readers[set->task](r, to, row);
}

static int read_rows(struct eval_reader *r)
{
    const size_t limit = r->req->limit;
    json_t *row;
    int e = 0;
    while ((!limit || r->set->n < limit) && (e = jsonl_next(r->in, &row, r->err)) > 0) {
        e = add_row(r, row);
        json_decref(row);
        if (e < 0)
            return e;
    }
    if (e >= 0 && !r->set->n)
        return err_set(r->err, -ENODATA, "%s has no rows", r->path);
    return e < 0 ? e : 0;
}

void eval_set_done(struct eval_set *set)
{
    for (size_t i = 0; i < set->n; i++) {
        struct eval_row *row = &set->rows[i];
        for (size_t k = 0; k < row->nanswers; k++)
            free(row->answers[k].text);
        free(row->answers);
        free(row->context.text);
    }
    free(set->rows);
    *set = (struct eval_set){0};
}

int eval_set_open(struct eval_set *ret, const struct eval_request *req, struct err *err)
{
    struct eval_set set = {.task = req->task};
    struct eval_reader r = {.req = req, .set = &set, .err = err};
    char *path;
    int e = data_split_path(&path, req->path, "test", err);
    if (e)
        return e;
    r.path = path;
    e = jsonl_open(&r.in, path, err);
    if (!e)
        e = read_rows(&r);
    jsonl_close(r.in);
    free(path);
    if (e)
        eval_set_done(&set);
    else
        *ret = set;
    return e;
}
