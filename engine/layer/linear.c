/* SPDX-License-Identifier: MIT
 *
 * Linear layers with optional bias and LoRA. The dropped input is never stored: its mask is a pure
 * function of the element's index, made again a block of rows at a time in the unit's scratch.
 * Called by blocks, on the computing thread. */
#include "layer/dora.h"

#include <string.h>

#include "num/kernels.h"
#include "num/vec.h"

enum {
    COLUMNS = 128,        /* of a bias gradient that one thread owns at a time */
    DROP_CHUNK = 1 << 12, /* elements of a mask that one thread makes at a time, whole dropout groups */
    SMALL = 1 << 14,
    TOGETHER = 32, /* linears computed at once */
};

struct lora lora_moved(const struct lora *lora, ptrdiff_t rows)
{
    struct lora moved = *lora;
    moved.b = lora->b ? lora->b + rows * (ptrdiff_t)lora->rank : NULL;
    if (lora->m) {
        moved.m = lora->m + rows;
        moved.inv = lora->inv + rows;
        moved.gain = lora->gain + rows;
    }
    return moved;
}

static struct mat mat_a(const struct linear *lin)
{
    return (struct mat){.data = lin->lora->a,
                        .dtype = DTYPE_F32,
                        .rows = lin->lora->rank,
                        .cols = lin->w.cols,
                        .exact = true};
}

static struct mat mat_b(const struct linear *lin)
{
    return (struct mat){.data = lin->lora->b,
                        .dtype = DTYPE_F32,
                        .rows = lin->w.rows,
                        .cols = lin->lora->rank,
                        .exact = true};
}

