/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file/st.h"
#include "num/rng.h"
#include "tests/lib/gguf.h"
#include "tests/lib/gguf_linear.h"
#include "tests/lib/near.h"

enum { NAME = 128, PATH = 512 };

struct conversion {
    const struct config *c;
    struct gguf_how how;
    struct st *from;
    FILE *plain;      /* the file of `from`, to be changed */
    const char *base; /* its data begin here in memory, */
    long begin;       /* and there in the file */
    struct gguf_out out;
    struct rng rng;
};

/* --- random blocks ---------------------------------------------------------------------------- */

/* Where scale and minimum are, and how large: weights of some tenths. */
static const struct sides {
    int scale, least; /* bytes into the block; −1: none */
    double d, m;
} sides[BLOCK_COUNT] = {
    [BLOCK_Q4_0] = {0, -1, 0x1p-6, 0},      [BLOCK_Q4_1] = {0, 2, 0x1p-6, -0x1p-4},
    [BLOCK_Q5_0] = {0, -1, 0x1p-7, 0},      [BLOCK_Q5_1] = {0, 2, 0x1p-7, -0x1p-4},
    [BLOCK_Q8_0] = {0, -1, 0x1p-10, 0},     [BLOCK_Q2_K] = {80, 82, 0x1p-9, 0x1p-8},
    [BLOCK_Q3_K] = {108, -1, 0x1p-10, 0},   [BLOCK_Q4_K] = {0, 2, 0x1p-13, 0x1p-9},
    [BLOCK_Q5_K] = {0, 2, 0x1p-14, 0x1p-9}, [BLOCK_Q6_K] = {208, -1, 0x1p-15, 0},
    [BLOCK_IQ4_NL] = {0, -1, 0x1p-10, 0},   [BLOCK_IQ4_XS] = {0, -1, 0x1p-15, 0},
    [BLOCK_MXFP4] = {-1, -1, 0, 0},
};

static void put_half(uint8_t *to, double x)
{
    const float narrow = (float)x;
    dtype_from_f32(to, &narrow, DTYPE_F16, 1);
}

static void draw_block(struct conversion *v, enum block_type type, uint8_t *b)
{
    const struct sides *s = &sides[type];
    for (size_t i = 0; i < block_bytes(type); i++)
        b[i] = (uint8_t)rng_below(&v->rng, 256);
    if (s->scale >= 0)
        put_half(b + s->scale, s->d * (1 + (double)rng_below(&v->rng, 1000) / 1000));
    else
        b[0] = (uint8_t)(120 + rng_below(&v->rng, 4));
    if (s->least >= 0)
        put_half(b + s->least, s->m * (1 + (double)rng_below(&v->rng, 1000) / 1000));
}

/* --- names ------------------------------------------------------------------------------------ */

static const char *const names[][2] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.0.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.0.w3", "ffn_up_exps"},
    {"block_sparse_moe.experts.0.w2", "ffn_down_exps"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.experts.0.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.0.up_proj", "ffn_up_exps"},
    {"mlp.experts.0.down_proj", "ffn_down_exps"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"enorm", "nextn.enorm"},
    {"hnorm", "nextn.hnorm"},
    {"eh_proj", "nextn.eh_proj"},
    {"shared_head.norm", "nextn.shared_head_norm"},
};

static bool is_among(const char *word, const char *words)
{
    const size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ' '))
            return true;
    return false;
}

