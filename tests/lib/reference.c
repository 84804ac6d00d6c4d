/* SPDX-License-Identifier: MIT */
#include "tests/lib/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "file/st.h"
#include "tests/lib/near.h"

enum { BLOCK = 128 };

struct model {
    const struct config *c;
    struct st *st;
    size_t layer, n; /* n: tokens */
    double *inv_freq;
};

static double *array(size_t n)
{
    double *x = calloc(n ? n : 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* --- stored numbers --------------------------------------------------------------------------- */

/* Sign, exponent and fraction of a small float with `frac` fraction bits and this bias; no
 * infinities. */
static double small_float(unsigned bits, int exp_bits, int frac, int bias)
{
    const unsigned f = bits & ((1u << frac) - 1), e = bits >> frac & ((1u << exp_bits) - 1);
    const double sign = bits >> (exp_bits + frac) & 1 ? -1 : 1;
    return sign * (e ? ldexp(1 + ldexp(f, -frac), (int)e - bias) : ldexp(f, 1 - bias - frac));
}

static double stored(const struct st_tensor *t, size_t i)
{
    const unsigned char *p = t->data;
    float f;
    if (!strcmp(t->dtype_name, "F8_E4M3"))
        return small_float(p[i], 4, 3, 7);
    if (!strcmp(t->dtype_name, "F16"))
        return small_float(p[2 * i] | (unsigned)p[2 * i + 1] << 8, 5, 10, 15);
    if (!strcmp(t->dtype_name, "BF16"))
        return small_float(p[2 * i] | (unsigned)p[2 * i + 1] << 8, 8, 7, 127);
    memcpy(&f, p + 4 * i, sizeof f);
    return (double)f;
}

static const struct st_tensor *find(const struct model *m, const char *name)
{
    const struct st_tensor *t = st_find(m->st, name);
    if (!t)
        fail_msg("%s is not stored", name);
    return t;
}

static double *load_whole(const struct model *m, const char *name)
{
    const struct st_tensor *t = find(m, name);
    double *x = array(t->elements);
    for (size_t i = 0; i < t->elements; i++)
        x[i] = stored(t, i);
    if (!strcmp(t->dtype_name, "F8_E4M3")) {
        char scale_name[128];
        snprintf(scale_name, sizeof scale_name, "%s_scale_inv", name);
        const struct st_tensor *s = find(m, scale_name);
        const size_t cols = t->shape[1], across = (cols + BLOCK - 1) / BLOCK;
        for (size_t i = 0; i < t->elements; i++)
            x[i] *= stored(s, i / cols / BLOCK * across + i % cols / BLOCK);
    }
    return x;
}

/* A tensor of the layer. */
static double *load(const struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static double *load(const struct model *m, const char *fmt, ...)
{
    char name[128];
    int n = snprintf(name, sizeof name, "model.layers.%zu.", m->layer);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name + n, sizeof name - (size_t)n, fmt, ap);
    va_end(ap);
    return load_whole(m, name);
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* y [n, rows] = x [n, cols] · Wᵀ of the layer's tensor STEM.weight, + STEM.bias where wanted */
static double *product(const struct model *m, const double *x, size_t n, const char *stem, bool bias,
                       size_t rows, size_t cols)
{
    double *w = load(m, "%s.weight", stem), *b = bias ? load(m, "%s.bias", stem) : array(rows);
    double *y = array(n * rows);
    for (size_t t = 0; t < n; t++)
        for (size_t r = 0; r < rows; r++) {
            y[t * rows + r] = b[r];
            for (size_t i = 0; i < cols; i++)
                y[t * rows + r] += x[t * cols + i] * w[r * cols + i];
        }
    free(w);
    free(b);
    return y;
}

static void norm(double *y, size_t y_stride, const double *x, size_t x_stride, const double *w, size_t rows,
                 size_t dim, double eps)
{
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t i = 0; i < dim; i++)
            sum += x[r * x_stride + i] * x[r * x_stride + i];
        for (size_t i = 0; i < dim; i++)
            y[r * y_stride + i] = x[r * x_stride + i] / sqrt(sum / (double)dim + eps) * w[i];
    }
}

static void rotate(const struct model *m, double *x, size_t position)
{
    const size_t width = config_rope_width(m->c), half = width / 2;
    for (size_t i = 0; i < half; i++) {
        double *a = m->c->rope_pairs ? &x[2 * i] : &x[i],
               *b = m->c->rope_pairs ? &x[2 * i + 1] : &x[i + half];
        const double angle = (double)position * m->inv_freq[i], scale = config_rope_scale(m->c);
        const double was = *a;
        *a = scale * (was * cos(angle) - *b * sin(angle));
        *b = scale * (*b * cos(angle) + was * sin(angle));
    }
}

/* o [n, heads·value]; head h reads key and value h·kv_heads/heads. */
static double *attend(const struct model *m, const double *q, const double *k, const double *v, size_t value)
{
    const struct config *c = m->c;
    double *o = array(m->n * c->heads * value), *p = array(m->n);
    for (size_t t = 0; t < m->n; t++)
        for (size_t h = 0; h < c->heads; h++) {
            const size_t kv = h * c->kv_heads / c->heads;
            double sum = 0;
            for (size_t s = 0; s <= t; s++) {
                p[s] = 0;
                for (size_t i = 0; i < c->head; i++)
                    p[s] += q[(t * c->heads + h) * c->head + i] * k[(s * c->kv_heads + kv) * c->head + i];
                sum += p[s] = exp(p[s] * config_attn_scale(c));
            }
            for (size_t s = 0; s <= t; s++)
                for (size_t i = 0; i < value; i++)
                    o[(t * c->heads + h) * value + i] += p[s] / sum * v[(s * c->kv_heads + kv) * value + i];
        }
    free(p);
    return o;
}

/* --- attention -------------------------------------------------------------------------------- */

static void norm_heads(const struct model *m, double *x, const char *stem, size_t heads)
{
    const size_t head = m->c->head;
    double *w = load(m, "%s.weight", stem);
    norm(x, head, x, head, w, m->n * heads, head, (double)m->c->norm_eps);
    free(w);
}

static double *grouped_query(const struct model *m, const double *h)
{
    const struct config *c = m->c;
    const size_t nq = c->heads * c->head, nkv = c->kv_heads * c->head;
    double *q = product(m, h, m->n, "self_attn.q_proj", c->attn_bias, nq, c->dim);
    double *k = product(m, h, m->n, "self_attn.k_proj", c->attn_bias, nkv, c->dim);
    double *v = product(m, h, m->n, "self_attn.v_proj", c->attn_bias, nkv, c->dim);
    if (c->qk_norm) {
        norm_heads(m, q, "self_attn.q_norm", c->heads);
        norm_heads(m, k, "self_attn.k_norm", c->kv_heads);
    }
    for (size_t i = 0; i < m->n * c->heads; i++)
        rotate(m, q + i * c->head, i / c->heads);
    for (size_t i = 0; i < m->n * c->kv_heads; i++)
        rotate(m, k + i * c->head, i / c->kv_heads);
    double *o = attend(m, q, k, v, c->head);
    double *y = product(m, o, m->n, "self_attn.o_proj", c->attn_out_bias, c->dim, nq);
    free(q), free(k), free(v), free(o);
    return y;
}

static double *latent_queries(const struct model *m, const double *h)
{
    const struct config *c = m->c;
    const size_t nq = c->heads * c->head, rank = c->mla.q_rank;
    if (!rank)
        return product(m, h, m->n, "self_attn.q_proj", false, nq, c->dim);
    double *a = product(m, h, m->n, "self_attn.q_a_proj", false, rank, c->dim);
    double *w = load(m, "self_attn.q_a_layernorm.weight");
    norm(a, rank, a, rank, w, m->n, rank, 1e-6);
    double *q = product(m, a, m->n, "self_attn.q_b_proj", false, nq, rank);
    free(a), free(w);
    return q;
}

static double *latent(const struct model *m, const double *h)
{
    const struct config *c = m->c;
    const struct config_mla *d = &c->mla;
    const size_t wide = d->kv_rank + d->rope, both = d->nope + d->value, rows = m->n * c->heads;
    double *q = latent_queries(m, h), *latents = array(m->n * d->kv_rank);
    double *a = product(m, h, m->n, "self_attn.kv_a_proj_with_mqa", false, wide, c->dim);
    double *w = load(m, "self_attn.kv_a_layernorm.weight");
    norm(latents, d->kv_rank, a, wide, w, m->n, d->kv_rank, 1e-6);
    double *kv = product(m, latents, m->n, "self_attn.kv_b_proj", false, c->heads * both, d->kv_rank);
    double *k = array(rows * c->head), *v = array(rows * d->value);
    for (size_t i = 0; i < rows; i++) {
        rotate(m, q + i * c->head + d->nope, i / c->heads);
        memcpy(k + i * c->head, kv + i * both, d->nope * sizeof *k);
        memcpy(k + i * c->head + d->nope, a + i / c->heads * wide + d->kv_rank, d->rope * sizeof *k);
        rotate(m, k + i * c->head + d->nope, i / c->heads);
        memcpy(v + i * d->value, kv + i * both + d->nope, d->value * sizeof *v);
    }
    double *o = attend(m, q, k, v, d->value);
    double *y = product(m, o, m->n, "self_attn.o_proj", false, c->dim, c->heads * d->value);
    free(q), free(latents), free(a), free(w), free(kv), free(k), free(v), free(o);
    return y;
}

/* --- mlp -------------------------------------------------------------------------------------- */

static double *gated(const struct model *m, const double *h, size_t n, const char *stem, size_t ffn)
{
    char name[64];
    snprintf(name, sizeof name, "%s.gate_proj", stem);
    double *g = product(m, h, n, name, m->c->mlp_bias, ffn, m->c->dim);
    snprintf(name, sizeof name, "%s.up_proj", stem);
    double *u = product(m, h, n, name, m->c->mlp_bias, ffn, m->c->dim);
    for (size_t i = 0; i < n * ffn; i++)
        g[i] = g[i] / (1 + exp(-g[i])) * u[i];
    snprintf(name, sizeof name, "%s.down_proj", stem);
    double *y = product(m, g, n, name, m->c->mlp_bias, m->c->dim, ffn);
    free(g), free(u);
    return y;
}

/* Index of the largest of x that is still open; closes it. */
static size_t take_best(const double *x, bool *open, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (open[i] && (best == n || x[i] > x[best]))
            best = i;
    open[best] = false;
    return best;
}

/* What a group counts: its best, or with a bias the sum of its best two. */
static double group_value(const struct config_moe *e, const double *x, size_t n)
{
    bool open[64];
    memset(open, true, sizeof open);
    const double best = x[take_best(x, open, n)];
    return e->bias ? best + x[take_best(x, open, n)] : best;
}

/* weight [experts] of one token, from its logits: 0 for those not chosen. */
static void route(const struct config_moe *e, double *weight, const double *logits, const double *bias)
{
    double score[64], biased[64], group[64], sum = 0;
    bool open[64], groups[64];
    const size_t each = e->experts / e->groups;
    for (size_t i = 0; i < e->experts; i++)
        sum += score[i] = e->sigmoid ? 1 / (1 + exp(-logits[i])) : exp(logits[i]);
    for (size_t i = 0; i < e->experts; i++) {
        score[i] /= e->sigmoid ? 1 : sum;
        biased[i] = score[i] + (bias ? bias[i] : 0);
        open[i] = false;
        weight[i] = 0;
    }
    memset(groups, true, sizeof groups);
    for (size_t g = 0; g < e->groups; g++)
        group[g] = group_value(e, biased + g * each, each);
    for (size_t k = 0; k < e->groups_chosen; k++)
        memset(open + each * take_best(group, groups, e->groups), true, each);
    sum = 0;
    for (size_t k = 0; k < e->chosen; k++) {
        const size_t at = take_best(biased, open, e->experts);
        sum += weight[at] = score[at];
    }
    for (size_t i = 0; i < e->experts; i++)
        weight[i] *= e->scale / (e->norm ? sum : 1);
}

static double *mixture(const struct model *m, const double *h)
{
    const struct config_moe *e = &m->c->moe;
    const size_t dim = m->c->dim;
    double *logits = product(m, h, m->n, "mlp.gate", false, e->experts, dim), *weight = array(e->experts);
    double *bias = e->bias ? load(m, "mlp.gate.e_score_correction_bias") : NULL;
    double *y = e->shared_ffn ? gated(m, h, m->n, "mlp.shared_experts", e->shared_ffn) : array(m->n * dim);
    for (size_t t = 0; t < m->n; t++) {
        route(e, weight, logits + t * e->experts, bias);
        for (size_t i = 0; i < e->experts; i++) {
            char stem[64];
            snprintf(stem, sizeof stem, "mlp.experts.%zu", i);
            double *out = weight[i] > 0 ? gated(m, h + t * dim, 1, stem, e->ffn) : array(dim);
            for (size_t j = 0; j < dim; j++)
                y[t * dim + j] += weight[i] * out[j];
            free(out);
        }
    }
    free(logits), free(weight), free(bias);
    return y;
}

/* --- a model ---------------------------------------------------------------------------------- */

static void half_block(struct model *m, double *x, const char *norm_name,
                       double *(*part)(const struct model *m, const double *h))
{
    const size_t dim = m->c->dim;
    double *w = load(m, "%s.weight", norm_name), *h = array(m->n * dim);
    norm(h, dim, x, dim, w, m->n, dim, (double)m->c->norm_eps);
    double *y = part(m, h);
    for (size_t i = 0; i < m->n * dim; i++)
        x[i] += y[i];
    free(w), free(h), free(y);
}

static double *dense(const struct model *m, const double *h)
{
    return gated(m, h, m->n, "mlp", m->c->ffn);
}

static double *head(struct model *m, double *x)
{
    const size_t dim = m->c->dim, vocab = m->c->vocab;
    double *w = load_whole(m, "model.norm.weight"), *y = array(m->n * vocab);
    double *out = load_whole(m, m->c->tied ? "model.embed_tokens.weight" : "lm_head.weight");
    norm(x, dim, x, dim, w, m->n, dim, (double)m->c->norm_eps);
    for (size_t t = 0; t < m->n; t++)
        for (size_t r = 0; r < vocab; r++)
            for (size_t i = 0; i < dim; i++)
                y[t * vocab + r] += x[t * dim + i] * out[r * dim + i];
    free(w), free(out);
    return y;
}

double *reference_logits(const char *model_dir, const struct config *c, const uint32_t *ids, size_t n)
{
    struct err err;
    struct model m = {.c = c, .n = n, .inv_freq = array(config_rope_width(c))};
    must(st_open_dir(&m.st, model_dir, NULL, NULL, &err), &err);
    config_inv_freq(c, m.inv_freq);
    double *table = load_whole(&m, "model.embed_tokens.weight"), *x = array(n * c->dim);
    for (size_t t = 0; t < n; t++)
        memcpy(x + t * c->dim, table + ids[t] * c->dim, c->dim * sizeof *x);
    for (m.layer = 0; m.layer < c->layers; m.layer++) {
        half_block(&m, x, "input_layernorm", c->mla.kv_rank ? latent : grouped_query);
        half_block(&m, x, "post_attention_layernorm", config_has_experts(c, m.layer) ? mixture : dense);
    }
    double *y = head(&m, x);
    free(table), free(x), free(m.inv_freq);
    st_close(m.st);
    return y;
}
