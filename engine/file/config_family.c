/* SPDX-License-Identifier: MIT
 *
 * Owns what the keys of a config.json mean to each family: a row for each, with what it assumes,
 * the parts it is made of, and a reader of keys of its own. Called by config.c while one config is
 * parsed; pure, any thread. A further family is a row in `families`, see docs/FAMILIES.md. */
#include "file/config_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/input.h"

enum { MAX_LAYERS = CONFIG_MAX_LAYERS };

/* Is there such a thing: in no model of the family, in all, or where the config's key says so? */
enum presence { NEVER, ALWAYS, BY_KEY };

struct family_row {
    const char *model_type, *architecture;
    struct config_usual usual;
    bool latent;                      /* multi-head latent attention */
    enum presence qkv_bias, out_bias; /* attention_bias */
    enum presence mlp_bias, qk_norm;  /* mlp_bias, use_qk_norm */
    bool qk_norm_whole, norm_plus_one, fused;
    enum config_norms norms;
    void (*read)(struct config_reader *r, struct config *c); /* its own keys; NULL: it has none */
};

/* --- keys of their own ------------------------------------------------------------------------ */

static void expect(struct config_reader *r, const char *key, const char *fallback, const char *wanted)
{
    const char *is = config_string(r, r->root, key, fallback);
    if (is && strcmp(is, wanted) != 0)
        config_complain(r, "%s \"%s\" is not supported for this family (%s is)", key, input_quote(is).text,
                        wanted);
}

static void refuse(struct config_reader *r, const char *key)
{
    const json_t *v = config_lookup(r->root, key);
    if (v && !json_is_false(v))
        config_complain(r, "%s is not supported for this family", key);
}

/* A factor of what is computed; 1 where it is absent. */
static double factor(struct config_reader *r, const char *key)
{
    return config_real(r, r->root, key, 1, 1e-6, 1e6);
}

static bool every_layer(const struct config *c, size_t layer)
{
    (void)c, (void)layer;
    return true;
}

static void read_mistral(struct config_reader *r, struct config *c)
{
    c->window = config_read_window(r, c, 4096);
    config_read_kinds(r, c, every_layer);
}

static void read_window_of_all(struct config_reader *r, struct config *c)
{
    c->window = config_read_window(r, c, 0);
    config_read_kinds(r, c, every_layer);
}

/* A window is given even where it is not used, and the first layers have none. */
static void read_qwen(struct config_reader *r, struct config *c)
{
    const json_t *first = config_lookup(r->root, "max_window_layers");
    const json_int_t from = first ? json_integer_value(first) : 28;
    if (!config_bool(r, r->root, "use_sliding_window", false))
        return;
    if ((first && !json_is_integer(first)) || from < 0 || from > MAX_LAYERS)
        config_complain(r, "max_window_layers must be a number of layers");
    c->window = config_read_window(r, c, 4096);
    if (config_lookup(r->root, "layer_types"))
        config_read_kinds(r, c, every_layer);
    else
        for (size_t l = (size_t)from; c->window && from >= 0 && l < c->layers; l++)
            config_add_layer(&c->windowed, l);
}

static void read_qwen_experts(struct config_reader *r, struct config *c, bool norm)
{
    config_read_experts(r, c, config_lookup(r->root, "num_experts") ? "num_experts" : "num_local_experts",
                        "moe_intermediate_size"); /* the latter since transformers 5 */
    c->moe.norm = config_bool(r, r->root, "norm_topk_prob", norm);
    c->moe.every = config_size(r, r->root, "decoder_sparse_step", 1, MAX_LAYERS);
    config_read_dense(r, c);
}

static void read_qwen3_moe(struct config_reader *r, struct config *c)
{
    read_qwen(r, c);
    read_qwen_experts(r, c, false);
}

/* mtp.*, as released; the configs of Qwen3-Next do not say that it is there. */
static void read_apart(struct config_reader *r, struct config *c)
{
    config_read_extra(r, c, "mtp_num_hidden_layers", 1);
    c->extra_apart = true;
}