static void gguf_name(char ret[NAME], const struct config *c, const char *arch, const char *name)
{
    size_t layer = 0;
    int used = 0;
    if (sscanf(name, "mtp.layers.%zu.%n", &layer, &used) == 1 && used)
        layer += c->layers - 1;
    else if (!strncmp(name, "mtp.", 4))
        layer = c->layers - 1;
    else
        used = sscanf(name, "model.layers.%zu.%n", &layer, &used) == 1 ? used : 0;
    const bool inside = used != 0;
    const char *linear = gguf_linear_name(name + used);
    if (linear) {
        snprintf(ret, NAME, "blk.%zu.%s", layer, linear);
        return;
    }
    const char *rest = inside ? name + used : name, *last = inside ? strrchr(rest, '.') : rest + strlen(rest);
    if (inside && strstr(rest, "e_score_correction_bias")) {
        snprintf(ret, NAME, "blk.%zu.exp_probs_b.bias", layer);
        return;
    }
    if (inside && !strcmp(rest, "self_attn.sinks")) {
        snprintf(ret, NAME, "blk.%zu.attn_sinks.weight", layer);
        return;
    }
    if (inside && !strncmp(rest, "post_attention_layernorm", (size_t)(last - rest)) &&
        is_among(arch, "gpt-oss glm4moe gemma2 gemma3 olmo2 qwen3next qwen35 qwen35moe")) {
        snprintf(ret, NAME, "blk.%zu.post_attention_norm.weight", layer);
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i][0]) == (size_t)(last - rest) &&
            !strncmp(names[i][0], rest, (size_t)(last - rest))) {
            if (!inside)
                snprintf(ret, NAME, "%s", names[i][1]);
            else
                snprintf(ret, NAME, "blk.%zu.%s%s", layer, names[i][1], last);
            return;
        }
    fail_msg("%s has no name in GGUF", name);
}

