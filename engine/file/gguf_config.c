/* SPDX-License-Identifier: MIT
 *
 * A config.json of a GGUF file's metadata, in the words of Hugging Face, so that config_family.c
 * says what is possible, for both. Here are only the checks of what has no word there. Called by
 * gguf_folder.c; one thread. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file/gguf_model_impl.h"
#include "file/input.h"

enum { ENDS_MOST = 8, ROPE_MOST = 512 /* factors */ };

struct maker {
    const struct gguf_model *m;
    const struct gguf *g;
    const char *arch;
    json_t *root; /* owned */
    struct err *err;
    int r; /* the first failure; all that comes then does nothing */
};

static const struct architecture {
    const char *gguf, *model_type, *name;
} architectures[] = {
    {"llama", "llama", "LlamaForCausalLM"},
    {"qwen2", "qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "qwen3", "Qwen3ForCausalLM"},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"},
    {"deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM"},
};

static bool is_text(const struct gguf_value *v, const char *text)
{
    struct gguf_text at = {NULL, 0};
    size_t i = 0;
    return v && !v->is_array && gguf_next_text(v, &i, &at) && at.n == strlen(text) &&
           !memcmp(at.at, text, at.n);
}

static const struct architecture *find_architecture(const struct gguf *g)
{
    const struct gguf_value *v = gguf_value(g, "general.architecture");
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (is_text(v, architectures[i].gguf))
            return &architectures[i];
    return NULL;
}

const char *gguf_config_architecture(const struct gguf *g)
{
    const struct architecture *a = find_architecture(g);
    return a ? a->gguf : "";
}

/* --- values ----------------------------------------------------------------------------------- */

static void put(struct maker *k, const char *name, json_t *value)
{
    if (k->r)
        json_decref(value);
    else if (json_object_set_new(k->root, name, value))
        k->r = err_set(k->err, -ENOMEM, "no memory for its config");
}

static const struct gguf_value *own_value(const struct gguf *g, const char *arch, const char *key)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    return gguf_value(g, full);
}

static void bad_type(struct maker *k, const char *key, const struct gguf_value *v, const char *wanted)
{
    if (!k->r)
        k->r = err_set(k->err, -EBADMSG, "%s.%s is of type %s, and must be %s", k->arch, key,
                       gguf_type_name(v), wanted);
}

/* A count; an array of one for each layer counts if all are alike. −1: it is missing. */
static int64_t whole(struct maker *k, const char *key)
{
    const struct gguf_value *v = own_value(k->g, k->arch, key);
    int64_t is, other;
    if (!v)
        return -1;
    if (!gguf_whole(v, 0, &is)) {
        bad_type(k, key, v, "a whole number");
        return -1;
    }
    for (size_t i = 1; i < v->count && !k->r; i++)
        if (gguf_whole(v, i, &other) && other != is)
            k->r = err_set(k->err, -ENOTSUP, "%s.%s differs from layer to layer, which is not supported",
                           k->arch, key);
    return is;
}

static double real(struct maker *k, const char *key, double fallback)
{
    const struct gguf_value *v = own_value(k->g, k->arch, key);
    double is = fallback;
    if (v && (v->is_array || !gguf_real(v, 0, &is)))
        bad_type(k, key, v, "a number");
    else if (v && !isfinite(is) && !k->r)
        k->r = err_set(k->err, -EBADMSG, "%s.%s is %g, which is no number to compute with", k->arch, key, is);
    return is;
}

static bool flag(struct maker *k, const char *key, bool fallback)
{
    const struct gguf_value *v = own_value(k->g, k->arch, key);
    bool is = fallback;
    if (v && !gguf_bool(v, &is))
        bad_type(k, key, v, "true or false");
    return is;
}

/* Where it is missing: as if the config had not got it. */
static void put_whole(struct maker *k, const char *name, const char *key)
{
    const int64_t is = whole(k, key);
    if (is >= 0)
        put(k, name, json_integer(is));
}

