/* SPDX-License-Identifier: MIT
 *
 * A config.json of a GGUF file's metadata, in the words of Hugging Face, so that config_family.c
 * says what is possible, for both. Here are only the checks of what has no word there. Also the
 * other small files, as gguf_tokenizer.c makes them. Called by model_file.c; one thread. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file/config.h"
#include "file/gguf_model_impl.h"
#include "file/input.h"

#define LONG_FACTORS "rope_factors_long.weight"
#define SHORT_FACTORS "rope_factors_short.weight"

static const double near = 1e-5; /* what f32 makes of a factor */

enum { ENDS_MOST = 8, ROPE_MOST = 512 /* factors */ };

/* --- shapes ----------------------------------------------------------------------------------- */

/* What a layer's matrices are rounded to where they are written: that of the file, and bf16,
 * which holds all of f32's range, for those in blocks. */
static const char *element_type(const struct gguf_maker *k)
{
    static const char *const names[] = {
        [DTYPE_F32] = "float32", [DTYPE_F16] = "float16", [DTYPE_BF16] = "bfloat16"};
    const struct gguf_tensor *attn = gguf_model_find(k->m, "blk.0.attn_output.weight"),
                             *t = attn ? attn : gguf_model_find(k->m, "blk.0.ssm_out.weight");
    return t && t->dtype <= DTYPE_BF16 ? names[t->dtype] : "bfloat16";
}

static void put_common(struct gguf_maker *k)
{
    const struct gguf_value *tokens = gguf_value(k->g, "tokenizer.ggml.tokens");
    const int64_t extra = maker_whole(k, "nextn_predict_layers"), layers = maker_needed(k, "block_count");
    maker_put(k, "num_hidden_layers", json_integer(extra > 0 ? layers - extra : layers));
    maker_put_needed(k, "hidden_size", "embedding_length");
    maker_put_whole(k, "max_position_embeddings", "context_length");
    if (tokens)
        maker_put(k, "vocab_size", json_integer((json_int_t)tokens->count));
    else
        maker_put_needed(k, "vocab_size", "vocab_size");
    maker_put(k, "rms_norm_eps", json_real(maker_real(k, "attention.layer_norm_rms_epsilon", 1e-5)));
    maker_put(k, "tie_word_embeddings", json_boolean(!maker_has(k, "output.weight")));
    maker_put(k, "torch_dtype", json_string(element_type(k)));
    maker_put(k, "quantization_config", json_pack("{s:s}", "quant_method", "gguf"));
}

static void put_heads(struct gguf_maker *k)
{
    const size_t width = gguf_config_head_width(k->g);
    const int64_t value = maker_whole(k, "attention.value_length"),
                  rope = maker_whole(k, "rope.dimension_count");
    maker_put_needed(k, "num_attention_heads", "attention.head_count");
    maker_put_whole(k, "num_key_value_heads", "attention.head_count_kv");
    if (maker_whole(k, "attention.head_count_kv") < 0)
        maker_put_needed(k, "num_key_value_heads", "attention.head_count");
    if (width)
        maker_put(k, "head_dim", json_integer((json_int_t)width));
    if (!k->r && value > 0 && value != (int64_t)width)
        k->r = err_set(k->err, -ENOTSUP, "%s.attention.value_length %lld is not the width of keys, %zu",
                       k->arch, (long long)value, width);
    if (gguf_arch_find(k->g)->rotates_part && width && rope >= 0)
        maker_put(k, "partial_rotary_factor", json_real((double)rope / (double)width));
    else if (!k->r && width && rope >= 0 && rope != (int64_t)width)
        k->r =
            err_set(k->err, -ENOTSUP,
                    "%s.rope.dimension_count is %lld, and heads are %zu wide: rotating a part of a head is "
                    "not supported",
                    k->arch, (long long)rope, width);
}

/* --- rotation --------------------------------------------------------------------------------- */

static int read_factors(struct gguf_maker *k, const struct gguf_tensor *t, float *ret)
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