static const char *architecture(const struct config *c)
{
    static const char *const is[][2] = {{"llama", "llama"},
                                        {"mistral", "llama"},
                                        {"qwen2", "qwen2"},
                                        {"qwen3", "qwen3"},
                                        {"qwen3_moe", "qwen3moe"},
                                        {"deepseek_v2", "deepseek2"},
                                        {"deepseek_v3", "deepseek2"},
                                        {"smollm3", "smollm3"},
                                        {"granite", "granite"},
                                        {"glm4_moe", "glm4moe"},
                                        {"gpt_oss", "gpt-oss"},
                                        {"gemma2", "gemma2"},
                                        {"gemma3_text", "gemma3"},
                                        {"olmo3", "olmo2"},
                                        {"phi3", "phi3"},
                                        {"ministral3", "mistral3"},
                                        {"minimax_m2", "minimax-m2"},
                                        {"qwen3_next", "qwen3next"},
                                        {"qwen3_5_text", "qwen35"},
                                        {"qwen3_5_moe_text", "qwen35moe"}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        if (!strcmp(c->family, is[i][0]))
            return is[i][1];
    fail_msg("%s is no family of GGUF", c->family);
    return "";
}

/* --- tensors ---------------------------------------------------------------------------------- */

/* The row of the file's order that row `at` of its tensor goes to: pairs become neighbours. */
static size_t place_of(const struct conversion *v, const char *name, size_t at)
{
    const size_t head = v->c->head, half = head / 2, in = at % head;
    const bool is_turned = is_among(architecture(v->c), "llama smollm3 granite mistral3");
    if (!is_turned || (!strstr(name, ".q_proj.") && !strstr(name, ".k_proj.")))
        return gguf_linear_row(v->c, name, at);
    return at - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

/* Puts what blocks stand for where the model's values were. */
static void overwrite(const struct conversion *v, const struct st_tensor *t, const float *x)
{
    assert_int_equal(fseek(v->plain, v->begin + ((const char *)t->data - v->base), SEEK_SET), 0);
    assert_int_equal(fwrite(x, sizeof *x, t->elements, v->plain), t->elements);
}

static size_t cols_of(const struct st_tensor *t)
{
    return t->ndim > 1 ? t->shape[1] : 1;
}

static bool in_blocks(const struct conversion *v, const struct st_tensor *t)
{
    return v->how.block && t->ndim == 2 && cols_of(t) % block_values(v->how.block) == 0 &&
           !strstr(t->name, ".mlp.gate.") && !strstr(t->name, "block_sparse_moe.gate.") &&
           !strstr(t->name, ".mlp.router.") && !strstr(t->name, ".shared_expert_gate.");
}

/* Norms that multiply by 1 + w are stored with the 1. */
static bool adds_one(const struct conversion *v, const struct st_tensor *t)
{
    return is_among(architecture(v->c), "gemma2 gemma3 qwen3next qwen35 qwen35moe") &&
           (strstr(t->name, "norm.weight") || strstr(t->name, "norm_hidden.weight") ||
            strstr(t->name, "norm_embedding.weight")) &&
           !strstr(t->name, ".linear_attn.norm.");
}

/* How the numbers of a row lie in the file. */
struct row_form {
    enum block_type block;
    size_t values, size; /* of a block in bytes, or of a number */
};

static struct row_form form_of(const struct conversion *v, const struct st_tensor *t, size_t place)
{
    const size_t first = gguf_linear_first(v->c, t->name);
    const enum block_type type = first && place >= first && v->how.rest ? v->how.rest : v->how.block;
    if (!in_blocks(v, t))
        return (struct row_form){BLOCK_NONE, 1, sizeof(float)};
    return (struct row_form){type, block_values(type), block_bytes(type)};
}

/* What the file has instead of a model's numbers; the model gets those that follow from it. */
static void change(const struct conversion *v, const struct st_tensor *t, float *x)
{
    const bool one = adds_one(v, t);
    if (!one && !strstr(t->name, "A_log"))
        return;
    float *again = malloc(t->elements * sizeof *again);
    assert_non_null(again);
    for (size_t i = 0; i < t->elements; i++) {
        x[i] = one ? x[i] + 1 : -expf(x[i]);
        again[i] = one ? x[i] - 1 : (float)log(-(double)x[i]);
    }
    overwrite(v, t, again);
    free(again);
}

/* One row, to where it lies; x gets what blocks stand for. */
static void put_row(struct conversion *v, const struct st_tensor *t, struct row_form form, float *x,
                    uint8_t *at)
{
    for (size_t i = 0; i < cols_of(t); i++) {
        const size_t col = gguf_linear_col(v->c, t->name, i);
        uint8_t *to = at + i / form.values * form.size;
        if (!form.block)
            memcpy(to, x + col, sizeof *x);
        else if (i % form.values == 0)
            draw_block(v, form.block, to);
        if (form.block)
            x[col] = gguf_block_value(form.block, to, i % form.values);
    }
}

/* Appends a tensor's rows as they lie in the file, those of the second of two to `rest`. */
static void add_rows(struct conversion *v, const struct st_tensor *t, FILE *to, FILE *rest)
{
    const size_t cols = cols_of(t), rows = t->elements / cols, first = gguf_linear_first(v->c, t->name),
                 room = cols * sizeof(float);
    uint8_t *stored = calloc(rows, room);
    float *x = malloc(t->elements * sizeof *x);
    assert_true(stored && x);
    memcpy(x, t->data, t->elements * sizeof *x);
    change(v, t, x);
    for (size_t row = 0; row < rows; row++) {
        const size_t place = place_of(v, t->name, row);
        put_row(v, t, form_of(v, t, place), x + row * cols, stored + place * room);
    }
    if (in_blocks(v, t))
        overwrite(v, t, x);
    for (size_t place = 0; place < rows; place++) {
        const struct row_form form = form_of(v, t, place);
        const size_t bytes = cols / form.values * form.size;
        assert_int_equal(fwrite(stored + place * room, 1, bytes, first && place >= first ? rest : to), bytes);
    }
    free(stored);
    free(x);
}

/* Keys turned for each head, and values. */
static void put_parts(struct conversion *v, const struct st_tensor *t)
{
    const struct config_mla *m = &v->c->mla;
    const size_t heads = v->c->heads, rank = m->kv_rank, k_extent[3] = {m->nope, rank, heads},
                 v_extent[3] = {rank, m->value, heads};
    float *k = malloc(heads * rank * m->nope * sizeof *k),
          *values = malloc(heads * rank * m->value * sizeof *k);
    const float *w = t->data;
    size_t layer;
    char name[NAME];
    assert_int_equal(sscanf(t->name, "model.layers.%zu.", &layer), 1);
    for (size_t g = 0; g < heads; g++, w += (m->nope + m->value) * rank) {
        for (size_t a = 0; a < m->nope; a++)
            for (size_t c = 0; c < rank; c++)
                k[(g * rank + c) * m->nope + a] = w[a * rank + c];
        memcpy(values + g * m->value * rank, w + m->nope * rank, m->value * rank * sizeof *w);
    }
    snprintf(name, sizeof name, "blk.%zu.attn_k_b.weight", layer);
    gguf_put_tensor(&v->out, name, 0, 3, k_extent, k, heads * rank * m->nope * sizeof *k);
    snprintf(name, sizeof name, "blk.%zu.attn_v_b.weight", layer);
    gguf_put_tensor(&v->out, name, 0, 3, v_extent, values, heads * rank * m->value * sizeof *k);
    free(values);
    free(k);
}

/* extents: the row first; experts of a stack last. */
static void put_bytes(struct conversion *v, const struct st_tensor *t, const char *name, size_t experts,
                      const void *bytes, size_t n)
{
    const size_t first = gguf_linear_first(v->c, t->name), rows = first ? first : t->shape[0];
    const bool is_stack = strstr(t->name, ".experts.") != NULL;
    size_t ndim = t->ndim + is_stack, extent[3] = {t->ndim > 1 ? t->shape[1] : rows, rows, experts};
    if (is_stack && t->ndim == 1) /* biases */
        extent[1] = experts;
    if (t->ndim == 3) { /* of a convolution, without the 1 */
        ndim = 2;
        extent[0] = t->shape[2];
    }
    if (t->ndim == 2 && t->shape[0] == 1)
        ndim = 1;
    gguf_put_tensor(&v->out, name, form_of(v, t, 0).block ? gguf_number(v->how.block) : 0, ndim, extent,
                    bytes, n);
}

/* The rows that go to a second tensor. */
static void put_rest(struct conversion *v, const struct st_tensor *t, const char *name, const void *bytes,
                     size_t n)
{
    const size_t first = gguf_linear_first(v->c, t->name),
                 extent[2] = {cols_of(t), first ? t->shape[0] - first : 0};
    const enum block_type block = form_of(v, t, first).block;
    char other[NAME];
    if (!first)
        return;
    snprintf(other, sizeof other, "%.*sattn_gate.weight", (int)(strstr(name, "attn_qkv") - name), name);
    gguf_put_tensor(&v->out, other, block ? gguf_number(block) : 0, 2, extent, bytes, n);
}

static void put_tensor(struct conversion *v, const struct st_tensor *t)
{
    const char *expert = strstr(t->name, ".experts.");
    char name[NAME], *bytes = NULL, *others = NULL;
    size_t n = 0, m = 0, experts = expert ? v->c->moe.experts : 1;
    if (expert && strncmp(expert, ".experts.0.", 11) != 0)
        return; /* it goes with the first */
    if (v->how.kv_b_parts && strstr(t->name, ".kv_b_proj.")) {
        put_parts(v, t);
        return;
    }
    FILE *to = open_memstream(&bytes, &n), *rest = open_memstream(&others, &m);
    assert_true(to && rest);
    for (size_t e = 0; e < experts; e++) {
        snprintf(name, sizeof name, "%s", t->name);
        if (expert)
            snprintf(name, sizeof name, "%.*s.experts.%zu.%s", (int)(expert - t->name), t->name, e,
                     expert + 11);
        const struct st_tensor *one = st_find(v->from, name);
        assert_non_null(one);
        add_rows(v, one, to, rest);
    }
    assert_int_equal(fclose(to) | fclose(rest), 0);
    gguf_name(name, v->c, architecture(v->c), t->name);
    put_bytes(v, t, name, experts, bytes, n);
    put_rest(v, t, name, others, m);
    free(bytes);
    free(others);
}

/* --- keys ------------------------------------------------------------------------------------- */

static void put_whole(struct conversion *v, const char *key, size_t value)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s.%s", architecture(v->c), key);
    gguf_put_whole(&v->out, full, (uint32_t)value);
}

static void put_real(struct conversion *v, const char *key, double value)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s.%s", architecture(v->c), key);
    gguf_put_real(&v->out, full, (float)value);
}

