/* SPDX-License-Identifier: MIT
 *
 * Owns the reading of what families share: sizes, heads, windows, experts, tokens. Called by
 * config_family.c while one config is parsed; pure, any thread. */
#include "file/config_impl.h"

#include <math.h>
#include <string.h>

#include "file/input.h"

enum {
    /* Above any real model, and small enough that no product of two of them overflows. */
    MAX_LAYERS = CONFIG_MAX_LAYERS,
    MAX_WIDTH = 1 << 22,
    MAX_HEADS = 1 << 14,
    MAX_HEAD = 1 << 10,
    MAX_GROUP =
        64, /* heads that share keys and values; with MAX_HEAD: a tile of attention fits a thread's scratch */
    MAX_RANK = 1 << 12, /* of a latent that heads share as their keys and values; */
    MAX_SHARED =
        96 << 10, /* the same, times the heads, each in whole vectors: a tile fits a thread's scratch */
    VECTOR = 16,
    MAX_VOCAB = 1 << 24,
    MAX_EXPERTS = 1 << 12,
};

static void read_dtype(struct config_reader *r, struct config *c)
{
    const char *name =
        config_string(r, r->root, "dtype", config_string(r, r->root, "torch_dtype", "float32"));
    c->dtype = DTYPE_F32;
    if (name && (dtype_from_name(name, &c->dtype) < 0 || c->dtype == DTYPE_F8_E4M3))
        config_complain(r, "dtype \"%s\" is not one of float32, float16 and bfloat16",
                        input_quote(name).text);
}

static void read_token(struct config_reader *r, const json_t *v, const char *key, size_t vocab, int32_t *ret)
{
    json_int_t id = json_integer_value(v);
    if (!json_is_integer(v) || id < 0 || (uint64_t)id >= (vocab ? vocab : MAX_VOCAB))
        config_complain(r, "%s must be a token id below vocab_size", key);
    else
        *ret = (int32_t)id;
}

void config_read_eos(struct config_reader *r, const json_t *v, struct config *c)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!v)
        return;
    if (n > CONFIG_MAX_EOS) {
        config_complain(r, "eos_token_id lists %zu ids, at most %d are possible", n, CONFIG_MAX_EOS);
        return;
    }
    c->neos = n;
    memset(c->eos, 0, sizeof c->eos);
    for (size_t i = 0; i < n; i++)
        read_token(r, json_is_array(v) ? json_array_get(v, i) : v, "eos_token_id", c->vocab, &c->eos[i]);
}

void config_read_tokens(struct config_reader *r, struct config *c, int32_t bos, int32_t eos)
{
    c->bos = json_object_get(r->root, "bos_token_id") ? -1 : bos;
    const json_t *v = config_lookup(r->root, "bos_token_id");
    if (v)
        read_token(r, v, "bos_token_id", c->vocab, &c->bos);
    if (!json_object_get(r->root, "eos_token_id") && eos >= 0) {
        c->eos[0] = eos;
        c->neos = 1;
    }
    config_read_eos(r, config_lookup(r->root, "eos_token_id"), c);
}

/* What changes the numbers and is not computed must not pass silently. */
static void read_activation(struct config_reader *r, struct config *c, const char *key, enum glu_kind usual)
{
    static const struct {
        const char *name;
        enum glu_kind kind;
    } known[] = {{"silu", GLU_SILU}, {"gelu_pytorch_tanh", GLU_GELU_TANH}};
    const char *act = config_string(r, r->root, key, NULL);
    c->glu.kind = usual;
    if (usual != GLU_CLAMPED)
        for (size_t i = 0; act && i < sizeof known / sizeof *known; i++)
            if (!strcmp(act, known[i].name)) {
                c->glu.kind = known[i].kind;
                return;
            }
    if (act && (usual != GLU_CLAMPED || strcmp(act, "silu") != 0))
        config_complain(r, "%s \"%s\" is not supported (silu and gelu_pytorch_tanh are)", key,
                        input_quote(act).text);
}

void config_read_common(struct config_reader *r, struct config *c, const struct config_usual *usual)
{
    c->layers = config_size(r, r->root, "num_hidden_layers", 0, MAX_LAYERS);
    c->dim = config_size(r, r->root, "hidden_size", 0, MAX_WIDTH);
    c->ffn = config_size(r, r->root, "intermediate_size", usual->ffn, MAX_WIDTH);
    c->vocab = config_size(r, r->root, "vocab_size", usual->vocab, MAX_VOCAB);
    c->max_positions = config_size(r, r->root, "max_position_embeddings", usual->positions, INT32_MAX);
    c->norm_eps = (float)config_real(r, r->root, "rms_norm_eps", usual->eps ? usual->eps : 1e-6, 0, 1);
    c->init_std = (float)config_real(r, r->root, "initializer_range", 0.02, 0, 100);
    c->tied = config_bool(r, r->root, "tie_word_embeddings", usual->tied);
    read_dtype(r, c);
    config_read_quantization(r, c);
    read_activation(r, c, usual->act_key ? usual->act_key : "hidden_act", usual->glu);
    if (config_real(r, r->root, "attention_dropout", 0, 0, 1) > 0)
        config_complain(r, "attention_dropout is not supported; set it to 0");
}

