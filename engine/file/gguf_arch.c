/* SPDX-License-Identifier: MIT
 *
 * The architectures of GGUF files and what each has of its own, in the words of Hugging Face's
 * configs. What llama.cpp knows of one without a key stands here too. Called by gguf_config.c; one
 * thread. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "file/config.h"
#include "file/gguf_model_impl.h"

/* --- experts and latent attention ------------------------------------------------------------- */

static void put_experts(struct gguf_maker *k, const char *count)
{
    maker_put_needed(k, count, "expert_count");
    maker_put_needed(k, "num_experts_per_tok", "expert_used_count");
    maker_put_needed(k, "moe_intermediate_size", "expert_feed_forward_length");
}

static void put_scores(struct gguf_maker *k)
{
    const int64_t gate = maker_whole(k, "expert_gating_func"), groups = maker_whole(k, "expert_group_count"),
                  extra = maker_whole(k, "nextn_predict_layers");
    const bool is_v3 = gate == 2;
    if (gate > 2 && !k->r)
        k->r = err_set(k->err, -ENOTSUP, "%s.expert_gating_func %lld is not supported (1 softmax, 2 sigmoid)",
                       k->arch, (long long)gate);
    maker_put(k, "norm_topk_prob", json_boolean(maker_flag(k, "expert_weights_norm", false)));
    maker_put(k, "routed_scaling_factor", json_real(maker_real(k, "expert_weights_scale", 1)));
    maker_put(k, "scoring_func", json_string(is_v3 ? "sigmoid" : "softmax"));
    maker_put(k, "topk_method",
              json_string(is_v3        ? "noaux_tc"
                          : groups > 1 ? "group_limited_greedy"
                                       : "greedy"));
    maker_put_whole(k, "n_group", "expert_group_count");
    maker_put_whole(k, "topk_group", "expert_group_used_count");
    if (is_v3) {
        maker_put(k, "model_type", json_string("deepseek_v3"));
        maker_put(k, "architectures", json_pack("[s]", "DeepseekV3ForCausalLM"));
        maker_put(k, "num_nextn_predict_layers", json_integer(extra > 0 ? extra : 0));
    }
}

static void put_latent(struct gguf_maker *k)
{
    const int64_t rope = maker_needed(k, "rope.dimension_count"),
                  rank = maker_needed(k, "attention.kv_lora_rank"),
                  own = maker_whole(k, "attention.key_length_mla");
    const int64_t width = own > 0 ? own : maker_needed(k, "attention.key_length");
    maker_put_needed(k, "num_attention_heads", "attention.head_count");
    maker_put(k, "kv_lora_rank", json_integer(rank));
    maker_put_whole(k, "q_lora_rank", "attention.q_lora_rank");
    maker_put(k, "qk_rope_head_dim", json_integer(rope));
    maker_put(k, "qk_nope_head_dim", json_integer(width > rope ? width - rope : 0));
    maker_put_needed(k, "v_head_dim", own > 0 ? "attention.value_length_mla" : "attention.value_length");
    put_experts(k, "n_routed_experts");
    if (maker_whole(k, "expert_shared_count") > 0)
        maker_put_whole(k, "n_shared_experts", "expert_shared_count");
    maker_put_whole(k, "first_k_dense_replace", "leading_dense_block_count");
    put_scores(k);
    if (maker_has(k, "blk.0.attn_k_b.weight") && !maker_has(k, "blk.0.attn_kv_b.weight") && !k->r)
        json_object_set_new(json_object_get(k->root, "quantization_config"), "kv_b_parts", json_true());
}

/* --- others ----------------------------------------------------------------------------------- */

static void put_qwen3moe(struct gguf_maker *k)
{
    put_experts(k, "num_experts");
    maker_put(k, "norm_topk_prob", json_true());
    if (maker_whole(k, "feed_forward_length") < 0)
        maker_put_needed(k, "intermediate_size", "expert_feed_forward_length");
}

