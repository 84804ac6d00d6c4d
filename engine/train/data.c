/* SPDX-License-Identifier: MIT
 *
 * Owns a data set in memory: all ids and all labels in two arrays, rows as stretches of them. Opened by the
 * stage that feeds the first layer and by the one that computes the loss; filled by one thread, then read by
 * any. */
#include "train/data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file/input.h"
#include "train/jsonl.h"

struct row {
    size_t begin, n, supervised;
};

struct data {
    uint32_t *ids;   /* owned */
    int32_t *labels; /* owned, shifted */
    size_t tokens, room;
    struct row *rows; /* owned */
    size_t nrows, row_room;
    size_t longest;
    struct data_counts counts;
};

enum row_kind { ROW_UNDECIDED, ROW_IDS, ROW_TEXT };

/* What is known while the file is read. */
struct reader {
    const struct data_request *req;
    const char *path; /* borrowed */
    struct jsonl *in; /* borrowed */
    struct data *data;
    enum row_kind kind;
    size_t kind_line; /* the line that decided it */
    int32_t *labels;  /* owned: the labels of one row, unshifted */
    uint32_t *ids;    /* owned: its ids */
    size_t room;
    struct err *err;
};

void data_close(struct data *data)
{
    if (!data)
        return;
    free(data->ids);
    free(data->labels);
    free(data->rows);
    free(data);
}

/* --- rows into the arena ---------------------------------------------------------------------- */

static int no_memory(const struct reader *r)
{
    return err_set(r->err, -ENOMEM, "%s:%zu: no memory for so much data; give a smaller data set", r->path,
                   jsonl_line(r->in));
}

static int grow_arena(const struct reader *r, size_t n)
{
    struct data *d = r->data;
    if (d->nrows == d->row_room) {
        size_t room = d->row_room ? 2 * d->row_room : 256;
        struct row *rows = realloc(d->rows, room * sizeof *rows);
        if (!rows)
            return no_memory(r);
        d->rows = rows;
        d->row_room = room;
    }
    if (d->room - d->tokens >= n)
        return 0;
    size_t room = 2 * d->room > d->tokens + n ? 2 * d->room : d->tokens + n;
    uint32_t *ids = realloc(d->ids, room * sizeof *ids);
    if (ids)
        d->ids = ids;
    int32_t *labels = realloc(d->labels, room * sizeof *labels);
    if (labels)
        d->labels = labels;
    if (!ids || !labels)
        return no_memory(r);
    d->room = room;
    return 0;
}

/* labels: one for each id, unshifted; NULL = the ids themselves. */
static int add_row(const struct reader *r, const uint32_t *ids, const int32_t *labels, size_t n)
{
    struct data *d = r->data;
    d->counts.rows++;
    if (n > r->req->seq_len) {
        d->counts.truncated++;
        n = r->req->seq_len;
    }
    size_t supervised = 0;
    for (size_t t = 1; t < n; t++)
        supervised += !labels || labels[t] != LABEL_NONE;
    if (supervised == 0) {
        d->counts.unsupervised++;
        return 0;
    }
    int code = grow_arena(r, n);
    if (code < 0)
        return code;
    memcpy(d->ids + d->tokens, ids, n * sizeof *ids);
    for (size_t t = 0; t + 1 < n; t++)
        d->labels[d->tokens + t] = labels ? labels[t + 1] : (int32_t)ids[t + 1];
    d->labels[d->tokens + n - 1] = LABEL_NONE;
    d->rows[d->nrows++] = (struct row){.begin = d->tokens, .n = n, .supervised = supervised};
    d->tokens += n;
    d->longest = n > d->longest ? n : d->longest;
    d->counts.kept++;
    d->counts.tokens += n;
    d->counts.supervised += supervised;
    return 0;
}

/* --- rows of ids ------------------------------------------------------------------------------ */

static int grow_row(struct reader *r, size_t n)
{
    if (n <= r->room)
        return 0;
    uint32_t *ids = realloc(r->ids, n * sizeof *ids);
    if (ids)
        r->ids = ids;
    int32_t *labels = realloc(r->labels, n * sizeof *labels);
    if (labels)
        r->labels = labels;
    if (!ids || !labels)
        return no_memory(r);
    r->room = n;
    return 0;
}

