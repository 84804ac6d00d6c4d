/* SPDX-License-Identifier: MIT
 *
 * Products with few rows, as decoding has them: bound by reading the weights, so kernels read them
 * as stored, and the threads share those of several products as one list. And those with many rows,
 * each of which needs the bits that it has alone (num_set_invariant). Called by gemm.c. */
#include <omp.h>
#include <string.h>

#include "num/convert.h"
#include "num/gemm_impl.h"
#include "num/share.h"
#include "num/sizes.h"

enum {
    FEW_ROWS = 12,      /* up to here reading W dominates; measured */
    SMALL = 1 << 15,    /* elements below which waking threads costs more than it saves */
    SHARE = 1 << 18,    /* the fewest a thread takes at once: some twenty microseconds */
    CONVERTED = 4,      /* rows that are converted at once: as many as a kernel has together, */
    TILE = 6,           /* and rows of x */
    IN_CACHE = 1 << 17, /* floats of x that stay in the second cache while W passes */
    APART = 512,        /* floats: rows of x that lie a multiple of this apart share few sets of a cache, */
    PAD = 16,           /* and this many more between them help; measured */
    FEW_TO_PAD = 2,     /* rows of x up to which it does not matter */
    AHEAD = 4,          /* rows of a stream whose scales and biases are fetched ahead */
    CACHE_LINE = 64,    /* bytes */
};

/* Rows r … of W, which share their scales, with x: those of a block of columns are put into x, for
 * all the rows at once. */
static void scaled_dots(const struct num *num, float *y, const float *x, struct mat w, size_t n, size_t r,
                        size_t rows, bool accumulate)
{
    const struct kernels *k = num_kernels(num);
    const struct scratch lane = num_lane(num, omp_get_thread_num());
    const size_t fit = lane.floats / w.cols;
    const float *scale = w.scale + r / MAT_BLOCK * ((w.cols + MAT_BLOCK - 1) / MAT_BLOCK);
    for (size_t i = 0, now; i < n; i += now) {
        now = n - i < fit ? n - i : fit;
        memcpy(lane.data, x + i * w.cols, now * w.cols * sizeof *x);
        for (size_t j = 0; j < now; j++)
            for (size_t c = 0; c < w.cols; c += MAT_BLOCK)
                k->scale(lane.data + j * w.cols + c, scale[c / MAT_BLOCK],
                         w.cols - c < MAT_BLOCK ? w.cols - c : MAT_BLOCK);
        k->dots[w.dtype](y + i * w.rows + r, w.rows, lane.data, w.cols, now, convert_element(w, r, 0), w.cols,
                         rows, w.cols, accumulate);
    }
}

/* Rows of x, `ld` floats apart. */
struct x_rows {
    const float *x;
    size_t n, ld;
};

/* Rows s of W, whose order or packing no kernel reads: as many as fit in `room` become f32 there at
 * a time. The bits are those of the same numbers as stored f32. */
static void converted_dots(const struct num *num, float *y, const struct x_rows *x, struct mat w,
                           struct row_span s, struct scratch room, bool accumulate)
{
    const struct kernels *k = num_kernels(num);
    const size_t most = room.floats / w.cols;
    for (size_t at = 0, now; at < s.rows; at += now) {
        now = min_size(most, s.rows - at);
        for (size_t r = 0; r < now; r++) {
            convert_fetch(w, s.row + at + r + most, 0, w.cols);
            convert_row(k, room.data + r * w.cols, w, s.row + at + r, 0, w.cols);
        }
        k->dots[DTYPE_F32](y + s.row + at, w.rows, x->x, x->ld, x->n, room.data, w.cols, now, w.cols,
                           accumulate);
    }
}

/* All rows of x, or some, as they are best read: in `room` where that is elsewhere. */
static struct x_rows lay_x(const float *x, size_t cols, size_t n, struct scratch room)
{
    const struct x_rows moved = {room.data, n, cols + PAD};
    if (n <= FEW_TO_PAD || cols % APART || n * moved.ld > room.floats)
        return (struct x_rows){x, n, cols};
    for (size_t i = 0; i < n; i++)
        memcpy(room.data + i * moved.ld, x + i * cols, cols * sizeof *x);
    return moved;
}