/* Gates on what attention, experts and delta rule give; three of four layers are linear. */
static void read_qwen3_next(struct config_reader *r, struct config *c)
{
    config_read_delta(r, c);
    c->delta.fused = c->attn_gate = true;
    read_apart(r, c);
    read_qwen_experts(r, c, true);
    c->moe.shared_ffn = config_size(r, r->root, "shared_expert_intermediate_size", 512, INT32_MAX);
    c->moe.shared_gate = true;
}

/* The streams of positions that mrope_section divides a head among are one stream where there is
 * only text. */
static void read_qwen3_5(struct config_reader *r, struct config *c)
{
    config_read_delta(r, c);
    c->attn_gate = config_bool(r, r->root, "attn_output_gate", true);
    read_apart(r, c);
}

/* As Qwen3-Next's, with weights of experts that always sum to one. */
static void read_qwen3_5_moe(struct config_reader *r, struct config *c)
{
    read_qwen3_5(r, c);
    read_qwen_experts(r, c, true);
    c->moe.norm = c->moe.shared_gate = true;
    c->moe.shared_ffn = config_size(r, r->root, "shared_expert_intermediate_size", 512, INT32_MAX);
}

static bool is_unrotated(const struct config *c, size_t layer)
{
    return config_layers_have(&c->unrotated, layer);
}

/* no_rope_layers has a 1 for each layer that IS rotated. */
static void read_smollm3(struct config_reader *r, struct config *c)
{
    const json_t *list = config_lookup(r->root, "no_rope_layers");
    const size_t every = config_size(r, r->root, "no_rope_layer_interval", 4, MAX_LAYERS);
    if (list && json_array_size(list) != c->layers)
        config_complain(r, "no_rope_layers must have a number for each of the %zu layers", c->layers);
    for (size_t l = 0; every && l < c->layers; l++)
        if (list ? json_integer_value(json_array_get(list, l)) == 0 : (l + 1) % every == 0)
            config_add_layer(&c->unrotated, l);
    if (!config_bool(r, r->root, "use_sliding_window", false))
        return;
    c->window = config_read_window(r, c, 0);
    config_read_kinds(r, c, is_unrotated);
}

static void read_granite(struct config_reader *r, struct config *c)
{
    c->embed_scale = factor(r, "embedding_multiplier");
    c->residual_scale = factor(r, "residual_multiplier");
    c->attn_scale = factor(r, "attention_multiplier");
    c->logit_scale = 1 / factor(r, "logits_scaling");
}

static bool is_olmo_windowed(const struct config *c, size_t layer)
{
    (void)c;
    return (layer + 1) % 4 != 0;
}

static bool is_even(const struct config *c, size_t layer)
{
    (void)c;
    return layer % 2 == 0;
}

/* The windowed layers are rotated as before the context was extended. */
static void read_olmo3(struct config_reader *r, struct config *c)
{
    c->window = config_read_window(r, c, 4096);
    config_read_kinds(r, c, is_olmo_windowed);
    if (c->rope != ROPE_DEFAULT && !c->rope_window_theta)
        c->rope_window_theta = c->rope_theta;
}

static void read_gemma3(struct config_reader *r, struct config *c)
{
    const size_t every = config_size(r, r->root, "sliding_window_pattern", 6, MAX_LAYERS);
    const bool named = config_lookup(r->root, "layer_types") != NULL;
    refuse(r, "attn_logit_softcapping");
    refuse(r, "final_logit_softcapping");
    refuse(r, "use_bidirectional_attention");
    c->embed_scale = sqrt((double)c->dim);
    c->attn_scale = 1 / sqrt(config_real(r, r->root, "query_pre_attn_scalar", 256, 1e-6, 1e6));
    c->window = config_read_window(r, c, 4096);
    if (named)
        config_read_kinds(r, c, every_layer);
    for (size_t l = 0; !named && every && c->window && l < c->layers; l++)
        if ((l + 1) % every != 0)
            config_add_layer(&c->windowed, l);
    if (!c->rope_window_theta)
        c->rope_window_theta = config_real(r, r->root, "rope_local_base_freq", 10000, 1, 1e15);
}

/* A cap may be null, which is none. */
static double softcap(struct config_reader *r, const char *key, double usual)
{
    const bool is_null = json_is_null(json_object_get(r->root, key));
    return is_null ? 0 : config_real(r, r->root, key, usual, 1e-6, 1e6);
}

