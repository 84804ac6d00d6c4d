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
    KC = 512,   /* columns of a block: rows of x of a tile stay in the first cache */
    ROWS = 32,  /* of W in a block */
    AT_ONCE = 96, /* rows of x whose sums wait */
    PAD = 16,     /* floats between rows of a block: a power of two apart they would share few sets of the cache */
};

/* Where a thread's block lies. */
struct many_room {
    float *w, *sums; /* [ROWS, KC + PAD], [AT_ONCE, ROWS, DOTS_LANES] */
};

/* Rows s of W, columns col … col+k−1; zeros for rows that fill the last tile. */
static void load_block(const struct num *num, const struct many_room *room, struct mat w, struct row_span s,
                       size_t col, size_t k)
{
    const size_t padded = round_up(s.rows, DOTS_ROWS);
    for (size_t r = 0; r < s.rows; r++)
        convert_row(num_kernels(num), room->w + r * (KC + PAD), w, s.row + r, col, k);
    for (size_t r = s.rows; r < padded; r++)
        memset(room->w + r * (KC + PAD), 0, k * sizeof *room->w);
}

/* n ≤ AT_ONCE rows of x with s.rows ≤ ROWS of W. */
static void many_block(const struct num *num, const struct gemm_xwt *p, struct row_span s,
                       const struct many_room *room)
{
    const struct mat w = p->w;
    for (size_t col = 0, k; col < w.cols; col += k) {
        k = min_size(KC, w.cols - col);
        load_block(num, room, w, s, col, k);
        num_kernels(num)->dots_block(&(struct dots_block){.y = p->y + s.row,
                                                          .ldy = w.rows,
                                                          .n = p->n,
                                                          .rows = s.rows,
                                                          .x = p->x + col,
                                                          .ldx = w.cols,
                                                          .w = room->w,
                                                          .ldw = KC + PAD,
                                                          .k = k,
                                                          .sums = room->sums,
                                                          .first = col == 0,
                                                          .last = col + k == w.cols,
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
                       (struct row_span){s.row + r, min_size(ROWS, s.rows - r)}, &room);
}
