/* SPDX-License-Identifier: MIT
 *
 * Owns a data set in memory: all ids and all labels in two arrays, rows as stretches of them.
 * Opened by the stage that feeds the first layer and by the one that computes the loss; filled by
 * one thread, then read by any. */
#include "train/data.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/data_impl.h"

struct row {
    size_t begin, n, supervised, line;
};

struct data {
    uint32_t *ids;   /* owned */
    int32_t *labels; /* owned, shifted */
    size_t tokens, room;
    struct row *rows; /* owned */
    size_t nrows, row_room;
    size_t longest;
    enum row_kind kind;
    struct data_counts counts;
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

int data_bad(const struct data_reader *r, int code, const char *fmt, ...)
{
    struct err what;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what.text, sizeof what.text, fmt, ap);
    va_end(ap);
    return err_set(r->err, code, "%s:%zu: %s", r->path, jsonl_line(r->in), what.text);
}

int data_no_memory(const struct data_reader *r)
{
    return data_bad(r, -ENOMEM, "no memory for so much data; give a smaller data set");
}

int data_make_room(struct data_reader *r, size_t n)
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
        return data_no_memory(r);
    r->room = n;
    return 0;
}

/* --- rows into the arena ---------------------------------------------------------------------- */

static int grow_arena(const struct data_reader *r, size_t n)
{
    struct data *d = r->data;
    if (d->nrows == d->row_room) {
        size_t room = d->row_room ? 2 * d->row_room : 256;
        struct row *rows = realloc(d->rows, room * sizeof *rows);
        if (!rows)
            return data_no_memory(r);
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
        return data_no_memory(r);
    d->room = room;
    return 0;
}

/* A row, or a piece of one, that fits; 1 if it was kept, 0 if nothing in it is supervised. */
static int add_piece(const struct data_reader *r, const uint32_t *ids, const int32_t *labels, size_t n)
{
    struct data *d = r->data;
    size_t supervised = 0;
    for (size_t t = 1; t < n; t++)
        supervised += !labels || labels[t] != LABEL_NONE;
    if (supervised == 0)
        return 0;
    int code = grow_arena(r, n);
    if (code < 0)
        return code;
    memcpy(d->ids + d->tokens, ids, n * sizeof *ids);
    for (size_t t = 0; t + 1 < n; t++)
        d->labels[d->tokens + t] = labels ? labels[t + 1] : (int32_t)ids[t + 1];
    d->labels[d->tokens + n - 1] = LABEL_NONE;
    d->rows[d->nrows++] =
        (struct row){.begin = d->tokens, .n = n, .supervised = supervised, .line = jsonl_line(r->in)};
    d->tokens += n;
    d->longest = n > d->longest ? n : d->longest;
    d->counts.kept++;
    d->counts.tokens += n;
    d->counts.supervised += supervised;
    return 1;
}

static int add_pieces(struct data_reader *r, const uint32_t *ids, const int32_t *labels, size_t n)
{
    const size_t most = r->req->seq_len;
    int kept = 0;
    for (size_t at = 0; at + 1 < n; at += most - 1) {
        const size_t left = n - at;
        int code = add_piece(r, ids + at, labels ? labels + at : NULL, left < most ? left : most);
        if (code < 0)
            return code;
        kept |= code;
    }
    return kept;
}

int data_add_row(struct data_reader *r, const uint32_t *ids, const int32_t *labels, size_t n)
{
    struct data_counts *c = &r->data->counts;
    const size_t most = r->req->seq_len, over = n > most ? n - most : 0;
    const enum data_overlong how = r->req->overlong;
    c->rows++;
    if (over && how == DATA_DROP) {
        c->dropped++;
        c->lost += n;
        return 0;
    }
    if (over && how == DATA_TRUNCATE) {
        c->truncated++;
        c->lost += over;
    }
    int kept =
        over && how == DATA_SPLIT ? add_pieces(r, ids, labels, n) : add_piece(r, ids, labels, n - over);
    if (kept < 0)
        return kept;
    c->split += over && how == DATA_SPLIT && kept;
    c->unsupervised += !kept;
    return 0;
}

/* --- the file --------------------------------------------------------------------------------- */

static int nothing_left(const struct data_reader *r)
{
    const struct data_counts *c = &r->data->counts;
    if (c->dropped == c->rows)
        return err_set(r->err, -ENODATA,
                       "%s: all of its %zu rows are longer than %zu tokens; raise --seq-len, or let "
                       "--overlong truncate or split them",
                       r->path, c->rows, r->req->seq_len);
    return err_set(r->err, -ENODATA,
                   "%s: none of its %zu rows has a supervised token after the first within %zu tokens",
                   r->path, c->rows, r->req->seq_len);
}

static int read_rows(struct data_reader *r)
{
    json_t *row;
    int code;
    while ((code = jsonl_next(r->in, &row, r->err)) > 0) {
        code = data_read_row(r, row);
        json_decref(row);
        if (code < 0)
            return code;
    }
    r->data->kind = r->kind;
    if (code == 0 && r->data->counts.rows == 0)
        return err_set(r->err, -ENODATA, "%s has no rows", r->path);
    return code == 0 && r->data->nrows == 0 ? nothing_left(r) : code;
}

static int read_file(struct data *data, const struct data_request *req, const char *path, struct err *err)
{
    struct data_reader r = {.req = req, .path = path, .data = data, .err = err};
    struct stat sb;
    int code = jsonl_open(&r.in, path, err);
    if (code == -ENOENT && path != req->path)
        err_set(err, code,
                "%s has neither %s.jsonl nor %s.json; put the %s rows there, or name a file of rows",
                req->path, req->split, req->split, req->split);
    if (code == 0 && stat(path, &sb) == 0)
        r.changed = sb.st_mtime;
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
    if (access(path, F_OK) < 0 && errno == ENOENT)
        path[strlen(path) - 1] = '\0'; /* .json */
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
                             .supervised = row->supervised,
                             .line = row->line};
}

size_t data_longest(const struct data *data)
{
    return data->longest;
}

const char *data_kind(const struct data *data)
{
    return data_kind_name(data->kind);
}

/* FNV-1a over 32-bit words. */
static uint64_t mix(uint64_t hash, uint32_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

uint64_t data_fingerprint(const struct data *data)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < data->nrows; i++)
        hash = mix(hash, (uint32_t)data->rows[i].n);
    for (size_t t = 0; t < data->tokens; t++)
        hash = mix(mix(hash, data->ids[t]), (uint32_t)data->labels[t]);
    return hash;
}
