/* SPDX-License-Identifier: MIT
 *
 * The kinds of rows: which keys make which kind, and rows of ids, texts and pairs. Called by data.c
 * for each row while a file is read; owns nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "train/data_impl.h"

/* --- rows of ids ------------------------------------------------------------------------------ */

static int read_ids(struct data_reader *r, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v))
            return data_bad(r, -EBADMSG, "entry %zu of \"input_ids\" is not a whole number", i);
        if (id < 0 || (uint64_t)id >= r->req->vocab)
            return data_bad(r, -ERANGE,
                            "entry %zu of \"input_ids\" is %" JSON_INTEGER_FORMAT
                            ", but the model knows ids 0 to %zu",
                            i, id, r->req->vocab - 1);
        r->ids[i] = (uint32_t)id;
    }
    return 0;
}

static int read_labels(struct data_reader *r, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v))
            return data_bad(r, -EBADMSG, "entry %zu of \"labels\" is not a whole number", i);
        if (id != LABEL_NONE && (id < 0 || (uint64_t)id >= r->req->vocab))
            return data_bad(r, -ERANGE,
                            "entry %zu of \"labels\" is %" JSON_INTEGER_FORMAT
                            ", allowed are the model's ids 0 to %zu and %d for none",
                            i, id, r->req->vocab - 1, LABEL_NONE);
        r->labels[i] = (int32_t)id;
    }
    return 0;
}

static int add_ids(struct data_reader *r, const json_t *row)
{
    const json_t *ids = json_object_get(row, "input_ids"), *labels = json_object_get(row, "labels");
    size_t n = json_array_size(ids);
    if (r->req->mask != DATA_MASK_NONE)
        return data_bad(r, -EINVAL,
                        "has \"input_ids\", whose \"labels\" choose the trained tokens: leave out --mask");
    if (!json_is_array(ids))
        return data_bad(r, -EBADMSG, "\"input_ids\" must be a list of token ids");
    if (labels && !json_is_array(labels))
        return data_bad(r, -EBADMSG, "\"labels\" must be a list of token ids and %d for none", LABEL_NONE);
    if (labels && json_array_size(labels) != n)
        return data_bad(r, -EBADMSG, "%zu \"labels\" for %zu \"input_ids\"; one is wanted for each",
                        json_array_size(labels), n);
    int code = data_make_room(r, n);
    if (code == 0)
        code = read_ids(r, ids);
    if (code == 0 && labels)
        code = read_labels(r, labels);
    return code < 0 ? code : data_add_row(r, r->ids, labels ? r->labels : NULL, n);
}

/* --- rows of text ----------------------------------------------------------------------------- */

static const char *text_key(const struct data_reader *r)
{
    return r->req->fields.text ? r->req->fields.text : "text";
}

static int add_text(struct data_reader *r, const json_t *row)
{
    const char *key = text_key(r);
    const json_t *text = json_object_get(row, key);
    if (!json_is_string(text))
        return data_bad(r, -EBADMSG, "\"%s\" must be a string", key);
    if (r->req->mask != DATA_MASK_NONE)
        return data_bad(r, -EINVAL,
                        "has only \"%s\", without prompts and assistant's turns: leave out --mask, or give "
                        "rows of \"prompt\" and \"completion\", or of \"messages\"",
                        key);
    return data_add_plain(r, json_string_value(text), json_string_length(text), 0);
}

