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
#include "tests/lib/stored.h"

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

/* A tensor of the layer. */
static double *load(const struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static double *load(const struct model *m, const char *fmt, ...)
{
    char rest[96], name[160];
    const bool apart = m->c->is_ahead && m->c->extra_apart && m->layer + 1 == m->c->layers;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(rest, sizeof rest, fmt, ap);
    va_end(ap);
    if (!strncmp(rest, "mtp.", 4))
        snprintf(name, sizeof name, "%s", rest);
    else if (apart)
        snprintf(name, sizeof name, "mtp.layers.0.%s", rest);
    else
        snprintf(name, sizeof name, "model.layers.%zu.%s", m->layer, rest);
    return stored_numbers(m->st, name);
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

/* What a norm multiplies by, of n numbers; the caller frees w, which it also is. */
static double *norm_weight(const struct model *m, double *w, size_t n)
{
    for (size_t i = 0; m->c->norm_plus_one && i < n; i++)
        w[i] += 1;
    return w;
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
    const struct config_layer layer = config_layer(m->c, m->layer);
    const bool apart = layer.window && m->c->rope_window_theta > 0; /* with a base alone */
    for (size_t i = 0; layer.is_rotated && i < half; i++) {
        double *a = m->c->rope_pairs ? &x[2 * i] : &x[i],
               *b = m->c->rope_pairs ? &x[2 * i + 1] : &x[i + half];
        const double angle = (double)position *
                             (apart ? pow(m->c->rope_window_theta, -2.0 * (double)i / (double)width)
                                    : m->inv_freq[i]),
                     scale = apart ? 1 : config_rope_scale(m->c);
        const double was = *a;
        *a = scale * (was * cos(angle) - *b * sin(angle));
        *b = scale * (*b * cos(angle) + was * sin(angle));
    }
}

/* Within ±cap; 0: it stays. */
static double capped(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* o [n, heads·value]; head h reads key and value h·kv_heads/heads. */
static double *attend(const struct model *m, const double *q, const double *k, const double *v, size_t value)
{
    const struct config *c = m->c;
    double *o = array(m->n * c->heads * value), *p = array(m->n);
    const size_t window = config_layer(c, m->layer).window;
    for (size_t t = 0; t < m->n; t++)
        for (size_t h = 0; h < c->heads; h++) {
            const size_t kv = h * c->kv_heads / c->heads,
                         first = window && t + 1 > window ? t + 1 - window : 0;
            double sum = 0;
            for (size_t s = first; s <= t; s++) {
                p[s] = 0;
                for (size_t i = 0; i < c->head; i++)
                    p[s] += q[(t * c->heads + h) * c->head + i] * k[(s * c->kv_heads + kv) * c->head + i];
                sum += p[s] = exp(capped(p[s] * config_attn_scale(c), c->attn_softcap));
            }
            for (size_t s = first; s <= t; s++)
                for (size_t i = 0; i < value; i++)
                    o[(t * c->heads + h) * value + i] += p[s] / sum * v[(s * c->kv_heads + kv) * value + i];
        }
    free(p);
    return o;
}

/* --- attention -------------------------------------------------------------------------------- */

static void norm_heads(const struct model *m, double *x, const char *stem, size_t heads)
{
    const size_t parts = m->c->qk_norm_whole ? 1 : heads, wide = heads * m->c->head / parts;
    double *w = norm_weight(m, load(m, "%s.weight", stem), wide);
    norm(x, wide, x, wide, w, m->n * parts, wide, (double)m->c->norm_eps);
    free(w);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Where q_proj gives each head's q and then its gate: takes the gates [n, heads·head] out of it. */
static double *split_gate(const struct model *m, double **q)
{
    const size_t head = m->c->head, rows = m->n * m->c->heads;
    double *own = array(rows * head), *gate = array(rows * head);
    for (size_t i = 0; i < rows; i++) {
        memcpy(own + i * head, *q + 2 * i * head, head * sizeof *own);
        memcpy(gate + i * head, *q + (2 * i + 1) * head, head * sizeof *gate);
    }
    free(*q);
    *q = own;
    return gate;
}

static double *grouped_query(const struct model *m, const double *h)
{
    const struct config *c = m->c;
    const size_t nq = c->heads * c->head, nkv = c->kv_heads * c->head;
    double *q = product(m, h, m->n, "self_attn.q_proj", c->attn_bias, c->attn_gate ? 2 * nq : nq, c->dim);
    double *gate = c->attn_gate ? split_gate(m, &q) : NULL;
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
    for (size_t i = 0; c->rope_query_beta > 0 && i < m->n * nq; i++)
        q[i] *= 1 + c->rope_query_beta * log(1 + floor((double)(i / nq) / (double)c->rope_original));
    double *o = attend(m, q, k, v, c->head);
    for (size_t i = 0; gate && i < m->n * nq; i++)
        o[i] *= sigmoid(gate[i]);
    double *y = product(m, o, m->n, "self_attn.o_proj", c->attn_out_bias, c->dim, nq);
    free(q), free(k), free(v), free(o), free(gate);
    return y;
}

/* Of linear layers: rows of all q, all k and all v before the convolution, z, b and a. */
struct linear_rows {
    double *mixed, *z, *b, *a;
};

/* One key head after the other has its q, k, v and z in a row of one linear, its b and a in one of
 * another. */
static struct linear_rows load_fused(const struct model *m, const double *h)
{
    const struct config_delta *d = &m->c->delta;
    const size_t r = d->value_heads / d->key_heads, keys = d->key_heads * d->key,
                 own = 2 * d->key + 2 * r * d->value, wide = 2 * keys + d->value_heads * d->value;
    double *x = product(m, h, m->n, "linear_attn.in_proj_qkvz", false, d->key_heads * own, m->c->dim),
           *ba = product(m, h, m->n, "linear_attn.in_proj_ba", false, 2 * d->value_heads, m->c->dim);
    struct linear_rows to = {array(m->n * wide), array(m->n * d->value_heads * d->value),
                             array(m->n * d->value_heads), array(m->n * d->value_heads)};
    for (size_t i = 0; i < m->n * d->key_heads; i++) {
        const size_t t = i / d->key_heads, k = i % d->key_heads;
        const double *q = x + i * own, *v = q + 2 * d->key, *z = v + r * d->value;
        memcpy(to.mixed + t * wide + k * d->key, q, d->key * sizeof *q);
        memcpy(to.mixed + t * wide + keys + k * d->key, q + d->key, d->key * sizeof *q);
        memcpy(to.mixed + t * wide + 2 * keys + k * r * d->value, v, r * d->value * sizeof *q);
        memcpy(to.z + i * r * d->value, z, r * d->value * sizeof *q);
        memcpy(to.b + i * r, ba + 2 * i * r, r * sizeof *q);
        memcpy(to.a + i * r, ba + (2 * i + 1) * r, r * sizeof *q);
    }
    free(x), free(ba);
    return to;
}

static struct linear_rows load_apart(const struct model *m, const double *h)
{
    const struct config_delta *d = &m->c->delta;
    const size_t values = d->value_heads * d->value, dim = m->c->dim;
    return (struct linear_rows){
        product(m, h, m->n, "linear_attn.in_proj_qkv", false, 2 * d->key_heads * d->key + values, dim),
        product(m, h, m->n, "linear_attn.in_proj_z", false, values, dim),
        product(m, h, m->n, "linear_attn.in_proj_b", false, d->value_heads, dim),
        product(m, h, m->n, "linear_attn.in_proj_a", false, d->value_heads, dim)};
}

/* silu of the causal convolution of each channel; then q and k have length 1, and q a factor. */
static double *convolved(const struct model *m, const double *mixed)
{
    const struct config_delta *d = &m->c->delta;
    const size_t wide = 2 * d->key_heads * d->key + d->value_heads * d->value;
    double *w = load(m, "linear_attn.conv1d.weight"), *y = array(m->n * wide);
    for (size_t i = 0; i < m->n * wide; i++) {
        for (size_t back = 0; back < d->taps && back <= i / wide; back++)
            y[i] += w[i % wide * d->taps + d->taps - 1 - back] * mixed[i - back * wide];
        y[i] *= sigmoid(y[i]);
    }
    for (size_t i = 0; i < m->n * 2 * d->key_heads; i++) {
        const size_t head = i % (2 * d->key_heads);
        double *x = y + i / (2 * d->key_heads) * wide + head * d->key, sum = 1e-6;
        for (size_t j = 0; j < d->key; j++)
            sum += x[j] * x[j];
        for (size_t j = 0; j < d->key; j++)
            x[j] /= sqrt(sum) * (head < d->key_heads ? sqrt((double)d->key) : 1);
    }
    free(w);
    return y;
}

/* o [n, value_heads·value] of value head h: S = e^g·S, u = β(v − Sᵀk), S = S + k·uᵀ, o = Sᵀq */
static void delta_head(const struct model *m, double *o, const double *qkv, const struct linear_rows *rows,
                       size_t h)
{
    const struct config_delta *d = &m->c->delta;
    const size_t keys = d->key_heads * d->key, wide = 2 * keys + d->value_heads * d->value;
    double *s = array(d->key * d->value), *a_log = load(m, "linear_attn.A_log"),
           *bias = load(m, "linear_attn.dt_bias");
    for (size_t t = 0; t < m->n; t++) {
        const double *q = qkv + t * wide + h / (d->value_heads / d->key_heads) * d->key, *k = q + keys,
                     *v = qkv + t * wide + 2 * keys + h * d->value;
        const double g = -exp(a_log[h]) * log1p(exp(rows->a[t * d->value_heads + h] + bias[h])),
                     beta = sigmoid(rows->b[t * d->value_heads + h]);
        for (size_t j = 0; j < d->value; j++) {
            double u = v[j], sum = 0;
            for (size_t i = 0; i < d->key; i++)
                u -= (s[i * d->value + j] *= exp(g)) * k[i];
            for (size_t i = 0; i < d->key; i++)
                sum += (s[i * d->value + j] += beta * u * k[i]) * q[i];
            o[(t * d->value_heads + h) * d->value + j] = sum;
        }
    }
    free(s), free(a_log), free(bias);
}

static double *linear(const struct model *m, const double *h)
{
    const struct config_delta *d = &m->c->delta;
    const size_t values = d->value_heads * d->value;
    struct linear_rows rows = d->fused ? load_fused(m, h) : load_apart(m, h);
    double *qkv = convolved(m, rows.mixed), *o = array(m->n * values),
           *w = load(m, "linear_attn.norm.weight");
    for (size_t head = 0; head < d->value_heads; head++)
        delta_head(m, o, qkv, &rows, head);
    norm(o, d->value, o, d->value, w, m->n * d->value_heads, d->value, (double)m->c->norm_eps);
    for (size_t i = 0; i < m->n * values; i++)
        o[i] *= rows.z[i] * sigmoid(rows.z[i]);
    double *y = product(m, o, m->n, "linear_attn.out_proj", false, m->c->dim, values);
    free(rows.mixed), free(rows.z), free(rows.b), free(rows.a), free(qkv), free(o), free(w);
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

static double activated(const struct config *c, double x)
{
    const double inner = sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
    return c->glu.kind == GLU_GELU_TANH ? x / 2 * (1 + tanh(inner)) : x / (1 + exp(-x));
}

static double *gated(const struct model *m, const double *h, size_t n, const char *stem, size_t ffn)
{
    char name[64];
    snprintf(name, sizeof name, "%s.gate_proj", stem);
    double *g = product(m, h, n, name, m->c->mlp_bias, ffn, m->c->dim);
    snprintf(name, sizeof name, "%s.up_proj", stem);
    double *u = product(m, h, n, name, m->c->mlp_bias, ffn, m->c->dim);
    for (size_t i = 0; i < n * ffn; i++)
        g[i] = activated(m->c, g[i]) * u[i];
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

/* Of the shared experts, where they have a gate. */
static double *shared_gated(const struct model *m, const double *h)
{
    const size_t dim = m->c->dim;
    double *y = gated(m, h, m->n, "mlp.shared_expert", m->c->moe.shared_ffn),
           *gate = product(m, h, m->n, "mlp.shared_expert_gate", false, 1, dim);
    for (size_t i = 0; i < m->n * dim; i++)
        y[i] *= sigmoid(gate[i / dim]);
    free(gate);
    return y;
}

static double *mixture(const struct model *m, const double *h)
{
    const struct config_moe *e = &m->c->moe;
    const size_t dim = m->c->dim;
    double *logits = product(m, h, m->n, "mlp.gate", false, e->experts, dim), *weight = array(e->experts);
    double *bias = e->bias ? load(m, "mlp.gate.e_score_correction_bias") : NULL;
    double *y = e->shared_gate  ? shared_gated(m, h)
                : e->shared_ffn ? gated(m, h, m->n, "mlp.shared_experts", e->shared_ffn)
                                : array(m->n * dim);
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

static void norm_rows(const struct model *m, double *y, const double *x, const char *name)
{
    const size_t dim = m->c->dim;
    double *w = norm_weight(m, load(m, "%s.weight", name), dim);
    norm(y, dim, x, dim, w, m->n, dim, (double)m->c->norm_eps);
    free(w);
}

static void half_block(struct model *m, double *x, const char *before, const char *after,
                       double *(*part)(const struct model *m, const double *h))
{
    const size_t dim = m->c->dim;
    double *h = array(m->n * dim);
    if (before)
        norm_rows(m, h, x, before);
    else
        memcpy(h, x, m->n * dim * sizeof *h);
    double *y = part(m, h);
    if (after)
        norm_rows(m, y, y, after);
    for (size_t i = 0; i < m->n * dim; i++)
        x[i] += y[i] * (m->c->residual_scale > 0 ? m->c->residual_scale : 1);
    free(h), free(y);
}

static double *dense(const struct model *m, const double *h)
{
    return gated(m, h, m->n, "mlp", m->c->ffn);
}

static void head_norm(struct model *m, double *x, const char *name)
{
    const size_t dim = m->c->dim;
    double *w = norm_weight(m, stored_numbers(m->st, name), dim);
    norm(x, dim, x, dim, w, m->n, dim, (double)m->c->norm_eps);
    free(w);
}

static double *head(struct model *m, const double *x)
{
    const size_t dim = m->c->dim, vocab = m->c->vocab;
    double *y = array(m->n * vocab),
           *out = stored_numbers(m->st, m->c->tied ? "model.embed_tokens.weight" : "lm_head.weight");
    for (size_t t = 0; t < m->n; t++)
        for (size_t r = 0; r < vocab; r++)
            for (size_t i = 0; i < dim; i++)
                y[t * vocab + r] += x[t * dim + i] * out[r * dim + i];
    for (size_t i = 0; i < m->n * vocab; i++)
        y[i] = capped(y[i] * (m->c->logit_scale > 0 ? m->c->logit_scale : 1), m->c->logit_softcap);
    free(out);
    return y;
}

static void open_model(struct model *m, const char *dir, const struct config *c, size_t n)
{
    struct err err;
    *m = (struct model){.c = c, .n = n, .inv_freq = array(config_rope_width(c))};
    must(st_open_dir(&m->st, dir, NULL, NULL, &err), &err);
    config_inv_freq(c, m->inv_freq);
}

static void close_model(struct model *m)
{
    free(m->inv_freq);
    st_close(m->st);
}

static double *embed(struct model *m, const uint32_t *ids)
{
    const size_t dim = m->c->dim;
    double *table = stored_numbers(m->st, "model.embed_tokens.weight"), *x = array(m->n * dim);
    for (size_t t = 0; t < m->n; t++)
        for (size_t i = 0; i < dim; i++)
            x[t * dim + i] = table[ids[t] * dim + i] * (m->c->embed_scale > 0 ? m->c->embed_scale : 1);
    free(table);
    return x;
}

static void block(struct model *m, double *x)
{
    const bool around = m->c->norms == NORMS_AROUND, behind = m->c->norms == NORMS_AFTER;
    half_block(m, x, behind ? NULL : "input_layernorm", around || behind ? "post_attention_layernorm" : NULL,
               config_layers_have(&m->c->linear, m->layer) ? linear
               : m->c->mla.kv_rank                         ? latent
                                                           : grouped_query);
    half_block(m, x,
               around   ? "pre_feedforward_layernorm"
               : behind ? NULL
                        : "post_attention_layernorm",
               around || behind ? "post_feedforward_layernorm" : NULL,
               config_has_experts(m->c, m->layer) ? mixture : dense);
}

double *reference_logits(const char *model_dir, const struct config *c, const uint32_t *ids, size_t n)
{
    struct model m;
    open_model(&m, model_dir, c, n);
    double *x = embed(&m, ids);
    for (m.layer = 0; m.layer < c->layers; m.layer++)
        block(&m, x);
    head_norm(&m, x, "model.norm.weight");
    double *y = head(&m, x);
    free(x);
    close_model(&m);
    return y;
}

double *reference_ahead(const char *model_dir, const struct config *c, const double *x, const uint32_t *ids,
                        size_t n, double **ret_y)
{
    const size_t dim = c->dim;
    struct model m;
    char name[96];
    open_model(&m, model_dir, c, n);
    m.layer = c->layers - 1;
    const bool apart = c->extra_apart;
    double *e = embed(&m, ids), *both = array(n * 2 * dim),
           *of_e =
               norm_weight(&m, load(&m, apart ? "mtp.pre_fc_norm_embedding.weight" : "enorm.weight"), dim),
           *of_x = norm_weight(&m, load(&m, apart ? "mtp.pre_fc_norm_hidden.weight" : "hnorm.weight"), dim);
    norm(both, 2 * dim, e, dim, of_e, n, dim, (double)c->norm_eps);
    norm(both + dim, 2 * dim, x, dim, of_x, n, dim, (double)c->norm_eps);
    double *y = product(&m, both, n, apart ? "mtp.fc" : "eh_proj", false, dim, 2 * dim), *h = array(n * dim);
    block(&m, y);
    memcpy(h, y, n * dim * sizeof *h);
    snprintf(name, sizeof name, "model.layers.%zu.shared_head.norm.weight", m.layer);
    head_norm(&m, h, apart ? "mtp.norm.weight" : name);
    double *logits = head(&m, h);
    free(e), free(both), free(of_e), free(of_x), free(h);
    close_model(&m);
    *ret_y = y;
    return logits;
}
