/* SPDX-License-Identifier: MIT
 *
 * Stored weights become f32, a part of a row at a time. Called by gemm.c and product.c; any thread,
 * no state. */
#include "num/convert.h"

#include <math.h>
#include <string.h>

#include "num/bits.h"

enum {
    SIDES = 64,      /* groups whose scales are converted at once */
    CACHE_LINE = 64, /* bytes */
    BLOCK_STEP = 128,
    HALVES = 256, /* numbers rounded at once */
    TOGETHER = 4, /* rows of any matrix, as many as a kernel has together; */
    DOWN = 16,    /* of one stored by columns: most of a cache line, also where every other row is its own */
    STEP = 2,     /* the largest that is read together */
    GROUP_MOST = 256, /* columns of any group */
    SIGNED = 1024,    /* bytes of another sign at once, whole groups */
};

static size_t stored_row(const struct mat *w, size_t row)
{
    return mat_stored_head(w->row_heads, mat_stored_row(w->turn, row)) * mat_step(w);
}

/* The part that holds the row, of a matrix that lies in two, and which of its rows that is. */
static struct mat part_of(struct mat w, size_t *row)
{
    bool is_rest;
    *row = mat_part_row(w.rest, *row, &is_rest);
    if (is_rest) {
        w.data = w.rest.data;
        w.dtype = w.rest.dtype;
        w.block = w.rest.block;
    }
    w.rest.groups = 0;
    return w;
}

const char *convert_element(struct mat w, size_t row, size_t col)
{
    const size_t at = stored_row(&w, row);
    return (const char *)w.data + (w.down ? at + col * w.down : at * w.cols + col) * dtype_size(w.dtype);
}

size_t convert_row_bytes(struct mat w)
{
    return quant_words(w.quant->bits, w.cols) * sizeof(uint32_t);
}

const uint8_t *convert_words(struct mat w, size_t row)
{
    return (const uint8_t *)w.data + row * mat_step(&w) * convert_row_bytes(w);
}

/* Each scale is that of `each` groups. */
static void repeat_scales(const struct kernels *k, float *scale, const struct quant *q, size_t row_scales,
                          size_t first, size_t n)
{
    const size_t each = q->centre.wide / q->group, size = dtype_size(q->side);
    for (size_t g = 0, now; g < n; g += now) {
        now = each - (first + g) % each;
        now = n - g < now ? n - g : now;
        k->to_f32[q->side](scale + g, (const char *)q->scale + (row_scales + (first + g) / each) * size, 1);
        for (size_t i = 1; i < now; i++)
            scale[g + i] = scale[g];
    }
}

/* Which number stands for 0. */
static float zero_of(const struct quant *q, size_t scales, size_t row, size_t at)
{
    const size_t per_word = QUANT_WORD / q->bits, of = q->centre.first + row;
    uint32_t word;
    memcpy(&word, (const char *)q->centre.zero + (of / per_word * scales + at) * sizeof word, sizeof word);
    return (float)(word >> of % per_word * q->bits & ((1u << q->bits) - 1));
}

static void centred_sides(const struct kernels *k, float *scale, float *bias, struct mat w, size_t row,
                          size_t first, size_t n)
{
    const struct quant *q = w.quant;
    const size_t scales = quant_scales(q, w.cols), each = q->centre.wide / q->group;
    const float middle = (float)(1u << (q->bits - 1));
    if (each == 1)
        k->to_f32[q->side](scale, (const char *)q->scale + (row * scales + first) * dtype_size(q->side), n);
    else
        repeat_scales(k, scale, q, row * scales, first, n);
    for (size_t g = 0; g < n && !q->centre.zero; g++)
        bias[g] = -middle * scale[g];
    for (size_t g = 0; g < n && q->centre.zero; g++)
        bias[g] = -zero_of(q, scales, row, (first + g) / each) * scale[g];
}

void convert_sides(const struct kernels *k, float *scale, float *bias, struct mat w, size_t row, size_t first,
                   size_t n)
{
    const struct quant *q = w.quant;
    if (q->kind == QUANT_CENTRED) {
        centred_sides(k, scale, bias, w, row, first, n);
        return;
    }
    const size_t at = (row * mat_step(&w) * quant_groups(q->group, w.cols) + first) * dtype_size(q->side);
    k->to_f32[q->side](scale, (const char *)q->scale + at, n);
    k->to_f32[q->side](bias, (const char *)q->bias + at, n);
}