static int read_ids(struct reader *r, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v))
            return err_set(r->err, -EBADMSG, "%s:%zu: entry %zu of \"input_ids\" is not a whole number",
                           r->path, jsonl_line(r->in), i);
        if (id < 0 || (uint64_t)id >= r->req->vocab)
            return err_set(r->err, -ERANGE,
                           "%s:%zu: entry %zu of \"input_ids\" is %" JSON_INTEGER_FORMAT
                           ", but the model knows ids 0 to %zu",
                           r->path, jsonl_line(r->in), i, id, r->req->vocab - 1);
        r->ids[i] = (uint32_t)id;
    }
    return 0;
}

static int read_labels(struct reader *r, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v))
            return err_set(r->err, -EBADMSG, "%s:%zu: entry %zu of \"labels\" is not a whole number", r->path,
                           jsonl_line(r->in), i);
        if (id != LABEL_NONE && (id < 0 || (uint64_t)id >= r->req->vocab))
            return err_set(r->err, -ERANGE,
                           "%s:%zu: entry %zu of \"labels\" is %" JSON_INTEGER_FORMAT
                           ", allowed are the model's ids 0 to %zu and %d for none",
                           r->path, jsonl_line(r->in), i, id, r->req->vocab - 1, LABEL_NONE);
        r->labels[i] = (int32_t)id;
    }
    return 0;
}

static int add_ids(struct reader *r, const json_t *row)
{
    const json_t *ids = json_object_get(row, "input_ids"), *labels = json_object_get(row, "labels");
    size_t n = json_array_size(ids);
    if (!json_is_array(ids))
        return err_set(r->err, -EBADMSG, "%s:%zu: \"input_ids\" must be a list of token ids", r->path,
                       jsonl_line(r->in));
    if (labels && !json_is_array(labels))
        return err_set(r->err, -EBADMSG, "%s:%zu: \"labels\" must be a list of token ids and %d for none",
                       r->path, jsonl_line(r->in), LABEL_NONE);
    if (labels && json_array_size(labels) != n)
        return err_set(r->err, -EBADMSG,
                       "%s:%zu: %zu \"labels\" for %zu \"input_ids\"; one is wanted for each", r->path,
                       jsonl_line(r->in), json_array_size(labels), n);
    int code = grow_row(r, n);
    if (code == 0)
        code = read_ids(r, ids);
    if (code == 0 && labels)
        code = read_labels(r, labels);
    return code < 0 ? code : add_row(r, r->ids, labels ? r->labels : NULL, n);
}

/* --- rows of text ----------------------------------------------------------------------------- */

static int check_encoded(const struct reader *r, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= r->req->vocab)
            return err_set(r->err, -ERANGE,
                           "%s:%zu: the tokenizer gives id %u, but the model knows 0 to %zu; they do not "
                           "belong together",
                           r->path, jsonl_line(r->in), ids[i], r->req->vocab - 1);
    }
    return 0;
}

static int add_encoded(struct reader *r, const uint32_t *ids, size_t n)
{
    int code = grow_row(r, n + 1);
    if (code < 0)
        return code;
    if (n > 0)
        memcpy(r->ids, ids, n * sizeof *ids);
    if (r->req->eos >= 0 && (n == 0 || ids[n - 1] != (uint32_t)r->req->eos))
        r->ids[n++] = (uint32_t)r->req->eos;
    code = check_encoded(r, r->ids, n);
    return code < 0 ? code : add_row(r, r->ids, NULL, n);
}

static int add_text(struct reader *r, const json_t *row)
{
    const json_t *text = json_object_get(row, "text");
    uint32_t *ids;
    size_t n;
    if (!json_is_string(text))
        return err_set(r->err, -EBADMSG, "%s:%zu: \"text\" must be a string", r->path, jsonl_line(r->in));
    if (!r->req->tok)
        return err_set(r->err, -EINVAL,
                       "%s:%zu: \"text\" needs the model's tokenizer.json; add it or give \"input_ids\"",
                       r->path, jsonl_line(r->in));
    int code = tokenizer_encode(r->req->tok, json_string_value(text), json_string_length(text), true, &ids,
                                &n, r->err);
    if (code < 0)
        return err_prefix(r->err, code, "%s:%zu", r->path, jsonl_line(r->in));
    code = add_encoded(r, ids, n);
    free(ids);
    return code;
}

/* --- the file --------------------------------------------------------------------------------- */

