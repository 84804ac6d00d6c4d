/* SPDX-License-Identifier: MIT
 *
 * Owns what the keys of a config.json mean to each family: one reader per family, made of the parts
 * that families share. Called by config.c while one config is parsed; pure, any thread. A further
 * family is a row in `families`. */
#include "file/config_impl.h"

#include <math.h>
#include <stdio.h>
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
    MAX_VOCAB = 1 << 24,
    MAX_EXPERTS = 1 << 12,
    FP8_BLOCK = 128,
};

/* --- what families share ---------------------------------------------------------------------- */

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

/* bos, eos: what the family assumes where the keys are absent, −1 for none; an explicit null is
 * none. */
static void read_tokens(struct config_reader *r, struct config *c, int32_t bos, int32_t eos)
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

enum quant_kind config_quant_kind(const char *mode)
{
    return mode && !strcmp(mode, "mxfp4") ? QUANT_MXFP4 : QUANT_AFFINE;
}

static void check_quant(struct config_reader *r, const char *of, size_t bits, size_t group)
{
    if (bits && group && !quant_is_known(bits, group))
        config_complain(r,
                        "quantization%s: %zu bits in groups of %zu are not read here (2, 3, 4, 5, 6 or 8 in "
                        "groups of 32, 64 or 128 are)",
                        of, bits, group);
}

/* What ringd has no kernels for, by its name. */
static void check_mode(struct config_reader *r, const char *of, const char *mode, size_t bits, size_t group)
{
    const bool is_fp4 = mode && !strcmp(mode, "mxfp4");
    if (mode && !is_fp4 && strcmp(mode, "affine") != 0)
        config_complain(r, "quantization%s: mode \"%s\" is not read here (affine and mxfp4 are)", of,
                        input_quote(mode).text);
    if (is_fp4 && bits && group && (bits != 4 || group != QUANT_FP4_GROUP))
        config_complain(r, "quantization%s: mxfp4 has 4 bits in groups of %d, not %zu in groups of %zu", of,
                        QUANT_FP4_GROUP, bits, group);
}

/* As mlx-lm writes it: {"group_size", "bits"}, and under a layer's name the same for that layer, or
 * false. */
static bool read_mlx(struct config_reader *r, struct config *c)
{
    const json_t *q = config_lookup(r->root, "quantization");
    const char *key;
    json_t *own;
    if (!q)
        return false;
    const char *mode = config_string(r, q, "mode", "affine");
    c->quant_bits = config_size(r, q, "bits", 0, 64);
    c->quant_group = config_size(r, q, "group_size", 0, 1 << 16);
    c->quant_kind = config_quant_kind(mode);
    check_quant(r, "", c->quant_bits, c->quant_group);
    check_mode(r, "", mode, c->quant_bits, c->quant_group);
    json_object_foreach ((json_t *)q, key, own) {
        char of[128];
        if (!json_is_object(own))
            continue;
        snprintf(of, sizeof of, " of %.100s", input_quote(key).text);
        const size_t bits = config_size(r, own, "bits", c->quant_bits, 64),
                     group = config_size(r, own, "group_size", c->quant_group, 1 << 16);
        check_quant(r, of, bits, group);
        check_mode(r, of, config_string(r, own, "mode", "affine"), bits, group);
    }
    return true;
}

/* FP8 as DeepSeek releases it: E4M3, one scale for a block of 128 × 128. What gguf_config.c
 * makes of a GGUF file is told by its tensors. All else is refused. */
static void read_quantization(struct config_reader *r, struct config *c)
{
    const json_t *q = config_lookup(r->root, "quantization_config");
    if (read_mlx(r, c) || !q) /* mlx-lm may write the same under both names */
        return;
    const char *method = config_string(r, q, "quant_method", NULL), *fmt = config_string(r, q, "fmt", "e4m3");
    const json_t *block = config_lookup(q, "weight_block_size");
    if (method && !strcmp(method, "gguf")) {
        c->mixed = true;
        c->mla.kv_b_parts = config_bool(r, q, "kv_b_parts", false);
        return;
    }
    if (!method || strcmp(method, "fp8") != 0 || !fmt || strcmp(fmt, "e4m3") != 0 ||
        json_array_size(block) != 2 || json_integer_value(json_array_get(block, 0)) != FP8_BLOCK ||
        json_integer_value(json_array_get(block, 1)) != FP8_BLOCK)
        config_complain(r, "quantization_config: of quantised weights only fp8 (e4m3 in blocks of 128 × 128) "
                           "is read; take the unquantised model");
    c->fp8 = true;
}

/* What changes the numbers and is not computed must not pass silently. */
static void refuse_unknown(struct config_reader *r)
{
    const char *act = config_string(r, r->root, "hidden_act", "silu");
    if (act && strcmp(act, "silu") != 0)
        config_complain(r, "hidden_act \"%s\" is not supported (silu is)", input_quote(act).text);
    if (config_real(r, r->root, "attention_dropout", 0, 0, 1) > 0)
        config_complain(r, "attention_dropout is not supported; set it to 0");
}