/* A tensor of one factor for each pair that is rotated. */
static bool factors_of(struct gguf_maker *k, const char *name, size_t n, float *ret)
{
    const struct gguf_tensor *t = gguf_model_find(k->m, name);
    if (k->r)
        return false;
    if (!t || t->dtype != DTYPE_F32 || t->ndim != 1 || t->extent[0] != n || n > ROPE_MOST)
        k->r =
            err_set(k->err, -EBADMSG, "%s is no list of %zu F32, one for each pair that is rotated", name, n);
    else
        k->r = read_factors(k, t, ret);
    return !k->r;
}

static void put_llama3(struct gguf_maker *k, double base)
{
    const size_t n = gguf_config_head_width(k->g) / 2;
    float factor[ROPE_MOST];
    json_t *scaling = NULL;
    if (factors_of(k, "rope_freqs.weight", n, factor))
        k->r = gguf_rope_scaling(&scaling, factor, n, base, k->err);
    if (scaling)
        maker_put(k, "rope_scaling", scaling);
}

static json_t *list_of(const float *factor, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real((double)factor[i]));
    return list;
}

/* What follows from the rest is not given, as in a config that was released. */
static void put_attention(json_t *s, double is, double usual)
{
    if (is > 0 && fabs(is / usual - 1) > near)
        json_object_set_new(s, "attention_factor", json_real(is));
}

static double long_attention(struct gguf_maker *k)
{
    const double most = (double)maker_whole(k, "context_length"),
                 original = (double)maker_whole(k, "rope.scaling.original_context_length");
    return original > 1 && most > original ? sqrt(1 + log(most / original) / log(original)) : 1;
}

static void put_long(struct gguf_maker *k)
{
    const int64_t rotated = maker_whole(k, "rope.dimension_count");
    const size_t n = (rotated > 0 ? (size_t)rotated : gguf_config_head_width(k->g)) / 2;
    const double attention = maker_real(k, "rope.scaling.attn_factor", 0);
    float few[ROPE_MOST], many[ROPE_MOST];
    if (!factors_of(k, LONG_FACTORS, n, many) || !factors_of(k, SHORT_FACTORS, n, few))
        return;
    json_t *s = json_pack("{s:s s:o s:o}", "rope_type", "longrope", "short_factor", list_of(few, n),
                          "long_factor", list_of(many, n));
    put_attention(s, attention, long_attention(k));
    maker_put(k, "rope_scaling", s);
}

/* Keys that are there where a model has not the usual numbers. */
static void put_yarn_keys(struct gguf_maker *k, json_t *s, double factor)
{
    static const char *const keys[][2] = {{"beta_fast", "rope.scaling.yarn_beta_fast"},
                                          {"beta_slow", "rope.scaling.yarn_beta_slow"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const double is = maker_real(k, keys[i][1], 0);
        if (is > 0)
            json_object_set_new(s, keys[i][0], json_real(is));
    }
    put_attention(s, maker_real(k, "rope.scaling.yarn_attn_factor", 0), 1 + 0.1 * log(factor));
    if (strcmp(k->arch, "mistral3") != 0)
        return;
    const double all = maker_real(k, "rope.scaling.yarn_log_multiplier", 0),
                 beta = maker_real(k, "attention.temperature_scale", 0);
    if (all > 0) {
        json_object_set_new(s, "mscale", json_real(1));
        json_object_set_new(s, "mscale_all_dim", json_real(all));
    }
    if (beta > 0)
        json_object_set_new(s, "llama_4_scaling_beta", json_real(beta));
}

static void put_yarn(struct gguf_maker *k, double factor)
{
    const double log_factor = maker_real(k, "rope.scaling.yarn_log_multiplier", 0);
    const int64_t original = maker_whole(k, "rope.scaling.original_context_length");
    json_t *s = json_pack("{s:s s:f}", "rope_type", "yarn", "factor", factor);
    if (original > 0)
        json_object_set_new(s, "original_max_position_embeddings", json_integer(original));
    if (!strcmp(k->arch, "gpt-oss")) /* as the model was made, whatever others do with the file */
        json_object_set_new(s, "truncate", json_false());
    if (!strcmp(k->arch, "deepseek2")) { /* the correction is one of scores, not of angles */
        if (log_factor > 0) {
            json_object_set_new(s, "mscale", json_real(10 * log_factor));
            json_object_set_new(s, "mscale_all_dim", json_real(10 * log_factor));
        } else {
            json_object_set_new(s, "attention_factor", json_real(1));
        }
    }
    put_yarn_keys(k, s, factor);
    maker_put(k, "rope_scaling", s);
}

static void put_rope(struct gguf_maker *k)
{
    const double base = maker_real(k, "rope.freq_base", 10000), old = maker_real(k, "rope.scale_linear", 1),
                 factor = maker_real(k, "rope.scaling.factor", old > 0 ? old : 1);
    const struct gguf_value *type = maker_value(k->g, k->arch, "rope.scaling.type");
    maker_put(k, "rope_theta", json_real(base));
    if (maker_has(k, "rope_freqs.weight"))
        put_llama3(k, base);
    else if (maker_has(k, LONG_FACTORS) || maker_has(k, SHORT_FACTORS))
        put_long(k);
    else if (maker_is_text(type, "yarn"))
        put_yarn(k, factor);
    else if (maker_is_text(type, "linear") || (!type && factor != 1))
        maker_put(k, "rope_scaling", json_pack("{s:s s:f}", "rope_type", "linear", "factor", factor));
    else if (type && !maker_is_text(type, "none") && !k->r)
        k->r = err_set(k->err, -ENOTSUP, "%s.rope.scaling.type is none of none, linear and yarn", k->arch);
}

/* --- all of it -------------------------------------------------------------------------------- */

static void put_tokens(struct gguf_maker *k)
{
    int64_t ends[ENDS_MOST], bos;
    const size_t n = gguf_tokenizer_ends(k->g, ends, ENDS_MOST);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ends[i]));
    maker_put(k, "eos_token_id", list);
    maker_put(k, "bos_token_id", gguf_tokenizer_bos(k->g, &bos) ? json_integer(bos) : json_null());
}

