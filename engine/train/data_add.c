/* SPDX-License-Identifier: MIT
 *
 * Adds rows to a data set while it is read, each within the length asked for; and the sentences
 * that name a line. Called by the files that take a row apart, on the thread that opens the set.
 * */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/data_impl.h"

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
        struct data_stretch *rows = realloc(d->rows, room * sizeof *rows);
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
    d->rows[d->nrows++] = (struct data_stretch){
        .begin = d->tokens, .n = n, .supervised = supervised, .line = jsonl_line(r->in)};
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

/* One of a pair, which is counted as a whole. */
static int add_answer(const struct data_reader *r, const uint32_t *ids, const int32_t *labels, size_t n)
{
    const size_t most = r->req->seq_len, over = n > most ? n - most : 0;
    const int kept = add_piece(r, ids, labels, n - over);
    r->data->counts.lost += over;
    r->pair->over += over > 0;
    r->pair->kept += kept > 0;
    return kept < 0 ? kept : 0;
}

int data_add_row(struct data_reader *r, const uint32_t *ids, const int32_t *labels, size_t n)
{
    struct data_counts *c = &r->data->counts;
    const size_t most = r->req->seq_len, over = n > most ? n - most : 0;
    const enum data_overlong how = r->req->overlong;
    if (r->pair)
        return add_answer(r, ids, labels, n);
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

/* --- pairs ------------------------------------------------------------------------------------ */

void data_pair_begin(struct data_reader *r, struct data_pair *pair)
{
    *pair = (struct data_pair){.before = *r->data};
    r->pair = pair;
}

void data_pair_end(struct data_reader *r)
{
    const struct data_pair *pair = r->pair;
    struct data *d = r->data;
    const bool is_dropped = pair->over && r->req->overlong == DATA_DROP,
               is_kept = !is_dropped && pair->kept == PAIR_ROWS;
    const size_t lost = d->counts.lost + d->counts.tokens - pair->before.counts.tokens;
    if (!is_kept) {
        d->nrows = pair->before.nrows;
        d->tokens = pair->before.tokens;
        d->longest = pair->before.longest;
        d->counts = pair->before.counts;
    }
    d->counts.rows++;
    d->counts.kept = d->nrows / PAIR_ROWS;
    d->counts.dropped += is_dropped;
    d->counts.lost = is_dropped ? lost : d->counts.lost;
    d->counts.unsupervised += !is_dropped && !is_kept;
    d->counts.truncated += is_kept && pair->over;
    r->pair = NULL;
}
