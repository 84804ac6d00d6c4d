/* SPDX-License-Identifier: MIT */
#include "file/gguf_model_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "file/config.h"

void maker_put(struct gguf_maker *k, const char *name, json_t *value)
{
    if (k->r)
        json_decref(value);
    else if (json_object_set_new(k->root, name, value))
        k->r = err_set(k->err, -ENOMEM, "no memory for its config");
}

const struct gguf_value *maker_value(const struct gguf *g, const char *arch, const char *key)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    return gguf_value(g, full);
}

static void bad_type(struct gguf_maker *k, const char *key, const struct gguf_value *v, const char *wanted)
{
    if (!k->r)
        k->r = err_set(k->err, -EBADMSG, "%s.%s is of type %s, and must be %s", k->arch, key,
                       gguf_type_name(v), wanted);
}

int64_t maker_whole(struct gguf_maker *k, const char *key)
{
    const struct gguf_value *v = maker_value(k->g, k->arch, key);
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

double maker_real(struct gguf_maker *k, const char *key, double fallback)
{
    const struct gguf_value *v = maker_value(k->g, k->arch, key);
    double is = fallback;
    if (v && (v->is_array || !gguf_real(v, 0, &is)))
        bad_type(k, key, v, "a number");
    else if (v && !isfinite(is) && !k->r)
        k->r = err_set(k->err, -EBADMSG, "%s.%s is %g, which is no number to compute with", k->arch, key, is);
    return is;
}

bool maker_flag(struct gguf_maker *k, const char *key, bool fallback)
{
    const struct gguf_value *v = maker_value(k->g, k->arch, key);
    bool is = fallback;
    if (v && !gguf_bool(v, &is))
        bad_type(k, key, v, "true or false");
    return is;
}

void maker_put_whole(struct gguf_maker *k, const char *name, const char *key)
{
    const int64_t is = maker_whole(k, key);
    if (is >= 0)
        maker_put(k, name, json_integer(is));
}

int64_t maker_needed(struct gguf_maker *k, const char *key)
{
    const int64_t is = maker_whole(k, key);
    if (is < 0 && !k->r)
        k->r = err_set(k->err, -EBADMSG, "%s.%s is missing", k->arch, key);
    return is;
}

void maker_put_needed(struct gguf_maker *k, const char *name, const char *key)
{
    const int64_t is = maker_needed(k, key);
    maker_put(k, name, json_integer(is));
}

bool maker_has(const struct gguf_maker *k, const char *tensor)
{
    return gguf_model_find(k->m, tensor) != NULL;
}

bool maker_is_text(const struct gguf_value *v, const char *text)
{
    struct gguf_text at = {NULL, 0};
    size_t i = 0;
    return v && !v->is_array && gguf_next_text(v, &i, &at) && at.n == strlen(text) &&
           !memcmp(at.at, text, at.n);
}

/* --- linear layers ---------------------------------------------------------------------------- */

static bool is_flagged(const struct gguf_value *list, size_t i)
{
    int64_t is = 0;
    return list->type == GGUF_BOOL ? list->at[i] : gguf_whole(list, i, &is) && is;
}

/* A flag for each layer, or one of each few that is not linear. */
static void put_kinds(struct gguf_maker *k)
{
    const struct gguf_value *list = maker_value(k->g, k->arch, "attention.recurrent_layers");
    const int64_t every = maker_whole(k, "full_attention_interval"),
                  extra = maker_whole(k, "nextn_predict_layers"),
                  own = maker_needed(k, "block_count") - (extra > 0 ? extra : 0);
    const size_t layers = own > 0 ? (size_t)own : 0, period = every > 0 ? (size_t)every : 4;
    if (list && (!list->is_array || list->count < layers)) {
        if (!k->r)
            k->r = err_set(k->err, -EBADMSG,
                           "%s.attention.recurrent_layers does not have a flag for each of the %zu layers",
                           k->arch, layers);
        return;
    }
    json_t *kinds = json_array();
    for (size_t l = 0; l < layers && l < CONFIG_MAX_LAYERS; l++)
        json_array_append_new(kinds, json_string((list ? is_flagged(list, l) : (l + 1) % period != 0)
                                                     ? "linear_attention"
                                                     : "full_attention"));
    maker_put(k, "layer_types", kinds);
}

void maker_put_linear(struct gguf_maker *k)
{
    const int64_t inner = maker_needed(k, "ssm.inner_size"), heads = maker_needed(k, "ssm.time_step_rank"),
                  extra = maker_whole(k, "nextn_predict_layers");
    if (!k->r && (heads < 1 || inner % heads))
        k->r = err_set(k->err, -EBADMSG, "%s.ssm.inner_size %lld is not %s.ssm.time_step_rank %lld heads",
                       k->arch, (long long)inner, k->arch, (long long)heads);
    maker_put_needed(k, "linear_num_key_heads", "ssm.group_count");
    maker_put(k, "linear_num_value_heads", json_integer(heads));
    maker_put_needed(k, "linear_key_head_dim", "ssm.state_size");
    maker_put(k, "linear_value_head_dim", json_integer(heads > 0 ? inner / heads : 0));
    maker_put_needed(k, "linear_conv_kernel_dim", "ssm.conv_kernel");
    maker_put(k, "mtp_num_hidden_layers", json_integer(extra > 0 ? extra : 0));
    put_kinds(k);
}