static bool is_gemma2_windowed(const struct config *c, size_t layer)
{
    (void)c;
    return layer % 2 == 0;
}

static void read_gemma2(struct config_reader *r, struct config *c)
{
    refuse(r, "use_bidirectional_attention");
    c->embed_scale = sqrt((double)c->dim);
    c->attn_scale = 1 / sqrt(config_real(r, r->root, "query_pre_attn_scalar", 256, 1e-6, 1e6));
    c->attn_softcap = softcap(r, "attn_logit_softcapping", 50);
    c->logit_softcap = softcap(r, "final_logit_softcapping", 30);
    c->window = config_read_window(r, c, 4096);
    config_read_kinds(r, c, is_gemma2_windowed);
}

/* --- experts ---------------------------------------------------------------------------------- */

static void read_glm4_moe(struct config_reader *r, struct config *c)
{
    config_read_experts(r, c, "n_routed_experts", "moe_intermediate_size");
    config_read_shared(r, c);
    c->moe.norm = config_bool(r, r->root, "norm_topk_prob", true);
    config_read_groups(r, c, 2);
    c->moe.sigmoid = c->moe.bias = true;
    config_read_extra(r, c, "num_nextn_predict_layers", 1); /* as released */
}

/* The choice is of logits, and the softmax one over those that were chosen: the same as over all,
 * made to sum to one. */
static void read_gpt_oss(struct config_reader *r, struct config *c)
{
    c->attn_bias = c->attn_out_bias = config_bool(r, r->root, "attention_bias", true);
    c->glu.limit = (float)config_real(r, r->root, "swiglu_limit", 7, 1e-3, 1e6);
    c->sinks = c->mlp_bias = true;
    config_read_experts(r, c, "num_local_experts", "intermediate_size");
    c->moe.norm = true;
    c->window = config_read_window(r, c, 128);
    config_read_kinds(r, c, is_even);
}

/* Its number of rotated elements has a name of its own. */
static void read_minimax_m2(struct config_reader *r, struct config *c)
{
    const json_t *kinds = config_lookup(r->root, "attn_type_list");
    for (size_t l = 0; l < json_array_size(kinds); l++)
        if (json_integer_value(json_array_get(kinds, l)) != 1) {
            config_complain(r, "attn_type_list: only 1, ordinary attention, is supported");
            break;
        }
    if (config_lookup(r->root, "rotary_dim")) {
        const size_t width = config_size(r, r->root, "rotary_dim", 0, c->head);
        if (width % 2 != 0)
            config_complain(r, "rotary_dim %zu is odd, but rotation takes pairs", width);
        c->rope_width = width < c->head ? width : 0;
    }
    expect(r, "scoring_func", "sigmoid", "sigmoid");
    expect(r, "qk_norm_type", "per_layer", "per_layer");
    config_read_experts(r, c, "num_local_experts", "intermediate_size");
    c->moe.sigmoid = c->moe.norm = true;
    c->moe.bias = config_bool(r, r->root, "use_routing_bias", true);
    const json_t *shared = config_lookup(r->root, "shared_intermediate_size");
    if (shared && json_integer_value(shared) != 0)
        config_complain(r, "shared_intermediate_size other than 0 is not supported");
    config_read_extra(r, c, "num_mtp_modules", 0);
}

/* --- DeepSeek --------------------------------------------------------------------------------- */

static void read_deepseek(struct config_reader *r, struct config *c)
{
    config_read_experts(r, c, "n_routed_experts", "moe_intermediate_size");
    config_read_shared(r, c);
    if (config_size(r, r->root, "moe_layer_freq", 1, MAX_LAYERS) != 1)
        config_complain(r, "moe_layer_freq other than 1 is not supported");
}

static void read_deepseek_v2(struct config_reader *r, struct config *c)
{
    read_deepseek(r, c);
    expect(r, "scoring_func", "softmax", "softmax");
    const char *method = config_string(r, r->root, "topk_method", "greedy");
    if (method && !strcmp(method, "group_limited_greedy"))
        config_read_groups(r, c, 1);
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
    config_read_groups(r, c, 2);
    c->moe.sigmoid = c->moe.bias = true;
    config_read_extra(r, c, "num_nextn_predict_layers", 1); /* as released */
}

