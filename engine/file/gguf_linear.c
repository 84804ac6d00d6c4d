/* SPDX-License-Identifier: MIT
 *
 * Linear layers in GGUF files (architectures qwen3next, qwen35, qwen35moe), as llama.cpp lays them
 * out: what their tensors are called, and which of them lie in another order or as other numbers.
 * Called by gguf_names.c; any thread, no state.
 *
 * Value heads of qwen35 lie so that heads of one key head are apart: first the first value head of
 * each key head, then the second of each. That holds for rows of the projections, channels of the
 * convolution, elements of the gates, and columns of out_proj. In qwen3next in_proj_qkvz lies in
 * two tensors, of q, k and v and of z. A is stored as −e^A_log. */
#include <stdio.h>
#include <string.h>

#include "file/gguf_model_impl.h"

enum { HEADS_MOST = 1 << 10, WIDTH_MOST = 1 << 10, TAPS_MOST = 8 };

/* --- sizes ------------------------------------------------------------------------------------ */

struct linear_sizes {
    uint32_t key_heads, value_heads, key, value, taps;
};

static int64_t whole_of(const struct gguf *g, const char *key)
{
    const struct gguf_value *v = maker_value(g, gguf_config_architecture(g), key);
    int64_t is;
    return v && !v->is_array && gguf_whole(v, 0, &is) ? is : 0;
}

/* Zeros where metadata make no sense: config_delta.c refuses such a model. */
static struct linear_sizes sizes_of(const struct gguf *g)
{
    const int64_t keys = whole_of(g, "ssm.group_count"), values = whole_of(g, "ssm.time_step_rank"),
                  key = whole_of(g, "ssm.state_size"), inner = whole_of(g, "ssm.inner_size"),
                  taps = whole_of(g, "ssm.conv_kernel");
    if (keys < 1 || values < keys || values > HEADS_MOST || values % keys || key < 1 || key > WIDTH_MOST ||
        inner < values || inner > values * WIDTH_MOST || inner % values || taps < 1 || taps > TAPS_MOST)
        return (struct linear_sizes){0};
    return (struct linear_sizes){(uint32_t)keys, (uint32_t)values, (uint32_t)key, (uint32_t)(inner / values),
                                 (uint32_t)taps};
}

/* Layers of the model, without those behind the last. */
static size_t layers_of(const struct gguf *g)
{
    const int64_t all = whole_of(g, "block_count"), extra = whole_of(g, "nextn_predict_layers");
    return all > extra && extra >= 0 ? (size_t)(all - extra) : 0;
}

/* --- names and orders ------------------------------------------------------------------------- */

/* Which elements of a tensor lie in another order where value heads do. */
enum order { IN_ORDER, VALUES, BEHIND_KEYS, HEADS, CHANNELS, COLUMNS };

static const struct linear_name {
    const char *gguf; /* all of it, behind the number of the layer */
    const char *own;
    enum order order;
    enum gguf_number number;
    enum gguf_shape shape;
} names[] = {
    {.gguf = "attn_qkv.weight", .own = "linear_attn.in_proj_qkv.weight", .order = BEHIND_KEYS},
    {.gguf = "attn_gate.weight", .own = "linear_attn.in_proj_z.weight", .order = VALUES},
    {.gguf = "ssm_in.weight", .own = "linear_attn.in_proj_qkvz.weight"}, /* as files of 2025 have it */
    {.gguf = "ssm_ba.weight", .own = "linear_attn.in_proj_ba.weight"},
    {.gguf = "ssm_beta.weight", .own = "linear_attn.in_proj_b.weight", .order = HEADS},
    {.gguf = "ssm_alpha.weight", .own = "linear_attn.in_proj_a.weight", .order = HEADS},
    {.gguf = "ssm_conv1d.weight", .own = "linear_attn.conv1d.weight", .order = CHANNELS, .shape = GGUF_TAPS},
    {.gguf = "ssm_a", .own = "linear_attn.A_log", .order = HEADS, .number = GGUF_MINUS_EXP},
    {.gguf = "ssm_dt.bias", .own = "linear_attn.dt_bias", .order = HEADS},
    {.gguf = "ssm_norm.weight", .own = "linear_attn.norm.weight"},
    {.gguf = "ssm_out.weight", .own = "linear_attn.out_proj.weight", .order = COLUMNS},
    {.gguf = "ffn_gate_inp_shexp.weight", .own = "mlp.shared_expert_gate.weight", .shape = GGUF_ROW},
};

