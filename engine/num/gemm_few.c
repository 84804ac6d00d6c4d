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
    TILE = 6,           /* rows of x that a kernel has together */
    IN_CACHE = 1 << 17, /* floats of x that stay in the second cache while W passes */
    X_BYTES = 1 << 18,  /* of x in whole numbers that stay there */
    X_TOGETHER = 8,     /* rows of x that a kernel has together */
    APART = 512,        /* floats: rows of x that lie a multiple of this apart share few sets of a cache, */
    PAD = 16,           /* and this many more between them help; measured */
    FEW_TO_PAD = 2,     /* rows of x up to which it does not matter */
    AHEAD = 4,          /* rows of a stream whose scales and biases are fetched ahead */
    CACHE_LINE = 64,    /* bytes */
    TOGETHER = 32,      /* products that share the threads */
};

_Static_assert((int)MAT_BLOCK <= (int)NUM_LANE_FLOATS, "a lane has the sums of rows that share a scale");

/* How many outputs a row of y has: of one of two parts those of both. */
static size_t outputs(const struct mat *w)
{
    return w->part ? w->rest.groups * mat_group_rows(w->rest) : w->rows;
}

/* Which output the row is that is stored there. */
static size_t output_stored(const struct mat *w, size_t stored)
{
    if (w->part)
        return mat_row_of_part(w->rest, stored, w->part == MAT_REST);
    return mat_row_stored(w->turn, mat_head_stored(w->row_heads, stored));
}

/* Rows r … of W, which share their scales, with x: those of a block of columns are put into x, for
 * all the rows at once. */