static void read_deepseek_v32(struct config_reader *r, struct config *c)
{
    read_deepseek_v3(r, c);
    config_read_indexer(r, c);
}

/* --- families --------------------------------------------------------------------------------- */

static const struct family_row families[] = {
    {.model_type = "llama",
     .architecture = "LlamaForCausalLM",
     .usual = {.positions = 2048, .bos = 1, .eos = 2},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .mlp_bias = BY_KEY},
    {.model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .usual = {.positions = 131072, .kv_heads = 8, .bos = 1, .eos = 2},
     .read = read_mistral},
    {.model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .usual = {.positions = 32768, .kv_heads = 32, .bos = -1, .eos = -1},
     .qkv_bias = ALWAYS,
     .read = read_qwen},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .usual = {.positions = 32768, .kv_heads = 32, .head = 128, .bos = -1, .eos = -1},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .qk_norm = ALWAYS,
     .read = read_qwen},
    {.model_type = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .usual = {.positions = 32768, .kv_heads = 32, .head = 128, .bos = -1, .eos = -1},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .qk_norm = ALWAYS,
     .read = read_qwen3_moe},
    {.model_type = "qwen3_next",
     .architecture = "Qwen3NextForCausalLM",
     .usual = {.positions = 32768, .kv_heads = 2, .head = 256, .rotated = 0.25, .bos = -1, .eos = -1},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .qk_norm = ALWAYS,
     .norm_plus_one = true,
     .read = read_qwen3_next},
    {.model_type = "qwen3_5_text",
     .architecture = "Qwen3_5ForCausalLM",
     .usual = {.positions = 32768, .kv_heads = 4, .head = 256, .rotated = 0.25, .bos = -1, .eos = -1},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .qk_norm = ALWAYS,
     .norm_plus_one = true,
     .read = read_qwen3_5},
    {.model_type = "qwen3_5_moe_text",
     .architecture = "Qwen3_5MoeForCausalLM",
     .usual = {.positions = 32768,
               .ffn = 512, /* of no layer: all have experts */
               .kv_heads = 2,
               .head = 256,
               .rotated = 0.25,
               .bos = -1,
               .eos = -1},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .qk_norm = ALWAYS,
     .norm_plus_one = true,
     .read = read_qwen3_5_moe},
    {.model_type = "deepseek_v2",
     .architecture = "DeepseekV2ForCausalLM",
     .usual = {.positions = 4096, .bos = 0, .eos = 1},
     .latent = true,
     .read = read_deepseek_v2},
    {.model_type = "deepseek_v3",
     .architecture = "DeepseekV3ForCausalLM",
     .usual = {.positions = 4096, .bos = 0, .eos = 1},
     .latent = true,
     .read = read_deepseek_v3},
    {.model_type = "kimi_k2",
     .architecture = "DeepseekV3ForCausalLM",
     .usual = {.positions = 131072, .theta = 50000, .bos = 163584, .eos = 163585},
     .latent = true,
     .read = read_deepseek_v3},
    {.model_type = "deepseek_v32",
     .architecture = "DeepseekV32ForCausalLM",
     .usual = {.positions = 163840, .bos = 0, .eos = 1},
     .latent = true,
     .read = read_deepseek_v32},
    {.model_type = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .usual = {.positions = 32768, .kv_heads = 4, .theta = 2e6, .bos = 128000, .eos = 128001, .tied = true},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .mlp_bias = BY_KEY,
     .read = read_smollm3},
    {.model_type = "granite",
     .architecture = "GraniteForCausalLM",
     .usual = {.positions = 2048, .bos = 1, .eos = 2},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .mlp_bias = BY_KEY,
     .read = read_granite},
    {.model_type = "phi3",
     .architecture = "Phi3ForCausalLM",
     .usual = {.positions = 4096, .eps = 1e-5, .rotated = 1, .bos = 1, .eos = 32000},
     .fused = true,
     .read = read_window_of_all},
    {.model_type = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .usual = {.positions = 2048, .eps = 1e-5, .bos = -1, .eos = 50279},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .qk_norm = ALWAYS,
     .qk_norm_whole = true,
     .norms = NORMS_AFTER,
     .read = read_olmo3},
    {.model_type = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .usual = {.positions = 262144, .kv_heads = 8, .head = 128, .eps = 1e-5, .bos = 1, .eos = 2},
     .read = read_window_of_all},
    {.model_type = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .usual = {.positions = 131072,
               .heads = 8,
               .vocab = 262208,
               .kv_heads = 4,
               .head = 256,
               .theta = 1e6,
               .bos = 2,
               .eos = 1,
               .tied = true,
               .act_key = "hidden_activation",
               .glu = GLU_GELU_TANH},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .qk_norm = ALWAYS,
     .norms = NORMS_AROUND,
     .norm_plus_one = true,
     .read = read_gemma3},
    {.model_type = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .usual = {.positions = 8192,
               .heads = 8,
               .vocab = 256000,
               .kv_heads = 4,
               .head = 256,
               .bos = 2,
               .eos = 1,
               .tied = true,
               .act_key = "hidden_activation",
               .glu = GLU_GELU_TANH},
     .qkv_bias = BY_KEY,
     .out_bias = BY_KEY,
     .norms = NORMS_AROUND,
     .norm_plus_one = true,
     .read = read_gemma2},
    {.model_type = "glm4_moe",
     .architecture = "Glm4MoeForCausalLM",
     .usual = {.positions = 131072, .kv_heads = 8, .eps = 1e-5, .rotated = 0.5, .bos = -1, .eos = -1},
     .qkv_bias = BY_KEY,
     .qk_norm = BY_KEY,
     .read = read_glm4_moe},
    {.model_type = "minimax_m2",
     .architecture = "MiniMaxM2ForCausalLM",
     .usual = {.positions = 196608, .kv_heads = 8, .theta = 5e6, .rotated = 1, .bos = -1, .eos = -1},
     .qk_norm = BY_KEY,
     .qk_norm_whole = true,
     .read = read_minimax_m2},
    {.model_type = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .usual = {.positions = 131072,
               .kv_heads = 8,
               .head = 64,
               .theta = 150000,
               .eps = 1e-5,
               .bos = -1,
               .eos = -1,
               .glu = GLU_CLAMPED},
     .read = read_gpt_oss},
};

