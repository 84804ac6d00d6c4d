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

void gemm_rows(const struct num *num, float *dst, struct mat w, size_t row, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        convert_row(num_kernels(num), dst + r * w.cols, w, row + r, 0, w.cols);
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
    for (size_t r = 0; r < p.rows; r++)
        convert_row(num_kernels(num), dst + r * p.cols, w, p.row + r, p.col, p.cols);
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
    const size_t wide = w.cols < PANEL_COLS ? w.cols : PANEL_COLS;
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

/* As many rows of x at a time as the panel holds; of rows that it does not, W alone is rounded. */
static void rounded_xwt(struct num *num, float *y, const float *x, struct mat w, size_t n, bool accumulate)
{
    const struct scratch panel = num_panel(num);
    const size_t most = panel.floats / w.cols;
    if (!most)
        converted_xwt(num, y, x, w, n, accumulate, true);
    for (size_t i = 0, now; most && i < n; i += now) {
        now = n - i < most ? n - i : most;
        convert_round(panel.data, x + i * w.cols, now * w.cols);
        converted_xwt(num, y + i * w.rows, panel.data, w, now, accumulate, true);
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
    const bool bf16 = num_compute(num) == NUM_BF16;
    if (product_is_ours(num))
        product_run(num, &(struct product){y,
                                           w.rows,
                                           n,
                                           w.rows,
                                           accumulate,
                                           1,
                                           {{.a = x, .lda = w.cols, .b = w, .k = w.cols, .factor = 1}},
                                           bf16});
    else if (bf16)
        rounded_xwt(num, y, x, w, n, accumulate);
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

/* Each thread has columns of W and of dx. */
static void converted_xw(struct num *num, float *dx, const float *dy, struct mat w, size_t n, bool accumulate)
{
    const size_t parts = parts_of(num, n * w.rows * w.cols),
                 step = convert_step(w) > SHARE ? convert_step(w) : SHARE;
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
                             {{.a = dy, .lda = w.rows, .b_by_k = true, .b = w, .k = w.rows, .factor = 1}},
                             false});
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
    if (thin_applies(num, rows, cols))
        thin_dw(num, dw, dy, x, n, rows, cols, alpha);
    else if (product_is_ours(num))
        product_run(num, &(struct product){
                             dw, cols, rows, cols, true, 1, {{dy, rows, true, true, in, n, alpha}}, false});
    else
        sgemm_shared(num, &(struct blas_product){CblasTrans, CblasNoTrans, rows, cols, n, alpha, dy, rows, x,
                                                 cols, 1, dw, cols});
}

/* --- two in one ------------------------------------------------------------------------------- */

bool gemm_is_joined(const struct num *num, struct mat w, size_t n)
{
    return product_is_ours(num) && num_compute(num) != NUM_BF16 && !num_is_invariant(num) && n && w.rows &&
           w.cols && !few_applies(num, &(struct gemm_xwt){.w = w, .n = n}) && !bytes_applies(num, w, n);
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