static void put_latent(struct conversion *v)
{
    const struct config *c = v->c;
    const struct config_mla *m = &c->mla;
    const bool parts = v->how.kv_b_parts;
    put_whole(v, "attention.kv_lora_rank", m->kv_rank);
    if (m->q_rank)
        put_whole(v, "attention.q_lora_rank", m->q_rank);
    put_whole(v, "rope.dimension_count", m->rope);
    put_whole(v, "attention.key_length", parts ? m->kv_rank + m->rope : m->nope + m->rope);
    put_whole(v, "attention.value_length", parts ? m->kv_rank : m->value);
    if (parts) {
        put_whole(v, "attention.key_length_mla", m->nope + m->rope);
        put_whole(v, "attention.value_length_mla", m->value);
    }
    put_whole(v, "leading_dense_block_count", c->moe.first);
    put_whole(v, "expert_shared_count", c->moe.shared_ffn / c->moe.ffn);
    put_whole(v, "expert_gating_func", c->moe.sigmoid ? 2 : 1);
    put_whole(v, "expert_group_count", c->moe.groups);
    put_whole(v, "expert_group_used_count", c->moe.groups_chosen);
    put_real(v, "expert_weights_scale", c->moe.scale);
    gguf_put_flag(&v->out, "deepseek2.expert_weights_norm", c->moe.norm);
}

