/* SPDX-License-Identifier: MIT */
#include "tests/lib/gguf_linear.h"

#include <stdio.h>
#include <string.h>

/* Value heads that are grouped by their key head become ones whose key heads take turns. */
static size_t in_turns(const struct config_delta *d, size_t head)
{
    const size_t each = d->value_heads / d->key_heads, group = head / each, number = head % each;
    return number * d->key_heads + group;
}

static size_t grouped(const struct config_delta *d, size_t place)
{
    for (size_t head = 0; head < d->value_heads; head++)
        if (in_turns(d, head) == place)
            return head;
    return SIZE_MAX;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), e = strlen(end);
    return n >= e && !strcmp(name + n - e, end);
}

/* Runs of `width` from `first` on, one for each value head. */
static size_t moved(const struct config_delta *d, size_t at, size_t first, size_t width)
{
    return at < first ? at : first + in_turns(d, (at - first) / width) * width + (at - first) % width;
}

/* Rows of one key head are q, k, v, z. */
static size_t split(const struct config_delta *d, size_t at)
{
    const size_t values = d->value_heads / d->key_heads * d->value, own = 2 * (d->key + values), g = at / own,
                 in = at % own, q = d->key_heads * d->key, v = d->key_heads * values;
    if (in < d->key)
        return g * d->key + in;
    if (in < 2 * d->key)
        return q + g * d->key + in - d->key;
    if (in < 2 * d->key + values)
        return 2 * q + g * values + in - 2 * d->key;
    return 2 * q + v + g * values + in - 2 * d->key - values;
}

size_t gguf_linear_row(const struct config *c, const char *name, size_t at)
{
    const struct config_delta *d = &c->delta;
    const size_t keys = 2 * d->key_heads * d->key;
    if (!d->key_heads || !strstr(name, ".linear_attn."))
        return at;
    if (d->fused)
        return ends_with(name, "in_proj_qkvz.weight") ? split(d, at) : at;
    if (ends_with(name, "in_proj_qkv.weight"))
        return moved(d, at, keys, d->value);
    if (ends_with(name, "conv1d.weight"))
        return moved(d, at, keys * d->taps, d->value * d->taps);
    if (ends_with(name, "in_proj_z.weight"))
        return moved(d, at, 0, d->value);
    if (ends_with(name, "norm.weight") || ends_with(name, "out_proj.weight"))
        return at;
    return moved(d, at, 0, 1);
}

size_t gguf_linear_col(const struct config *c, const char *name, size_t at)
{
    const struct config_delta *d = &c->delta;
    if (!d->key_heads || d->fused || !ends_with(name, ".linear_attn.out_proj.weight"))
        return at;
    return grouped(d, at / d->value) * d->value + at % d->value;
}

size_t gguf_linear_first(const struct config *c, const char *name)
{
    const struct config_delta *d = &c->delta;
    return ends_with(name, "in_proj_qkvz.weight") ? 2 * d->key_heads * d->key + d->value_heads * d->value : 0;
}

const char *gguf_linear_name(const char *rest)
{
    static const char *const names[][2] = {
        {"linear_attn.in_proj_qkvz.weight", "attn_qkv.weight"}, /* and attn_gate.weight */
        {"linear_attn.in_proj_ba.weight", "ssm_ba.weight"},
        {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight"},
        {"linear_attn.in_proj_z.weight", "attn_gate.weight"},
        {"linear_attn.in_proj_b.weight", "ssm_beta.weight"},
        {"linear_attn.in_proj_a.weight", "ssm_alpha.weight"},
        {"linear_attn.out_proj.weight", "ssm_out.weight"},
        {"linear_attn.conv1d.weight", "ssm_conv1d.weight"},
        {"linear_attn.A_log", "ssm_a"},
        {"linear_attn.dt_bias", "ssm_dt.bias"},
        {"linear_attn.norm.weight", "ssm_norm.weight"},
        {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
        {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
        {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
        {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
        {"mtp.fc.weight", "nextn.eh_proj.weight"},
        {"mtp.pre_fc_norm_embedding.weight", "nextn.enorm.weight"},
        {"mtp.pre_fc_norm_hidden.weight", "nextn.hnorm.weight"},
        {"mtp.norm.weight", "nextn.shared_head_norm.weight"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(rest, names[i][0]))
            return names[i][1];
    return NULL;
}

void gguf_linear_keys(struct gguf_out *out, const char *arch, const struct config *c)
{
    const struct config_delta *d = &c->delta;
    size_t every = 1;
    while (every < c->layers && config_layers_have(&c->linear, every - 1))
        every++;
    const struct {
        const char *key;
        size_t is;
    } keys[] = {{"ssm.conv_kernel", d->taps},
                {"ssm.state_size", d->key},
                {"ssm.group_count", d->key_heads},
                {"ssm.time_step_rank", d->value_heads},
                {"ssm.inner_size", d->value_heads * d->value},
                {"full_attention_interval", every},
                {"expert_shared_feed_forward_length", c->moe.shared_ffn}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[128];
        snprintf(full, sizeof full, "%s.%s", arch, keys[i].key);
        if (keys[i].is)
            gguf_put_whole(out, full, (uint32_t)keys[i].is);
    }
}
