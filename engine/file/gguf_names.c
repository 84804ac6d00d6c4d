/* SPDX-License-Identifier: MIT
 *
 * Names of tensors in GGUF files and in Hugging Face's. Called by st_gguf.c; any thread, no
 * state. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "file/gguf_model_impl.h"
#include "file/input.h"

enum { EXPERTS_MOST = 1 << 14 };

static const struct part_name {
    const char *gguf, *own;
} outside[] =
    {
        {"token_embd.weight", "model.embed_tokens.weight"},
        {"output_norm.weight", "model.norm.weight"},
        {"output.weight", "lm_head.weight"},
},
  inside[] = {
      {"attn_norm", "input_layernorm"},
      {"ffn_norm", "post_attention_layernorm"},
      {"post_attention_norm", "post_attention_layernorm"},
      {"post_ffw_norm", "post_feedforward_layernorm"},
      {"attn_qkv", "self_attn.qkv_proj"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_output", "self_attn.o_proj"},
      {"attn_q_norm", "self_attn.q_norm"},
      {"attn_k_norm", "self_attn.k_norm"},
      {"attn_q_a", "self_attn.q_a_proj"},
      {"attn_q_a_norm", "self_attn.q_a_layernorm"},
      {"attn_q_b", "self_attn.q_b_proj"},
      {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
      {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
      {"attn_kv_b", "self_attn.kv_b_proj"},
      {"attn_k_b", "self_attn.kv_b_proj.keys"},
      {"attn_v_b", "self_attn.kv_b_proj.values"},
      {"ffn_gate", "mlp.gate_proj"},
      {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},
      {"ffn_gate_inp", "mlp.gate"},
      {"ffn_gate_exps", "mlp.experts.|.gate_proj"},
      {"ffn_up_exps", "mlp.experts.|.up_proj"},
      {"ffn_down_exps", "mlp.experts.|.down_proj"},
      {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
      {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
      {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};

/* Without a matrix: the whole of what stands behind the number of a layer. */
static const struct part_name vectors[] = {
    {"exp_probs_b", "mlp.gate.e_score_correction_bias"},
    {"attn_sinks", "self_attn.sinks"},
};

/* Of a layer behind the last, which predicts a token more; behind "nextn.". */
static const struct part_name ahead[] = {
    {"eh_proj.weight", "eh_proj.weight"},
    {"enorm.weight", "enorm.weight"},
    {"hnorm.weight", "hnorm.weight"},
    {"shared_head_norm.weight", "shared_head.norm.weight"},
};

/* What some architectures call otherwise. */
static const struct other_name {
    const char *archs;
    struct part_name name;
} others[] = {
    {"gpt-oss", {"ffn_gate_inp", "mlp.router"}},
    {"gemma2 gemma3", {"ffn_norm", "pre_feedforward_layernorm"}},
    {"phi3", {"ffn_up", "mlp.gate_up_proj"}},
    {"minimax-m2", {"ffn_gate_inp", "block_sparse_moe.gate"}},
    {"minimax-m2", {"ffn_gate_exps", "block_sparse_moe.experts.|.w1"}},
    {"minimax-m2", {"ffn_up_exps", "block_sparse_moe.experts.|.w3"}},
    {"minimax-m2", {"ffn_down_exps", "block_sparse_moe.experts.|.w2"}},
    {"minimax-m2", {"exp_probs_b", "block_sparse_moe.e_score_correction_bias"}},
    {"qwen3next qwen35moe", {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"}},
    {"qwen3next qwen35moe", {"ffn_up_shexp", "mlp.shared_expert.up_proj"}},
    {"qwen3next qwen35moe", {"ffn_down_shexp", "mlp.shared_expert.down_proj"}},
};

static bool is_among(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = words; n && (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (!at[n] || at[n] == ' '))
            return true;
    return false;
}

static const char *own_name(const char *arch, const struct part_name *p)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_among(others[i].archs, arch) && !strcmp(others[i].name.gguf, p->gguf))
            return others[i].name.own;
    return p->own;
}

/* The layer's number and what stands behind it; false: the name is none of a layer. */
static bool in_layer(const char *name, size_t *ret_layer, const char **ret_rest)
{
    int used = 0;
    if (sscanf(name, "blk.%9zu.%n", ret_layer, &used) != 1 || !used)
        return false;
    *ret_rest = name + used;
    return true;
}

