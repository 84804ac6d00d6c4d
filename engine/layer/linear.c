/* SPDX-License-Identifier: MIT
 *
 * Linear layers with optional bias and LoRA. The dropped input is never stored: its mask is a pure
 * function of the element's index, made again a block of rows at a time in the unit's scratch.
 * Called by blocks, on the computing thread. */
#include "layer/layer.h"

#include <string.h>

#include "num/kernels.h"
#include "num/vec.h"

enum {
    COLUMNS = 128,        /* of a bias gradient that one thread owns at a time */
    DROP_CHUNK = 1 << 12, /* elements of a mask that one thread makes at a time, whole dropout groups */
    SMALL = 1 << 14,
    TOGETHER = 32, /* linears computed at once */
};

static struct mat mat_a(const struct linear *lin)
{
    return (struct mat){
        .data = lin->lora->a, .dtype = DTYPE_F32, .rows = lin->lora->rank, .cols = lin->w.cols};
}

static struct mat mat_b(const struct linear *lin)
{
    return (struct mat){
        .data = lin->lora->b, .dtype = DTYPE_F32, .rows = lin->w.rows, .cols = lin->lora->rank};
}

/* How many rows of `width` floats the scratch block holds, at least one. */
static size_t rows_at_once(const struct num *num, size_t width, size_t rows)
{
    const size_t fit = num_block(num).floats / (width ? width : 1);
    return fit == 0 ? 1 : fit < rows ? fit : rows;
}

/* drop(x) of rows first … first+rows−1 in the scratch block, or x itself where nothing is
 * dropped. */
static const float *dropped(struct num *num, const struct linear *lin, const float *x, size_t first,
                            size_t rows)
{
    const size_t in = lin->w.cols, n = rows * in;
    const float *src = x + first * in;
    if (lin->lora->dropout <= 0)
        return src;
    float *dst = num_block(num).data;
    const uint64_t start = (uint64_t)first * in;
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (n > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < n; i += DROP_CHUNK)
        rng_dropout_apply(num, dst + i, src + i, &lin->lora->drop, start + i,
                          n - i < DROP_CHUNK ? n - i : DROP_CHUNK, lin->lora->dropout);
    return dst;
}

static void add_rows(struct num *num, float *y, const float *row, size_t rows, size_t dim)
{
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (rows * dim > SMALL && num_threads(num) > 1)
    for (size_t r = 0; r < rows; r++)
        k->add(y + r * dim, y + r * dim, row, dim);
}

/* y += s · xa · Bᵀ, with s · xa in the scratch block. */
static void add_lora(struct num *num, float *y, const float *xa, const struct linear *lin, size_t tokens)
{
    const size_t rank = lin->lora->rank, step = rows_at_once(num, rank, tokens);
    float *scaled = num_block(num).data;
    for (size_t t = 0; t < tokens; t += step) {
        const size_t rows = tokens - t < step ? tokens - t : step;
        memcpy(scaled, xa + t * rank, rows * rank * sizeof *scaled);
        vec_scale(num, scaled, lin->lora->scale, rows * rank);
        gemm_xwt(num, y + t * lin->w.rows, scaled, mat_b(lin), rows, true);
    }
}

/* xa = drop(x) · Aᵀ */
static void make_xa(struct num *num, const struct linear_use *u)
{
    const struct linear *lin = u->lin;
    const size_t in = lin->w.cols;
    const size_t step = lin->lora->dropout > 0 ? rows_at_once(num, in, u->tokens) : u->tokens;
    for (size_t t = 0; t < u->tokens; t += step) {
        const size_t rows = u->tokens - t < step ? u->tokens - t : step;
        gemm_xwt(num, u->xa + t * lin->lora->rank, dropped(num, lin, u->x, t, rows), mat_a(lin), rows, false);
    }
}

static void add_bias(struct num *num, const struct linear_use *u)
{
    if (u->lin->bias)
        add_rows(num, u->y, u->lin->bias, u->tokens, u->lin->w.rows);
}

/* Rows from `first` on that have one adapter; returns where the next begin. */
static size_t add_run(struct num *num, const struct linear_use *u, size_t first)
{
    const uint32_t set = u->set[first];
    size_t end = first + 1;
    while (end < u->tokens && u->set[end] == set)
        end++;
    struct linear lin = *u->lin;
    struct lora lora = {0};
    if (set != LORA_NONE)
        lora = u->lin->lora[set * u->lin->apart];
    if (!lora.rank)
        return end;
    lora.dropout = 0;
    lin.lora = &lora;
    const struct linear_use run = {.y = u->y + first * lin.w.rows,
                                   .xa = u->xa,
                                   .x = u->x + first * lin.w.cols,
                                   .lin = &lin,
                                   .tokens = end - first};
    make_xa(num, &run);
    add_lora(num, run.y, run.xa, &lin, run.tokens);
    return end;
}

/* What comes on top of x·Wᵀ. */
static void add_rest(struct num *num, const struct linear_use *u)
{
    add_bias(num, u);
    if (!u->lin->lora)
        return;
    if (u->set) {
        for (size_t t = 0; t < u->tokens;)
            t = add_run(num, u, t);
        return;
    }
    make_xa(num, u);
    add_lora(num, u->y, u->xa, u->lin, u->tokens);
}

