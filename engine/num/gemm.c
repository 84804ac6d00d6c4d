/* SPDX-License-Identifier: MIT
 *
 * Matrix products: who multiplies. With few rows a product is bound by reading the weights, and kernels read them as stored. With many
 * it is product.c where the CPU has tiles of ours, and else OpenBLAS, which is called here alone: stored weights are converted a
 * panel at a time into the unit's scratch, where they are still in cache when sgemm packs them. Called by layers, on the computing
 * thread. Work is divided over outputs, never across a sum. */
#include "num/gemm.h"

#include <cblas.h>
#include <errno.h>
#include <string.h>
#include <omp.h>

#include "num/convert.h"
#include "num/integer.h"
#include "num/kernels.h"
#include "num/product.h"

enum {
    FEW_ROWS = 12,           /* up to here reading W dominates; measured */
    PANEL_COLS = 1 << 16,    /* widest panel: sixteen rows of it fill the scratch */
    FEW_QUANT = 16,          /* the same of quantized weights */
    SMALL = 1 << 15,         /* elements below which waking threads costs more than it saves */
    SMALL_PRODUCT = 1 << 20, /* multiplications for a thread of which the same is true; OpenBLAS
                                computes what is smaller in other ways */
    SHARE = 32,              /* outputs that stay together: whole register blocks of every kernel */
    AHEAD = 4,               /* rows of a stream whose scales and biases are fetched ahead */
    CACHE_LINE = 64,         /* bytes */
    MANY_ROWS = 128,         /* a block of W in bytes: a quarter of a second cache of 512 KiB; whole panels */
    MANY_COLS = 1024,        /* whole groups */
};

/* A rectangle of W: what of it is converted at once, or what one thread multiplies with. */
struct panel {
    size_t row, rows, col, cols;
};

/* One thread's share of n outputs. */
struct share {
    size_t from, n;
};

static struct share share_of(size_t n, size_t step, size_t threads, size_t thread)
{
    const size_t steps = (n + step - 1) / step;
    const size_t from = steps * thread / threads * step, end = steps * (thread + 1) / threads * step;
    return (struct share){from < n ? from : n, (end < n ? end : n) - (from < n ? from : n)};
}

/* How many threads share a product of so many multiplications. OpenBLAS's own threads wait for one another many times in a product,
 * each time giving up the CPU: where others want it, two of them are slower than one. Ours each call it for outputs of their own and
 * meet once, at the end. */
static size_t parts_of(const struct num *num, size_t multiplications)
{
    const size_t threads = (size_t)num_threads(num);
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
    return multiplications > threads * SMALL_PRODUCT ? threads : 1;
}

struct blas_product {
    enum CBLAS_TRANSPOSE ta, tb;
    size_t m, n, k;
    float alpha;
    const float *a;
    size_t lda;
    const float *b;
    size_t ldb;
    float beta;
    float *c;
    size_t ldc;
};

static void sgemm(const struct blas_product *p)
{
    if (p->m && p->n)
        cblas_sgemm(CblasRowMajor, p->ta, p->tb, (blasint)p->m, (blasint)p->n, (blasint)p->k, p->alpha, p->a,
                    (blasint)p->lda, p->b, (blasint)p->ldb, p->beta, p->c, (blasint)p->ldc);
}

/* Split along the longer side of C: each thread packs its share of one factor, and all of the shorter one. */
static void sgemm_shared(struct num *num, const struct blas_product *p)
{
    const size_t parts = parts_of(num, p->m * p->n * p->k);
#pragma omp parallel for schedule(static) num_threads((int)parts) if (parts > 1)
    for (size_t i = 0; i < parts; i++) {
        struct blas_product own = *p;
        if (p->n >= p->m) {
            const struct share s = share_of(p->n, SHARE, parts, i);
            own.n = s.n;
            own.b += s.from * (p->tb == CblasNoTrans ? 1 : p->ldb);
            own.c += s.from;
        } else {
            const struct share s = share_of(p->m, SHARE, parts, i);
            own.m = s.n;
            own.a += s.from * (p->ta == CblasNoTrans ? p->lda : 1);
            own.c += s.from * p->ldc;
        }
        sgemm(&own);
    }
}

