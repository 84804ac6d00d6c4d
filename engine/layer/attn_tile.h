/* SPDX-License-Identifier: MIT
 *
 * What attention's two directions share: copying heads into dense tiles, and which of a tile's rows
 * see which keys. A tile row is one query of one head; the heads of a key-value group lie in one
 * tile, so that K and V are packed once for all of them: row r is query r / group of head r mod
 * group. Included by attn.c and attn_back.c only. */
#ifndef LAYER_ATTN_TILE_H
#define LAYER_ATTN_TILE_H

#include <assert.h>
#include <math.h>
#include <string.h>

#include "layer/layer.h"
#include "num/kernels.h"
#include "num/sizes.h"

enum {
    ATTN_ROWS =
        192, /* of a tile: whole register blocks of every kernel, where they are the rows of a product */
    ATTN_KEYS = 64,
    ATTN_PANEL = 12, /* rows (or keys) done together on the diagonal, where each sees another length */
};

static inline size_t attn_group(struct attn_dims dims)
{
    return dims.heads / dims.kv_heads;
}

static inline size_t attn_value(struct attn_dims dims)
{
    return dims.value ? dims.value : dims.head;
}

static inline size_t attn_v_stride(struct attn_dims dims)
{
    return dims.v_stride ? dims.v_stride : dims.kv_heads * attn_value(dims);
}

static inline size_t attn_row_heads(struct attn_dims dims)
{
    return dims.row_heads ? dims.row_heads : dims.heads;
}

/* How much of a sequence a tile takes, and widths padded to TILE_PAD. */
struct attn_extent {
    size_t hp, vp;        /* of q·k and of v */
    size_t queries, keys; /* of a tile; its rows are queries · group, */
    size_t wide;          /* padded */
};

/* The largest tile for which `floats_of` is at most `floats`: queries give way before keys. */
static inline struct attn_extent attn_extent(struct attn_dims dims, size_t floats,
                                             size_t (*floats_of)(const struct attn_extent *))
{
    const size_t group = attn_group(dims);
    struct attn_extent is = {.hp = tile_pad(dims.head),
                             .vp = tile_pad(attn_value(dims)),
                             .queries = group < ATTN_ROWS ? ATTN_ROWS / group : 1,
                             .keys = ATTN_KEYS};
    is.wide = tile_pad(is.queries * group);
    while (floats_of(&is) > floats && is.queries > 1) {
        is.queries /= 2;
        is.wide = tile_pad(is.queries * group);
    }
    while (floats_of(&is) > floats && is.keys > TILE_PAD)
        is.keys /= 2;
    assert(floats_of(&is) <= floats);
    return is;
}

/* Rows of the queries from position `first` on against keys k0 … k0+nk−1, each of which the last
 * row sees. */
struct attn_at {
    size_t first, rows, k0, nk;
};

/* The first row that sees key k0 + c. */
static inline size_t attn_first_row(struct attn_at at, size_t c, size_t group)
{
    return at.k0 + c > at.first ? (at.k0 + c - at.first) * group : 0;
}

/* The first row, of those that come after, that no longer sees key k0 + c. */
static inline size_t attn_end_row(struct attn_at at, size_t c, struct attn_dims dims)
{
    const size_t end = at.k0 + c + dims.window;
    if (!dims.window)
        return at.rows;
    return end > at.first ? min_size(at.rows, (end - at.first) * attn_group(dims)) : 0;
}

/* dims of a sequence that begins at token `first`. */
static inline struct attn_dims attn_dims_from(struct attn_dims dims, size_t first)
{
    dims.chosen = dims.chosen ? dims.chosen + first * dims.chosen_words : NULL;
    return dims;
}

/* Writes `hidden` where row r = row … at.rows−1 of s [keys, wide] does not see key c = c0 … c1−1,
 * because it was not chosen. */
static inline void attn_hide(float *s, size_t wide, struct attn_dims dims, struct attn_at at, size_t row,
                             size_t c0, size_t c1, float hidden)
{
    const size_t group = attn_group(dims);
    for (size_t q = row / group; dims.chosen && q < at.rows / group; q++) {
        const uint64_t *bits = dims.chosen + (at.first + q) * dims.chosen_words;
        for (size_t c = c0; c < c1; c++)
            for (size_t r = 0; !(bits[(at.k0 + c) / 64] >> (at.k0 + c) % 64 & 1) && r < group; r++)
                s[c * wide + q * group + r] = hidden;
    }
}

/* Where the keys begin that a query at this position sees. */
static inline size_t attn_first_key(struct attn_dims dims, size_t position)
{
    return dims.window && position >= dims.window ? position + 1 - dims.window : 0;
}

/* The maximum and the sum of a row's softmax before any key. */
static inline void attn_softmax_begin(float *max, float *sum, struct attn_dims dims, size_t head)
{
    *max = dims.sinks ? dims.sinks[head] : -INFINITY;
    *sum = dims.sinks ? 1 : 0;
}

/* Rows against nk keys from k0 on, without those that see none of them any more: what stays sees at
 * least one. */
static inline struct attn_at attn_against(struct attn_dims dims, size_t first, size_t rows, size_t k0,
                                          size_t nk)
{
    struct attn_at at = {first, rows, k0, nk};
    at.rows = attn_end_row(at, nk - 1, dims);
    return at;
}

/* How many of the keys row r sees, or has seen; it sees one. */
static inline size_t attn_seen(struct attn_at at, size_t r, size_t group)
{
    return min_size(at.nk, at.first + r / group + 1 - at.k0);
}

/* Where the rows that are done together from r on end: those from `whole` on see all keys of the
 * tile, those before go ATTN_PANEL at a time. */
static inline size_t attn_panel_end(size_t r, size_t rows, size_t whole)
{
    return r >= whole ? rows : min_size(rows, r + ATTN_PANEL);
}

/* dst[r, ld] = rows of x [·, stride], `head` floats wide, zero up to ld. */
static inline void attn_pack(float *dst, size_t ld, const float *x, size_t stride, size_t rows, size_t head)
{
    for (size_t r = 0; r < rows; r++) {
        memcpy(dst + r * ld, x + r * stride, head * sizeof *dst);
        memset(dst + r * ld + head, 0, (ld - head) * sizeof *dst);
    }
}

/* The same for the queries (or outputs, or their gradients): `queries` tokens of [row's
 * heads·width], the group beginning at x. */
static inline void attn_pack_group(float *dst, size_t ld, const float *x, size_t queries,
                                   struct attn_dims dims, size_t width)
{
    const size_t group = attn_group(dims);
    for (size_t t = 0; t < queries; t++)
        attn_pack(dst + t * group * ld, ld, x + t * attn_row_heads(dims) * width, width, group, width);
}

/* dst[head, ld] = the transpose of `keys` rows of x, zero up to a whole number of vectors. */
static inline void attn_pack_t(const struct kernels *k, float *dst, size_t ld, const float *x, size_t stride,
                               size_t keys, size_t head)
{
    k->transpose(dst, ld, x, stride, keys, head);
    for (size_t c = 0; keys % TILE_PAD && c < head; c++)
        memset(dst + c * ld + keys, 0, (tile_pad(keys) - keys) * sizeof *dst);
}

#endif