/* Rows s of W, which has no scales, with x; by the calling thread, in its lane. */
static void plain_dots(const struct num *num, const struct gemm_xwt *p, struct row_span s)
{
    const struct mat w = p->w;
    const bool in_place = convert_is_in_place(w);
    const struct scratch lane = num_lane(num, omp_get_thread_num());
    const size_t rows = in_place ? 0 : min_size(CONVERTED, lane.floats / w.cols);
    const struct scratch converted = {lane.data, rows * w.cols},
                         room = {lane.data + converted.floats, lane.floats - converted.floats};
    const size_t fit = max_size(IN_CACHE / w.cols, TILE), times = (p->n + fit - 1) / fit,
                 step = round_up((p->n + times - 1) / times, TILE);
    for (size_t i = 0; i < p->n; i += step) {
        const struct x_rows x = lay_x(p->x + i * w.cols, w.cols, min_size(step, p->n - i), room);
        float *y = p->y + i * w.rows;
        if (in_place)
            num_kernels(num)->dots[w.dtype](y + s.row, w.rows, x.x, x.ld, x.n, convert_element(w, s.row, 0),
                                            w.cols, s.rows, w.cols, p->accumulate);
        else
            converted_dots(num, y, &x, w, s, converted, p->accumulate);
    }
}

/* Rows s of W with x. */
static void few_dots(const struct num *num, const struct gemm_xwt *p, struct row_span s)
{
    const struct mat w = p->w;
    if (w.quant || w.dtype != DTYPE_F8_E4M3) {
        plain_dots(num, p, s);
        return;
    }
    for (size_t r = s.row, end = s.row + s.rows, rows; r < end; r += rows) {
        rows = min_size(end - r, MAT_BLOCK - r % MAT_BLOCK);
        scaled_dots(num, p->y, p->x, w, p->n, r, rows, p->accumulate);
    }
}

/* --- quantized weights and blocks: x becomes whole numbers once, in the panel --- */

static bool int_is_few(const struct num *num, struct mat w, size_t n)
{
    return (n <= FEW_QUANT || num_is_invariant(num)) &&
           n * int_row_bytes(w) <= num_panel(num).floats * sizeof(float);
}

/* x in bytes where that was asked for and is faster: with 8 bits it would only be coarser. */
static enum int_form few_form(const struct num *num, struct mat w)
{
    return num_compute(num) == NUM_INT8 && w.quant->bits == 4 ? INT_BYTES : INT_HALVES;
}

/* Of one row of each stream: they lie apart from one another, so that the CPU does not fetch them
 * ahead by itself. */
static void fetch_sides(const struct quant *q, size_t first, size_t n, size_t streams, size_t apart)
{
    const size_t size = dtype_size(q->side);
    for (size_t k = 0; k < streams; k++, first += apart)
        for (size_t at = first * size; at < (first + n) * size; at += CACHE_LINE) {
            __builtin_prefetch((const char *)q->scale + at);
            __builtin_prefetch((const char *)q->bias + at);
        }
}

/* The rows of W in s, and as many from each of `streams` places `apart` rows apart, with all rows
 * of x. */
