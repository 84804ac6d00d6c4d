/* SPDX-License-Identifier: MIT
 *
 * The families known here, and the tensors of a unit: the embedding's, a layer's (norms, attention,
 * MLP), the head's. Called by whoever opens, measures, or writes a model. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "model/block.h"

static const struct moe_names minimax_names = {
    .router = "block_sparse_moe.gate.weight",
    .bias = "block_sparse_moe.e_score_correction_bias",
    .experts = "block_sparse_moe.experts",
    .linears = {"w1", "w3", "w2"},
};

static const struct moe_names gpt_oss_names = {
    .router = "mlp.router.weight",
    .router_bias = "mlp.router.bias",
    .experts = "mlp.experts",
    .linears = {"gate_proj", "up_proj", "down_proj"},
    .weave = WEAVE_TURNS,
};

static const struct moe_names qwen_names = {
    .router = "mlp.gate.weight",
    .experts = "mlp.experts",
    .shared = "mlp.shared_expert",
    .shared_gate = "mlp.shared_expert_gate.weight",
    .linears = {"gate_proj", "up_proj", "down_proj"},
};

/* Qwen3.5's are one tensor for a layer, unlike Qwen3-Next's. */
static const struct moe_names qwen3_5_names = {
    .router = "mlp.gate.weight",
    .experts = "mlp.experts",
    .shared = "mlp.shared_expert",
    .shared_gate = "mlp.shared_expert_gate.weight",
    .linears = {"gate_proj", "up_proj", "down_proj"},
    .weave = WEAVE_HALVES,
};

static const struct family families[] = {
    {"llama", NULL},
    {"mistral", NULL},
    {"qwen2", NULL},
    {"qwen3", NULL},
    {"qwen3_moe", NULL},
    {"deepseek_v2", NULL},
    {"deepseek_v3", NULL},
    {"deepseek_v32", NULL},
    {"kimi_k2", NULL},
    {"smollm3", NULL},
    {"granite", NULL},
    {"phi3", NULL},
    {"olmo3", NULL},
    {"ministral3", NULL},
    {"gemma2", NULL},
    {"gemma3_text", NULL},
    {"glm4_moe", NULL},
    {"minimax_m2", &minimax_names},
    {"gpt_oss", &gpt_oss_names},
    {"qwen3_next", &qwen_names},
    {"qwen3_5_text", NULL},
    {"qwen3_5_moe_text", &qwen3_5_names},
};

const struct family *family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].model_type, model_type))
            return &families[i];
    return NULL;
}

static void tensor_norm(struct tensor_list *list, const char *name, const struct config *c)
{
    tensor_add(list, name, (struct tensor_def){.rows = c->dim, .plus_one = c->norm_plus_one});
}

/* What a layer is called that predicts a token more, and what it has beside a block: norms of the
 * embedding and of what the model gave before, what makes one of both, and a norm before the head.
 */
static const struct ahead_names {
    const char *layer; /* with its number, or without */
    const char *of_ids, *of_x, *both, *end;
} behind = {"model.layers.%zu.", "model.layers.%zu.enorm.weight", "model.layers.%zu.hnorm.weight",
            "model.layers.%zu.eh_proj.weight", "model.layers.%zu.shared_head.norm.weight"},
  apart = {"mtp.layers.0.", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight",
           "mtp.fc.weight", "mtp.norm.weight"};

static const struct ahead_names *ahead_names(const struct config *c)
{
    return c->extra_apart ? &apart : &behind;
}

/* Of a pattern of ahead_names. */
static void ahead_name(char *ret, size_t size, const struct config *c, const char *pattern)
{
    const char *mark = strstr(pattern, "%zu");
    if (mark)
        snprintf(ret, size, "%.*s%zu%s", (int)(mark - pattern), pattern, c->layers - 1, mark + 3);
    else
        snprintf(ret, size, "%s", pattern);
}

void family_ahead_linear(char ret[TENSOR_NAME], const struct config *c)
{
    ahead_name(ret, TENSOR_NAME, c, ahead_names(c)->both);
}

/* What makes of an embedding and of what the model gave before that token the input of its layer
 * (stage_rows). */
