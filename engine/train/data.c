/* SPDX-License-Identifier: MIT
 *
 * Owns a data set in memory: all ids and all labels in two arrays, rows as stretches of them.
 * Opened by the stage that feeds the first layer and by the one that computes the loss; filled by
 * one thread, then read by any. */
#include "train/data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/input.h"
#include "train/data_impl.h"

void data_close(struct data *data)
{
    if (!data)
        return;
    free(data->ids);
    free(data->labels);
    free(data->rows);
    free(data);
}

/* --- the file --------------------------------------------------------------------------------- */

static int nothing_left(const struct data_reader *r)
{
    const struct data_counts *c = &r->data->counts;
    if (c->dropped == c->rows)
        return err_set(r->err, -ENODATA,
                       "%s: all of its %zu rows are longer than %zu tokens; raise --seq-len, or let "
                       "--overlong truncate%s them",
                       r->path, c->rows, r->req->seq_len, r->req->pairs ? "" : " or split");
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

int data_split_path(char **ret, const char *path, const char *split, struct err *err)
{
    struct stat sb;
    const bool is_file = input_stat(path, &sb) || !S_ISDIR(sb.st_mode);
    char *file = NULL;
    if (is_file ? !(file = strdup(path)) : asprintf(&file, "%s/%s.jsonl", path, split) < 0)
        return err_set(err, -ENOMEM, "%s: no memory to open it", path);
    if (!is_file && input_stat(file, &sb) == -ENOENT)
        file[strlen(file) - 1] = '\0'; /* .json */
    if (!is_file && input_stat(file, &sb) == -ENOENT) {
        free(file);
        return err_set(err, -ENOENT,
                       "%s has neither %s.jsonl nor %s.json; put the %s rows there, or name a file of rows",
                       path, split, split, split);
    }
    *ret = file;
    return 0;
}

static int read_file(struct data *data, const struct data_request *req, const char *path, struct err *err)
{
    struct data_reader r = {.req = req, .path = path, .data = data, .err = err};
    struct stat sb;
    int code = jsonl_open(&r.in, path, err);
    if (code == 0 && !input_stat(path, &sb))
        r.changed = sb.st_mtime;
    if (code == 0)
        code = read_rows(&r);
    jsonl_close(r.in);
    free(r.labels);
    free(r.ids);
    return code;
}

static int read_path(struct data *data, const struct data_request *req, struct err *err)
{
    char *path;
    int code = data_split_path(&path, req->path, req->split, err);
    if (code < 0)
        return code;
    code = read_file(data, req, path, err);
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
    const struct data_stretch *row = &data->rows[i];
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

size_t data_together(const struct data *data)
{
    return data->kind == ROW_CHOICE ? PAIR_ROWS : 1;
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