static void quant_streams(const struct num *num, const struct gemm_xwt *p, struct int_row x,
                          struct row_span s, size_t streams, size_t apart)
{
    const struct mat w = p->w;
    const struct quant *q = w.quant;
    const size_t groups = quant_groups(q->group, w.cols), side_bytes = groups * dtype_size(q->side),
                 row_bytes = convert_row_bytes(w);
    struct int_dots d = {.y = p->y + s.row,
                         .ldy = w.rows,
                         .apart = apart,
                         .n = p->n,
                         .rows = streams,
                         .x = x,
                         .form = few_form(num, w),
                         .x_bytes = int_row_bytes(w),
                         .w = convert_words(w, s.row),
                         .w_apart = apart * row_bytes,
                         .scale = (const char *)q->scale + s.row * side_bytes,
                         .bias = (const char *)q->bias + s.row * side_bytes,
                         .side_apart = apart * side_bytes,
                         .side = q->side,
                         .cols = w.cols,
                         .group = q->group,
                         .bits = q->bits,
                         .accumulate = p->accumulate};
    for (size_t r = 0; r < s.rows; r++) {
        if (s.row + r + AHEAD < w.rows)
            fetch_sides(q, (s.row + r + AHEAD) * groups, groups, streams, apart * groups);
        num_integers(num)->dots(&d);
        d.y++;
        d.w += row_bytes;
        d.scale = (const char *)d.scale + side_bytes;
        d.bias = (const char *)d.bias + side_bytes;
    }
}

/* Four streams through a thread's rows, as in the kernels of stored types, then the rows that are
 * left. */
static void quant_span(const struct num *num, const struct gemm_xwt *p, struct int_row x, struct row_span s)
{
    const size_t apart = s.rows / INT_ROWS, rest = s.rows % INT_ROWS;
    quant_streams(num, p, x, (struct row_span){s.row, apart}, INT_ROWS, apart);
    if (rest)
        quant_streams(num, p, x, (struct row_span){s.row + INT_ROWS * apart, rest}, 1, 0);
}

/* --- blocks --- */

static const uint8_t *block_row(struct mat w, size_t stored)
{
    return (const uint8_t *)w.data + stored * block_row_bytes(w.block, w.cols);
}

/* As many streams of rows as they are stored. */
static void block_span(const struct num *num, const struct gemm_xwt *p, struct int_row x, struct row_span s)
{
    const struct mat w = p->w;
    const size_t apart = s.rows / INT_ROWS, rest = s.rows % INT_ROWS;
    struct int_block_dots d = {.y = p->y,
                               .ldy = w.rows,
                               .n = p->n,
                               .rows = INT_ROWS,
                               .x = x,
                               .x_bytes = int_row_bytes(w),
                               .cols = w.cols,
                               .type = w.block,
                               .accumulate = p->accumulate};
    for (size_t i = 0; i < apart + (rest > 0); i++) {
        d.rows = i < apart ? INT_ROWS : rest;
        for (size_t r = 0; r < d.rows; r++) {
            const size_t stored = i < apart ? s.row + r * apart + i : s.row + INT_ROWS * apart + r;
            d.w[r] = block_row(w, stored);
            d.to[r] = mat_row_stored(w.turn, stored);
        }
        num_integers(num)->block_dots(&d);
    }
}

static void int_span(const struct num *num, const struct gemm_xwt *p, struct int_row x, struct row_span s)
{
    if (p->w.block)
        block_span(num, p, x, s);
    else
        quant_span(num, p, x, s);
}

/* --- one or several --- */

bool few_applies(const struct num *num, const struct gemm_xwt *p)
{
    if (!p->n || !p->w.rows || !p->w.cols)
        return false;
    return int_applies(p->w)
               ? int_is_few(num, p->w, p->n)
               : (p->n <= FEW_ROWS || num_is_invariant(num)) && p->w.cols <= num_lane(num, 0).floats;
}

/* Whether x is the same for both in whole numbers. */
static bool is_same_form(struct mat a, struct mat b)
{
    if (a.block && b.block)
        return int_block_group(a.block) == int_block_group(b.block) &&
               int_block_is_split(a.block) == int_block_is_split(b.block) &&
               int_block_top(a.block) == int_block_top(b.block);
    return quant_is_whole(a.quant) && quant_is_whole(b.quant) && a.quant->bits == b.quant->bits &&
           a.quant->group == b.quant->group;
}

/* Whether p's x is that of the product before it, in the same whole numbers. */
static bool has_same_x(const struct gemm_xwt *p, const struct gemm_xwt *before)
{
    return p->x == before->x && p->n == before->n && p->w.cols == before->w.cols &&
           is_same_form(p->w, before->w);
}