static void clear(float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = 0;
}

void gemm_rows(const struct num *num, float *dst, struct mat w, size_t row, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        convert_row(num_kernels(num), dst + r * w.cols, w, row + r, 0, w.cols);
}

int gemm_quantize(struct num *num, uint32_t *words, float *scale, float *bias, struct mat w, size_t row,
                  size_t rows, size_t bits)
{
    const size_t across = quant_words(bits, w.cols), groups = quant_groups(QUANT_GROUP, w.cols);
    int failed = 0;
    if (w.cols > num_lane(num, 0).floats)
        return -EOVERFLOW;
#pragma omp parallel for schedule(static) reduction(min                                                      \
                                                    : failed)                                                \
    num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t r = 0; r < rows; r++) {
        float *x = num_lane(num, omp_get_thread_num()).data;
        gemm_rows(num, x, w, row + r, 1);
        const int e = quant_row(words + r * across, scale + r * groups, bias + r * groups, x, w.cols, bits);
        failed = e < failed ? e : failed;
    }
    return failed;
}

static const float *convert_panel(struct num *num, struct mat w, struct panel p)
{
    float *dst = num_converted(num, omp_get_thread_num()).data;
    for (size_t r = 0; r < p.rows; r++)
        convert_row(num_kernels(num), dst + r * p.cols, w, p.row + r, p.col, p.cols);
    return dst;
}

/* Steps to the next panel within `all`; start from {0}. Panels go along the rows, all columns at once unless W is very wide. How
 * many rows one has depends on W alone, for sums over rows begin anew with each. */
static bool next_panel(const struct num *num, struct mat w, struct panel all, struct panel *p)
{
    if (p->rows) {
        p->col += p->cols;
        if (p->col == all.col + all.cols) {
            p->col = all.col;
            p->row += p->rows;
        }
    } else {
        p->row = all.row;
        p->col = all.col;
    }
    if (p->row == all.row + all.rows)
        return false;
    const size_t wide = w.cols < PANEL_COLS ? w.cols : PANEL_COLS;
    const size_t right = all.col + all.cols, below = all.row + all.rows;
    size_t rows = num_converted(num, 0).floats / wide;
    rows = rows > 16 ? rows / 16 * 16 : rows;
    p->cols = right - p->col < wide ? right - p->col : wide;
    p->rows = below - p->row < rows ? below - p->row : rows;
    return true;
}

/* Rows r … of W, which share their scales, with x: those of a block of columns are put into x, for all the rows at once. */
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

/* Rows r … of W with x, as stored. */
static void few_dots(const struct num *num, float *y, const float *x, struct mat w, size_t n, size_t r,
                     size_t rows, bool accumulate)
{
    if (w.dtype != DTYPE_F8_E4M3) {
        num_kernels(num)->dots[w.dtype](y + r, w.rows, x, w.cols, n, convert_element(w, r, 0), w.cols, rows,
                                        w.cols, accumulate);
        return;
    }
    for (const size_t end = r + rows; r < end; r += rows) {
        const size_t block = MAT_BLOCK - r % MAT_BLOCK;
        rows = end - r < block ? end - r : block;
        scaled_dots(num, y, x, w, n, r, rows, accumulate);
    }
}

/* Consecutive rows of W, as one thread has them: it reads long streams fastest. */
struct span {
    size_t row, rows;
};

/* Threads that pay for a product with few rows. */
static int few_threads(const struct num *num, struct mat w)
{
    return w.rows * w.cols > SMALL ? num_threads(num) : 1;
}

/* --- few rows of quantized weights: x becomes whole numbers once, in the panel --- */

static size_t int_row_bytes(struct mat w)
{
    const size_t sides = 2 * int_groups(w.cols, w.quant->group) * sizeof(float);
    return (int_cols(w.cols) * sizeof(int16_t) + sides + 63) / 64 * 64;
}

/* Row i of those from `at` on. */
static struct int_row int_row_from(char *at, struct mat w, size_t i)
{
    struct int_row r = {.q = (void *)(at + i * int_row_bytes(w))};
    r.bytes = (void *)r.q;
    r.scale = (void *)(r.q + int_cols(w.cols));
    r.sum = r.scale + int_groups(w.cols, w.quant->group);
    return r;
}