static void put_all(struct gguf_maker *k, const struct gguf_arch *a)
{
    put_common(k);
    maker_put_whole(k, "intermediate_size", "feed_forward_length");
    if (!a->is_latent) {
        put_heads(k);
        maker_put(k, "attention_bias",
                  json_boolean(strcmp(k->arch, "qwen2") != 0 && maker_has(k, "blk.0.attn_q.bias")));
        maker_put(k, "mlp_bias", json_boolean(maker_has(k, "blk.0.ffn_gate.bias")));
    }
    if (a->put)
        a->put(k);
    if (!json_object_get(k->root, "intermediate_size"))
        maker_put_needed(k, "intermediate_size", "feed_forward_length");
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
    char known[320] = "";
    for (size_t a = 0; gguf_arch_at(a); a++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", a ? ", " : "",
                 gguf_arch_at(a)->gguf);
    return err_set(err, -ENOTSUP, "its architecture \"%s\" is not supported (known: %s)",
                   input_quote(name).text, known);
}

int gguf_config(json_t **ret, const struct gguf_model *m, struct err *err)
{
    const struct gguf *g = gguf_model_head(m);
    const struct gguf_arch *a = gguf_arch_find(g);
    if (!a)
        return refuse_architecture(g, err);
    struct gguf_maker k = {.m = m, .g = g, .arch = a->gguf, .root = json_object(), .err = err};
    maker_put(&k, "model_type", json_string(a->model_type));
    maker_put(&k, "architectures", json_pack("[s]", config_architecture(a->model_type)));
    put_all(&k, a);
    if (k.r)
        json_decref(k.root);
    else
        *ret = k.root;
    return k.r;
}

/* --- the small files -------------------------------------------------------------------------- */

int gguf_model_file(char **ret, const struct gguf_model *m, const char *name, struct err *err)
{
    json_t *json = NULL;
    int r = -ENOENT;
    if (!strcmp(name, "config.json"))
        r = gguf_config(&json, m, err);
    else if (!strcmp(name, "tokenizer.json"))
        r = gguf_tokenizer(&json, gguf_model_head(m), err);
    else if (!strcmp(name, "tokenizer_config.json"))
        r = gguf_tokenizer_config(&json, gguf_model_head(m), err);
    if (r)
        return r == -ENOENT ? err_set(err, r, "%s has no %s", gguf_model_path(m, 0), name)
                            : err_prefix(err, r, "%s", gguf_model_path(m, 0));
    *ret = json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(json);
    return *ret ? 0 : err_set(err, -ENOMEM, "%s: no memory for its %s", gguf_model_path(m, 0), name);
}