void convert_signed(uint8_t *dst, const uint8_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = src[i] ^ 128;
}

/* col begins a group: those of panels do. */
static void convert_fp4(const struct kernels *k, float *dst, struct mat w, size_t row, size_t col, size_t n)
{
    const size_t group = w.quant->group;
    const uint8_t *side = (const uint8_t *)w.quant->scale + row * mat_step(&w) * quant_groups(group, w.cols) +
                          col / group,
                  *from = convert_words(w, row) + col / 2;
    float half[SIDES];
    for (size_t i = 0, now; i < n; i += now) {
        now = n - i < SIDES * group ? n - i : SIDES * group;
        for (size_t g = 0; g < quant_groups(group, now); g++, side++)
            half[g] = *side == UINT8_MAX ? NAN : half_e8m0(*side); /* 255 is no number */
        k->fp4_to_f32(dst + i, from + i / 2, half, group, now);
    }
}

static void convert_quant(const struct kernels *k, float *dst, struct mat w, size_t row, size_t col, size_t n)
{
    const struct quant *q = w.quant;
    float scale[SIDES], bias[SIDES];
    uint8_t own[SIGNED];
    const bool is_signed = q->kind == QUANT_CENTRED && q->centre.is_signed;
    const size_t group = q->group, most = is_signed ? SIGNED : SIDES * group;
    for (size_t i = 0, now; i < n; i += now) {
        now = n - i < most ? n - i : most;
        const uint8_t *from = convert_words(w, row) + (col + i) * q->bits / 8;
        if (is_signed)
            convert_signed(own, from, now);
        convert_sides(k, scale, bias, w, row, (col + i) / group, quant_groups(group, now));
        k->quant_to_f32[q->bits](dst + i, is_signed ? own : from, scale, bias, group, now);
    }
}

static const char *block_row(struct mat w, size_t row)
{
    return (const char *)w.data + stored_row(&w, row) * block_row_bytes(w.block, w.cols);
}

/* Some columns of a wider matrix are that one's from elsewhere on. */
static struct mat whole(struct mat w, size_t *col)
{
    if (!w.wide)
        return w;
    *col += w.left;
    w.cols = w.wide;
    w.left = w.wide = 0;
    return w;
}

/* Up to DOWN rows. */
struct down_rows {
    size_t row, n;
};

/* Each column gives a run that holds one element of each row. */
static void convert_down(const struct kernels *k, float *dst, size_t ldd, struct mat w, struct down_rows r,
                         size_t col, size_t n)
{
    const size_t step = mat_step(&w), run = (r.n - 1) * step + 1;
    float x[(DOWN - 1) * STEP + 1];
    for (size_t c = 0; c < n; c++) {
        k->to_f32[w.dtype](x, convert_element(w, r.row, col + c), run);
        for (size_t i = 0; i < r.n; i++)
            dst[i * ldd + c] = x[i * step];
    }
}

void convert_rows(const struct kernels *k, float *dst, size_t ldd, struct mat w, size_t row, size_t rows,
                  size_t col, size_t n)
{
    const size_t most = w.down && mat_step(&w) <= STEP ? DOWN : 1;
    w = w.down ? whole(w, &col) : w;
    for (size_t i = 0, now; i < rows; i += now) {
        now = rows - i < most ? rows - i : most;
        if (now > 1)
            convert_down(k, dst + i * ldd, ldd, w, (struct down_rows){row + i, now}, col, n);
        else
            convert_row(k, dst + i * ldd, w, row + i, col, n);
    }
}

size_t convert_together(struct mat w)
{
    return w.down ? DOWN : TOGETHER;
}