static void put_text(struct conversion *v, const char *key, const char *value)
{
    char full[NAME];
    snprintf(full, sizeof full, "%s.%s", architecture(v->c), key);
    gguf_put_text(&v->out, full, value);
}

/* Which layers have a window, as a period. */
static void put_pattern(struct conversion *v)
{
    size_t every = 1;
    while (every < v->c->layers && config_layers_have(&v->c->windowed, every - 1))
        every++;
    put_whole(v, "attention.sliding_window_pattern", every);
}

static void put_long(struct conversion *v)
{
    const struct config *c = v->c;
    const size_t n = config_rope_width(c) / 2;
    float factor[2][CONFIG_MAX_LONG];
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < n; i++)
            factor[k][i] = (float)c->rope_factors[k][i];
    gguf_put_tensor(&v->out, "rope_factors_short.weight", 0, 1, &n, factor[0], n * sizeof(float));
    gguf_put_tensor(&v->out, "rope_factors_long.weight", 0, 1, &n, factor[1], n * sizeof(float));
    put_whole(v, "rope.scaling.original_context_length", c->rope_original);
    put_real(v, "rope.scaling.attn_factor", config_rope_scale(c));
}

static void put_others(struct conversion *v)
{
    const struct config *c = v->c;
    if (c->logit_scale > 0) {
        put_real(v, "attention.scale", c->attn_scale);
        put_real(v, "embedding_scale", c->embed_scale);
        put_real(v, "residual_scale", c->residual_scale);
        put_real(v, "logit_scale", 1 / c->logit_scale);
    }
    if (c->window)
        put_whole(v, "attention.sliding_window", c->window);
    if (c->attn_softcap > 0)
        put_real(v, "attn_logit_softcapping", c->attn_softcap);
    if (c->logit_softcap > 0)
        put_real(v, "final_logit_softcapping", c->logit_softcap);
    if (is_among(architecture(c), "olmo2 gemma3"))
        put_pattern(v);
    if (c->rope_query_beta > 0) {
        put_real(v, "rope.scaling.yarn_log_multiplier", c->rope_mscale_all);
        put_real(v, "attention.temperature_scale", c->rope_query_beta);
    }
    if (c->rope == ROPE_LINEAR) {
        put_text(v, "rope.scaling.type", "linear");
        put_real(v, "rope.scaling.factor", c->rope_factor);
    }
    if (c->rope == ROPE_LONG)
        put_long(v);
    if (c->rope == ROPE_YARN) {
        put_text(v, "rope.scaling.type", "yarn");
        put_real(v, "rope.scaling.factor", c->rope_factor);
        put_whole(v, "rope.scaling.original_context_length", c->rope_original);
    }
    if (!strcmp(c->family, "glm4_moe")) {
        put_whole(v, "leading_dense_block_count", c->moe.first);
        put_whole(v, "expert_shared_count", c->moe.shared_ffn / c->moe.ffn);
        put_real(v, "expert_weights_scale", c->moe.scale);
        gguf_put_flag(&v->out, "glm4moe.expert_weights_norm", c->moe.norm);
    }
}

