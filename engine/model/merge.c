/* SPDX-License-Identifier: MIT
 *
 * Merging an adapter into its model, shard by shard and tensor by tensor. */
#include "model/merge.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/input.h"
#include "file/st.h"
#include "model/adapter.h"
#include "model/merge_dir.h"

enum { PIECE = 1 << 14, SCALE_BLOCK = 128, NAME = 32 };
#define F16_OVERFLOW 65520.0f /* rounds to infinity from here on */

/* What the adapter adds to one weight. */
struct pair {
    char tensor[TENSOR_NAME + 32];
    struct param_def a, b;
};

struct merge {
    const struct merge_request *req;
    struct config config;
    const struct family *family;
    struct tune tune;
    struct adapter_in *in; /* owned */
    struct st *st;         /* owned */
    struct merge_dir *dir; /* owned */
    struct pair *pairs;    /* owned; sorted by tensor */
    size_t npairs, nshards;
    struct merge_result result;
    struct err *err;
};

/* --- what there is to do ---------------------------------------------------------------------- */

static int pair_one(void *arg, const struct param_def *def)
{
    struct merge *m = arg;
    if (def->role == PARAM_B) {
        m->pairs[m->npairs++].b = *def;
        return 0;
    }
    struct pair *p = &m->pairs[m->npairs];
    p->a = *def;
    snprintf(p->tensor, sizeof p->tensor, "%.*s.weight", (int)(strstr(def->name, ".lora_A") - def->name),
             def->name);
    return 0;
}

static int by_tensor(const void *a, const void *b)
{
    return strcmp(((const struct pair *)a)->tensor, ((const struct pair *)b)->tensor);
}

static int list_pairs(struct merge *m)
{
    size_t n = 0;
    for (size_t u = 0; u < m->config.layers + 2; u++)
        n += tune_param_count(&m->tune, m->family, &m->config, u);
    if (!(m->pairs = calloc(n / 2 + 1, sizeof *m->pairs)))
        return err_set(m->err, -ENOMEM, "out of memory");
    for (size_t u = 0; u < m->config.layers + 2; u++)
        tune_params(&m->tune, m->family, &m->config, u, pair_one, m);
    qsort(m->pairs, m->npairs, sizeof *m->pairs, by_tensor);
    for (size_t i = 0; i < m->npairs; i++) {
        const struct pair *p = &m->pairs[i];
        const struct st_tensor *t = st_find(m->st, p->tensor);
        if (!t)
            return err_set(m->err, -EINVAL, "%s lacks %s, which the adapter changes", m->req->model,
                           p->tensor);
        if (t->ndim != 2 || t->shape[0] != p->b.rows || t->shape[1] != p->a.cols)
            return err_set(m->err, -EINVAL, "%s: %s has not the shape config.json says", m->req->model,
                           p->tensor);
    }
    return 0;
}

static const struct pair *pair_of(const struct merge *m, const struct st_tensor *t)
{
    struct pair key = {0};
    snprintf(key.tensor, sizeof key.tensor, "%s", t->name);
    return m->npairs ? bsearch(&key, m->pairs, m->npairs, sizeof key, by_tensor) : NULL;
}

/* The scales of an FP8 matrix, which is written without them. */
static const struct st_tensor *scales_of(const struct merge *m, const struct st_tensor *t)
{
    char name[512];
    snprintf(name, sizeof name, "%s_scale_inv", t->name);
    return t->dtype == DTYPE_F8_E4M3 ? st_find(m->st, name) : NULL;
}

static bool is_scales(const struct merge *m, const struct st_tensor *t)
{
    static const char suffix[] = "_scale_inv";
    const size_t n = strlen(t->name), cut = sizeof suffix - 1;
    char name[512];
    if (n <= cut || strcmp(t->name + n - cut, suffix))
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(n - cut), t->name);
    const struct st_tensor *of = st_find(m->st, name);
    return of && of->dtype == DTYPE_F8_E4M3;
}

/* What balances a router stays f32, as everywhere. */
static enum dtype written_as(const struct merge *m, const struct st_tensor *t)
{
    if (strstr(t->name, "e_score_correction_bias"))
        return t->dtype;
    if (m->req->dtype != DTYPE_COUNT)
        return m->req->dtype;
    if (t->block)
        return m->config.dtype;
    return t->dtype == DTYPE_F8_E4M3 ? DTYPE_BF16 : t->dtype;
}