/* Elements of a row up to where the next group begins; returns how many there are. */
static size_t convert_start(const struct kernels *k, float *dst, struct mat w, size_t row, size_t col,
                            size_t n)
{
    float group[GROUP_MOST];
    const size_t step = convert_step(w), skew = col % step;
    if (!skew)
        return 0;
    n = n < step - skew ? n : step - skew;
    convert_row(k, group, w, row, col - skew, skew + n);
    for (size_t i = 0; i < n; i++)
        dst[i] = group[skew + i];
    return n;
}

/* Columns whose heads lie in another order: a run of each head after the other. */
static void convert_heads(const struct kernels *k, float *dst, struct mat w, size_t row, size_t col, size_t n)
{
    const struct mat_heads heads = w.col_heads;
    w.col_heads.width = 0;
    for (size_t i = 0, now; i < n; i += now) {
        now = heads.width - (col + i) % heads.width;
        now = n - i < now ? n - i : now;
        const size_t at = mat_stored_head(heads, col + i), done = convert_start(k, dst + i, w, row, at, now);
        if (now > done)
            convert_row(k, dst + i + done, w, row, at + done, now - done);
    }
}

void convert_row(const struct kernels *k, float *dst, struct mat w, size_t row, size_t col, size_t n)
{
    if (w.rest.groups)
        w = part_of(w, &row);
    if (w.col_heads.width) {
        w = whole(w, &col);
        convert_heads(k, dst, w, row, col, n);
        return;
    }
    if (w.wide) {
        w = whole(w, &col);
        const size_t done = convert_start(k, dst, w, row, col, n);
        dst += done, col += done, n -= done;
    }
    if (w.quant && w.quant->kind == QUANT_MXFP4) {
        convert_fp4(k, dst, w, row, col, n);
        return;
    }
    if (w.quant) {
        convert_quant(k, dst, w, row, col, n);
        return;
    }
    if (w.block) {
        k->block_to_f32(dst, block_row(w, row), w.block, col, n);
        return;
    }
    if (w.down) {
        convert_down(k, dst, n, w, (struct down_rows){row, 1}, col, n);
        return;
    }
    k->to_f32[w.dtype](dst, convert_element(w, row, col), n);
    if (w.dtype != DTYPE_F8_E4M3)
        return;
    if (w.scale_rows) {
        k->scale(dst, w.scale[w.scale_first + row], n);
        return;
    }
    const float *scale = mat_block_scales(&w, row);
    for (size_t i = 0, now; i < n; i += now) {
        const size_t left = MAT_BLOCK - (col + i) % MAT_BLOCK;
        now = n - i < left ? n - i : left;
        k->scale(dst + i, scale[(col + i) / MAT_BLOCK], now);
    }
}

static void fetch(const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch(from + i);
}

void convert_fetch(struct mat w, size_t row, size_t col, size_t n)
{
    if (row >= w.rows || w.down)
        return;
    if (w.rest.groups)
        w = part_of(w, &row);
    w = whole(w, &col);
    if (w.block) {
        fetch(block_row(w, row) + block_row_bytes(w.block, col), block_row_bytes(w.block, n));
        return;
    }
    const size_t bits = w.quant ? w.quant->bits : 8 * dtype_size(w.dtype);
    const char *from =
        w.quant ? (const char *)convert_words(w, row) + col * bits / 8 : convert_element(w, row, col);
    fetch(from, n * bits / 8);
}

size_t convert_step(struct mat w)
{
    return w.quant ? w.quant->group : w.block || (w.rest.groups && w.rest.block) ? BLOCK_STEP : 1;
}

void convert_round(float *dst, const float *src, size_t n)
{
    uint16_t halves[HALVES];
    for (size_t i = 0, now; i < n; i += now) {
        now = n - i < HALVES ? n - i : HALVES;
        dtype_from_f32(halves, src + i, DTYPE_BF16, now);
        dtype_to_f32(dst + i, halves, DTYPE_BF16, now);
    }
}

bool convert_is_in_place(struct mat w)
{
    return !w.quant && !w.block && !w.turn && !w.row_heads.width && !w.col_heads.width && !w.rest.groups &&
           !w.step && !w.down && !w.wide;
}

bool convert_is_plain(struct mat w)
{
    return convert_is_in_place(w) && w.dtype == DTYPE_F32 && (uintptr_t)w.data % sizeof(float) == 0;
}
