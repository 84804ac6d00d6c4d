/* SPDX-License-Identifier: MIT
 *
 * Matrix products: who multiplies. With few rows a product is bound by reading the weights, and
 * kernels read them as stored. With many it is product.c where the CPU has tiles of ours, and else
 * OpenBLAS, which is called here alone: stored weights are converted a panel at a time into the
 * unit's scratch, where they are still in cache when sgemm packs them. Called by layers, on the
 * computing thread. Work is divided over outputs, never across a sum. */
#include "num/gemm_impl.h"

#include <cblas.h>
#include <errno.h>
#include <string.h>
#include <omp.h>

#include "num/convert.h"
#include "num/product.h"
#include "num/share.h"
#include "num/thin.h"

enum {
    PANEL_COLS = 1 << 16, /* widest panel: sixteen rows of it fill the scratch */
    SHARE = 32,           /* outputs that stay together: whole register blocks of every kernel */
};

/* A rectangle of W: what of it is converted at once, or what one thread multiplies with. */
struct panel {
    size_t row, rows, col, cols;
};

/* OpenBLAS moreover computes smaller products in other ways. */
static size_t parts_of(const struct num *num, size_t multiplications)
{
    return share_threads((size_t)num_threads(num), multiplications);
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

/* By the calling thread alone. OpenBLAS's own threads wait for one another many times in a product,
 * each time giving up the CPU: where others want it, two of them are slower than one. Ours each
 * call it for outputs of their own and meet once, at the end. How many it takes, it asks of OpenMP
 * in every call. */
static void sgemm(const struct blas_product *p)
{
    if (!p->m || !p->n)
        return;
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    cblas_sgemm(CblasRowMajor, p->ta, p->tb, (blasint)p->m, (blasint)p->n, (blasint)p->k, p->alpha, p->a,
                (blasint)p->lda, p->b, (blasint)p->ldb, p->beta, p->c, (blasint)p->ldc);
    omp_set_num_threads(threads);
}

/* Split along the longer side of C: each thread packs its share of one factor, and all of the
 * shorter one. */
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

struct mat gemm_cut(struct mat w, size_t first, size_t rows, struct quant *room)
{
    const size_t at = first * mat_step(&w);
    if (w.quant) {
        const size_t side = w.quant->kind == QUANT_MXFP4 ? 1 : dtype_size(w.quant->side),
                     before = at * quant_scales(w.quant, w.cols) * side;
        *room = *w.quant;
        room->centre.first += at;
        room->scale = (const char *)room->scale + before;
        room->bias = room->bias ? (const char *)room->bias + before : NULL;
        w.quant = room;
    }
    const size_t row_bytes = w.quant   ? convert_row_bytes(w)
                             : w.block ? block_row_bytes(w.block, w.cols)
                                       : (w.down ? 1 : w.cols) * dtype_size(w.dtype);
    w.data = w.data ? (const char *)w.data + at * row_bytes : NULL; /* heads alone have none */
    w.rows = rows;
    w.scale_first += first;
    return w;
}

struct mat gemm_columns(struct mat w, size_t first, size_t cols)
{
    w.wide = w.wide ? w.wide : w.cols;
    w.left += first;
    w.cols = cols;
    return w;
}

void gemm_rows(const struct num *num, float *dst, struct mat w, size_t row, size_t rows)
{
    convert_rows(num_kernels(num), dst, w.cols, w, row, rows, 0, w.cols);
}

int gemm_quantize(struct num *num, uint32_t *words, float *scale, float *bias, struct mat w, size_t row,
                  size_t rows, size_t bits, size_t group)
{
    const size_t across = quant_words(bits, w.cols), groups = quant_groups(group, w.cols);
    int failed = 0;
    if (w.cols > num_lane(num, 0).floats)
        return -EOVERFLOW;
#pragma omp parallel for schedule(static) reduction(min                                                      \
                                                    : failed)                                                \
    num_threads(num_threads(num)) if (num_threads(num) > 1)
    for (size_t r = 0; r < rows; r++) {
        float *x = num_lane(num, omp_get_thread_num()).data;
        gemm_rows(num, x, w, row + r, 1);
        const int e =
            quant_row(words + r * across, scale + r * groups, bias + r * groups, x, w.cols, bits, group);
        failed = e < failed ? e : failed;
    }
    return failed;
}