/* --- prompts and completions where there is no template --------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static int add_joined(struct data_reader *r, const char *prompt, const json_t *completion)
{
    const char *answer = json_string_value(completion);
    const size_t before = strlen(prompt);
    const bool apart = before == 0 || !*answer || is_space(prompt[before - 1]) || is_space(*answer);
    char *text;
    int n = asprintf(&text, "%s%s%s", prompt, apart ? "" : "\n", answer);
    if (n < 0)
        return data_no_memory(r);
    int code = data_add_plain(r, text, (size_t)n, r->req->mask == DATA_MASK_NONE ? 0 : before + !apart);
    free(text);
    return code;
}

static int need_text(const struct data_reader *r, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);
    if (!json_is_string(value))
        return data_bad(r, -EBADMSG, "\"%s\" must be a string", key);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return data_bad(r, -EBADMSG, "\"%s\" holds the character U+0000; take it out", key);
    return 0;
}

static const char *prompt_key(const struct data_reader *r)
{
    return r->req->fields.prompt ? r->req->fields.prompt : "prompt";
}

static const char *completion_key(const struct data_reader *r)
{
    return r->req->fields.completion ? r->req->fields.completion : "completion";
}

static int add_plain_pair(struct data_reader *r, const json_t *row)
{
    const char *prompt = prompt_key(r), *completion = completion_key(r);
    int code = need_text(r, row, prompt);
    if (code == 0)
        code = need_text(r, row, completion);
    return code ? code
                : add_joined(r, json_string_value(json_object_get(row, prompt)),
                             json_object_get(row, completion));
}

/* The headings alpaca's followers know, each above its text. */
static int add_plain_alpaca(struct data_reader *r, const json_t *row)
{
    const char *input = json_string_value(json_object_get(row, "input")),
               *system = json_string_value(json_object_get(row, "system"));
    int code = need_text(r, row, "instruction");
    if (code == 0)
        code = need_text(r, row, "output");
    if (code)
        return code;
    char *prompt;
    if (asprintf(&prompt, "%s%s### Instruction:\n%s\n\n%s%s%s### Response:\n", system ? system : "",
                 system && *system ? "\n\n" : "", json_string_value(json_object_get(row, "instruction")),
                 input && *input ? "### Input:\n" : "", input ? input : "",
                 input && *input ? "\n\n" : "") < 0)
        return data_no_memory(r);
    code = add_joined(r, prompt, json_object_get(row, "output"));
    free(prompt);
    return code;
}

static int add_talk(struct data_reader *r, const json_t *row)
{
    struct data_talk talk = {0};
    int code = data_talk_read(r, row, &talk);
    if (code == 0)
        code = data_add_talk(r, &talk);
    data_talk_done(&talk);
    return code;
}

/* --- pairs of answers ------------------------------------------------------------------------- */

static int add_plain_answer(struct data_reader *r, const json_t *row, const char *key)
{
    int code = need_text(r, row, prompt_key(r));
    if (code == 0)
        code = need_text(r, row, key);
    return code ? code
                : add_joined(r, json_string_value(json_object_get(row, prompt_key(r))),
                             json_object_get(row, key));
}

static int add_talk_answer(struct data_reader *r, const json_t *row, const char *key)
{
    struct data_talk talk = {0};
    int code = data_talk_read_answer(r, row, key, &talk);
    if (code == 0)
        code = data_add_talk(r, &talk);
    data_talk_done(&talk);
    return code;
}

/* As text where all of it is text and there is no template, as rows of prompts and completions
 * are. */
static int add_choice(struct data_reader *r, const json_t *row)
{
    static const char *const keys[PAIR_ROWS] = {"chosen", "rejected"};
    const bool is_plain = !r->req->tpl && !r->req->tpl_why &&
                          json_is_string(json_object_get(row, "chosen")) &&
                          json_is_string(json_object_get(row, prompt_key(r)));
    struct data_pair pair;
    int code = 0;
    data_pair_begin(r, &pair);
    for (size_t i = 0; i < PAIR_ROWS && !code; i++)
        code = is_plain ? add_plain_answer(r, row, keys[i]) : add_talk_answer(r, row, keys[i]);
    data_pair_end(r);
    return code;
}

/* --- which kind ------------------------------------------------------------------------------- */

const char *data_kind_name(enum row_kind kind)
{
    static const char *const names[ROW_KINDS] = {
        "rows",         "rows of token ids", "prompts and completions", "conversations",
        "instructions", "rows of text",      "pairs of answers"};
    return names[kind];
}

/* The key that shows a row to be of a kind, NULL if it is not. */
static const char *key_in(const struct data_reader *r, enum row_kind kind, const json_t *row)
{
    const char *messages = r->req->fields.messages;
    const char *key = NULL, *also = NULL;
    switch (kind) {
    case ROW_IDS: key = "input_ids"; break;
    case ROW_PAIR:
        key = prompt_key(r);
        also = completion_key(r);
        break;
    case ROW_TALK:
        key = messages ? messages : json_object_get(row, "messages") ? "messages" : "conversations";
        break;
    case ROW_ALPACA:
        key = "instruction";
        also = "output";
        break;
    case ROW_TEXT: key = text_key(r); break;
    case ROW_CHOICE:
        key = "chosen";
        also = "rejected";
        break;
    default: return NULL;
    }
    return json_object_get(row, key) && (!also || json_object_get(row, also)) ? key : NULL;
}