static int refuse_keys(const struct reader *r, json_t *row)
{
    char found[160];
    size_t used = 0;
    const char *key;
    json_t *v;
    found[0] = '\0';
    json_object_foreach(row, key, v)
    {
        if (used < sizeof found)
            used += (size_t)snprintf(found + used, sizeof found - used, "%s\"%s\"", used ? ", " : "",
                                     input_quote(key).text);
    }
    return err_set(r->err, -EBADMSG,
                   "%s:%zu: has %s%s; a row needs \"text\", or \"input_ids\" and perhaps \"labels\": rename "
                   "or convert them",
                   r->path, jsonl_line(r->in), found[0] ? "only the keys " : "no keys", found);
}

static const char *key_of(enum row_kind kind)
{
    return kind == ROW_IDS ? "input_ids" : "text";
}

/* A row with both keys is one of ids: somebody has tokenised it already. */
static int classify(struct reader *r, json_t *row)
{
    bool ids = json_object_get(row, "input_ids"), text = json_object_get(row, "text");
    if (r->kind == ROW_UNDECIDED) {
        if (!ids && !text)
            return refuse_keys(r, row);
        r->kind = ids ? ROW_IDS : ROW_TEXT;
        r->kind_line = jsonl_line(r->in);
    }
    if (json_object_get(row, key_of(r->kind)))
        return 0;
    if (!ids && !text)
        return refuse_keys(r, row);
    return err_set(r->err, -EBADMSG,
                   "%s:%zu: has \"%s\", but line %zu has \"%s\"; all rows of a file must be of one kind",
                   r->path, jsonl_line(r->in), ids ? "input_ids" : "text", r->kind_line, key_of(r->kind));
}

static int read_rows(struct reader *r)
{
    json_t *row;
    int code;
    while ((code = jsonl_next(r->in, &row, r->err)) > 0) {
        code = classify(r, row);
        if (code == 0)
            code = r->kind == ROW_IDS ? add_ids(r, row) : add_text(r, row);
        json_decref(row);
        if (code < 0)
            return code;
    }
    if (code == 0 && r->data->counts.rows == 0)
        return err_set(r->err, -ENODATA, "%s has no rows", r->path);
    if (code == 0 && r->data->nrows == 0)
        return err_set(r->err, -ENODATA,
                       "%s: none of its %zu rows has a supervised token after the first within %zu tokens",
                       r->path, r->data->counts.rows, r->req->seq_len);
    return code;
}

static int read_file(struct data *data, const struct data_request *req, const char *path, struct err *err)
{
    struct reader r = {.req = req, .path = path, .data = data, .err = err};
    int code = jsonl_open(&r.in, path, err);
    if (code == -ENOENT && path != req->path)
        err_set(err, code, "%s has no %s.jsonl; put the %s rows there, or name a JSONL file", req->path,
                req->split, req->split);
    if (code == 0)
        code = read_rows(&r);
    jsonl_close(r.in);
    free(r.labels);
    free(r.ids);
    return code;
}

/* req->path itself, or the split's file in it. */
static int read_path(struct data *data, const struct data_request *req, struct err *err)
{
    struct stat sb;
    if (stat(req->path, &sb) < 0 || !S_ISDIR(sb.st_mode))
        return read_file(data, req, req->path, err);
    char *path;
    if (asprintf(&path, "%s/%s.jsonl", req->path, req->split) < 0)
        return err_set(err, -ENOMEM, "%s: no memory to open it", req->path);
    int code = read_file(data, req, path, err);
    free(path);
    return code;
}

int data_open(struct data **ret, const struct data_request *req, struct err *err)
{
    if (req->seq_len < 2)
        return err_set(err, -EINVAL, "a sequence length of %zu leaves nothing to predict; give 2 or more",
                       req->seq_len);
    if (req->vocab < 1 || req->vocab > INT32_MAX)
        return err_set(err, -EINVAL, "a vocabulary of %zu ids is not possible", req->vocab);
    struct data *data = calloc(1, sizeof *data);
    if (!data)
        return err_set(err, -ENOMEM, "%s: no memory to open it", req->path);
    int code = read_path(data, req, err);
    if (code < 0) {
        data_close(data);
        return code;
    }
    *ret = data;
    return 0;
}

size_t data_rows(const struct data *data)
{
    return data->nrows;
}

struct data_counts data_counts(const struct data *data)
{
    return data->counts;
}

struct data_row data_row(const struct data *data, size_t i)
{
    const struct row *row = &data->rows[i];
    return (struct data_row){.ids = data->ids + row->begin,
                             .labels = data->labels + row->begin,
                             .n = row->n,
                             .supervised = row->supervised};
}

size_t data_longest(const struct data *data)
{
    return data->longest;
}