static void read_common(struct config_reader *r, struct config *c, size_t max_positions)
{
    c->layers = config_size(r, r->root, "num_hidden_layers", 0, MAX_LAYERS);
    c->dim = config_size(r, r->root, "hidden_size", 0, MAX_WIDTH);
    c->ffn = config_size(r, r->root, "intermediate_size", 0, MAX_WIDTH);
    c->vocab = config_size(r, r->root, "vocab_size", 0, MAX_VOCAB);
    c->max_positions = config_size(r, r->root, "max_position_embeddings", max_positions, INT32_MAX);
    c->norm_eps = (float)config_real(r, r->root, "rms_norm_eps", 1e-6, 0, 1);
    c->init_std = (float)config_real(r, r->root, "initializer_range", 0.02, 0, 100);
    c->tied = config_bool(r, r->root, "tie_word_embeddings", false);
    read_dtype(r, c);
    read_quantization(r, c);
    config_read_rope(r, c);
    refuse_unknown(r);
}

/* --- grouped-query attention ------------------------------------------------------------------ */

/* kv_heads, head: what the family assumes where the keys are absent; 0: as many as heads, dim /
 * heads. */
static void read_heads(struct config_reader *r, struct config *c, size_t kv_heads, size_t head)
{
    c->heads = config_size(r, r->root, "num_attention_heads", 0, MAX_HEADS);
    size_t fallback = kv_heads ? kv_heads : c->heads ? c->heads : 1;
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

/* fallback: the window the family assumes where the key is absent, 0 for none. */
static void refuse_window(struct config_reader *r, const struct config *c, size_t fallback)
{
    size_t window = json_object_get(r->root, "sliding_window") ? 0 : fallback;
    if (config_lookup(r->root, "sliding_window"))
        window = config_size(r, r->root, "sliding_window", 0, INT32_MAX);
    if (window && window < c->max_positions)
        config_complain(r,
                        "sliding_window %zu is not supported; take a model without one, or set it to null "
                        "and stay below that many tokens",
                        window);
}

static void read_llama(struct config_reader *r, struct config *c)
{
    read_common(r, c, 2048);
    c->attn_bias = c->attn_out_bias = config_bool(r, r->root, "attention_bias", false);
    c->mlp_bias = config_bool(r, r->root, "mlp_bias", false);
    read_heads(r, c, 0, 0);
    read_tokens(r, c, 1, 2);
}

static void read_mistral(struct config_reader *r, struct config *c)
{
    read_common(r, c, 131072);
    read_heads(r, c, 8, 0);
    read_tokens(r, c, 1, 2);
    refuse_window(r, c, 4096);
}

/* A window is given even where it is not used. */
static void refuse_used_window(struct config_reader *r, const struct config *c)
{
    if (config_bool(r, r->root, "use_sliding_window", false))
        refuse_window(r, c, 0);
}

static void read_qwen2(struct config_reader *r, struct config *c)
{
    read_common(r, c, 32768);
    c->attn_bias = true;
    read_heads(r, c, 32, 0);
    read_tokens(r, c, -1, -1);
    refuse_used_window(r, c);
}

static void read_qwen3(struct config_reader *r, struct config *c)
{
    read_common(r, c, 32768);
    c->attn_bias = c->attn_out_bias = config_bool(r, r->root, "attention_bias", false);
    c->qk_norm = true;
    read_heads(r, c, 32, 128);
    read_tokens(r, c, -1, -1);
    refuse_used_window(r, c);
}

/* --- experts ---------------------------------------------------------------------------------- */

static void read_experts(struct config_reader *r, struct config *c, const char *count)
{
    struct config_moe *m = &c->moe;
    m->experts = config_size(r, r->root, count, 0, MAX_EXPERTS);
    m->chosen = config_size(r, r->root, "num_experts_per_tok", 0, MAX_EXPERTS);
    m->ffn = config_size(r, r->root, "moe_intermediate_size", 0, MAX_WIDTH);
    m->groups = m->groups_chosen = 1;
    m->scale = 1;
    if (m->experts && m->chosen > m->experts)
        config_complain(r, "num_experts_per_tok %zu is more than the %zu experts there are", m->chosen,
                        m->experts);
}

static void read_dense(struct config_reader *r, struct config *c)
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

static void read_qwen3_moe(struct config_reader *r, struct config *c)
{
    read_qwen3(r, c);
    read_experts(r, c, "num_experts");
    c->moe.norm = config_bool(r, r->root, "norm_topk_prob", false);
    c->moe.every = config_size(r, r->root, "decoder_sparse_step", 1, MAX_LAYERS);
    read_dense(r, c);
}

/* --- DeepSeek --------------------------------------------------------------------------------- */

static void read_mla(struct config_reader *r, struct config *c)
{
    struct config_mla *m = &c->mla;
    c->heads = c->kv_heads = config_size(r, r->root, "num_attention_heads", 0, MAX_HEADS);
    m->kv_rank = config_size(r, r->root, "kv_lora_rank", 0, MAX_WIDTH);
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
    if (config_bool(r, r->root, "attention_bias", false))
        config_complain(r, "attention_bias is not supported for this family");
    if (!config_bool(r, r->root, "rope_interleave", true))
        config_complain(r, "rope_interleave = false is not supported");
}

/* Groups: n_group of them, topk_group of which are searched. */
static void read_groups(struct config_reader *r, struct config *c, size_t least)
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

static void read_deepseek(struct config_reader *r, struct config *c)
{
    read_common(r, c, 4096);
    read_mla(r, c);
    read_experts(r, c, "n_routed_experts");
    const json_t *shared = config_lookup(r->root, "n_shared_experts");
    if (shared)
        c->moe.shared_ffn = c->moe.ffn * config_size(r, r->root, "n_shared_experts", 0, MAX_EXPERTS);
    const json_t *dense = config_lookup(r->root, "first_k_dense_replace");
    json_int_t first = json_integer_value(dense);
    if ((dense && !json_is_integer(dense)) || first < 0 || first > MAX_LAYERS)
        config_complain(r, "first_k_dense_replace must be a number of layers");
    c->moe.first = (size_t)first;
    c->moe.scale = config_real(r, r->root, "routed_scaling_factor", 1, 1e-6, 1e6);
    c->moe.norm = config_bool(r, r->root, "norm_topk_prob", false);
    if (config_size(r, r->root, "moe_layer_freq", 1, MAX_LAYERS) != 1)
        config_complain(r, "moe_layer_freq other than 1 is not supported");
    read_tokens(r, c, 0, 1);
}

static void expect(struct config_reader *r, const char *key, const char *fallback, const char *wanted)
{
    const char *is = config_string(r, r->root, key, fallback);
    if (is && strcmp(is, wanted) != 0)
        config_complain(r, "%s \"%s\" is not supported for this family (%s is)", key, input_quote(is).text,
                        wanted);
}

static void read_deepseek_v2(struct config_reader *r, struct config *c)
{
    read_deepseek(r, c);
    expect(r, "scoring_func", "softmax", "softmax");
    const char *method = config_string(r, r->root, "topk_method", "greedy");
    if (method && !strcmp(method, "group_limited_greedy"))
        read_groups(r, c, 1);
    else
        expect(r, "topk_method", "greedy", "greedy");
    if (c->moe.norm) /* implementations differ in whether the scaling factor then applies */
        config_complain(r, "norm_topk_prob is not supported for this family");
}

static void read_deepseek_v3(struct config_reader *r, struct config *c)
{
    read_deepseek(r, c);
    expect(r, "scoring_func", "sigmoid", "sigmoid");
    expect(r, "topk_method", "noaux_tc", "noaux_tc");
    read_groups(r, c, 2);
    c->moe.sigmoid = c->moe.bias = true;
    const json_t *extra = config_lookup(r->root, "num_nextn_predict_layers");
    c->extra_layers = 1; /* as released */
    if (json_is_integer(extra) && json_integer_value(extra) >= 0 && json_integer_value(extra) < MAX_LAYERS)
        c->extra_layers = (size_t)json_integer_value(extra);
}

/* --- families --------------------------------------------------------------------------------- */

static const struct family_reader {
    const char *model_type, *architecture;
    void (*read)(struct config_reader *r, struct config *c);
} families[] = {
    {"llama", "LlamaForCausalLM", read_llama},
    {"mistral", "MistralForCausalLM", read_mistral},
    {"qwen2", "Qwen2ForCausalLM", read_qwen2},
    {"qwen3", "Qwen3ForCausalLM", read_qwen3},
    {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe},
    {"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek_v2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek_v3},
};

static void list_families(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof families / sizeof families[0] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", families[i].model_type);
}

static void check_architecture(struct config_reader *r, const struct family_reader *f)
{
    const json_t *list = config_lookup(r->root, "architectures");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, f->architecture) == 0)
            return;
    }
    const char *first = json_string_value(json_array_get(list, 0));
    if (list)
        config_complain(r, "architectures name %s, allowed is %s", first ? input_quote(first).text : "none",
                        f->architecture);
}

void config_read_family(struct config_reader *r, struct config *c)
{
    const char *type = config_string(r, r->root, "model_type", NULL);
    char known[128];
    if (!type) {
        config_complain(r, "model_type is missing");
        return;
    }
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(type, families[i].model_type) != 0)
            continue;
        snprintf(c->family, sizeof c->family, "%s", type);
        check_architecture(r, &families[i]);
        families[i].read(r, c);
        return;
    }
    list_families(known, sizeof known);
    config_complain(r, "the model family \"%s\" is not supported (known: %s)", input_quote(type).text, known);
}