static int64_t needed(struct maker *k, const char *key)
{
    const int64_t is = whole(k, key);
    if (is < 0 && !k->r)
        k->r = err_set(k->err, -EBADMSG, "%s.%s is missing", k->arch, key);
    return is;
}

static void put_needed(struct maker *k, const char *name, const char *key)
{
    const int64_t is = needed(k, key);
    put(k, name, json_integer(is));
}

/* --- shapes ----------------------------------------------------------------------------------- */

static int64_t get(const struct gguf *g, const char *arch, const char *key)
{
    const struct gguf_value *v = own_value(g, arch, key);
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

static bool has(const struct maker *k, const char *tensor)
{
    return gguf_model_find(k->m, tensor) != NULL;
}

/* What a layer's matrices are rounded to anew where they are written: that of the file, and bf16,
 * which holds all of f32's range, for those in blocks. */
static const char *element_type(const struct maker *k)
{
    static const char *const names[] = {
        [DTYPE_F32] = "float32", [DTYPE_F16] = "float16", [DTYPE_BF16] = "bfloat16"};
    const struct gguf_tensor *t = gguf_model_find(k->m, "blk.0.attn_output.weight");
    return t && t->dtype <= DTYPE_BF16 ? names[t->dtype] : "bfloat16";
}

static void put_common(struct maker *k)
{
    const struct gguf_value *tokens = gguf_value(k->g, "tokenizer.ggml.tokens");
    const int64_t extra = whole(k, "nextn_predict_layers"), layers = needed(k, "block_count");
    put(k, "num_hidden_layers", json_integer(extra > 0 ? layers - extra : layers));
    put_needed(k, "hidden_size", "embedding_length");
    put_whole(k, "max_position_embeddings", "context_length");
    if (tokens)
        put(k, "vocab_size", json_integer((json_int_t)tokens->count));
    else
        put_needed(k, "vocab_size", "vocab_size");
    put(k, "rms_norm_eps", json_real(real(k, "attention.layer_norm_rms_epsilon", 1e-5)));
    put(k, "tie_word_embeddings", json_boolean(!has(k, "output.weight")));
    put(k, "torch_dtype", json_string(element_type(k)));
    put(k, "quantization_config", json_pack("{s:s}", "quant_method", "gguf"));
}

static void put_heads(struct maker *k)
{
    const size_t width = gguf_config_head_width(k->g);
    const int64_t value = whole(k, "attention.value_length"), rope = whole(k, "rope.dimension_count");
    put_needed(k, "num_attention_heads", "attention.head_count");
    put_whole(k, "num_key_value_heads", "attention.head_count_kv");
    if (whole(k, "attention.head_count_kv") < 0)
        put_needed(k, "num_key_value_heads", "attention.head_count");
    if (width)
        put(k, "head_dim", json_integer((json_int_t)width));
    if (!k->r && value > 0 && value != (int64_t)width)
        k->r = err_set(k->err, -ENOTSUP, "%s.attention.value_length %lld is not the width of keys, %zu",
                       k->arch, (long long)value, width);
    if (!k->r && width && rope >= 0 && rope != (int64_t)width)
        k->r =
            err_set(k->err, -ENOTSUP,
                    "%s.rope.dimension_count is %lld, and heads are %zu wide: rotating a part of a head is "
                    "not supported",
                    k->arch, (long long)rope, width);
}

/* --- rotation --------------------------------------------------------------------------------- */

static int read_factors(struct maker *k, const struct gguf_tensor *t, float *ret)
{
    for (size_t p = 0; p < gguf_model_parts(k->m); p++) {
        const char *path = gguf_model_path(k->m, p);
        if (gguf_find(gguf_model_part(k->m, p), t->name) != t)
            continue;
        const int fd = input_open(path);
        const ssize_t got = fd < 0 ? -1 : pread(fd, ret, t->bytes, (off_t)t->at);
        if (fd >= 0)
            close(fd);
        if (got == (ssize_t)t->bytes)
            return 0;
    }
    return err_set(k->err, -EIO, "%s cannot be read", t->name);
}

static void put_llama3(struct maker *k, double base)
{
    const struct gguf_tensor *t = gguf_model_find(k->m, "rope_freqs.weight");
    const size_t n = gguf_config_head_width(k->g) / 2;
    float factor[ROPE_MOST];
    json_t *scaling = NULL;
    if (!t || k->r)
        return;
    if (t->dtype != DTYPE_F32 || t->ndim != 1 || t->extent[0] != n || n > ROPE_MOST) {
        k->r =
            err_set(k->err, -EBADMSG, "rope_freqs.weight is no list of %zu F32, half the width of a head", n);
        return;
    }
    k->r = read_factors(k, t, factor);
    if (!k->r)
        k->r = gguf_rope_scaling(&scaling, factor, n, base, k->err);
    if (scaling)
        put(k, "rope_scaling", scaling);
}

static void put_yarn(struct maker *k, double factor)
{
    const double log_factor = real(k, "rope.scaling.yarn_log_multiplier", 0);
    const int64_t original = whole(k, "rope.scaling.original_context_length");
    json_t *s = json_pack("{s:s s:f}", "rope_type", "yarn", "factor", factor);
    if (original > 0)
        json_object_set_new(s, "original_max_position_embeddings", json_integer(original));
    if (!strcmp(k->arch, "deepseek2")) { /* the correction is one of scores, not of angles */
        if (log_factor > 0) {
            json_object_set_new(s, "mscale", json_real(10 * log_factor));
            json_object_set_new(s, "mscale_all_dim", json_real(10 * log_factor));
        } else {
            json_object_set_new(s, "attention_factor", json_real(1));
        }
    }
    put(k, "rope_scaling", s);
}

static void put_rope(struct maker *k)
{
    const double base = real(k, "rope.freq_base", 10000), old = real(k, "rope.scale_linear", 1),
                 factor = real(k, "rope.scaling.factor", old > 0 ? old : 1);
    const struct gguf_value *type = own_value(k->g, k->arch, "rope.scaling.type");
    put(k, "rope_theta", json_real(base));
    if (has(k, "rope_freqs.weight"))
        put_llama3(k, base);
    else if (is_text(type, "yarn"))
        put_yarn(k, factor);
    else if (is_text(type, "linear") || (!type && factor != 1))
        put(k, "rope_scaling", json_pack("{s:s s:f}", "rope_type", "linear", "factor", factor));
    else if (type && !is_text(type, "none") && !k->r)
        k->r = err_set(k->err, -ENOTSUP, "%s.rope.scaling.type is none of none, linear and yarn", k->arch);
}

/* --- experts and latent attention ------------------------------------------------------------- */

static void put_experts(struct maker *k, const char *count)
{
    put_needed(k, count, "expert_count");
    put_needed(k, "num_experts_per_tok", "expert_used_count");
    put_needed(k, "moe_intermediate_size", "expert_feed_forward_length");
}

static void put_scores(struct maker *k)
{
    const int64_t gate = whole(k, "expert_gating_func"), groups = whole(k, "expert_group_count"),
                  extra = whole(k, "nextn_predict_layers");
    const bool is_v3 = gate == 2;
    if (gate > 2 && !k->r)
        k->r = err_set(k->err, -ENOTSUP, "%s.expert_gating_func %lld is not supported (1 softmax, 2 sigmoid)",
                       k->arch, (long long)gate);
    put(k, "norm_topk_prob", json_boolean(flag(k, "expert_weights_norm", false)));
    put(k, "routed_scaling_factor", json_real(real(k, "expert_weights_scale", 1)));
    put(k, "scoring_func", json_string(is_v3 ? "sigmoid" : "softmax"));
    put(k, "topk_method", json_string(is_v3 ? "noaux_tc" : groups > 1 ? "group_limited_greedy" : "greedy"));
    put_whole(k, "n_group", "expert_group_count");
    put_whole(k, "topk_group", "expert_group_used_count");
    if (is_v3) {
        put(k, "model_type", json_string("deepseek_v3"));
        put(k, "architectures", json_pack("[s]", "DeepseekV3ForCausalLM"));
        put(k, "num_nextn_predict_layers", json_integer(extra > 0 ? extra : 0));
    }
}

static void put_latent(struct maker *k)
{
    const int64_t rope = needed(k, "rope.dimension_count"), rank = needed(k, "attention.kv_lora_rank"),
                  own = whole(k, "attention.key_length_mla");
    const int64_t width = own > 0 ? own : needed(k, "attention.key_length");
    put_needed(k, "num_attention_heads", "attention.head_count");
    put(k, "kv_lora_rank", json_integer(rank));
    put_whole(k, "q_lora_rank", "attention.q_lora_rank");
    put(k, "qk_rope_head_dim", json_integer(rope));
    put(k, "qk_nope_head_dim", json_integer(width > rope ? width - rope : 0));
    put_needed(k, "v_head_dim", own > 0 ? "attention.value_length_mla" : "attention.value_length");
    put_experts(k, "n_routed_experts");
    if (whole(k, "expert_shared_count") > 0)
        put_whole(k, "n_shared_experts", "expert_shared_count");
    put_whole(k, "first_k_dense_replace", "leading_dense_block_count");
    put_scores(k);
    if (has(k, "blk.0.attn_k_b.weight") && !has(k, "blk.0.attn_kv_b.weight") && !k->r)
        json_object_set_new(json_object_get(k->root, "quantization_config"), "kv_b_parts", json_true());
}

/* --- all of it -------------------------------------------------------------------------------- */

static void put_tokens(struct maker *k)
{
    int64_t ends[ENDS_MOST], bos;
    const size_t n = gguf_tokenizer_ends(k->g, ends, ENDS_MOST);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ends[i]));
    put(k, "eos_token_id", list);
    put(k, "bos_token_id", gguf_tokenizer_bos(k->g, &bos) ? json_integer(bos) : json_null());
}

