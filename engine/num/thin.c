/* SPDX-License-Identifier: MIT
 *
 * See thin.h. Each thread has rows, which it probably wrote itself, and adds up the products of
 * BLOCK of them at a time; then each has columns, to which it adds the sums of all blocks in their
 * order. A few rows are multiplied at once, so that a line of each stays in the first cache, and
 * lies on no more pages than the CPU remembers: packed, as for product.c, each number would be
 * written and read once more for its few sums. */
#include "num/thin.h"

#include <omp.h>

#include "num/kernels.h"
#include "num/packed.h"
#include "num/product.h"
#include "num/share.h"
#include "num/sizes.h"

enum {
    GROUPS = 2,  /* of PACKED_THIN columns that the thin side has, at most */
    ROWS = 64,   /* multiplied before the next columns */
    BLOCK = 128, /* rows added up before they are added to dw: any number of threads has the same blocks */
    BLOCKS = 64, /* of which sums are kept at once, at most */
};

/* Sums of a column of the long side stand in a row, whether that is a row of dw or a column. */
struct thin_work {
    const struct num *num;
    const struct packed_kernels *k;
    const float *side, *thin; /* [n, width], [n, r] */
    size_t n, width, r, groups;
    float factor;
    float *dw;
    bool lies; /* dw is [r, width], not [width, r] */
    size_t threads;
};

bool thin_applies(const struct num *num, size_t rows, size_t cols)
{
    return product_is_ours(num) && min_size(rows, cols) <= GROUPS * PACKED_THIN;
}

/* Rows row … of the thin side: [groups][ROWS, PACKED_THIN]. */
static void take_thin(const struct thin_work *w, float *dst, size_t row, size_t rows)
{
    for (size_t g = 0; g < w->groups; g++, dst += ROWS * PACKED_THIN) {
        const size_t first = g * PACKED_THIN;
        pack_copy_rest(dst, PACKED_THIN, w->thin + row * w->r + first, w->r,
                       min_size(PACKED_THIN, w->r - first), rows);
        if (w->factor != 1)
            num_kernels(w->num)->scale(dst, w->factor, rows * PACKED_THIN);
    }
}

/* sums [groups][cols.n, PACKED_THIN] (+)= the products of rows row …; `begin`: there are none
 * yet. */
static void multiply(const struct thin_work *w, float *sums, struct share cols, size_t row, size_t rows,
                     bool begin)
{
    float edge[ROWS * PACKED_THIN], *thin = num_lane(w->num, omp_get_thread_num()).data;
    take_thin(w, thin, row, rows);
    for (size_t j = 0; j < cols.n; j += PACKED_THIN) {
        const float *x = w->side + row * w->width + cols.from + j;
        const bool whole = cols.n - j >= PACKED_THIN;
        if (!whole)
            pack_copy_rest(edge, PACKED_THIN, x, w->width, cols.n - j, rows);
        for (size_t g = 0; g < w->groups; g++)
            w->k->thin(sums + (g * round_up(cols.n, PACKED_THIN) + j) * PACKED_THIN, whole ? x : edge,
                       whole ? w->width : PACKED_THIN, thin + g * ROWS * PACKED_THIN, rows, begin);
    }
}

/* Blocks of thread i. */
static struct share blocks_of(const struct thin_work *w, size_t i)
{
    return share_of((w->n + BLOCK - 1) / BLOCK, 1, w->threads, i);
}

/* What a block's sums take. */
static size_t block_floats(const struct thin_work *w, size_t cols)
{
    return w->groups * round_up(cols, PACKED_THIN) * PACKED_THIN;
}

/* The blocks of thread i, of some columns. */
static void sum_rows(const struct thin_work *w, struct share cols, size_t i)
{
    const struct share blocks = blocks_of(w, i);
    float *sums = num_converted(w->num, (int)i).data;
    for (size_t b = 0; b < blocks.n; b++, sums += block_floats(w, cols.n)) {
        const size_t first = (blocks.from + b) * BLOCK, end = min_size(w->n, first + BLOCK);
        for (size_t row = first; row < end; row += ROWS)
            multiply(w, sums, cols, row, min_size(ROWS, end - row), row == first);
    }
}

/* Sums of columns col … of a group, up to PACKED_THIN. */
static void add_to_dw(const struct thin_work *w, const float *sums, size_t group, size_t col, size_t cols)
{
    const struct kernels *k = num_kernels(w->num);
    const size_t first = group * PACKED_THIN, r = min_size(PACKED_THIN, w->r - first);
    float turned[PACKED_THIN * PACKED_THIN], *row = w->dw + col * w->r + first;
    if (w->lies) {
        k->transpose(turned, PACKED_THIN, sums, PACKED_THIN, cols, r);
        row = w->dw + first * w->width + col;
        for (size_t i = 0; i < r; i++, row += w->width)
            k->add(row, row, turned + i * PACKED_THIN, cols);
    } else
        for (size_t i = 0; i < cols; i++, row += w->r)
            k->add(row, row, sums + i * PACKED_THIN, r);
}

/* All blocks, in ascending order, of the columns that thread i adds. */
static void add_columns(const struct thin_work *w, struct share cols, size_t i)
{
    const struct share own = share_of(cols.n, PACKED_THIN, w->threads, i);
    for (size_t t = 0; t < w->threads; t++) {
        const float *sums = num_converted(w->num, (int)t).data;
        for (size_t b = 0; b < blocks_of(w, t).n; b++, sums += block_floats(w, cols.n))
            for (size_t g = 0; g < w->groups; g++)
                for (size_t j = own.from; j < own.from + own.n; j += PACKED_THIN)
                    add_to_dw(w, sums + (g * round_up(cols.n, PACKED_THIN) + j) * PACKED_THIN, g,
                              cols.from + j, min_size(PACKED_THIN, cols.n - j));
    }
}

/* As many columns as a thread has room for the sums of. */
static size_t cols_at_once(const struct thin_work *w)
{
    const size_t blocks = blocks_of(w, w->threads - 1).n, each = blocks * w->groups * PACKED_THIN;
    return num_converted(w->num, 0).floats / each / PACKED_THIN * PACKED_THIN;
}

static void run(const struct thin_work *w)
{
    const size_t step = cols_at_once(w);
#pragma omp parallel num_threads((int)w->threads) if (w->threads > 1)
    for (size_t from = 0; from < w->width; from += step) {
        const struct share now = {from, min_size(step, w->width - from)};
#pragma omp for schedule(static)
        for (size_t i = 0; i < w->threads; i++)
            sum_rows(w, now, i);
#pragma omp for schedule(static)
        for (size_t i = 0; i < w->threads; i++)
            add_columns(w, now, i);
    }
}

void thin_dw(struct num *num, float *dw, const float *dy, const float *x, size_t n, size_t rows, size_t cols,
             float alpha)
{
    const bool lies = rows < cols;
    const size_t r = min_size(rows, cols), width = lies ? cols : rows;
    const float *side = lies ? x : dy, *thin = lies ? dy : x;
    for (size_t at = 0, now; at < n; at += now) {
        now = min_size(n - at, BLOCKS * BLOCK);
        run(&(struct thin_work){.num = num,
                                .k = num_packed(num),
                                .side = side + at * width,
                                .thin = thin + at * r,
                                .n = now,
                                .width = width,
                                .r = r,
                                .groups = (r + PACKED_THIN - 1) / PACKED_THIN,
                                .factor = alpha,
                                .dw = dw,
                                .lies = lies,
                                .threads = share_threads((size_t)num_threads(num), now * rows * cols)});
    }
}