static void ahead_tensors(struct tensor_list *list, const struct config *c)
{
    const struct ahead_names *names = ahead_names(c);
    char name[TENSOR_NAME];
    ahead_name(name, sizeof name, c, names->of_ids);
    tensor_norm(list, name, c);
    ahead_name(name, sizeof name, c, names->of_x);
    tensor_norm(list, name, c);
    ahead_name(name, sizeof name, c, names->both);
    tensor_linear(list, name, c->dim, 2 * c->dim);
}

static void layer_prefix(char *ret, size_t size, const struct config *c, size_t layer)
{
    if (c->is_ahead && layer + 1 == c->layers)
        ahead_name(ret, size, c, ahead_names(c)->layer);
    else
        snprintf(ret, size, "model.layers.%zu.", layer);
}

int family_tensors(const struct family *f, const struct config *c, size_t unit,
                   int (*visit)(void *arg, const struct tensor_def *def), void *arg)
{
    struct tensor_list list = {.visit = visit, .arg = arg};
    const struct tensor_def table = {.rows = c->vocab, .cols = c->dim},
                            shared = {.rows = c->vocab, .cols = c->dim, .grain = SLICE_ANY};
    if (unit == 0) {
        tensor_add(&list, "model.embed_tokens.weight", table);
        if (c->is_ahead)
            ahead_tensors(&list, c);
    } else if (unit <= c->layers) {
        layer_prefix(list.prefix, sizeof list.prefix, c, unit - 1);
        list.names = f->experts ? f->experts : &moe_usual_names;
        for (enum block_norm n = 0; n < BLOCK_NORMS; n++)
            if (block_norm_name(c, n))
                tensor_norm(&list, block_norm_name(c, n), c);
        list.part = LAYER_ATTENTION;
        block_attention(c, unit - 1)->tensors(&list, c);
        list.part = LAYER_MLP;
        block_mlp(c, unit - 1)->tensors(&list, c);
    } else {
        char norm[TENSOR_NAME] = "model.norm.weight";
        if (c->is_ahead)
            ahead_name(norm, sizeof norm, c, ahead_names(c)->end);
        tensor_norm(&list, norm, c);
        if (!c->tied)
            tensor_add(&list, "lm_head.weight", shared);
    }
    return list.answer;
}

static int count_one(void *arg, const struct tensor_def *def)
{
    (void)def;
    ++*(size_t *)arg;
    return 0;
}

size_t family_tensor_count(const struct family *f, const struct config *c, size_t unit)
{
    size_t n = 0;
    family_tensors(f, c, unit, count_one, &n);
    return n;
}

struct cost {
    const struct config *config;
    double sum;
};

/* Of the experts only the chosen ones are computed. */
static int cost_one(void *arg, const struct tensor_def *def)
{
    struct cost *cost = arg;
    const struct config_moe *m = &cost->config->moe;
    double share = def->cold ? (double)m->chosen / (double)m->experts : 1;
    cost->sum += (double)def->rows * (double)(def->cols ? def->cols : 1) * share;
    return 0;
}

/* Scores and values, of the causal half, of a window, or of what an indexer chose of that half; of
 * a linear layer its states are read twice and written once. */
static double attention_cost(const struct config *c, struct config_layer layer, size_t positions)
{
    const struct config_mla *m = &c->mla;
    const size_t value = m->kv_rank ? m->value : c->head, most = m->index_top ? m->index_top : layer.window;
    const double half = (double)positions / 2, keys = most && (double)most < half ? (double)most : half,
                 indexed = m->index_top && positions > m->index_top ? half : 0;
    if (layer.is_linear)
        return 3 * (double)(c->delta.value_heads * c->delta.key * c->delta.value);
    return keys * (double)(c->heads * (c->head + value)) + indexed * (double)(m->index_heads * m->index_head);
}

double family_cost(const struct family *f, const struct config *c, size_t unit, size_t positions)
{
    if (unit == 0) /* the embedding only copies a row */
        return (double)c->dim;
    if (unit > c->layers)
        return (double)c->vocab * (double)c->dim;
    struct cost cost = {c, attention_cost(c, config_layer(c, unit - 1), positions)};
    family_tensors(f, c, unit, cost_one, &cost);
    return cost.sum;
}