static struct int_row int_row_at(const struct num *num, struct mat w, size_t i)
{
    return int_row_from((char *)num_panel(num).data, w, i);
}

static bool quant_is_few(const struct num *num, struct mat w, size_t n)
{
    return n <= FEW_QUANT && n * int_row_bytes(w) <= num_panel(num).floats * sizeof(float);
}

/* Of one row of each stream: they lie apart from one another, so that the CPU does not fetch them ahead by itself. */
static void fetch_sides(const struct quant *q, size_t first, size_t n, size_t streams, size_t apart)
{
    const size_t size = dtype_size(q->side);
    for (size_t k = 0; k < streams; k++, first += apart)
        for (size_t at = first * size; at < (first + n) * size; at += CACHE_LINE) {
            __builtin_prefetch((const char *)q->scale + at);
            __builtin_prefetch((const char *)q->bias + at);
        }
}

/* The rows of W in s, and as many from each of `streams` places `apart` rows apart, with all rows of x. */
static void quant_streams(const struct num *num, const struct gemm_xwt *p, struct int_row x, struct span s,
                          size_t streams, size_t apart)
{
    const struct mat w = p->w;
    const struct quant *q = w.quant;
    const size_t groups = quant_groups(q->group, w.cols), side_bytes = groups * dtype_size(q->side);
    struct int_dots d = {.y = p->y + s.row,
                         .ldy = w.rows,
                         .apart = apart,
                         .n = p->n,
                         .rows = streams,
                         .x = x,
                         .x_bytes = int_row_bytes(w),
                         .w = convert_words(w, s.row),
                         .w_apart = (size_t)(convert_words(w, apart) - convert_words(w, 0)),
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
        d.w += convert_words(w, 1) - convert_words(w, 0);
        d.scale = (const char *)d.scale + side_bytes;
        d.bias = (const char *)d.bias + side_bytes;
    }
}

/* Four streams through a thread's rows, as in the kernels of stored types, then the rows that are left. */
static void quant_span(const struct num *num, const struct gemm_xwt *p, struct int_row x, struct span s)
{
    const size_t apart = s.rows / INT_ROWS, rest = s.rows % INT_ROWS;
    quant_streams(num, p, x, (struct span){s.row, apart}, INT_ROWS, apart);
    if (rest)
        quant_streams(num, p, x, (struct span){s.row + INT_ROWS * apart, rest}, 1, 0);
}

/* --- products with few rows, one or several --- */

static bool is_few(const struct num *num, const struct gemm_xwt *p)
{
    if (!p->n || !p->w.rows || !p->w.cols)
        return false;
    return p->w.quant ? quant_is_few(num, p->w, p->n)
                      : p->n <= FEW_ROWS && p->w.cols <= num_lane(num, 0).floats;
}

/* Whether p's x is that of the product before it, in the same whole numbers. */
static bool has_same_x(const struct gemm_xwt *p, const struct gemm_xwt *before)
{
    return p->x == before->x && p->n == before->n && p->w.cols == before->w.cols && p->w.quant &&
           before->w.quant && p->w.quant->bits == before->w.quant->bits &&
           p->w.quant->group == before->w.quant->group;
}

/* Where in the panel the whole numbers of p[i].x lie, from where those of the product before it do. */
static size_t next_x(const struct gemm_xwt *p, size_t i, size_t at)
{
    if (i == 0 || !p[i - 1].w.quant || has_same_x(&p[i], &p[i - 1]))
        return at;
    return at + p[i - 1].n * int_row_bytes(p[i - 1].w);
}

/* How many of the products from the first on are few, and have room in the panel together. */
static size_t few_together(const struct num *num, const struct gemm_xwt *p, size_t n)
{
    const size_t room = num_panel(num).floats * sizeof(float);
    size_t i = 0;
    for (size_t at = 0; i < n && is_few(num, &p[i]); i++) {
        at = next_x(p, i, at);
        if (p[i].w.quant && at + p[i].n * int_row_bytes(p[i].w) > room)
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
        const struct span s = {row, stop - row};
        if (w.quant)
            quant_span(num, &p[i], int_row_from((char *)num_panel(num).data + at, w, 0), s);
        else
            few_dots(num, p[i].y, p[i].x, w, p[i].n, s.row, s.rows, p[i].accumulate);
    }
}