/* LoRA's product in one with that of W. */
static void forward_joined(struct num *num, const struct linear_use *u)
{
    const struct linear *lin = u->lin;
    make_xa(num, u);
    gemm_xwt_joined(num, u->y, u->x, lin->w, &(struct gemm_second){u->xa, mat_b(lin), lin->lora->scale},
                    u->tokens);
    add_bias(num, u);
}

void linear_forward_each(struct num *num, const struct linear_use *uses, size_t n)
{
    struct gemm_xwt products[TOGETHER];
    const struct linear_use *apart[TOGETHER];
    for (size_t i = 0, now; i < n; i += now) {
        size_t left = 0;
        now = n - i < TOGETHER ? n - i : TOGETHER;
        for (size_t j = 0; j < now; j++) {
            const struct linear_use *u = &uses[i + j];
            if (u->lin->lora && !u->set && gemm_is_joined(num, u->lin->w, u->tokens)) {
                forward_joined(num, u);
                continue;
            }
            products[left] = (struct gemm_xwt){u->y, u->x, u->lin->w, u->tokens, false};
            apart[left++] = u;
        }
        gemm_xwt_each(num, products, left);
        for (size_t j = 0; j < left; j++)
            add_rest(num, apart[j]);
    }
}

void linear_forward(struct num *num, float *y, float *xa, const float *x, const struct linear *lin,
                    size_t tokens)
{
    linear_forward_each(num, &(struct linear_use){y, xa, x, lin, tokens, NULL}, 1);
}

void lora_backward_dyb(struct num *num, float *dyb, const float *dy, const struct linear *lin, size_t tokens)
{
    gemm_xw(num, dyb, dy, mat_b(lin), tokens, false);
    vec_scale(num, dyb, lin->lora->scale, tokens * lin->lora->rank);
}

/* dx += mask · (dyb · A): the mask multiplies the LoRA path alone, so that goes through the scratch
 * block. */
static void add_lora_dx(struct num *num, float *dx, const float *dyb, const struct linear *lin, size_t tokens)
{
    const struct lora *lora = lin->lora;
    if (lora->dropout <= 0) {
        gemm_xw(num, dx, dyb, mat_a(lin), tokens, true);
        return;
    }
    const size_t in = lin->w.cols, step = rows_at_once(num, in, tokens);
    float *part = num_block(num).data;
    const struct kernels *k = num_kernels(num);
    for (size_t t = 0; t < tokens; t += step) {
        const size_t rows = tokens - t < step ? tokens - t : step, n = rows * in;
        gemm_xw(num, part, dyb + t * lora->rank, mat_a(lin), rows, false);
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (n > SMALL && num_threads(num) > 1)
        for (size_t i = 0; i < n; i += DROP_CHUNK) {
            const size_t len = n - i < DROP_CHUNK ? n - i : DROP_CHUNK;
            rng_dropout_apply(num, part + i, part + i, &lora->drop, (uint64_t)t * in + i, len, lora->dropout);
            k->add(dx + t * in + i, dx + t * in + i, part + i, len);
        }
    }
}

void linear_backward_x(struct num *num, float *dx, float *dyb, const float *dy, const struct linear *lin,
                       size_t tokens, bool accumulate)
{
    if (lin->lora)
        lora_backward_dyb(num, dyb, dy, lin, tokens);
    if (lin->lora && lin->lora->dropout <= 0 && gemm_is_joined(num, lin->w, tokens)) {
        gemm_xw_joined(num, dx, dy, lin->w, &(struct gemm_second){dyb, mat_a(lin), 1}, tokens, accumulate);
        return;
    }
    gemm_xw(num, dx, dy, lin->w, tokens, accumulate);
    if (lin->lora)
        add_lora_dx(num, dx, dyb, lin, tokens);
}

void lora_backward_w(struct num *num, float *da, float *db, const float *dy, const float *dyb,
                     const float *xa, const float *x, const struct linear *lin, size_t tokens)
{
    const struct lora *lora = lin->lora;
    const size_t in = lin->w.cols, step = lora->dropout > 0 ? rows_at_once(num, in, tokens) : tokens;
    for (size_t t = 0; t < tokens; t += step) {
        const size_t rows = tokens - t < step ? tokens - t : step;
        gemm_dw(num, da, dyb + t * lora->rank, dropped(num, lin, x, t, rows), rows, lora->rank, in, 1);
    }
    gemm_dw(num, db, dy, xa, tokens, lin->w.rows, lora->rank, lora->scale);
}

void linear_backward_w(struct num *num, float *dw, float *dbias, const float *dy, const float *x,
                       size_t tokens, size_t in, size_t out)
{
    if (dw)
        gemm_dw(num, dw, dy, x, tokens, out, in, 1);
    if (!dbias)
        return;
    const struct kernels *k = num_kernels(num);
#pragma omp parallel for schedule(static)                                                                    \
    num_threads(num_threads(num)) if (tokens * out > SMALL && num_threads(num) > 1)
    for (size_t c = 0; c < out; c += COLUMNS) {
        const size_t width = out - c < COLUMNS ? out - c : COLUMNS;
        for (size_t t = 0; t < tokens; t++)
            k->add(dbias + c, dbias + c, dy + t * out + c, width);
    }
}