static int check_tensors(struct merge *m)
{
    for (size_t i = 0; i < st_count(m->st); i++) {
        const struct st_tensor *t = st_at(m->st, i), *s = scales_of(m, t);
        m->nshards = t->file >= m->nshards ? t->file + 1 : m->nshards;
        if (t->dtype == DTYPE_COUNT && !t->block)
            return err_set(m->err, -ENOTSUP, "%s: %s is stored as %s, which cannot be written here",
                           m->req->model, input_quote(t->name).text, t->dtype_name);
        if (t->dtype == DTYPE_F8_E4M3 && (t->ndim != 2 || !s || s->ndim != 2 || s->dtype >= DTYPE_F8_E4M3 ||
                                          s->shape[0] != (t->shape[0] + SCALE_BLOCK - 1) / SCALE_BLOCK ||
                                          s->shape[1] != (t->shape[1] + SCALE_BLOCK - 1) / SCALE_BLOCK))
            return err_set(m->err, -EINVAL,
                           "%s: %s is FP8 and has no scale for each block of 128 × 128 beside it",
                           m->req->model, input_quote(t->name).text);
    }
    return 0;
}

/* --- one tensor ------------------------------------------------------------------------------- */

struct merge_work {
    float *a, *b, *scales; /* owned; NULL without an adapter on it, or where it is not FP8 */
    float *row;            /* owned: [cols] */
    double *sum;           /* owned: [cols] */
};

static void work_done(struct merge_work *w)
{
    free(w->a);
    free(w->b);
    free(w->scales);
    free(w->row);
    free(w->sum);
}

/* What lies together: a row, or an element of a vector. */
static size_t cols_of(const struct st_tensor *t)
{
    return t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
}

static int work_init(struct merge_work *w, const struct merge *m, const struct st_tensor *t,
                     const struct pair *p)
{
    const struct st_tensor *s = scales_of(m, t);
    const size_t cols = cols_of(t);
    w->row = calloc(cols + 1, sizeof *w->row);
    w->sum = calloc(cols + 1, sizeof *w->sum);
    w->a = p ? calloc(param_elements(&p->a) + 1, sizeof *w->a) : NULL;
    w->b = p ? calloc(param_elements(&p->b) + 1, sizeof *w->b) : NULL;
    w->scales = s ? calloc(s->elements + 1, sizeof *w->scales) : NULL;
    if (!w->row || !w->sum || (p && (!w->a || !w->b)) || (s && !w->scales))
        return err_set(m->err, -ENOMEM, "no memory for a row of %s", input_quote(t->name).text);
    if (p) {
        adapter_in_param(m->in, &p->a, w->a);
        adapter_in_param(m->in, &p->b, w->b);
    }
    if (s)
        dtype_to_f32(w->scales, s->data, s->dtype, s->elements);
    return 0;
}

static void merge_row(struct merge_work *w, const struct st_tensor *t, const struct pair *p, double scale,
                      size_t row)
{
    const size_t cols = cols_of(t), rank = p ? p->a.rows : 0;
    st_row(t, row, cols, w->row);
    for (size_t c = 0; w->scales && c < cols; c++)
        w->row[c] *=
            w->scales[row / SCALE_BLOCK * ((cols + SCALE_BLOCK - 1) / SCALE_BLOCK) + c / SCALE_BLOCK];
    if (!p)
        return;
    memset(w->sum, 0, cols * sizeof *w->sum);
    for (size_t k = 0; k < rank; k++) {
        const double b = scale * (double)w->b[row * rank + k];
        const float *a = w->a + k * cols;
        for (size_t c = 0; c < cols; c++)
            w->sum[c] += b * (double)a[c];
    }
    for (size_t c = 0; c < cols; c++)
        w->row[c] = (float)((double)w->row[c] + w->sum[c]);
}

static int append(struct merge *m, struct st_writer *w, const struct st_tensor *t, const float *x, size_t n)
{
    for (size_t i = 0; written_as(m, t) == DTYPE_F16 && i < n; i++)
        if (fabsf(x[i]) >= F16_OVERFLOW && !isinf(x[i]))
            return err_set(m->err, -ERANGE, "%s: %s has a value of %g, too large for f16: use --dtype bf16",
                           m->req->model, input_quote(t->name).text, (double)x[i]);
    return st_writer_append(w, t->name, x, n, m->err);
}

static int put_plain(struct merge *m, struct st_writer *w, const struct st_tensor *t)
{
    float piece[PIECE];
    int r = 0;
    for (size_t at = 0; at < t->elements && !r; at += PIECE) {
        const size_t n = t->elements - at < PIECE ? t->elements - at : PIECE;
        dtype_to_f32(piece, (const char *)t->data + at * dtype_size(t->dtype), t->dtype, n);
        r = append(m, w, t, piece, n);
    }
    return r;
}

