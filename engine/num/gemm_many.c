/* SPDX-License-Identifier: MIT
 *
 * Many rows of x with rows of W, with the bits that few rows have: chains of vectors along the row.
 * A block of W becomes f32 in the second cache, and sums of many rows wait there until the next
 * block of columns. Nothing is turned, so that it costs no more than the tiles of product.c. Called
 * by gemm_few.c, by any thread. */
#include <omp.h>
#include <string.h>

#include "num/convert.h"
#include "num/gemm_impl.h"
#include "num/sizes.h"

enum {
    IN_PLACE = 24,      /* rows of x up to which W is read as it is stored, */
    KC_IN_PLACE = 2048, /* that many columns at a time: measured */
    KC = 512,           /* of more rows: a tile's rows of x stay in the first cache, */
    ROWS = 8,           /* and so do these rows of W */
    GROUP = 48,         /* rows of W for which so many columns of x stay in the second cache */
    AT_ONCE = 96,       /* rows of x whose sums wait there, at most: whole tiles, */
    TILE = 6,           /* which have no more rows of it */
    SUMS = (AT_ONCE + TILE) * DOTS_LANES, /* floats of those with a row of W */
    PAD =
        16, /* floats between rows of a block: a power of two apart they would share few sets of the cache */
};

/* Columns of a block, and rows of a group. */
static size_t columns_of(const struct gemm_xwt *p)
{
    return p->n <= IN_PLACE && convert_is_in_place(p->w) ? KC_IN_PLACE : KC;
}

static size_t rows_of(const struct gemm_xwt *p)
{
    return p->n <= IN_PLACE ? ROWS : GROUP;
}

/* Where a thread's block lies. */
struct many_room {
    float *w, *sums; /* [ROWS, KC + PAD], [GROUP, SUMS] */
};

/* Rows s of W, columns col … col+k−1, as f32. */
static void load_block(const struct num *num, const struct many_room *room, struct mat w, struct row_span s,
                       size_t col, size_t k)
{
    for (size_t r = 0; r < s.rows; r++)
        convert_row(num_kernels(num), room->w + r * (KC + PAD), w, s.row + r, col, k);
}

/* Where a walk over a group of W's rows is: its rows, and the block of them that is multiplied. */
struct many_walk {
    struct row_span group, block;
    size_t col, k, below; /* below: rows that come after the group */
};

/* The block after this one, as it is stored; returns how many rows it has. */
static size_t next_block(struct mat w, const struct many_walk *at, const char **ret)
{
    const size_t end = at->group.row + at->group.rows, row = at->block.row + at->block.rows;
    const bool last = at->col + at->k == w.cols;
    if (row < end) {
        *ret = convert_element(w, row, at->col);
        return min_size(ROWS, end - row);
    }
    *ret = last ? convert_element(w, end, 0) : convert_element(w, at->group.row, at->col + at->k);
    return min_size(ROWS, last ? at->below : at->group.rows);
}

static void many_block(const struct num *num, const struct gemm_xwt *p, const struct many_walk *at,
                       const struct many_room *room)
{
    const struct mat w = p->w;
    const bool in_place = convert_is_in_place(w) && (w.dtype == DTYPE_F32 || p->n <= IN_PLACE);
    struct dots_block d = {.y = p->y + at->block.row,
                           .ldy = w.rows,
                           .n = p->n,
                           .rows = at->block.rows,
                           .x = p->x + at->col,
                           .ldx = w.cols,
                           .w = in_place ? (const void *)convert_element(w, at->block.row, at->col) : room->w,
                           .type = in_place ? w.dtype : DTYPE_F32,
                           .ldw = in_place ? w.cols : KC + PAD,
                           .k = at->k,
                           .next_apart = w.cols * dtype_size(w.dtype),
                           .next_size = dtype_size(w.dtype),
                           .sums = room->sums + (at->block.row - at->group.row) * SUMS,
                           .first = at->col == 0,
                           .last = at->col + at->k == w.cols,
                           .accumulate = p->accumulate};
    if (convert_is_in_place(w))
        d.next_rows = next_block(w, at, &d.next);
    if (!in_place)
        load_block(num, room, w, at->block, at->col, at->k);
    num_kernels(num)->dots_block(&d);
}

/* n ≤ AT_ONCE rows of x with a group of W's rows. */
static void many_group(const struct num *num, const struct gemm_xwt *p, struct many_walk at,
                       const struct many_room *room)
{
    for (at.col = 0; at.col < p->w.cols; at.col += at.k) {
        at.k = min_size(columns_of(p), p->w.cols - at.col);
        for (size_t r = 0; r < at.group.rows; r += ROWS) {
            at.block = (struct row_span){at.group.row + r, min_size(ROWS, at.group.rows - r)};
            many_block(num, p, &at, room);
        }
    }
}

void many_rows(const struct num *num, const struct gemm_xwt *p, struct row_span s)
{
    float *lane = num_lane(num, omp_get_thread_num()).data;
    const struct many_room room = {lane, lane + ROWS * (KC + PAD)};
    const size_t times = (p->n + AT_ONCE - 1) / AT_ONCE, step = round_up((p->n + times - 1) / times, TILE);
    for (size_t i = 0; i < p->n; i += step)
        for (size_t r = 0, rows; r < s.rows; r += rows) {
            rows = min_size(rows_of(p), s.rows - r);
            many_group(num,
                       &(struct gemm_xwt){p->y + i * p->w.rows, p->x + i * p->w.cols, p->w,
                                          min_size(step, p->n - i), p->accumulate},
                       (struct many_walk){.group = {s.row + r, rows}, .below = s.rows - r - rows}, &room);
        }
}