static void put_all(struct maker *k)
{
    put_common(k);
    if (!strcmp(k->arch, "deepseek2")) {
        put_latent(k);
    } else {
        put_heads(k);
        put(k, "attention_bias", json_boolean(strcmp(k->arch, "qwen2") != 0 && has(k, "blk.0.attn_q.bias")));
        put(k, "mlp_bias", json_boolean(has(k, "blk.0.ffn_gate.bias")));
    }
    if (!strcmp(k->arch, "qwen3moe")) {
        put_experts(k, "num_experts");
        put(k, "norm_topk_prob", json_true());
    }
    if (whole(k, "feed_forward_length") >= 0 || strcmp(k->arch, "qwen3moe") != 0)
        put_needed(k, "intermediate_size", "feed_forward_length");
    else
        put_needed(k, "intermediate_size", "expert_feed_forward_length");
    put_rope(k);
    put_tokens(k);
}

static int refuse_architecture(const struct gguf *g, struct err *err)
{
    const struct gguf_value *v = gguf_value(g, "general.architecture");
    struct gguf_text at = {NULL, 0};
    size_t i = 0;
    char name[GGUF_NAME + 1];
    if (!v || v->is_array || !gguf_next_text(v, &i, &at))
        return err_set(err, -EBADMSG, "general.architecture is missing: it says of no model");
    snprintf(name, sizeof name, "%.*s", (int)(at.n < GGUF_NAME ? at.n : GGUF_NAME), at.at);
    return err_set(
        err, -ENOTSUP,
        "its architecture \"%s\" is not supported (llama, qwen2, qwen3, qwen3moe and deepseek2 are)",
        input_quote(name).text);
}

int gguf_config(json_t **ret, const struct gguf_model *m, struct err *err)
{
    const struct gguf *g = gguf_model_head(m);
    const struct architecture *a = find_architecture(g);
    if (!a)
        return refuse_architecture(g, err);
    struct maker k = {.m = m, .g = g, .arch = a->gguf, .root = json_object(), .err = err};
    put(&k, "model_type", json_string(a->model_type));
    put(&k, "architectures", json_pack("[s]", a->name));
    put_all(&k);
    if (k.r)
        json_decref(k.root);
    else
        *ret = k.root;
    return k.r;
}
