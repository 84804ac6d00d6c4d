/* SPDX-License-Identifier: MIT */
#include "model/param_piece.h"

#include <errno.h>
#include <stdlib.h>

#include "num/vec.h"

struct cutting {
    struct param_pieces *out;
    size_t cap, unit, at, most;
    bool cut_large, no_memory;
};

static void add(struct cutting *k, size_t n)
{
    struct param_pieces *p = k->out;
    if (p->n == k->cap) {
        const size_t cap = k->cap ? 2 * k->cap : 64;
        struct param_piece *grown = realloc(p->piece, cap * sizeof *grown);
        if (!grown) {
            k->no_memory = true;
            return;
        }
        p->piece = grown;
        k->cap = cap;
    }
    p->piece[p->n++] = (struct param_piece){k->unit, k->at, n};
    k->at += n;
}

/* A parameter joins the piece before it where there is room, else it begins one. */
static int cut_one(void *arg, const struct param_def *def)
{
    struct cutting *k = arg;
    struct param_pieces *p = k->out;
    size_t left = param_elements(def);
    struct param_piece *last = p->n > p->first[k->unit] ? &p->piece[p->n - 1] : NULL;
    if (last && last->n + left <= k->most) {
        last->n += left;
        k->at += left;
        return 0;
    }
    while (left && !k->no_memory) {
        const size_t n = k->cut_large && left > k->most ? k->most : left;
        add(k, n);
        left -= n;
    }
    return k->no_memory ? -ENOMEM : 0;
}

static size_t piece_size(const struct tune *tune, const struct family *f, const struct config *c,
                         size_t values)
{
    size_t total = 0;
    for (size_t u = 0; u < c->layers + 2; u++)
        total += values * tune_unit_elements(tune, f, c, u);
    return total / PARAM_PIECES > PARAM_PIECE_VALUES ? total / PARAM_PIECES : PARAM_PIECE_VALUES;
}

int param_pieces_make(struct param_pieces *ret, const struct tune *tune, const struct family *f,
                      const struct config *c, bool state, struct err *err)
{
    const size_t units = c->layers + 2, values = state ? 3 : 1;
    *ret = (struct param_pieces){.first = calloc(units + 1, sizeof *ret->first)};
    struct cutting k = {.out = ret,
                        .cut_large = tune->kind == TUNE_FULL,
                        .no_memory = !ret->first,
                        .most = piece_size(tune, f, c, values)};
    for (k.unit = 0; k.unit < units && !k.no_memory; k.unit++) {
        ret->first[k.unit] = ret->n;
        k.at = 0;
        for (size_t value = 0; value < values; value++)
            tune_params(tune, f, c, k.unit, cut_one, &k);
    }
    if (k.no_memory) {
        param_pieces_done(ret);
        return err_set(err, -ENOMEM, "out of memory");
    }
    ret->first[units] = ret->n;
    return 0;
}

void param_pieces_done(struct param_pieces *pieces)
{
    free(pieces->first);
    free(pieces->piece);
    *pieces = (struct param_pieces){0};
}

size_t param_pieces_largest(const struct param_pieces *pieces)
{
    size_t most = 0;
    for (size_t i = 0; i < pieces->n; i++)
        most = pieces->piece[i].n > most ? pieces->piece[i].n : most;
    return most;
}

static size_t slice_first(size_t n, size_t slice, size_t slices)
{
    const size_t at = vec_sum_chunks(n) * slice / slices * VEC_SUM_CHUNK;
    return at < n ? at : n;
}

struct param_slice param_slice(size_t n, size_t slice, size_t slices)
{
    const size_t at = slice_first(n, slice, slices);
    return (struct param_slice){at, slice_first(n, slice + 1, slices) - at};
}

struct param_slice param_made(struct slice s, size_t rows, size_t cols, size_t grain)
{
    const struct slice_rows own = slice_rows(s, rows, grain);
    return (struct param_slice){own.first * cols, own.n * cols};
}

struct param_slice param_slice_both(struct param_slice a, struct param_slice b)
{
    const size_t at = a.at > b.at ? a.at : b.at, a_end = a.at + a.n, b_end = b.at + b.n,
                 end = a_end < b_end ? a_end : b_end;
    return (struct param_slice){at, end > at ? end - at : 0};
}

struct param_piece_part param_piece_overlap(const struct param_piece *piece, size_t pos, size_t n)
{
    const size_t from = pos > piece->at ? pos : piece->at;
    const size_t end = pos + n < piece->at + piece->n ? pos + n : piece->at + piece->n;
    return from < end ? (struct param_piece_part){from - pos, end - from, from - piece->at}
                      : (struct param_piece_part){0};
}