static const struct family_row *row_of(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (!strcmp(model_type, families[i].model_type))
            return &families[i];
    return NULL;
}

const char *config_architecture(const char *model_type)
{
    const struct family_row *f = row_of(model_type);
    return f ? f->architecture : NULL;
}

static bool has(struct config_reader *r, enum presence presence, const char *key)
{
    return presence == ALWAYS || (presence == BY_KEY && config_bool(r, r->root, key, false));
}

static void read_row(struct config_reader *r, struct config *c, const struct family_row *f)
{
    const struct config_usual *usual = &f->usual;
    config_read_common(r, c, usual);
    if (f->latent)
        config_read_latent(r, c);
    else
        config_read_heads(r, c, usual);
    c->attn_bias = has(r, f->qkv_bias, "attention_bias");
    c->attn_out_bias = has(r, f->out_bias, "attention_bias");
    c->mlp_bias = has(r, f->mlp_bias, "mlp_bias");
    c->qk_norm = has(r, f->qk_norm, "use_qk_norm");
    c->qk_norm_whole = c->qk_norm && f->qk_norm_whole;
    c->norms = f->norms;
    c->norm_plus_one = f->norm_plus_one;
    c->fused = f->fused;
    config_read_rope(r, c, usual);
    config_read_tokens(r, c, usual->bos, usual->eos);
    if (f->read)
        f->read(r, c);
}

static void list_families(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof families / sizeof families[0] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", families[i].model_type);
}

static void check_architecture(struct config_reader *r, const struct family_row *f)
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
    char known[400];
    if (!type) {
        config_complain(r, "model_type is missing");
        return;
    }
    const struct family_row *f = row_of(type);
    if (f) {
        snprintf(c->family, sizeof c->family, "%s", type);
        check_architecture(r, f);
        read_row(r, c, f);
        return;
    }
    list_families(known, sizeof known);
    config_complain(r, "the model family \"%s\" is not supported (known: %s)", input_quote(type).text, known);
}