static float *convert_panel(struct num *num, struct mat w, struct panel p)
{
    float *dst = num_converted(num, omp_get_thread_num()).data;
    convert_rows(num_kernels(num), dst, p.cols, w, p.row, p.rows, p.col, p.cols);
    return dst;
}

/* Steps to the next panel within `all`; start from {0}. Panels go along the rows, all columns at
 * once unless W is very wide. How many rows one has depends on W alone, for sums over rows begin
 * anew with each. */
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
    const size_t all_cols = w.wide ? w.wide : w.cols, wide = all_cols < PANEL_COLS ? all_cols : PANEL_COLS;
    const size_t right = all.col + all.cols, below = all.row + all.rows;
    size_t rows = num_converted(num, 0).floats / wide;
    rows = rows > 16 ? rows / 16 * 16 : rows;
    p->cols = right - p->col < wide ? right - p->col : wide;
    p->rows = below - p->row < rows ? below - p->row : rows;
    return true;
}

/* Each thread has rows of W, which are columns of y. bf16: W is rounded to it. */
static void converted_xwt(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate,
                          bool bf16)
{
    const size_t parts = parts_of(num, n * w.rows * w.cols);
#pragma omp parallel for schedule(static) num_threads((int)parts) if (parts > 1)
    for (size_t i = 0; i < parts; i++) {
        const struct share s = share_of(w.rows, SHARE, parts, i);
        const struct panel own = {.row = s.from, .rows = s.n, .cols = w.cols};
        for (struct panel p = {0}; next_panel(num, w, own, &p);) {
            float *panel = convert_panel(num, w, p);
            if (bf16)
                convert_round(panel, panel, p.rows * p.cols);
            sgemm(&(struct blas_product){CblasNoTrans, CblasTrans, n, p.rows, p.cols, 1, x + p.col, w.cols,
                                         panel, p.cols, accumulate || p.col > 0, y + p.row, w.rows});
        }
    }
}

/* y[n, out] = x[n, in] with W, for OpenBLAS: as many rows of x at a time as the panel holds; of
 * rows that it does not, W alone is rounded. */
static void rounded(struct num *num, float *y, size_t out, const float *x, size_t in, struct mat w, size_t n,
                    bool accumulate,
                    void (*multiply)(struct num *, float *, const float *, struct mat, size_t, bool, bool))
{
    const struct scratch panel = num_panel(num);
    const size_t most = panel.floats / in;
    if (!most)
        multiply(num, y, x, w, n, accumulate, true);
    for (size_t i = 0, now; most && i < n; i += now) {
        now = n - i < most ? n - i : most;
        convert_round(panel.data, x + i * in, now * in);
        multiply(num, y + i * out, panel.data, w, now, accumulate, true);
    }
}

