/* SPDX-License-Identifier: MIT
 *
 * Products with few rows of a matrix that is stored by columns, as gpt-oss's experts in bf16: a
 * column holds a run of many outputs. A few columns become f32 as they lie, and are added to the
 * outputs in their order, so nothing is turned. Called by gemm_few.c. */
#include <omp.h>

#include "num/convert.h"
#include "num/gemm_impl.h"
#include "num/sizes.h"

enum {
    RUN = 256, /* elements of a column: half a kilobyte or a whole one is read at once */
    APART = RUN + TILE_PAD,
    COLS = 32,      /* together they stay in the first cache */
    CACHE_LINE = 64 /* bytes */
};
_Static_assert((COLS + 1) * APART <= (int)NUM_LANE_FLOATS, "a lane has the columns and a row of sums");

/* Outputs row … row+rows−1, of which a column holds a run with others between. */
struct down_part {
    size_t row, rows, run;
};

static void fetch_columns(struct mat w, const struct down_part *d, size_t col, size_t n)
{
    for (size_t c = col; c < col + n; c++)
        for (size_t at = 0; at < d->run * dtype_size(w.dtype); at += CACHE_LINE)
            __builtin_prefetch(convert_element(w, d->row, c) + at);
}

/* Columns col … col+n−1 in f32; what pads a run is 0. */
static void take_columns(const struct kernels *k, float *to, struct mat w, const struct down_part *d,
                         size_t col, size_t n)
{
    for (size_t c = 0; c < n; c++, to += APART) {
        k->to_f32[w.dtype](to, convert_element(w, d->row, col + c), d->run);
        for (size_t i = d->run; i < tile_pad(d->run); i++)
            to[i] = 0;
    }
}

/* n rows of x with those outputs, into y [n, APART]. */
static void multiply(const struct num *num, float *y, float *room, const struct gemm_xwt *p,
                     const struct down_part *d)
{
    const struct mat w = p->w;
    for (size_t c = 0, now; c < w.cols; c += now) {
        now = min_size(w.cols - c, COLS);
        if (c + now < w.cols)
            fetch_columns(w, d, c + now, min_size(w.cols - c - now, COLS));
        take_columns(num_kernels(num), room, w, d, c, now);
        num_kernels(num)->tile(&(struct tile){.c = y,
                                              .ldc = APART,
                                              .a = p->x + c,
                                              .ai = w.cols,
                                              .ak = 1,
                                              .b = room,
                                              .ldb = APART,
                                              .m = p->n,
                                              .n = tile_pad(d->run),
                                              .k = now,
                                              .accumulate = c > 0});
    }
}

void down_dots(const struct num *num, const struct gemm_xwt *p, struct row_span s)
{
    const struct scratch lane = num_lane(num, omp_get_thread_num());
    float *room = lane.data, *own = room + COLS * APART;
    const size_t step = mat_step(&p->w), most = max_size(RUN / step, 1),
                 fit = (lane.floats - COLS * APART) / APART;
    for (size_t i = 0, n; i < p->n; i += n) {
        n = min_size(p->n - i, fit);
        const struct gemm_xwt some = {p->y + i * p->w.rows, p->x + i * p->w.cols, p->w, n, p->accumulate};
        for (size_t r = 0; r < s.rows; r += most) {
            struct down_part d = {s.row + r, min_size(s.rows - r, most), 0};
            d.run = (d.rows - 1) * step + 1;
            multiply(num, own, room, &some, &d);
            for (size_t k = 0; k < n * d.rows; k++) {
                float *y = some.y + k / d.rows * p->w.rows + d.row + k % d.rows;
                const float sum = own[k / d.rows * APART + k % d.rows * step];
                *y = p->accumulate ? *y + sum : sum;
            }
        }
    }
}
