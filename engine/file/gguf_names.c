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

static bool layer_alias(struct gguf_alias *ret, const struct gguf_model *m, size_t layer, const char *rest)
{
    const char *dot = strchr(rest, '.');
    const size_t n = dot ? (size_t)(dot - rest) : 0;
    if (!strcmp(rest, "exp_probs_b.bias")) {
        snprintf(ret->name, sizeof ret->name, "model.layers.%zu.mlp.gate.e_score_correction_bias", layer);
        return true;
    }
    for (size_t i = 0; dot && i < sizeof inside / sizeof *inside; i++) {
        const struct part_name *p = &inside[i];
        if (strlen(p->gguf) != n || strncmp(p->gguf, rest, n) != 0)
            continue;
        snprintf(ret->name, sizeof ret->name, "model.layers.%zu.%s%.40s", layer, p->own, dot);
        if ((!strcmp(p->gguf, "attn_q") || !strcmp(p->gguf, "attn_k")) &&
            !strcmp(gguf_config_architecture(gguf_model_head(m)), "llama"))
            ret->turn = gguf_config_head_width(gguf_model_head(m));
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
    if (t->ndim != 3 || t->extent[2] > EXPERTS_MOST)
        return err_set(err, -EBADMSG, "tensor %s is no stack of 1 to %d experts", input_quote(t->name).text,
                       EXPERTS_MOST);
    snprintf(alias->rest, sizeof alias->rest, "%s", mark + 1);
    *mark = 0;
    alias->experts = t->extent[2];
    return 0;
}

void gguf_alias_name(char ret[GGUF_MODEL_NAME], const struct gguf_alias *alias, size_t expert)
{
    if (alias->experts)
        snprintf(ret, GGUF_MODEL_NAME, "%.100s%zu%s", alias->name, expert, alias->rest);
    else
        memcpy(ret, alias->name, GGUF_MODEL_NAME);
}

int gguf_alias(struct gguf_alias *ret, const struct gguf_model *m, const struct gguf_tensor *t,
               struct err *err)
{
    const char *name = t->name;
    size_t layer;
    const char *rest;
    *ret = (struct gguf_alias){.turn = 0};
    if (!strcmp(name, "rope_freqs.weight")) {
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