static void few_each(struct num *num, const struct gemm_xwt *p, size_t n)
{
    size_t at = 0, elements = 0;
    for (size_t i = 0; i < n; i++) {
        at = next_x(p, i, at);
        elements += p[i].w.rows * p[i].w.cols;
        if (!p[i].w.quant || (i && has_same_x(&p[i], &p[i - 1])))
            continue;
        for (size_t r = 0; r < p[i].n; r++) {
            const struct int_row to = int_row_from((char *)num_panel(num).data + at, p[i].w, r);
            num_integers(num)->quantize(&to, p[i].x + r * p[i].w.cols, p[i].w.cols, p[i].w.quant->bits,
                                        p[i].w.quant->group);
        }
    }
    const size_t parts = elements > SMALL ? (size_t)num_threads(num) : 1;
#pragma omp parallel for schedule(static) num_threads((int)parts) if (parts > 1)
    for (size_t i = 0; i < parts; i++)
        few_part(num, p, n, elements * i / parts, elements * (i + 1) / parts);
}

/* --- many rows of quantized weights in bytes: as much of x as the panel holds, with MANY_ROWS rows of W by
 * MANY_COLS columns, which stay in the second cache while all of that x passes --- */

/* A thread's lane: the panels of a block of W, and room to convert a row's scales. */
struct many {
    struct int_panel panel;
    float *scale, *bias;
};

static size_t many_sides(struct mat w)
{
    return quant_groups(w.quant->group, MANY_COLS);
}

static struct many many_of(const struct num *num, struct mat w)
{
    struct many m = {.panel.w = (void *)num_lane(num, omp_get_thread_num()).data};
    m.panel.scale = (void *)(m.panel.w + MANY_ROWS * MANY_COLS / 4);
    m.panel.bias = m.panel.scale + MANY_ROWS * many_sides(w);
    m.scale = m.panel.bias + MANY_ROWS * many_sides(w);
    m.bias = m.scale + many_sides(w);
    return m;
}

/* The panels follow one another; rows beyond the matrix are 0. */
static void many_pack(const struct num *num, const struct many *m, struct mat w, struct span s, size_t col,
                      size_t cols)
{
    const struct int_kernels *k = num_integers(num);
    const size_t all = quant_groups(w.quant->group, w.cols),
                 row_bytes = (size_t)(convert_words(w, 1) - convert_words(w, 0));
    const size_t first = col / w.quant->group, n = quant_groups(w.quant->group, cols), tall = k->tall;
    for (size_t r = 0; r < s.rows; r += tall) {
        const size_t rows = s.rows - r < tall ? s.rows - r : tall;
        float *scale = m->panel.scale + r * n, *bias = m->panel.bias + r * n;
        k->pack(m->panel.w + r * int_cols(cols) / 4, convert_words(w, s.row + r), row_bytes, rows, w.cols,
                col, int_cols(cols), w.quant->bits);
        clear(scale, tall * n);
        clear(bias, tall * n);
        for (size_t i = 0; i < rows; i++) {
            convert_sides(num_kernels(num), m->scale, m->bias, w.quant, (s.row + r + i) * all + first, n);
            for (size_t g = 0; g < n; g++) {
                scale[g * tall + i] = m->scale[g];
                bias[g * tall + i] = m->bias[g];
            }
        }
    }
}