/* The same inputs of A as of W, where these are some of all. */
static struct mat mat_a_of(const struct linear *lin)
{
    struct mat a = mat_a(lin);
    a.left = lin->w.left;
    a.wide = lin->w.wide;
    return a;
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

/* What one adapter, or none, puts on top of x·Wᵀ. DoRA scales what the weights give, and not the
 * bias. */
static void add_one(struct num *num, const struct linear_use *u, bool is_kept)
{
    const struct linear *lin = u->lin;
    if (!dora_is(lin))
        add_bias(num, u);
    if (lin->lora && lin->lora->rank) {
        make_xa(num, u);
        add_lora(num, u->y, u->xa, lin, u->tokens);
    }
    if (dora_is(lin)) {
        dora_scale(num, u->y, is_kept ? u->xa : NULL, lin, u->tokens);
        add_bias(num, u);
    }
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
    lora.dropout = 0;
    lin.lora = &lora;
    const struct linear_use run = {.y = u->y + first * lin.w.rows,
                                   .xa = u->xa,
                                   .x = u->x + first * lin.w.cols,
                                   .lin = &lin,
                                   .tokens = end - first};
    add_one(num, &run, false);
    return end;
}

/* What comes on top of x·Wᵀ. */
static void add_rest(struct num *num, const struct linear_use *u)
{
    if (!u->lin->lora || !u->set) {
        add_one(num, u, true);
        return;
    }
    for (size_t t = 0; t < u->tokens;)
        t = add_run(num, u, t);
}

/* LoRA's product in one with that of W. */
static void forward_joined(struct num *num, const struct linear_use *u)
{
    const struct linear *lin = u->lin;
    make_xa(num, u);
    gemm_xwt_joined(num, u->y, u->x, lin->w, &(struct gemm_second){u->xa, mat_b(lin), lin->lora->scale},
                    u->tokens);
    if (dora_is(lin))
        dora_scale(num, u->y, u->xa, lin, u->tokens);
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

/* What W and BA are given of the gradient: dy, or scaled behind dyb. */
static const float *scaled_back(struct num *num, float *dyb, const float *dy, const struct linear *lin,
                                size_t tokens)
{
    return dora_is(lin) ? dora_back(num, dyb, dy, lin, tokens) : dy;
}

static void make_dyb(struct num *num, float *dyb, const float *dy, const struct linear *lin, size_t tokens)
{
    gemm_xw(num, dyb, dy, mat_b(lin), tokens, false);
    vec_scale(num, dyb, lin->lora->scale, tokens * lin->lora->rank);
}

void lora_backward_dyb(struct num *num, float *dyb, const float *dy, const struct linear *lin, size_t tokens)
{
    make_dyb(num, dyb, scaled_back(num, dyb, dy, lin, tokens), lin, tokens);
}

/* dx += mask · part, of rows first … first+rows−1. Masks are those of all inputs, so of some
 * of them each row has a run of its own. */
static void add_masked(struct num *num, float *dx, float *part, const struct linear *lin, size_t first,
                       size_t rows)
{
    const struct kernels *k = num_kernels(num);
    const struct lora *lora = lin->lora;
    const size_t in = lin->w.cols, wide = lin->w.wide, n = rows * in, run = wide ? in : n,
                 chunks = (run + DROP_CHUNK - 1) / DROP_CHUNK;
#pragma omp parallel for schedule(static) num_threads(num_threads(num)) if (n > SMALL && num_threads(num) > 1)
    for (size_t i = 0; i < n / run * chunks; i++) {
        const size_t row = i / chunks, at = i % chunks * DROP_CHUNK,
                     len = run - at < DROP_CHUNK ? run - at : DROP_CHUNK;
        const uint64_t mask = wide ? (uint64_t)(first + row) * wide + lin->w.left : (uint64_t)first * in;
        float *to = part + row * run + at, *sum = dx + row * run + at;
        rng_dropout_apply(num, to, to, &lora->drop, mask + at, len, lora->dropout);
        k->add(sum, sum, to, len);
    }
}

/* dx += mask · (dyb · A): the mask multiplies the LoRA path alone, so that goes through the scratch
 * block. */
static void add_lora_dx(struct num *num, float *dx, const float *dyb, const struct linear *lin, size_t tokens)
{
    const struct lora *lora = lin->lora;
    if (lora->dropout <= 0) {
        gemm_xw(num, dx, dyb, mat_a_of(lin), tokens, true);
        return;
    }
    const size_t in = lin->w.cols, step = rows_at_once(num, in, tokens);
    float *part = num_block(num).data;
    for (size_t t = 0; t < tokens; t += step) {
        const size_t rows = tokens - t < step ? tokens - t : step;
        gemm_xw(num, part, dyb + t * lora->rank, mat_a_of(lin), rows, false);
        add_masked(num, dx + t * in, part, lin, t, rows);
    }
}

void linear_backward_x(struct num *num, float *dx, float *dyb, const float *dy, const struct linear *lin,
                       size_t tokens, bool accumulate)
{
    dy = scaled_back(num, dyb, dy, lin, tokens);
    if (lin->lora)
        make_dyb(num, dyb, dy, lin, tokens);
    if (lin->lora && lin->lora->dropout <= 0 && gemm_is_joined(num, lin->w, tokens)) {
        gemm_xw_joined(num, dx, dy, lin->w, &(struct gemm_second){dyb, mat_a_of(lin), 1}, tokens, accumulate);
        return;
    }
    gemm_xw(num, dx, dy, lin->w, tokens, accumulate);
    if (lin->lora)
        add_lora_dx(num, dx, dyb, lin, tokens);
}

static void clear_fixed(struct lora_grads g, const struct linear *lin)
{
    const struct lora *lora = lin->lora;
    const size_t learnt = lora->rank - lora->fixed;
    memset(g.a + learnt * lin->w.cols, 0, lora->fixed * lin->w.cols * sizeof *g.a);
    for (size_t r = 0; r < lin->w.rows && lora->fixed; r++)
        memset(g.b + r * lora->rank + learnt, 0, lora->fixed * sizeof *g.b);
}

void lora_backward_w(struct num *num, struct lora_grads g, const float *dy, const float *dyb, const float *xa,
                     const float *x, const struct linear *lin, size_t tokens)
{
    const struct lora *lora = lin->lora;
    const size_t in = lin->w.cols, step = lora->dropout > 0 ? rows_at_once(num, in, tokens) : tokens;
    for (size_t t = 0; t < tokens; t += step) {
        const size_t rows = tokens - t < step ? tokens - t : step;
        gemm_dw(num, g.a, dyb + t * lora->rank, dropped(num, lin, x, t, rows), rows, lora->rank, in, 1);
    }
    gemm_dw(num, g.b, dora_is(lin) ? dyb + tokens * lora->rank : dy, xa, tokens, lin->w.rows, lora->rank,
            lora->scale);
    if (g.m)
        dora_backward_m(num, g.m, dy, xa, lin, tokens);
    clear_fixed(g, lin);
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