/* Of Qwen3-Next's fused projection. */
static const char first_part[] = "linear_attn.in_proj_qkvz.qkv.weight",
                  rest_part[] = "linear_attn.in_proj_qkvz.z.weight";

static void put_order(struct gguf_alias *ret, const struct linear_sizes *s, enum order order)
{
    const struct mat_heads one = {0, 1, s->key_heads, s->key_heads ? s->value_heads / s->key_heads : 0};
    struct mat_heads heads = one;
    if (order == IN_ORDER || one.each <= 1)
        return;
    if (order != HEADS)
        heads.width = s->value;
    if (order == BEHIND_KEYS || order == CHANNELS)
        heads.first = 2 * s->key_heads * s->key;
    if (order == CHANNELS) {
        heads.first *= s->taps;
        heads.width *= s->taps;
    }
    if (order == COLUMNS)
        ret->col_heads = heads;
    else
        ret->row_heads = heads;
}

/* What the two parts of a projection are called, and how its rows lie in them. */
static const char *put_part(struct gguf_alias *ret, const struct linear_sizes *s, const char *own)
{
    const bool is_first = strstr(own, "in_proj_qkv.") != NULL;
    if (!is_first && !strstr(own, "in_proj_z."))
        return own;
    if (is_first && s->key_heads)
        ret->parts = (struct mat_rest){
            .groups = s->key_heads, .key = s->key, .value = s->value_heads / s->key_heads * s->value};
    return is_first ? first_part : rest_part;
}

/* What a layer behind the last has, behind "nextn.", and where it lies in Hugging Face's files. */
static bool ahead_name(struct gguf_alias *ret, const char *rest)
{
    static const char *const ahead[][2] = {{"nextn.eh_proj.weight", "mtp.fc.weight"},
                                           {"nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
                                           {"nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
                                           {"nextn.shared_head_norm.weight", "mtp.norm.weight"}};
    for (size_t i = 0; i < sizeof ahead / sizeof *ahead; i++)
        if (!strcmp(rest, ahead[i][0])) {
            snprintf(ret->name, sizeof ret->name, "%s", ahead[i][1]);
            return true;
        }
    return false;
}

void gguf_linear_prefix(char *ret, size_t size, const struct gguf *g, size_t layer)
{
    const struct gguf_arch *a = gguf_arch_find(g);
    if (a && a->linear && layer >= layers_of(g))
        snprintf(ret, size, "mtp.layers.%zu.", layer - layers_of(g));
    else
        snprintf(ret, size, "model.layers.%zu.", layer);
}

bool gguf_linear_alias(struct gguf_alias *ret, const struct gguf *g, size_t layer, const char *rest)
{
    const struct gguf_arch *a = gguf_arch_find(g);
    const struct linear_sizes sizes = sizes_of(g);
    if (!a || !a->linear)
        return false;
    if (layer == layers_of(g) && ahead_name(ret, rest))
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct linear_name *n = &names[i];
        char prefix[64];
        if (strcmp(rest, n->gguf) != 0)
            continue;
        const char *own = a->linear == LINEAR_SPLIT ? put_part(ret, &sizes, n->own) : n->own;
        gguf_linear_prefix(prefix, sizeof prefix, g, layer);
        snprintf(ret->name, sizeof ret->name, "%s%s", prefix, own);
        ret->number = n->number;
        ret->shape = n->shape;
        if (a->linear == LINEAR_WOVEN)
            put_order(ret, &sizes, n->order);
        return true;
    }
    return false;
}