/* --- attention -------------------------------------------------------------------------------- */

void config_read_heads(struct config_reader *r, struct config *c, const struct config_usual *usual)
{
    const size_t head = usual->head;
    c->heads = config_size(r, r->root, "num_attention_heads", usual->heads, MAX_HEADS);
    size_t fallback = usual->kv_heads ? usual->kv_heads : c->heads ? c->heads : 1;
    c->kv_heads = config_size(r, r->root, "num_key_value_heads", fallback, MAX_HEADS);
    if (c->heads && c->kv_heads && c->heads % c->kv_heads != 0)
        config_complain(r, "num_attention_heads %zu is not a multiple of num_key_value_heads %zu", c->heads,
                        c->kv_heads);
    if (config_lookup(r->root, "head_dim") || head)
        c->head = config_size(r, r->root, "head_dim", head, MAX_HEAD);
    else if (c->heads && c->dim % c->heads != 0)
        config_complain(
            r, "hidden_size %zu is not a multiple of num_attention_heads %zu, and no head_dim is given",
            c->dim, c->heads);
    else if (c->heads && c->dim)
        c->head = c->dim / c->heads;
    if (c->head % 2 != 0)
        config_complain(r, "head_dim %zu is odd, but rotation takes pairs", c->head);
    if (c->head > MAX_HEAD)
        config_complain(r, "hidden_size / num_attention_heads is %zu, allowed are up to %d", c->head,
                        MAX_HEAD);
    if (c->kv_heads && c->heads / c->kv_heads > MAX_GROUP)
        config_complain(r, "num_attention_heads is %zu times num_key_value_heads, allowed are up to %d",
                        c->heads / c->kv_heads, MAX_GROUP);
    if (c->heads * c->head > MAX_WIDTH)
        config_complain(r, "num_attention_heads × head_dim is %zu, allowed are up to %d", c->heads * c->head,
                        MAX_WIDTH);
}

static size_t whole_vectors(size_t n)
{
    return (n + VECTOR - 1) / VECTOR * VECTOR;
}

/* While texts are generated, all heads share one key: the latent and what is rotated. */
static void check_latent(struct config_reader *r, const struct config *c)
{
    const size_t shared = c->mla.kv_rank + c->mla.rope;
    if (whole_vectors(c->heads) * whole_vectors(shared) > MAX_SHARED)
        config_complain(r,
                        "num_attention_heads %zu share a latent of kv_lora_rank + qk_rope_head_dim %zu: the "
                        "product may be up to %d",
                        c->heads, shared, MAX_SHARED);
}

void config_read_latent(struct config_reader *r, struct config *c)
{
    struct config_mla *m = &c->mla;
    c->heads = c->kv_heads = config_size(r, r->root, "num_attention_heads", 0, MAX_HEADS);
    m->kv_rank = config_size(r, r->root, "kv_lora_rank", 0, MAX_RANK);
    if (config_lookup(r->root, "q_lora_rank"))
        m->q_rank = config_size(r, r->root, "q_lora_rank", 0, MAX_WIDTH);
    m->nope = config_size(r, r->root, "qk_nope_head_dim", 0, MAX_HEAD);
    m->rope = config_size(r, r->root, "qk_rope_head_dim", 0, MAX_HEAD);
    m->value = config_size(r, r->root, "v_head_dim", 0, MAX_HEAD);
    c->head = m->nope + m->rope;
    c->rope_pairs = true;
    if (m->rope % 2 != 0)
        config_complain(r, "qk_rope_head_dim %zu is odd, but rotation takes pairs", m->rope);
    if (c->heads * (c->head + m->value) > MAX_WIDTH)
        config_complain(r, "num_attention_heads × their widths is %zu, allowed are up to %d",
                        c->heads * (c->head + m->value), MAX_WIDTH);
    check_latent(r, c);
    if (config_bool(r, r->root, "attention_bias", false))
        config_complain(r, "attention_bias is not supported for this family");
    if (!config_bool(r, r->root, "rope_interleave", true))
        config_complain(r, "rope_interleave = false is not supported");
}

void config_read_indexer(struct config_reader *r, struct config *c)
{
    struct config_mla *m = &c->mla;
    m->index_heads = config_size(r, r->root, "index_n_heads", 0, MAX_HEADS);
    m->index_head = config_size(r, r->root, "index_head_dim", 0, MAX_HEAD);
    m->index_top = config_size(r, r->root, "index_topk", 0, INT32_MAX);
    if (!m->q_rank)
        config_complain(r, "q_lora_rank is missing, and the indexer reads the latent of the queries");
    if (m->index_head && m->index_head < m->rope)
        config_complain(r, "index_head_dim %zu is less than qk_rope_head_dim %zu", m->index_head, m->rope);
    if (m->index_heads * m->index_head > MAX_WIDTH)
        config_complain(r, "index_n_heads × index_head_dim is %zu, allowed are up to %d",
                        m->index_heads * m->index_head, MAX_WIDTH);
}