/* What products with W are made of where there are many rows. */
static enum product_form form_of(const struct num *num, struct mat w)
{
    const enum num_compute compute = w.exact ? NUM_F32 : num_compute(num);
    return compute == NUM_BF16 ? PRODUCT_BF16 : compute == NUM_BYTES ? PRODUCT_BYTES : PRODUCT_F32;
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
    if (few_applies(num, &few)) {
        few_each(num, &few, 1);
        return;
    }
    if (num_is_invariant(num)) {
        few_in_turn(num, &few);
        return;
    }
    if (bytes_applies(num, w, n)) {
        bytes_run(num, y, x, w, n, accumulate);
        return;
    }
    const enum product_form form = form_of(num, w);
    if (product_is_ours(num) || form == PRODUCT_BYTES)
        product_run(num,
                    &(struct product){.c = y,
                                      .ldc = w.rows,
                                      .m = n,
                                      .n = w.rows,
                                      .accumulate = accumulate,
                                      .terms = 1,
                                      .term = {{.a = x, .lda = w.cols, .b = w, .k = w.cols, .factor = 1}},
                                      .form = form});
    else if (form == PRODUCT_BF16)
        rounded(num, y, w.rows, x, w.cols, w, n, accumulate, converted_xwt);
    else if (convert_is_plain(w))
        sgemm_shared(num, &(struct blas_product){CblasNoTrans, CblasTrans, n, w.rows, w.cols, 1, x, w.cols,
                                                 w.data, w.cols, accumulate, y, w.rows});
    else
        converted_xwt(num, y, x, w, n, accumulate, false);
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

/* Each thread has columns of W and of dx. bf16: W is rounded to it. */
static void converted_xw(struct num *num, float *dx, const float *dy, struct mat w, size_t n, bool accumulate,
                         bool bf16)
{
    const size_t parts = parts_of(num, n * w.rows * w.cols),
                 step = convert_step(w) > SHARE ? convert_step(w) : SHARE;
#pragma omp parallel for schedule(static) num_threads((int)parts) if (parts > 1)
    for (size_t i = 0; i < parts; i++) {
        const struct share s = share_of(w.cols, step, parts, i);
        if (!s.n)
            continue;
        const struct panel own = {.rows = w.rows, .col = s.from, .cols = s.n};
        for (struct panel p = {0}; next_panel(num, w, own, &p);) {
            float *panel = convert_panel(num, w, p);
            if (bf16)
                convert_round(panel, panel, p.rows * p.cols);
            sgemm(&(struct blas_product){CblasNoTrans, CblasNoTrans, n, p.cols, p.rows, 1, dy + p.row, w.rows,
                                         panel, p.cols, accumulate || p.row > 0, dx + p.col, w.cols});
        }
    }
}

/* One term of dx = dy · W, and what its rows are rounded by. */
static struct product product_xw(const struct num *num, float *dx, const float *dy, struct mat w, size_t n,
                                 bool accumulate, uint32_t noise[2])
{
    const enum product_form form = form_of(num, w);
    const bool is_drawn = form == PRODUCT_BYTES && num_noise(num, w.stream, noise);
    return (struct product){
        .c = dx,
        .ldc = w.cols,
        .m = n,
        .n = w.cols,
        .accumulate = accumulate,
        .terms = 1,
        .term = {{.a = dy, .lda = w.rows, .b_by_k = true, .b = w, .k = w.rows, .factor = 1}},
        .form = form,
        .noise = is_drawn ? noise : NULL,
    };
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
    uint32_t noise[2];
    const struct product p = product_xw(num, dx, dy, w, n, accumulate, noise);
    if (product_is_ours(num) || p.form == PRODUCT_BYTES)
        product_run(num, &p);
    else if (p.form == PRODUCT_BF16)
        rounded(num, dx, w.cols, dy, w.rows, w, n, accumulate, converted_xw);
    else if (convert_is_plain(w))
        sgemm_shared(num, &(struct blas_product){CblasNoTrans, CblasNoTrans, n, w.cols, w.rows, 1, dy, w.rows,
                                                 w.data, w.cols, accumulate, dx, w.cols});
    else
        converted_xw(num, dx, dy, w, n, accumulate, false);
}

void gemm_dw(struct num *num, float *dw, const float *dy, const float *x, size_t n, size_t rows, size_t cols,
             float alpha)
{
    if (n == 0 || rows == 0 || cols == 0)
        return;
    const struct mat in = {.data = x, .dtype = DTYPE_F32, .rows = n, .cols = cols};
    if (thin_applies(num, rows, cols))
        thin_dw(num, dw, dy, x, n, rows, cols, alpha);
    else if (product_is_ours(num))
        product_run(num, &(struct product){.c = dw,
                                           .ldc = cols,
                                           .m = rows,
                                           .n = cols,
                                           .accumulate = true,
                                           .terms = 1,
                                           .term = {{dy, rows, true, true, in, n, alpha}}});
    else
        sgemm_shared(num, &(struct blas_product){CblasTrans, CblasNoTrans, rows, cols, n, alpha, dy, rows, x,
                                                 cols, 1, dw, cols});
}

/* --- two in one ------------------------------------------------------------------------------- */

bool gemm_is_joined(const struct num *num, struct mat w, size_t n)
{
    return product_is_joined(num, form_of(num, w)) && !num_is_invariant(num) && n && w.rows && w.cols &&
           !few_applies(num, &(struct gemm_xwt){.w = w, .n = n}) && !bytes_applies(num, w, n);
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
                    .form = form_of(num, w),
                });
}

void gemm_xw_joined(struct num *num, float *dx, const float *dy, struct mat w,
                    const struct gemm_second *second, size_t n, bool accumulate)
{
    const struct mat b = second->w;
    uint32_t noise[2];
    struct product p = product_xw(num, dx, dy, w, n, accumulate, noise);
    p.terms = 2;
    p.term[1] = (struct product_term){second->x, b.rows, false, true, b, b.rows, second->factor};
    product_run(num, &p);
}