static void put_keys(struct conversion *v)
{
    const struct config *c = v->c;
    gguf_put_text(&v->out, "general.architecture", architecture(c));
    put_whole(v, "block_count", c->layers);
    if (c->is_ahead)
        put_whole(v, "nextn_predict_layers", 1);
    put_whole(v, "context_length", c->max_positions);
    put_whole(v, "embedding_length", c->dim);
    put_whole(v, "feed_forward_length", c->ffn);
    put_whole(v, "vocab_size", c->vocab);
    put_whole(v, "attention.head_count", c->heads);
    put_whole(v, "attention.head_count_kv", v->how.kv_b_parts ? 1 : c->kv_heads);
    put_real(v, "attention.layer_norm_rms_epsilon", (double)c->norm_eps);
    put_real(v, "rope.freq_base", c->rope_theta);
    if (c->moe.experts) {
        put_whole(v, "expert_count", c->moe.experts);
        put_whole(v, "expert_used_count", c->moe.chosen);
        put_whole(v, "expert_feed_forward_length", c->moe.ffn);
    }
    if (c->mla.kv_rank) {
        put_latent(v);
        return;
    }
    put_whole(v, "attention.key_length", c->head);
    put_whole(v, "attention.value_length", c->head);
    put_whole(v, "rope.dimension_count", config_rope_width(c));
    put_others(v);
    if (c->delta.key_heads)
        gguf_linear_keys(&v->out, architecture(c), c);
}

/* --- all of it -------------------------------------------------------------------------------- */

static void put_split(struct conversion *v, size_t no)
{
    if (!v->how.split)
        return;
    gguf_put_whole(&v->out, "split.no", (uint32_t)no);
    gguf_put_whole(&v->out, "split.count", 2);
}

void gguf_convert(const char *plain, const char *path, const struct config *c, struct gguf_how how)
{
    struct conversion v = {.c = c, .how = how, .rng = rng_for(3, "blocks")};
    char file[PATH];
    struct err err;
    uint64_t header;
    snprintf(file, sizeof file, "%s/model.safetensors", plain);
    must(st_open_file(&v.from, file, &err), &err);
    v.plain = fopen(file, "r+e");
    assert_non_null(v.plain);
    assert_int_equal(fread(&header, sizeof header, 1, v.plain), 1);
    v.begin = (long)(sizeof header + header);
    v.base = st_at(v.from, 0)->data;
    for (size_t i = 0; i < st_count(v.from); i++)
        v.base = (const char *)st_at(v.from, i)->data < v.base ? st_at(v.from, i)->data : v.base;
    gguf_begin(&v.out);
    put_keys(&v);
    put_split(&v, 0);
    snprintf(file, sizeof file, how.split ? "%s-00001-of-00002.gguf" : "%s", path);
    for (size_t i = 0; i < st_count(v.from); i++) {
        if (how.split && i == st_count(v.from) / 2) {
            gguf_end(&v.out, file);
            gguf_begin(&v.out);
            put_split(&v, 1);
            snprintf(file, sizeof file, "%s-00002-of-00002.gguf", path);
        }
        put_tensor(&v, st_at(v.from, i));
    }
    gguf_end(&v.out, file);
    assert_int_equal(fclose(v.plain), 0);
    st_close(v.from);
}