/* --- windows ---------------------------------------------------------------------------------- */

size_t config_read_window(struct config_reader *r, const struct config *c, size_t usual)
{
    const char key[] = "sliding_window";
    size_t window = json_object_get(r->root, key) ? 0 : usual;
    if (config_lookup(r->root, key))
        window = config_size(r, r->root, key, 0, INT32_MAX);
    return window < config_positions(c) ? window : 0; /* else it hides nothing */
}

void config_add_layer(struct config_layers *set, size_t layer)
{
    set->bits[layer / 64] |= UINT64_C(1) << layer % 64;
}

void config_read_kinds(struct config_reader *r, struct config *c,
                       bool (*is_windowed)(const struct config *c, size_t layer))
{
    const json_t *list = config_lookup(r->root, "layer_types");
    if (list && json_array_size(list) != c->layers) {
        config_complain(r, "layer_types must name the kind of each of the %zu layers", c->layers);
        return;
    }
    for (size_t l = 0; l < c->layers; l++) {
        const char *kind = json_string_value(json_array_get(list, l));
        const bool windowed = list ? kind && !strcmp(kind, "sliding_attention") : is_windowed(c, l);
        if (list && !windowed && (!kind || strcmp(kind, "full_attention") != 0)) {
            config_complain(r,
                            "layer_types: \"%s\" is not supported (full_attention and sliding_attention are)",
                            kind ? input_quote(kind).text : "");
            return;
        }
        if (windowed && c->window)
            config_add_layer(&c->windowed, l);
    }
}

/* --- experts ---------------------------------------------------------------------------------- */

void config_read_experts(struct config_reader *r, struct config *c, const char *count, const char *width)
{
    struct config_moe *m = &c->moe;
    m->experts = config_size(r, r->root, count, 0, MAX_EXPERTS);
    m->chosen = config_size(r, r->root, "num_experts_per_tok", 0, MAX_EXPERTS);
    m->ffn = config_size(r, r->root, width, 0, MAX_WIDTH);
    m->groups = m->groups_chosen = 1;
    m->scale = 1;
    if (m->experts && m->chosen > m->experts)
        config_complain(r, "num_experts_per_tok %zu is more than the %zu experts there are", m->chosen,
                        m->experts);
}

void config_read_dense(struct config_reader *r, struct config *c)
{
    const json_t *list = config_lookup(r->root, "mlp_only_layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t layer = json_is_integer(item) ? json_integer_value(item) : -1;
        if (layer < 0 || layer >= MAX_LAYERS) {
            config_complain(r, "mlp_only_layers must be a list of numbers of layers");
            return;
        }
        c->moe.dense[layer / 64] |= UINT64_C(1) << layer % 64;
    }
}

void config_read_shared(struct config_reader *r, struct config *c)
{
    if (config_lookup(r->root, "n_shared_experts"))
        c->moe.shared_ffn = c->moe.ffn * config_size(r, r->root, "n_shared_experts", 0, MAX_EXPERTS);
    const json_t *dense = config_lookup(r->root, "first_k_dense_replace");
    json_int_t first = json_integer_value(dense);
    if ((dense && !json_is_integer(dense)) || first < 0 || first > MAX_LAYERS)
        config_complain(r, "first_k_dense_replace must be a number of layers");
    c->moe.first = (size_t)first;
    c->moe.scale = config_real(r, r->root, "routed_scaling_factor", 1, 1e-6, 1e6);
    c->moe.norm = config_bool(r, r->root, "norm_topk_prob", false);
}

void config_read_groups(struct config_reader *r, struct config *c, size_t least)
{
    struct config_moe *m = &c->moe;
    m->groups = config_size(r, r->root, "n_group", 1, MAX_EXPERTS);
    m->groups_chosen = config_size(r, r->root, "topk_group", 1, MAX_EXPERTS);
    if (!m->groups || !m->groups_chosen)
        return;
    if (m->experts % m->groups != 0 || m->experts / m->groups < least)
        config_complain(r, "%zu experts cannot form %zu groups of at least %zu", m->experts, m->groups,
                        least);
    else if (m->groups_chosen > m->groups || m->groups_chosen * (m->experts / m->groups) < m->chosen)
        config_complain(r, "topk_group %zu of %zu groups do not hold num_experts_per_tok %zu experts",
                        m->groups_chosen, m->groups, m->chosen);
}

void config_read_extra(struct config_reader *r, struct config *c, const char *key, size_t usual)
{
    const json_t *extra = config_lookup(r->root, key);
    c->extra_layers = usual;
    if (json_is_integer(extra) && json_integer_value(extra) >= 0 && json_integer_value(extra) < MAX_LAYERS)
        c->extra_layers = (size_t)json_integer_value(extra);
}