/* Some converters write both forms of the same. */
static bool is_told_twice(const struct gguf_model *m, size_t layer, const char *part)
{
    char whole[GGUF_NAME + 1];
    snprintf(whole, sizeof whole, "blk.%zu.attn_kv_b.weight", layer);
    return (!strcmp(part, "attn_k_b") || !strcmp(part, "attn_v_b")) && gguf_model_find(m, whole);
}

/* What else such a layer has are copies of the embedding and of the head. */
static void ahead_alias(struct gguf_alias *ret, size_t layer, const char *rest)
{
    ret->is_left_out = true;
    for (size_t i = 0; i < sizeof ahead / sizeof *ahead; i++)
        if (!strcmp(rest, ahead[i].gguf)) {
            snprintf(ret->name, sizeof ret->name, "model.layers.%zu.%s", layer, ahead[i].own);
            ret->is_left_out = false;
        }
}

static bool layer_alias(struct gguf_alias *ret, const struct gguf_model *m, size_t layer, const char *rest)
{
    const char *dot = strchr(rest, '.');
    const struct gguf *g = gguf_model_head(m);
    const char *arch = gguf_config_architecture(g);
    const size_t n = dot ? (size_t)(dot - rest) : 0;
    char prefix[64];
    if (gguf_linear_alias(ret, g, layer, rest))
        return true;
    gguf_linear_prefix(prefix, sizeof prefix, g, layer);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (dot && strlen(vectors[i].gguf) == n && !strncmp(vectors[i].gguf, rest, n)) {
            snprintf(ret->name, sizeof ret->name, "%s%s", prefix, own_name(arch, &vectors[i]));
            return true;
        }
    if (!strncmp(rest, "nextn.", strlen("nextn."))) {
        ahead_alias(ret, layer, rest + strlen("nextn."));
        return true;
    }
    for (size_t i = 0; dot && i < sizeof inside / sizeof *inside; i++) {
        const struct part_name *p = &inside[i];
        if (strlen(p->gguf) != n || strncmp(p->gguf, rest, n) != 0)
            continue;
        snprintf(ret->name, sizeof ret->name, "%s%s%.40s", prefix, own_name(arch, p), dot);
        if ((!strcmp(p->gguf, "attn_q") || !strcmp(p->gguf, "attn_k")) && gguf_config_is_turned(g))
            ret->turn = gguf_config_head_width(g);
        ret->is_left_out = is_told_twice(m, layer, p->gguf);
        return true;
    }
    return false;
}

/* At the mark where the number of an expert goes. */
static int cut_stack(struct gguf_alias *alias, const struct gguf_tensor *t, struct err *err)
{
    char *mark = strchr(alias->name, '|');
    if (!mark)
        return 0;
    if (t->ndim < 2 || t->ndim > 3 || t->extent[t->ndim - 1] > EXPERTS_MOST)
        return err_set(err, -EBADMSG, "tensor %s is no stack of 1 to %d experts", input_quote(t->name).text,
                       EXPERTS_MOST);
    snprintf(alias->rest, sizeof alias->rest, "%s", mark + 1);
    *mark = 0;
    alias->experts = t->extent[t->ndim - 1]; /* the last one, also of biases */
    return 0;
}

void gguf_alias_name(char ret[GGUF_MODEL_NAME], const struct gguf_alias *alias, size_t expert)
{
    if (alias->experts)
        snprintf(ret, GGUF_MODEL_NAME, "%.100s%zu%s", alias->name, expert, alias->rest);
    else
        memcpy(ret, alias->name, GGUF_MODEL_NAME);
}

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), e = strlen(end);
    return n >= e && !strcmp(name + n - e, end);
}

int gguf_alias(struct gguf_alias *ret, const struct gguf_model *m, const struct gguf_tensor *t,
               struct err *err)
{
    const char *name = t->name;
    size_t layer;
    const char *rest;
    *ret = (struct gguf_alias){.turn = 0};
    if (gguf_config_adds_one(gguf_model_head(m)) && ends_with(name, "norm.weight") &&
        !ends_with(name, ".ssm_norm.weight"))
        ret->number = GGUF_ONE_MORE;
    if (is_among("rope_freqs.weight rope_factors_long.weight rope_factors_short.weight", name)) {
        ret->is_left_out = true;
        return 0;
    }
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (!strcmp(name, outside[i].gguf)) {
            snprintf(ret->name, sizeof ret->name, "%s", outside[i].own);
            return 0;
        }
    if (in_layer(name, &layer, &rest) && layer_alias(ret, m, layer, rest))
        return cut_stack(ret, t, err);
    return err_set(err, -ENOTSUP, "tensor %s belongs to no model that is computed here",
                   input_quote(name).text);
}
