/* SPDX-License-Identifier: MIT
 *
 * Merging an adapter into its model: what is added to each row, while rewrite.c writes the
 * model. */
#include "model/write/merge.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/adapter.h"

/* What the adapter adds to one weight. */
struct pair {
    char tensor[TENSOR_NAME + 32];
    struct param_def a, b, m; /* m: of DoRA, else without a name */
};

struct merge {
    const struct merge_request *req;
    struct config config;
    const struct family *family;
    struct tune tune;
    struct adapter_in *in; /* owned */
    struct pair *pairs;    /* owned; sorted by tensor */
    size_t npairs;
    /* Of the weight that is changed: */
    const struct pair *pair; /* borrowed: pairs */
    float *a, *b, *m;        /* owned: its factors and magnitudes */
    double *sum;             /* owned: [cols] */
    struct err *err;
};

/* --- what there is to do ---------------------------------------------------------------------- */

static int pair_one(void *arg, const struct param_def *def)
{
    struct merge *m = arg;
    if (def->role != PARAM_A) {
        struct pair *last = &m->pairs[m->npairs - 1];
        *(def->role == PARAM_B ? &last->b : &last->m) = *def;
        return 0;
    }
    struct pair *p = &m->pairs[m->npairs++];
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
    return 0;
}

static const struct pair *pair_of(const struct merge *m, const struct tensor_def *def)
{
    struct pair key = {0};
    snprintf(key.tensor, sizeof key.tensor, "%s", def->name);
    return m->npairs ? bsearch(&key, m->pairs, m->npairs, sizeof key, by_tensor) : NULL;
}

/* --- one weight ------------------------------------------------------------------------------- */

static void end(void *owner)
{
    struct merge *m = owner;
    free(m->a);
    free(m->b);
    free(m->m);
    free(m->sum);
    m->a = m->b = m->m = NULL;
    m->sum = NULL;
}

static int begin(void *owner, const struct tensor_def *def, struct err *err)
{
    struct merge *m = owner;
    const struct pair *p = m->pair = pair_of(m, def);
    if (!p)
        return 0;
    m->a = calloc(param_elements(&p->a) + 1, sizeof *m->a);
    m->b = calloc(param_elements(&p->b) + 1, sizeof *m->b);
    m->m = calloc(param_elements(&p->m) + 1, sizeof *m->m);
    m->sum = calloc(p->a.cols + 1, sizeof *m->sum);
    if (!m->a || !m->b || !m->m || !m->sum) {
        end(m);
        return err_set(err, -ENOMEM, "no memory for what is added to %s", p->tensor);
    }
    adapter_in_param(m->in, &p->a, m->a);
    adapter_in_param(m->in, &p->b, m->b);
    if (*p->m.name)
        adapter_in_param(m->in, &p->m, m->m);
    return 1;
}

/* Of DoRA the row keeps its direction alone (layer/dora.h). */
static double gain_of(const struct merge *m, size_t row)
{
    double square = 0;
    if (!*m->pair->m.name)
        return 1;
    for (size_t c = 0; c < m->pair->a.cols; c++)
        square += m->sum[c] * m->sum[c];
    return square > 0 ? (double)m->m[row] / sqrt(square) : 0;
}

static void change_row(void *owner, size_t row, float *x)
{
    const struct merge *m = owner;
    const struct pair *p = m->pair;
    const size_t cols = p->a.cols, rank = p->a.rows;
    memset(m->sum, 0, cols * sizeof *m->sum);
    for (size_t k = 0; k < rank; k++) {
        const double b = p->a.scale * (double)m->b[row * rank + k];
        const float *a = m->a + k * cols;
        for (size_t c = 0; c < cols; c++)
            m->sum[c] += b * (double)a[c];
    }
    for (size_t c = 0; c < cols; c++)
        m->sum[c] += (double)x[c];
    const double gain = gain_of(m, row);
    for (size_t c = 0; c < cols; c++)
        x[c] = (float)(gain * m->sum[c]);
}

/* --- all of them ------------------------------------------------------------------------------ */

static int open_all(struct merge *m)
{
    const struct merge_request *q = m->req;
    int r = config_read(&m->config, q->model, m->err);
    if (r)
        return r;
    if (m->config.quant_bits)
        return err_set(m->err, -ENOTSUP,
                       "%s is stored in %zu bits, which would round the adapter's changes away: merge into "
                       "the model it was quantized from, or into what `ringctl convert` makes of this one",
                       q->model, m->config.quant_bits);
    if (!(m->family = family_find(m->config.family)))
        return err_set(m->err, -ENOTSUP, "%s: models of the family \"%s\" are not supported", q->model,
                       m->config.family);
    m->tune.end_layer = m->config.layers;
    r = adapter_read_config(&m->tune, q->adapter, m->family, &m->config, m->err);
    if (!r)
        r = adapter_in_open(&m->in, q->adapter, &m->tune, m->family, &m->config, m->err);
    return r ? r : list_pairs(m);
}

int merge_run(const struct merge_request *req, struct rewrite_result *ret, struct err *err)
{
    struct merge m = {.req = req, .err = err};
    int r = open_all(&m);
    const struct rewrite_change change = {&m, begin, change_row, end};
    const struct rewrite_how how = {.model = req->model,
                                    .out = req->out,
                                    .config = &m.config,
                                    .family = m.family,
                                    .change = &change,
                                    .dtype = req->dtype,
                                    .stop = req->stop,
                                    .arg = req->arg};
    if (!r)
        r = rewrite_run(&how, ret, err);
    free(m.pairs);
    adapter_in_close(m.in);
    return r;
}