static bool is_asked_for(const struct data_reader *r, enum row_kind kind)
{
    const struct data_fields *f = &r->req->fields;
    return kind == ROW_PAIR   ? f->prompt || f->completion
           : kind == ROW_TALK ? !!f->messages
                              : kind == ROW_TEXT && f->text;
}

/* The first of the kinds whose keys the row has: those whose keys were named, else any. A row with
 * ids is one of ids: somebody has tokenised it already. */
static enum row_kind kind_of(const struct data_reader *r, const json_t *row)
{
    bool asked = false;
    if (r->req->pairs)
        return key_in(r, ROW_CHOICE, row) ? ROW_CHOICE : ROW_UNDECIDED;
    for (enum row_kind kind = ROW_IDS; kind < ROW_CHOICE; kind++) {
        if (is_asked_for(r, kind) && key_in(r, kind, row))
            return kind;
        asked |= is_asked_for(r, kind);
    }
    for (enum row_kind kind = ROW_IDS; !asked && kind < ROW_CHOICE; kind++)
        if (key_in(r, kind, row))
            return kind;
    return ROW_UNDECIDED;
}

static int refuse_keys(const struct data_reader *r, json_t *row)
{
    char found[120];
    size_t used = 0;
    const char *key;
    json_t *v;
    found[0] = '\0';
    json_object_foreach (row, key, v) {
        if (used < sizeof found)
            used += (size_t)snprintf(found + used, sizeof found - used, "%s\"%s\"", used ? ", " : "",
                                     input_quote(key).text);
    }
    const struct data_fields *f = &r->req->fields;
    if (r->req->pairs)
        return data_bad(r, -EBADMSG,
                        "has %s%s; a row of pairs needs \"chosen\" and \"rejected\", and mostly \"prompt\"",
                        found[0] ? "only the keys " : "no keys", found);
    if (key_in(r, ROW_CHOICE, row))
        return data_bad(r, -EBADMSG,
                        "has pairs of \"chosen\" and \"rejected\" answers: give --loss dpo or --loss orpo");
    if (f->text || f->prompt || f->completion || f->messages)
        return data_bad(r, -EBADMSG,
                        "has %s%s, and not what --text-field, --prompt-field, "
                        "--completion-field or --messages-field name; call them as the file does",
                        found[0] ? "only the keys " : "no keys", found);
    return data_bad(r, -EBADMSG,
                    "has %s%s; a row needs \"text\", \"prompt\" and \"completion\", \"messages\", "
                    "\"conversations\", \"instruction\" and \"output\", or \"input_ids\": say which keys are "
                    "meant with --prompt-field and its like",
                    found[0] ? "only the keys " : "no keys", found);
}

static int classify(struct data_reader *r, json_t *row)
{
    enum row_kind kind = kind_of(r, row);
    if (kind == ROW_UNDECIDED)
        return refuse_keys(r, row);
    if (r->kind == ROW_UNDECIDED) {
        r->kind = kind;
        r->kind_line = jsonl_line(r->in);
        r->key = key_in(r, kind, row);
    }
    if (key_in(r, r->kind, row))
        return 0;
    return data_bad(r, -EBADMSG,
                    "has \"%s\", but line %zu has \"%s\"; all rows of a file must be of one kind",
                    key_in(r, kind, row), r->kind_line, r->key);
}

/* What a row may lack is said where it is there and cannot be read, else it would be trained
 * without. */
static int check_optional(const struct data_reader *r, const json_t *row)
{
    static const char *const keys[] = {"system", "input"};
    if (r->kind == ROW_IDS || r->kind == ROW_TEXT)
        return 0;
    int code = 0;
    for (size_t i = 0; i < (r->kind == ROW_ALPACA ? 2 : 1) && !code; i++) {
        const json_t *value = json_object_get(row, keys[i]);
        if (value && !json_is_null(value))
            code = need_text(r, row, keys[i]);
    }
    return code;
}

int data_read_row(struct data_reader *r, json_t *row)
{
    int code = classify(r, row);
    if (code >= 0)
        code = check_optional(r, row);
    if (code < 0)
        return code;
    if (r->kind == ROW_IDS)
        return add_ids(r, row);
    if (r->kind == ROW_TEXT)
        return add_text(r, row);
    if (r->kind == ROW_CHOICE)
        return add_choice(r, row);
    const bool plain = !r->req->tpl && !r->req->tpl_why && r->kind != ROW_TALK;
    if (!plain)
        return add_talk(r, row);
    return r->kind == ROW_PAIR ? add_plain_pair(r, row) : add_plain_alpaca(r, row);
}
