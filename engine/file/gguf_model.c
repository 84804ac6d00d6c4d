/* SPDX-License-Identifier: MIT
 *
 * Owns the parts of a split file, and the names of tensors. Called by st_gguf.c and model_file.c. */
#include "file/gguf_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/gguf_model_impl.h"
#include "file/gguf_path.h"
#include "file/input.h"

enum { EXPERTS_MOST = 1 << 14 };

struct gguf_model {
    struct gguf **part; /* owned, and each of them */
    char **path;        /* owned, and each of them */
    size_t n;
};

/* --- parts ------------------------------------------------------------------------------------ */

static int add_part(struct gguf_model *m, const char *path, struct err *err)
{
    struct gguf **part = reallocarray(m->part, m->n + 1, sizeof *part);
    if (part)
        m->part = part;
    char **paths = part ? reallocarray(m->path, m->n + 1, sizeof *paths) : NULL;
    if (paths)
        m->path = paths;
    char *copy = paths ? strdup(path) : NULL;
    if (!copy)
        return err_set(err, -ENOMEM, "%s: no memory to open it", path);
    int r = gguf_open(&m->part[m->n], path, err);
    if (r) {
        free(copy);
        return r;
    }
    m->path[m->n++] = copy;
    return 0;
}

static bool whole_at(const struct gguf *g, const char *key, int64_t *ret)
{
    const struct gguf_value *v = gguf_value(g, key);
    return v && !v->is_array && gguf_whole(v, 0, ret);
}

static int check_part(const struct gguf_model *m, size_t no, size_t of, struct err *err)
{
    int64_t is = -1, count = -1;
    whole_at(m->part[no], "split.no", &is);
    whole_at(m->part[no], "split.count", &count);
    return is == (int64_t)no && count == (int64_t)of
               ? 0
               : err_set(err, -EBADMSG,
                         "%s says that it is part %lld of %lld, and is named as part %zu of %zu", m->path[no],
                         (long long)is + 1, (long long)count, no + 1, of);
}

static int add_others(struct gguf_model *m, const char *path, size_t of, struct err *err)
{
    if (gguf_path_parts(path) != of)
        return err_set(err, -EINVAL, "%s is part of %zu, and is not named NAME-00001-of-%05zu.gguf: name it so",
                       path, of, of);
    char *first = gguf_path_part(path, 0);
    int r = first && gguf_path_number(path)
                ? err_set(err, -EINVAL, "%s is part %zu of %zu: name the first, %s", path,
                          gguf_path_number(path) + 1, of, first)
                : check_part(m, 0, of, err);
    free(first);
    for (size_t i = 1; i < of && !r; i++) {
        char *other = gguf_path_part(path, i);
        r = other ? add_part(m, other, err) : err_set(err, -ENOMEM, "%s: no memory to open its parts", path);
        if (r == -ENOENT)
            err_set(err, r, "%s is missing: put it beside %s", other, path);
        r = r ? r : check_part(m, i, of, err);
        free(other);
    }
    return r;
}

/* A name that two parts hold would be chance. */
static int check_names(const struct gguf_model *m, struct err *err)
{
    int64_t all = 0, promised = 0;
    for (size_t p = 0; p < m->n; p++)
        all += (int64_t)gguf_tensors(m->part[p]);
    if (m->n > 1 && whole_at(m->part[0], "split.tensors.count", &promised) && promised != all)
        return err_set(err, -EBADMSG, "%s: its parts hold %lld tensors, and it says %lld: copy all again",
                       m->path[0], (long long)all, (long long)promised);
    for (size_t p = 1; p < m->n; p++)
        for (size_t i = 0; i < gguf_tensors(m->part[p]); i++)
            for (size_t q = 0; q < p; q++)
                if (gguf_find(m->part[q], gguf_tensor(m->part[p], i)->name))
                    return err_set(err, -EBADMSG, "%s and %s both hold tensor %s", m->path[q], m->path[p],
                                   input_quote(gguf_tensor(m->part[p], i)->name).text);
    return 0;
}

int gguf_model_open(struct gguf_model **ret, const char *path, struct err *err)
{
    struct gguf_model *m = calloc(1, sizeof *m);
    int64_t of = 1;
    int r = m ? add_part(m, path, err) : err_set(err, -ENOMEM, "%s: no memory to open it", path);
    if (!r && whole_at(m->part[0], "split.count", &of) && (of < 1 || of > GGUF_PARTS_MOST))
        r = err_set(err, -EBADMSG, "%s says that it is one of %lld parts; 1 to %d are possible", path,
                    (long long)of, GGUF_PARTS_MOST);
    if (!r && of > 1)
        r = add_others(m, path, (size_t)of, err);
    if (!r)
        r = check_names(m, err);
    if (r)
        gguf_model_close(m);
    else
        *ret = m;
    return r;
}

void gguf_model_close(struct gguf_model *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        gguf_close(m->part[i]);
        free(m->path[i]);
    }
    free(m->part);
    free(m->path);
    free(m);
}

size_t gguf_model_parts(const struct gguf_model *m)
{
    return m->n;
}

const char *gguf_model_path(const struct gguf_model *m, size_t part)
{
    return m->path[part];
}

const struct gguf *gguf_model_part(const struct gguf_model *m, size_t part)
{
    return m->part[part];
}

const struct gguf *gguf_model_head(const struct gguf_model *m)
{
    return m->part[0];
}

const struct gguf_tensor *gguf_model_find(const struct gguf_model *m, const char *name)
{
    const struct gguf_tensor *t = NULL;
    for (size_t p = 0; p < m->n && !t; p++)
        t = gguf_find(m->part[p], name);
    return t;
}

/* --- names ------------------------------------------------------------------------------------ */

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

const char *gguf_model_architecture(const struct gguf_model *m)
{
    return gguf_config_architecture(gguf_model_head(m));
}

size_t gguf_model_head_width(const struct gguf_model *m)
{
    return gguf_config_head_width(gguf_model_head(m));
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
            !strcmp(gguf_model_architecture(m), "llama"))
            ret->turn = gguf_model_head_width(m);
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

int gguf_alias(struct gguf_alias *ret, const struct gguf_model *m, const struct gguf_tensor *t, struct err *err)
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

/* --- small files ------------------------------------------------------------------------------ */

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
