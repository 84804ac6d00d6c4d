/* SPDX-License-Identifier: MIT
 *
 * Many rows of x times quantized weights, both in bytes (--compute int8): as much of x as the panel
 * holds, with BLOCK_ROWS rows of W by BLOCK_COLS columns, which stay in the second cache while all
 * of that x passes. Called by gemm.c. */
#include <omp.h>
#include <string.h>

#include "num/convert.h"
#include "num/gemm_impl.h"

enum {
    SMALL = 1 << 15,   /* elements below which waking threads costs more than it saves */
    BLOCK_ROWS = 128,  /* a block of W in bytes: a quarter of a second cache of 512 KiB; whole panels */
    BLOCK_COLS = 1024, /* whole groups */
};

/* A thread's lane: the panels of a block of W, and room to convert a row's scales. */
struct bytes_block {
    struct int_panel panel;
    float *scale, *bias;
};

static size_t bytes_sides(struct mat w)
{
    return quant_groups(w.quant->group, BLOCK_COLS);
}

static struct bytes_block bytes_of(const struct num *num, struct mat w)
{
    struct bytes_block m = {.panel.w = (void *)num_lane(num, omp_get_thread_num()).data};
    m.panel.scale = (void *)(m.panel.w + BLOCK_ROWS * BLOCK_COLS / 4);
    m.panel.bias = m.panel.scale + BLOCK_ROWS * bytes_sides(w);
    m.scale = m.panel.bias + BLOCK_ROWS * bytes_sides(w);
    m.bias = m.scale + bytes_sides(w);
    return m;
}

/* The panels follow one another; rows beyond the matrix are 0. */
static void bytes_pack(const struct num *num, const struct bytes_block *m, struct mat w, struct row_span s,
                       size_t col, size_t cols)
{
    const struct int_tiles *k = num_int_tiles(num);
    const size_t row_bytes = convert_row_bytes(w);
    const size_t first = col / w.quant->group, n = quant_groups(w.quant->group, cols), tall = k->tall;
    for (size_t r = 0; r < s.rows; r += tall) {
        const size_t rows = s.rows - r < tall ? s.rows - r : tall;
        float *scale = m->panel.scale + r * n, *bias = m->panel.bias + r * n;
        uint32_t *words = m->panel.w + r * int_cols(cols) / 4;
        k->pack(words, convert_words(w, s.row + r), row_bytes, rows, w.cols, col, int_cols(cols),
                w.quant->bits);
        if (w.quant->kind == QUANT_CENTRED && w.quant->centre.is_signed) /* x is 0 beyond the row */
            convert_signed((uint8_t *)words, (const uint8_t *)words, tall * int_cols(cols));
        memset(scale, 0, tall * n * sizeof *scale);
        memset(bias, 0, tall * n * sizeof *bias);
        for (size_t i = 0; i < rows; i++) {
            convert_sides(num_kernels(num), m->scale, m->bias, w, s.row + r + i, first, n);
            for (size_t g = 0; g < n; g++) {
                scale[g * tall + i] = m->scale[g];
                bias[g * tall + i] = m->bias[g];
            }
        }
    }
}

/* y of those rows of W from those columns, with n rows of x. */
static void bytes_tiles(const struct num *num, const struct bytes_block *m, float *y, struct mat w, size_t n,
                        struct row_span s, size_t col, size_t cols, bool accumulate)
{
    const struct int_tiles *k = num_int_tiles(num);
    const size_t each = int_group(w.quant->group), sides = quant_groups(w.quant->group, cols);
    for (size_t i = 0; i < n; i += k->many)
        for (size_t r = 0; r < s.rows; r += k->tall) {
            struct int_row x = int_row_at(num, w, i);
            x.bytes += col;
            x.scale += col / each;
            x.sum += col / each;
            k->tile(&(struct int_tile){.y = y + i * w.rows + s.row + r,
                                       .ldy = w.rows,
                                       .n = n - i < k->many ? n - i : k->many,
                                       .rows = s.rows - r < k->tall ? s.rows - r : k->tall,
                                       .x = x,
                                       .x_bytes = int_row_bytes(w),
                                       .panel = {m->panel.w + r * int_cols(cols) / 4,
                                                 m->panel.scale + r * sides, m->panel.bias + r * sides},
                                       .group = w.quant->group,
                                       .groups = quant_groups(each, cols),
                                       .accumulate = accumulate || col});
        }
}

static void bytes_some(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate)
{
    const int parts = w.rows * w.cols > SMALL ? num_threads(num) : 1;
#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
    for (size_t i = 0; i < n; i++) {
        const struct int_row to = int_row_at(num, w, i);
        num_integers(num)->quantize(&to, x + i * w.cols, w.cols, w.quant->bits, w.quant->group, INT_TILES);
    }
#pragma omp parallel for schedule(dynamic) num_threads(parts) if (parts > 1)
    for (size_t r = 0; r < w.rows; r += BLOCK_ROWS) {
        const struct bytes_block m = bytes_of(num, w);
        const struct row_span s = {r, w.rows - r < BLOCK_ROWS ? w.rows - r : BLOCK_ROWS};
        for (size_t col = 0; col < w.cols; col += BLOCK_COLS) {
            const size_t cols = w.cols - col < BLOCK_COLS ? w.cols - col : BLOCK_COLS;
            bytes_pack(num, &m, w, s, col, cols);
            if (num_int_tiles(num)->begin)
                num_int_tiles(num)->begin(w.quant->group);
            bytes_tiles(num, &m, y, w, n, s, col, cols, accumulate);
            if (num_int_tiles(num)->end)
                num_int_tiles(num)->end();
        }
    }
}

/* Rows of x that the panel holds: whole tiles, if not all of them. */
static size_t bytes_rows(const struct num *num, struct mat w)
{
    const size_t many = num_int_tiles(num)->many;
    return num_panel(num).floats * sizeof(float) / int_row_bytes(w) / many * many;
}

bool bytes_applies(const struct num *num, struct mat w, size_t n)
{
    return quant_is_whole(w.quant) && num_compute(num) == NUM_INT8 && n > FEW_QUANT && bytes_rows(num, w) > 0;
}

void bytes_run(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate)
{
    const size_t most = bytes_rows(num, w);
    for (size_t i = 0; i < n; i += most)
        bytes_some(num, y + i * w.rows, x + i * w.cols, w, n - i < most ? n - i : most, accumulate);
}