/* Where in the panel the whole numbers of p[i].x lie, from where those of the product before it
 * do. */
static size_t next_x(const struct gemm_xwt *p, size_t i, size_t at)
{
    if (i == 0 || !int_applies(p[i - 1].w) || has_same_x(&p[i], &p[i - 1]))
        return at;
    return at + p[i - 1].n * int_row_bytes(p[i - 1].w);
}

/* How many of the products from the first on are few, and have room in the panel together. */
size_t few_together(const struct num *num, const struct gemm_xwt *p, size_t n)
{
    const size_t room = num_panel(num).floats * sizeof(float);
    size_t i = 0;
    for (size_t at = 0; i < n && few_applies(num, &p[i]); i++) {
        at = next_x(p, i, at);
        if (int_applies(p[i].w) && at + p[i].n * int_row_bytes(p[i].w) > room)
            break;
    }
    return i;
}

/* Elements from … end−1 of all the weights: those rows that begin there. */
static void few_part(const struct num *num, const struct gemm_xwt *p, size_t n, size_t from, size_t end)
{
    size_t at = 0;
    for (size_t i = 0, before = 0; i < n && before < end; before += p[i].w.rows * p[i].w.cols, i++) {
        const struct mat w = p[i].w;
        const size_t row = from > before ? (from - before + w.cols - 1) / w.cols : 0;
        const size_t last = (end - before + w.cols - 1) / w.cols, stop = last < w.rows ? last : w.rows;
        at = next_x(p, i, at);
        if (row >= stop)
            continue;
        const struct row_span s = {row, stop - row};
        if (int_applies(w))
            int_span(num, &p[i], int_row_from((char *)num_panel(num).data + at, w, 0), s);
        else
            few_dots(num, &p[i], s);
    }
}

/* A row of x for W. */
static void to_whole(const struct num *num, const struct int_row *to, const float *x, struct mat w)
{
    if (w.block)
        num_integers(num)->block_quantize(to, x, w.cols, w.block);
    else
        num_integers(num)->quantize(to, x, w.cols, w.quant->bits, w.quant->group, few_form(num, w));
}

void few_each(struct num *num, const struct gemm_xwt *p, size_t n)
{
    size_t at = 0, elements = 0;
    for (size_t i = 0; i < n; i++) {
        at = next_x(p, i, at);
        elements += p[i].w.rows * p[i].w.cols;
        if (!int_applies(p[i].w) || (i && has_same_x(&p[i], &p[i - 1])))
            continue;
        for (size_t r = 0; r < p[i].n; r++) {
            const struct int_row to = int_row_from((char *)num_panel(num).data + at, p[i].w, r);
            to_whole(num, &to, p[i].x + r * p[i].w.cols, p[i].w);
        }
    }
    const size_t threads = elements > SMALL ? (size_t)num_threads(num) : 1, even = elements / threads + 1;
    const struct cut cut = {elements, even < SHARE ? even : SHARE, threads};
    const size_t shares = share_count(&cut);
#pragma omp parallel for schedule(dynamic) num_threads((int)threads) if (threads > 1)
    for (size_t i = 0; i < shares; i++) {
        const struct share s = share_cut(&cut, i);
        few_part(num, p, n, s.from, s.from + s.n);
    }
}

void few_in_turn(struct num *num, const struct gemm_xwt *p)
{
    size_t now = p->n;
    while (now > 1 && !few_applies(num, &(struct gemm_xwt){p->y, p->x, p->w, now, p->accumulate}))
        now = (now + 1) / 2;
    for (size_t i = 0; i < p->n; i += now) {
        const size_t rows = p->n - i < now ? p->n - i : now;
        few_each(num,
                 &(struct gemm_xwt){p->y + i * p->w.rows, p->x + i * p->w.cols, p->w, rows, p->accumulate},
                 1);
    }
}