/* y of those rows of W from those columns, with n rows of x. */
static void many_tiles(const struct num *num, const struct many *m, float *y, struct mat w, size_t n,
                       struct span s, size_t col, size_t cols, bool accumulate)
{
    const struct int_kernels *k = num_integers(num);
    const size_t each = int_group(w.quant->group), sides = quant_groups(w.quant->group, cols);
    for (size_t i = 0; i < n; i += INT_TILE)
        for (size_t r = 0; r < s.rows; r += k->tall) {
            struct int_row x = int_row_at(num, w, i);
            x.bytes += col;
            x.scale += col / each;
            x.sum += col / each;
            k->tile(&(struct int_tile){.y = y + i * w.rows + s.row + r,
                                       .ldy = w.rows,
                                       .n = n - i < INT_TILE ? n - i : INT_TILE,
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

static void many_quant(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate)
{
    const int parts = few_threads(num, w);
#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
    for (size_t i = 0; i < n; i++) {
        const struct int_row to = int_row_at(num, w, i);
        num_integers(num)->quantize_bytes(&to, x + i * w.cols, w.cols, w.quant->bits, w.quant->group);
    }
#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
    for (size_t r = 0; r < w.rows; r += MANY_ROWS) {
        const struct many m = many_of(num, w);
        const struct span s = {r, w.rows - r < MANY_ROWS ? w.rows - r : MANY_ROWS};
        for (size_t col = 0; col < w.cols; col += MANY_COLS) {
            const size_t cols = w.cols - col < MANY_COLS ? w.cols - col : MANY_COLS;
            many_pack(num, &m, w, s, col, cols);
            many_tiles(num, &m, y, w, n, s, col, cols, accumulate);
        }
    }
}

/* Rows of x that the panel holds: whole tiles, if not all of them. */
static size_t many_rows(const struct num *num, struct mat w)
{
    return num_panel(num).floats * sizeof(float) / int_row_bytes(w) / INT_TILE * INT_TILE;
}

static bool quant_is_many(const struct num *num, struct mat w, size_t n)
{
    return num_compute(num) == NUM_INT8 && n > FEW_QUANT && many_rows(num, w) > 0;
}

/* Each thread has rows of W, which are columns of y. */
static void converted_xwt(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate)
{
    const size_t parts = parts_of(num, n * w.rows * w.cols);
#pragma omp parallel for schedule(static) num_threads((int)parts) if (parts > 1)
    for (size_t i = 0; i < parts; i++) {
        const struct share s = share_of(w.rows, SHARE, parts, i);
        const struct panel own = {.row = s.from, .rows = s.n, .cols = w.cols};
        for (struct panel p = {0}; next_panel(num, w, own, &p);)
            sgemm(&(struct blas_product){CblasNoTrans, CblasTrans, n, p.rows, p.cols, 1, x + p.col, w.cols,
                                         convert_panel(num, w, p), p.cols, accumulate || p.col > 0, y + p.row,
                                         w.rows});
    }
}

void gemm_xwt(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate)
{
    if (n == 0 || w.rows == 0)
        return;
    if (w.cols == 0) {
        if (!accumulate)
            clear(y, n * w.rows);
        return;
    }
    const struct gemm_xwt few = {y, x, w, n, accumulate};
    if (is_few(num, &few)) {
        few_each(num, &few, 1);
        return;
    }
    if (w.quant && quant_is_many(num, w, n)) {
        const size_t most = many_rows(num, w);
        for (size_t i = 0; i < n; i += most)
            many_quant(num, y + i * w.rows, x + i * w.cols, w, n - i < most ? n - i : most, accumulate);
        return;
    }
    if (product_is_ours(num))
        product_run(num, &(struct product){y,
                                           w.rows,
                                           n,
                                           w.rows,
                                           accumulate,
                                           1,
                                           {{.a = x, .lda = w.cols, .b = w, .k = w.cols, .factor = 1}}});
    else if (convert_is_plain(w))
        sgemm_shared(num, &(struct blas_product){CblasNoTrans, CblasTrans, n, w.rows, w.cols, 1, x, w.cols,
                                                 w.data, w.cols, accumulate, y, w.rows});
    else
        converted_xwt(num, y, x, w, n, accumulate);
}

void gemm_xwt_each(struct num *num, const struct gemm_xwt *p, size_t n)
{
    for (size_t i = 0, now; i < n; i += now) {
        now = few_together(num, p + i, n - i);
        if (now)
            few_each(num, p + i, now);
        else {
            gemm_xwt(num, p[i].y, p[i].x, p[i].w, p[i].n, p[i].accumulate);
            now = 1;
        }
    }
}

/* Each thread has columns of W and of dx. */
static void converted_xw(struct num *num, float *dx, const float *dy, struct mat w, size_t n, bool accumulate)
{
    const size_t parts = parts_of(num, n * w.rows * w.cols),
                 step = w.quant && w.quant->group > SHARE ? w.quant->group : SHARE;
#pragma omp parallel for schedule(static) num_threads((int)parts) if (parts > 1)
    for (size_t i = 0; i < parts; i++) {
        const struct share s = share_of(w.cols, step, parts, i);
        if (!s.n)
            continue;
        const struct panel own = {.rows = w.rows, .col = s.from, .cols = s.n};
        for (struct panel p = {0}; next_panel(num, w, own, &p);)
            sgemm(&(struct blas_product){CblasNoTrans, CblasNoTrans, n, p.cols, p.rows, 1, dy + p.row, w.rows,
                                         convert_panel(num, w, p), p.cols, accumulate || p.row > 0,
                                         dx + p.col, w.cols});
    }
}

void gemm_xw(struct num *num, float *dx, const float *dy, struct mat w, size_t n, bool accumulate)
{
    if (n == 0 || w.cols == 0)
        return;
    if (w.rows == 0) {
        if (!accumulate)
            clear(dx, n * w.cols);
        return;
    }
    if (product_is_ours(num))
        product_run(num, &(struct product){
                             dx,
                             w.cols,
                             n,
                             w.cols,
                             accumulate,
                             1,
                             {{.a = dy, .lda = w.rows, .b_down = true, .b = w, .k = w.rows, .factor = 1}}});
    else if (convert_is_plain(w))
        sgemm_shared(num, &(struct blas_product){CblasNoTrans, CblasNoTrans, n, w.cols, w.rows, 1, dy, w.rows,
                                                 w.data, w.cols, accumulate, dx, w.cols});
    else
        converted_xw(num, dx, dy, w, n, accumulate);
}

void gemm_dw(struct num *num, float *dw, const float *dy, const float *x, size_t n, size_t rows, size_t cols,
             float alpha)
{
    if (n == 0 || rows == 0 || cols == 0)
        return;
    const struct mat in = {.data = x, .dtype = DTYPE_F32, .rows = n, .cols = cols};
    if (product_is_ours(num))
        product_run(num,
                    &(struct product){dw, cols, rows, cols, true, 1, {{dy, rows, true, true, in, n, alpha}}});
    else
        sgemm_shared(num, &(struct blas_product){CblasTrans, CblasNoTrans, rows, cols, n, alpha, dy, rows, x,
                                                 cols, 1, dw, cols});
}

/* --- two in one ------------------------------------------------------------------------------- */

bool gemm_is_joined(const struct num *num, struct mat w, size_t n)
{
    return product_is_ours(num) && n > FEW_ROWS && w.rows && w.cols &&
           !(w.quant && (quant_is_few(num, w, n) || quant_is_many(num, w, n)));
}

void gemm_xwt_joined(struct num *num, float *y, const float *x, struct mat w,
                     const struct gemm_second *second, size_t n)
{
    const struct mat b = second->w;
    product_run(num,
                &(struct product){
                    .c = y,
                    .ldc = w.rows,
                    .m = n,
                    .n = w.rows,
                    .terms = 2,
                    .term = {{.a = x, .lda = w.cols, .b = w, .k = w.cols, .factor = 1},
                             {.a = second->x, .lda = b.cols, .b = b, .k = b.cols, .factor = second->factor}},
                });
}

void gemm_xw_joined(struct num *num, float *dx, const float *dy, struct mat w,
                    const struct gemm_second *second, size_t n, bool accumulate)
{
    const struct mat b = second->w;
    product_run(num, &(struct product){
                         .c = dx,
                         .ldc = w.cols,
                         .m = n,
                         .n = w.cols,
                         .accumulate = accumulate,
                         .terms = 2,
                         .term = {{dy, w.rows, false, true, w, w.rows, 1},
                                  {second->x, b.rows, false, true, b, b.rows, second->factor}},
                     });
}