static void scaled_dots(const struct num *num, float *y, const float *x, struct mat w, size_t n, size_t r,
                        size_t rows, bool accumulate)
{
    const struct kernels *k = num_kernels(num);
    const struct scratch lane = num_lane(num, omp_get_thread_num());
    const size_t fit = lane.floats / w.cols;
    const float *scale = mat_block_scales(&w, r);
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

/* The same where each row has a scale: y gets it. */
static void row_scaled_dots(const struct num *num, const struct gemm_xwt *p, struct row_span s)
{
    const struct mat w = p->w;
    const struct scratch lane = num_lane(num, omp_get_thread_num());
    const size_t fit = lane.floats / s.rows;
    for (size_t from = 0, now; from < p->n; from += now) {
        now = min_size(p->n - from, fit);
        num_kernels(num)->dots[w.dtype](lane.data, s.rows, p->x + from * w.cols, w.cols, now,
                                        convert_element(w, s.row, 0), w.cols, s.rows, w.cols, false);
        for (size_t i = 0; i < now * s.rows; i++) {
            const size_t r = s.row + i % s.rows;
            float *y = p->y + (from + i / s.rows) * w.rows + r;
            const float by = lane.data[i] * w.scale[w.scale_first + r];
            *y = p->accumulate ? *y + by : by;
        }
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
        for (size_t r = 0; r < now; r++)
            convert_fetch(w, s.row + at + r + most, 0, w.cols);
        convert_rows(k, room.data, w.cols, w, s.row + at, now, 0, w.cols);
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
    const size_t rows = in_place ? 0 : min_size(convert_together(w), lane.floats / w.cols);
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
    if (w.down) {
        down_dots(num, p, s);
        return;
    }
    if (w.quant || w.dtype != DTYPE_F8_E4M3) {
        plain_dots(num, p, s);
        return;
    }
    for (size_t r = s.row, end = s.row + s.rows, rows; r < end; r += rows) {
        rows = min_size(end - r, MAT_BLOCK - (w.scale_first + r) % MAT_BLOCK);
        if (w.scale_rows)
            row_scaled_dots(num, p, (struct row_span){r, rows});
        else
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
            if (q->bias)
                __builtin_prefetch((const char *)q->bias + at);
        }
}

/* --- what is stored around a zero: scales and biases are made as a row is read --- */

/* In a thread's lane, of each stream: its groups' scales and biases, and its numbers if they are
 * signed. */
struct centred_room {
    float *scale, *bias; /* [streams, groups] */
    uint8_t *words;      /* [streams, bytes of a row], or NULL: as they are stored */
    size_t groups, row_bytes;
};

static size_t centred_floats(const struct mat *w)
{
    return INT_ROWS * (2 * quant_groups(w->quant->group, w->cols) +
                       (w->quant->centre.is_signed ? convert_row_bytes(*w) / sizeof(float) : 0));
}

static struct centred_room centred_room(const struct num *num, struct mat w)
{
    const size_t groups = quant_groups(w.quant->group, w.cols);
    float *at = num_lane(num, omp_get_thread_num()).data;
    struct centred_room r = {at, at + INT_ROWS * groups, NULL, groups, convert_row_bytes(w)};
    if (w.quant->centre.is_signed)
        r.words = (uint8_t *)(r.bias + INT_ROWS * groups);
    return r;
}

/* Row `row` and those `apart` from it, as d's kernel takes them. */
static void centred_rows(const struct num *num, struct int_dots *d, const struct centred_room *room,
                         struct mat w, size_t row)
{
    for (size_t k = 0; k < d->rows; k++) {
        const size_t own = row + k * d->apart;
        convert_sides(num_kernels(num), room->scale + k * room->groups, room->bias + k * room->groups, w, own,
                      0, room->groups);
        if (!room->words)
            continue;
        convert_fetch(w, own + AHEAD, 0, w.cols);
        convert_signed(room->words + k * room->row_bytes, convert_words(w, own), room->row_bytes);
    }
    d->scale = room->scale;
    d->bias = room->bias;
    d->side = DTYPE_F32;
    d->side_apart = room->groups * sizeof(float);
    d->w = room->words ? room->words : convert_words(w, row);
    d->w_apart = room->words ? room->row_bytes : d->apart * room->row_bytes;
}

static void centred_streams(const struct num *num, struct int_dots *d, struct mat w, struct row_span s)
{
    const struct centred_room room = centred_room(num, w);
    const size_t scales = quant_scales(w.quant, w.cols);
    for (size_t r = 0; r < s.rows; r++, d->y++) {
        if (s.row + r + AHEAD < w.rows)
            fetch_sides(w.quant, (s.row + r + AHEAD) * scales, scales, d->rows, d->apart * scales);
        centred_rows(num, d, &room, w, s.row + r);
        num_integers(num)->dots(d);
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
                         .bias = q->bias ? (const char *)q->bias + s.row * side_bytes : NULL,
                         .side_apart = apart * side_bytes,
                         .side = q->side,
                         .cols = w.cols,
                         .group = q->group,
                         .bits = q->bits,
                         .accumulate = p->accumulate};
    if (q->kind == QUANT_CENTRED) {
        centred_streams(num, &d, w, s);
        return;
    }
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

/* MXFP4 of safetensors has the numbers of a group one after the other, and scales elsewhere; a
 * block has its scale first, and number i and i + 16 in one byte. */
static void block_of_group(uint8_t *block, uint8_t scale, const uint8_t *group)
{
    typedef uint8_t bytes16 __attribute__((vector_size(16)));
    typedef uint16_t halves8 __attribute__((vector_size(16)));
    bytes16 both;
    memcpy(&both, group, sizeof both);
    const bytes16 even = both & 15, odd = (bytes16)((halves8)both >> 4) & 15,
                  first = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22,
                                                  7, 23),
                  last = __builtin_shufflevector(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                                 30, 15, 31);
    both = first | (bytes16)((halves8)last << 4);
    block[0] = scale;
    memcpy(block + 1, &both, sizeof both);
}

/* A row of W as blocks: as it is stored, or made in `room`. */
static const uint8_t *block_row(struct mat w, size_t stored, uint8_t *room)
{
    enum { GROUP = QUANT_FP4_GROUP / 2, BLOCK = GROUP + 1, FETCH = 1024 /* bytes */ };
    if (w.block)
        return (const uint8_t *)w.data + stored * block_row_bytes(w.block, w.cols);
    const size_t groups = quant_groups(QUANT_FP4_GROUP, w.cols);
    const uint8_t *scale = (const uint8_t *)w.quant->scale + stored * mat_step(&w) * groups,
                  *words = convert_words(w, stored);
    for (size_t g = 0; g < groups; g++) {
        __builtin_prefetch(words + g * GROUP + FETCH);
        block_of_group(room + g * BLOCK, scale[g], words + g * GROUP);
    }
    return room;
}

/* Rows s of W, as many streams as they are stored, with n rows of x. */
static void block_streams(const struct num *num, const struct gemm_xwt *p, struct int_row x, size_t n,
                          struct row_span s)
{
    const struct mat w = p->w;
    const size_t apart = s.rows / INT_ROWS, rest = s.rows % INT_ROWS;
    struct int_block_dots d = {.y = p->y,
                               .ldy = outputs(&w),
                               .n = n,
                               .rows = INT_ROWS,
                               .x = x,
                               .x_bytes = int_row_bytes(w),
                               .cols = w.cols,
                               .type = int_block_of(w),
                               .accumulate = p->accumulate};
    const size_t row_bytes = block_row_bytes(d.type, w.cols);
    uint8_t *room = (uint8_t *)num_lane(num, omp_get_thread_num()).data;
    for (size_t i = 0; i < apart + (rest > 0); i++) {
        d.rows = i < apart ? INT_ROWS : rest;
        for (size_t r = 0; r < d.rows; r++) {
            const size_t stored = i < apart ? s.row + r * apart + i : s.row + INT_ROWS * apart + r;
            d.w[r] = block_row(w, stored, room + r * row_bytes);
            d.to[r] = output_stored(&w, stored);
        }
        num_integers(num)->block_dots(&d);
    }
}

/* Of many rows of x as many at a time as stay in the second cache. */
static void block_span(const struct num *num, const struct gemm_xwt *p, struct int_row x, struct row_span s)
{
    const size_t bytes = int_row_bytes(p->w), fit = max_size(X_BYTES / bytes / X_TOGETHER, 1) * X_TOGETHER;
    struct gemm_xwt part = *p;
    for (size_t i = 0, now; i < p->n; i += now) {
        now = min_size(p->n - i, fit);
        block_streams(num, &part, x, now, s);
        part.y += now * outputs(&p->w);
        x.bytes += now * bytes;
        x.scale = (float *)((char *)x.scale + now * bytes);
        x.sum = (float *)((char *)x.sum + now * bytes);
    }
}

static void int_span(const struct num *num, const struct gemm_xwt *p, struct int_row x, struct row_span s)
{
    if (int_block_of(p->w))
        block_span(num, p, x, s);
    else
        quant_span(num, p, x, s);
}

/* --- one or several --- */

/* The products that p is made of: those of both parts of W where these are blocks, which a kernel
 * reads as they lie. Returns how many. */
static size_t take_apart(struct gemm_xwt ret[2], const struct gemm_xwt *p)
{
    const struct mat_rest *rest = &p->w.rest;
    ret[0] = *p;
    if (!rest->groups || p->w.part || !p->w.block || !rest->block)
        return 1;
    ret[1] = *p;
    ret[0].w.part = MAT_FIRST;
    ret[0].w.rows = rest->groups * (2 * (size_t)rest->key + rest->value);
    ret[1].w.part = MAT_REST;
    ret[1].w.rows = (size_t)rest->groups * rest->value;
    ret[1].w.data = rest->data;
    ret[1].w.block = rest->block;
    return 2;
}

static bool one_applies(const struct num *num, const struct gemm_xwt *p)
{
    const size_t lane = num_lane(num, 0).floats;
    const bool is_centred = p->w.quant && p->w.quant->kind == QUANT_CENTRED;
    const bool has_room = p->w.cols <= lane && (!is_centred || centred_floats(&p->w) <= lane);
    if (!p->n || !p->w.rows || !p->w.cols)
        return false;
    if (int_applies(p->w))
        return int_is_few(num, p->w, p->n) && (has_room || (!p->w.col_heads.width && !is_centred));
    return (p->n <= FEW_ROWS || num_is_invariant(num)) && has_room;
}

bool few_applies(const struct num *num, const struct gemm_xwt *p)
{
    struct gemm_xwt part[2];
    if (take_apart(part, p) == 1)
        return one_applies(num, p);
    return one_applies(num, &part[0]) && one_applies(num, &part[1]) &&
           p->n * (int_row_bytes(part[0].w) + int_row_bytes(part[1].w)) <=
               num_panel(num).floats * sizeof(float);
}

/* Whether x is the same for both in whole numbers. */
static bool is_same_form(struct mat a, struct mat b)
{
    const enum block_type one = int_block_of(a), other = int_block_of(b);
    if (one && other)
        return int_block_group(one) == int_block_group(other) &&
               int_block_sums(one) == int_block_sums(other) &&
               int_block_order(one) == int_block_order(other) &&
               int_block_bytes(one) == int_block_bytes(other);
    return quant_is_whole(a.quant) && quant_is_whole(b.quant) && a.quant->bits == b.quant->bits &&
           a.quant->group == b.quant->group;
}

static bool is_same_order(struct mat_heads a, struct mat_heads b)
{
    return a.width == b.width && a.groups == b.groups && a.each == b.each && a.first == b.first;
}

/* Whether p's x is that of the product before it, in the same whole numbers. */
static bool has_same_x(const struct gemm_xwt *p, const struct gemm_xwt *before)
{
    return p->x == before->x && p->n == before->n && p->w.cols == before->w.cols &&
           is_same_form(p->w, before->w) && is_same_order(p->w.col_heads, before->w.col_heads);
}

/* Where in the panel the whole numbers of p's x lie, from where those of the product before it
 * do; before NULL: there is none. */
static size_t next_x(const struct gemm_xwt *p, const struct gemm_xwt *before, size_t at)
{
    if (!before || !int_applies(before->w) || has_same_x(p, before))
        return at;
    return at + before->n * int_row_bytes(before->w);
}

/* How many of the products from the first on are few, and have room in the panel together. */
size_t few_together(const struct num *num, const struct gemm_xwt *p, size_t n)
{
    const size_t room = num_panel(num).floats * sizeof(float);
    struct gemm_xwt part[2], before;
    size_t i = 0, at = 0, seen = 0;
    for (; i < n && i < TOGETHER && few_applies(num, &p[i]); i++)
        for (size_t k = 0, parts = take_apart(part, &p[i]); k < parts; k++, seen++) {
            at = next_x(&part[k], seen ? &before : NULL, at);
            if (int_applies(part[k].w) && at + part[k].n * int_row_bytes(part[k].w) > room)
                return i;
            before = part[k];
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
        at = next_x(&p[i], i ? &p[i - 1] : NULL, at);
        if (row >= stop)
            continue;
        const struct row_span s = {row, stop - row};
        if (int_applies(w))
            int_span(num, &p[i], int_row_from((char *)num_panel(num).data + at, w, 0), s);
        else
            few_dots(num, &p[i], s);
    }
}

/* A row of x in the order of W's columns: in the thread's lane where that is another. */
static const float *ordered_x(const struct num *num, const float *x, struct mat w)
{
    const struct mat_heads heads = w.col_heads;
    float *to = num_lane(num, omp_get_thread_num()).data;
    if (!heads.width)
        return x;
    for (size_t col = 0; col < w.cols; col += heads.width)
        memcpy(to + mat_stored_head(heads, col), x + col, heads.width * sizeof *x);
    return to;
}

/* A row of x for W. */
static void to_whole(const struct num *num, const struct int_row *to, const float *x, struct mat w)
{
    if (int_block_of(w))
        num_integers(num)->block_quantize(to, ordered_x(num, x, w), w.cols, int_block_of(w));
    else
        num_integers(num)->quantize(to, x, w.cols, w.quant->bits, w.quant->group, few_form(num, w));
}

/* All rows of x, to where `at` is in the panel. */
static void all_to_whole(const struct num *num, const struct gemm_xwt *p, char *at)
{
    const int threads = p->n * p->w.cols > SMALL ? num_threads(num) : 1;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (size_t r = 0; r < p->n; r++) {
        const struct int_row to = int_row_from(at, p->w, r);
        to_whole(num, &to, p->x + r * p->w.cols, p->w);
    }
}

/* The same of products of whole matrices, or of parts, up to twice TOGETHER. */
static void parts_each(struct num *num, const struct gemm_xwt *p, size_t n)
{
    size_t at = 0, elements = 0;
    for (size_t i = 0; i < n; i++) {
        at = next_x(&p[i], i ? &p[i - 1] : NULL, at);
        elements += p[i].w.rows * p[i].w.cols;
        if (!int_applies(p[i].w) || (i && has_same_x(&p[i], &p[i - 1])))
            continue;
        all_to_whole(num, &p[i], (char *)num_panel(num).data + at);
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

void few_each(struct num *num, const struct gemm_xwt *p, size_t n)
{
    struct gemm_xwt parts[2 * TOGETHER];
    size_t taken = 0;
    for (size_t i = 0; i < n; i++)
        taken += take_apart(parts + taken, &p[i]);
    parts_each(num, parts, taken);
}

void few_in_turn(struct num *num, const struct gemm_xwt *p)
{
    size_t now = p->n;
    while (now > 1 && !few_applies(num, &(struct gemm_xwt){p->y, p->x, p->w, now, p->accumulate}))
        now = (now + 1) / 2;
    for (size_t i = 0; i < p->n; i += now) {
        const struct gemm_xwt some = {p->y + i * p->w.rows, p->x + i * p->w.cols, p->w,
                                      p->n - i < now ? p->n - i : now, p->accumulate};
        few_each(num, &some, 1);
    }
}