static int put_rows(struct merge *m, struct st_writer *out, const struct st_tensor *t, const struct pair *p)
{
    struct merge_work w = {.a = NULL};
    int r = work_init(&w, m, t, p);
    for (size_t row = 0; row < t->shape[0] && !r; row++) {
        merge_row(&w, t, p, p ? p->a.scale : 0, row);
        r = append(m, out, t, w.row, cols_of(t));
    }
    work_done(&w);
    m->result.linears += p && !r;
    return r;
}

static int put_tensor(struct merge *m, struct st_writer *w, const struct st_tensor *t)
{
    const struct pair *p = pair_of(m, t);
    if (m->req->stop && m->req->stop(m->req->arg))
        return err_set(m->err, -ECANCELED, "interrupted: the unfinished result was removed");
    int r = p || t->dtype == DTYPE_F8_E4M3 || t->block || t->turn ? put_rows(m, w, t, p) : put_plain(m, w, t);
    st_dontneed(m->st, t); /* what is done would count as ours until the end */
    return r;
}

/* --- shards ----------------------------------------------------------------------------------- */

static int put_shard(struct merge *m, size_t shard)
{
    char file[64], path[4096];
    const size_t all = st_count(m->st);
    struct st_out_tensor *list = calloc(all + 1, sizeof *list);
    struct st_writer *w = NULL;
    size_t n = 0;
    if (!list)
        return err_set(m->err, -ENOMEM, "out of memory");
    snprintf(file, sizeof file, m->nshards == 1 ? "model.safetensors" : "model-%05zu-of-%05zu.safetensors",
             shard + 1, m->nshards);
    int r = merge_dir_path(m->dir, file, path, m->err);
    for (size_t i = 0; i < all && !r; i++) {
        const struct st_tensor *t = st_at(m->st, i);
        if (t->file != shard || is_scales(m, t))
            continue;
        list[n] = (struct st_out_tensor){.name = t->name, .dtype = written_as(m, t), .ndim = t->ndim};
        memcpy(list[n].shape, t->shape, sizeof t->shape);
        m->result.bytes += t->elements * dtype_size(list[n].dtype);
        r = merge_dir_list(m->dir, t->name, file, t->elements * dtype_size(list[n++].dtype), m->err);
    }
    if (!r)
        r = st_writer_open(&w, path, list, n, m->err);
    for (size_t i = 0; i < n && !r; i++)
        r = put_tensor(m, w, st_find(m->st, list[i].name));
    if (r)
        st_writer_abort(w);
    else
        r = st_writer_finish(w, m->err);
    free(list);
    m->result.files += !r;
    return r;
}

static int open_all(struct merge *m)
{
    const struct merge_request *q = m->req;
    int r = config_read(&m->config, q->model, m->err);
    if (r)
        return r;
    if (m->config.quant_bits)
        return err_set(m->err, -ENOTSUP,
                       "%s is stored in %zu bits, which would round the adapter's changes away: merge into "
                       "the model it was quantized from",
                       q->model, m->config.quant_bits);
    if (m->config.mla.kv_b_parts)
        return err_set(m->err, -ENOTSUP,
                       "%s holds kv_b_proj in two parts, which are not put together in files: merge into the "
                       "safetensors model that it was made from",
                       q->model);
    if (!(m->family = family_find(m->config.family)))
        return err_set(m->err, -ENOTSUP, "%s: models of the family \"%s\" are not supported", q->model,
                       m->config.family);
    m->tune.end_layer = m->config.layers;
    r = adapter_read_config(&m->tune, q->adapter, m->family, &m->config, m->err);
    if (!r)
        r = adapter_in_open(&m->in, q->adapter, &m->tune, m->family, &m->config, m->err);
    if (!r)
        r = st_open_dir(&m->st, q->model, NULL, NULL, m->err);
    if (!r)
        r = check_tensors(m);
    return r ? r : list_pairs(m);
}

int merge_run(const struct merge_request *req, struct merge_result *ret, struct err *err)
{
    struct merge m = {.req = req, .err = err};
    int r = open_all(&m);
    /* A type of its own: what config.json says no longer holds. */
    const enum dtype named = req->dtype != DTYPE_COUNT ? req->dtype
                             : m.config.mixed          ? m.config.dtype
                             : m.config.fp8            ? DTYPE_BF16
                                                       : DTYPE_COUNT;
    if (!r)
        r = merge_dir_open(&m.dir, req->out, err);
    for (size_t s = 0; s < m.nshards && !r; s++)
        r = put_shard(&m, s);
    if (!r)
        r = merge_dir_copy(m.dir, req->model, named, err);
    if (!r)
        r = merge_dir_finish(m.dir, m.nshards > 1, err);
    if (!r)
        *ret = m.result;
    merge_dir_free(m.dir);
    free(m.pairs);
    st_close(m.st);
    adapter_in_close(m.in);
    return r;
}