static void put_granite(struct gguf_maker *k)
{
    static const char *const keys[][2] = {{"attention_multiplier", "attention.scale"},
                                          {"embedding_multiplier", "embedding_scale"},
                                          {"residual_multiplier", "residual_scale"},
                                          {"logits_scaling", "logit_scale"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        maker_put(k, keys[i][0], json_real(maker_real(k, keys[i][1], 1)));
}

static void put_glm4moe(struct gguf_maker *k)
{
    const int64_t extra = maker_whole(k, "nextn_predict_layers");
    put_experts(k, "n_routed_experts");
    if (maker_whole(k, "expert_shared_count") > 0)
        maker_put_whole(k, "n_shared_experts", "expert_shared_count");
    maker_put_whole(k, "first_k_dense_replace", "leading_dense_block_count");
    maker_put(k, "norm_topk_prob", json_boolean(maker_flag(k, "expert_weights_norm", true)));
    maker_put(k, "routed_scaling_factor", json_real(maker_real(k, "expert_weights_scale", 1)));
    maker_put(k, "use_qk_norm", json_boolean(maker_has(k, "blk.0.attn_q_norm.weight")));
    maker_put(k, "num_nextn_predict_layers", json_integer(extra > 0 ? extra : 0));
}

static void put_gpt_oss(struct gguf_maker *k)
{
    maker_put_needed(k, "num_local_experts", "expert_count");
    maker_put_needed(k, "num_experts_per_tok", "expert_used_count");
    maker_put_whole(k, "sliding_window", "attention.sliding_window");
    if (maker_whole(k, "feed_forward_length") < 0)
        maker_put_needed(k, "intermediate_size", "expert_feed_forward_length");
}

/* --- windows ---------------------------------------------------------------------------------- */

/* How many layers make a turn of windows, the last of which has none; or a flag for each layer. */
static bool has_window(const struct gguf_value *pattern, size_t usual, size_t layer)
{
    int64_t every = (int64_t)usual;
    if (pattern && pattern->is_array && pattern->type == GGUF_BOOL)
        return layer < pattern->count && pattern->at[layer];
    if (pattern)
        gguf_whole(pattern, 0, &every);
    return every > 0 && (layer + 1) % (size_t)every != 0;
}

/* An array of another type, or of another length, would be a guess. */
static void check_pattern(struct gguf_maker *k, const struct gguf_value *pattern, int64_t layers)
{
    int64_t every = 0;
    const bool is_right = pattern->is_array ? pattern->type == GGUF_BOOL && (int64_t)pattern->count == layers
                                            : gguf_whole(pattern, 0, &every) && every >= 0;
    if (!is_right && !k->r)
        k->r = err_set(k->err, -EBADMSG,
                       "%s.attention.sliding_window_pattern is neither a count nor one flag for each of the "
                       "%lld layers",
                       k->arch, (long long)layers);
}

static void put_windows(struct gguf_maker *k, size_t usual)
{
    const struct gguf_value *pattern = maker_value(k->g, k->arch, "attention.sliding_window_pattern");
    const int64_t window = maker_whole(k, "attention.sliding_window"),
                  layers = maker_needed(k, "block_count");
    json_t *kinds = json_array();
    if (pattern)
        check_pattern(k, pattern, layers);
    for (int64_t l = 0; l < layers && l < CONFIG_MAX_LAYERS; l++)
        json_array_append_new(kinds, json_string(window > 0 && has_window(pattern, usual, (size_t)l)
                                                     ? "sliding_attention"
                                                     : "full_attention"));
    maker_put(k, "sliding_window", window > 0 ? json_integer(window) : json_null());
    maker_put(k, "layer_types", kinds);
}

/* --- Gemma, OLMo, Phi, Mistral, MiniMax ------------------------------------------------------- */

/* What scores are divided by has no key. The largest model of each alone has not the width of a
 * head there, and llama.cpp knows it by its layers. */
static void put_gemma(struct gguf_maker *k, int64_t largest)
{
    const int64_t layers = maker_needed(k, "block_count"), dim = maker_needed(k, "embedding_length"),
                  heads = maker_needed(k, "attention.head_count");
    const double width =
        layers == largest && heads > 0 ? (double)dim / (double)heads : (double)gguf_config_head_width(k->g);
    maker_put(k, "query_pre_attn_scalar", json_real(width));
    maker_put(k, "hidden_activation", json_string("gelu_pytorch_tanh"));
}

static json_t *cap(struct gguf_maker *k, const char *key)
{
    const double is = maker_real(k, key, 0);
    return is > 0 ? json_real(is) : json_null();
}

static void put_gemma2(struct gguf_maker *k)
{
    put_gemma(k, 46);
    put_windows(k, 2);
    maker_put(k, "attn_logit_softcapping", cap(k, "attn_logit_softcapping"));
    maker_put(k, "final_logit_softcapping", cap(k, "final_logit_softcapping"));
}

static void put_gemma3(struct gguf_maker *k)
{
    put_gemma(k, 62);
    put_windows(k, 6);
    maker_put(k, "final_logit_softcapping", cap(k, "final_logit_softcapping"));
    maker_put(k, "rope_local_base_freq", json_real(maker_real(k, "rope.freq_base_swa", 10000)));
}

static void put_olmo2(struct gguf_maker *k)
{
    put_windows(k, 4);
}

static void put_phi3(struct gguf_maker *k)
{
    const int64_t window = maker_whole(k, "attention.sliding_window");
    maker_put(k, "sliding_window", window > 0 ? json_integer(window) : json_null());
    maker_put_whole(k, "original_max_position_embeddings", "rope.scaling.original_context_length");
}

static void put_minimax(struct gguf_maker *k)
{
    maker_put_needed(k, "num_local_experts", "expert_count");
    maker_put_needed(k, "num_experts_per_tok", "expert_used_count");
    maker_put_needed(k, "intermediate_size", "expert_feed_forward_length");
    maker_put_needed(k, "rotary_dim", "rope.dimension_count");
    maker_put(k, "use_qk_norm", json_boolean(maker_has(k, "blk.0.attn_q_norm.weight")));
    maker_put(k, "use_routing_bias", json_boolean(maker_has(k, "blk.0.exp_probs_b.bias")));
    maker_put(k, "num_mtp_modules", json_integer(0));
    if (maker_whole(k, "expert_gating_func") > 0 && maker_whole(k, "expert_gating_func") != 2 && !k->r)
        k->r = err_set(k->err, -ENOTSUP, "%s.expert_gating_func is not 2 (sigmoid), which is not supported",
                       k->arch);
}

/* --- linear layers ---------------------------------------------------------------------------- */

static void put_qwen35(struct gguf_maker *k)
{
    maker_put(k, "attn_output_gate", json_true());
    maker_put_linear(k);
}

static void put_qwen_shared(struct gguf_maker *k)
{
    put_qwen3moe(k);
    maker_put_needed(k, "shared_expert_intermediate_size", "expert_shared_feed_forward_length");
}

static void put_qwen3next(struct gguf_maker *k)
{
    put_qwen_shared(k);
    maker_put_linear(k);
}

static void put_qwen35moe(struct gguf_maker *k)
{
    put_qwen_shared(k);
    put_qwen35(k);
}

/* --- all of them ------------------------------------------------------------------------------ */

static const struct gguf_arch architectures[] = {
    {.gguf = "llama", .model_type = "llama", .is_turned = true},
    {.gguf = "qwen2", .model_type = "qwen2"},
    {.gguf = "qwen3", .model_type = "qwen3"},
    {.gguf = "qwen3moe", .model_type = "qwen3_moe", .put = put_qwen3moe},
    {.gguf = "deepseek2", .model_type = "deepseek_v2", .is_latent = true, .put = put_latent},
    {.gguf = "smollm3", .model_type = "smollm3", .is_turned = true},
    {.gguf = "granite", .model_type = "granite", .is_turned = true, .put = put_granite},
    {.gguf = "glm4moe", .model_type = "glm4_moe", .rotates_part = true, .put = put_glm4moe},
    {.gguf = "gpt-oss", .model_type = "gpt_oss", .put = put_gpt_oss},
    {.gguf = "gemma2", .model_type = "gemma2", .adds_one = true, .put = put_gemma2},
    {.gguf = "gemma3", .model_type = "gemma3_text", .adds_one = true, .put = put_gemma3},
    {.gguf = "olmo2", .model_type = "olmo3", .put = put_olmo2},
    {.gguf = "phi3", .model_type = "phi3", .rotates_part = true, .put = put_phi3},
    {.gguf = "mistral3", .model_type = "ministral3", .is_turned = true},
    {.gguf = "minimax-m2", .model_type = "minimax_m2", .rotates_part = true, .put = put_minimax},
    {.gguf = "qwen3next",
     .model_type = "qwen3_next",
     .rotates_part = true,
     .adds_one = true,
     .linear = LINEAR_SPLIT,
     .put = put_qwen3next},
    {.gguf = "qwen35",
     .model_type = "qwen3_5_text",
     .rotates_part = true,
     .adds_one = true,
     .linear = LINEAR_WOVEN,
     .put = put_qwen35},
    {.gguf = "qwen35moe",
     .model_type = "qwen3_5_moe_text",
     .rotates_part = true,
     .adds_one = true,
     .linear = LINEAR_WOVEN,
     .put = put_qwen35moe},
};

const struct gguf_arch *gguf_arch_at(size_t i)
{
    return i < sizeof architectures / sizeof *architectures ? &architectures[i] : NULL;
}

const struct gguf_arch *gguf_arch_find(const struct gguf *g)
{
    const struct gguf_value *v = gguf_value(g, "general.architecture");
    const struct gguf_arch *a;
    for (size_t i = 0; (a = gguf_arch_at(i)); i++)
        if (maker_is_text(v, a->gguf))
            return a;
    return NULL;
}

const char *gguf_config_architecture(const struct gguf *g)
{
    const struct gguf_arch *a = gguf_arch_find(g);
    return a ? a->gguf : "";
}

bool gguf_config_is_turned(const struct gguf *g)
{
    const struct gguf_arch *a = gguf_arch_find(g);
    return a && a->is_turned;
}

bool gguf_config_adds_one(const struct gguf *g)
{
    const struct gguf_arch *a = gguf_arch_find(g);
    return a && a->adds_one;
}

static int64_t get(const struct gguf *g, const char *arch, const char *key)
{
    const struct gguf_value *v = maker_value(g, arch, key);
    int64_t is;
    return v && gguf_whole(v, 0, &is) ? is : -1;
}

size_t gguf_config_head_width(const struct gguf *g)
{
    const char *arch = gguf_config_architecture(g);
    const int64_t width = get(g, arch, "attention.key_length"), dim = get(g, arch, "embedding_length"),
                  heads = get(g, arch, "attention.head_count");
    if (width > 0)
        return (size_t)width;
    return dim > 0 && heads > 0 && dim % heads == 0 ? (size_t)(dim / heads) : 0;
}
