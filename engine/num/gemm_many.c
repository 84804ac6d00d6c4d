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
    KC = 512,      /* columns of a block: a tile's rows of x stay in the first cache, */
    ROWS = 8,      /* and so do these rows of W */
    AT_ONCE = 96,  /* rows of x whose sums wait */
    IN_PLACE = 24, /* rows of x up to which W is read as it is stored; measured */
    PAD =
        16, /* floats between rows of a block: a power of two apart they would share few sets of the cache */
};

/* Where a thread's block lies. */
struct many_room {
    float *w, *sums; /* [ROWS, KC + PAD], [AT_ONCE + 6, ROWS, DOTS_LANES] */
};

/* Rows s of W, columns col … col+k−1, as f32. */
static void load_block(const struct num *num, const struct many_room *room, struct mat w, struct row_span s,
                       size_t col, size_t k)
{
    for (size_t r = 0; r < s.rows; r++)
        convert_row(num_kernels(num), room->w + r * (KC + PAD), w, s.row + r, col, k);
}

/* n ≤ AT_ONCE rows of x with s.rows ≤ ROWS of W; after them come `below` more. */
static void many_block(const struct num *num, const struct gemm_xwt *p, struct row_span s, size_t below,
                       const struct many_room *room)
{
    const struct mat w = p->w;
    const bool in_place = w.dtype == DTYPE_F32 || p->n <= IN_PLACE;
    for (size_t col = 0, k; col < w.cols; col += k) {
        k = min_size(KC, w.cols - col);
        const bool last = col + k == w.cols;
        if (!in_place)
            load_block(num, room, w, s, col, k);
        num_kernels(num)->dots_block(&(struct dots_block){
            .y = p->y + s.row,
            .ldy = w.rows,
            .n = p->n,
            .rows = s.rows,
            .x = p->x + col,
            .ldx = w.cols,
            .w = in_place ? (const void *)convert_element(w, s.row, col) : room->w,
            .type = in_place ? w.dtype : DTYPE_F32,
            .ldw = in_place ? w.cols : KC + PAD,
            .k = k,
            .next = last ? convert_element(w, s.row + s.rows, 0) : convert_element(w, s.row, col + k),
            .next_rows = last ? min_size(below, ROWS) : s.rows,
            .next_apart = w.cols * dtype_size(w.dtype),
            .next_size = dtype_size(w.dtype),
            .sums = room->sums,
            .first = col == 0,
            .last = last,
            .accumulate = p->accumulate});
    }
}

void many_rows(const struct num *num, const struct gemm_xwt *p, struct row_span s)
{
    float *lane = num_lane(num, omp_get_thread_num()).data;
    const struct many_room room = {lane, lane + ROWS * (KC + PAD)};
    for (size_t i = 0; i < p->n; i += AT_ONCE)
        for (size_t r = 0; r < s.rows; r += ROWS)
            many_block(num,
                       &(struct gemm_xwt){p->y + i * p->w.rows, p->x + i * p->w.cols, p->w,
                                          min_size(AT_ONCE, p->n - i), p->accumulate},
                       (struct row_span){s.row + r, min_size(ROWS, s.rows - r)},
                       s.rows - r > ROWS ? s.rows - r - ROWS : 0, &room);
}
