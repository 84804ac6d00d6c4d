/* SPDX-License-Identifier: MIT
 *
 * The families known here, and the tensors of a unit: the embedding's, a layer's (norms, attention,
 * MLP), the head's. Called by whoever opens, measures, or writes a model. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "model/block.h"

static const struct moe_names minimax_names = {
    "block_sparse_moe.gate.weight",
    "block_sparse_moe.e_score_correction_bias",
    "block_sparse_moe.experts",
    NULL,
    {"w1", "w3", "w2"},
};

static const struct family families[] = {
    {"llama", NULL},       {"mistral", NULL},   {"qwen2", NULL},
    {"qwen3", NULL},       {"qwen3_moe", NULL}, {"deepseek_v2", NULL},
    {"deepseek_v3", NULL}, {"smollm3", NULL},   {"granite", NULL},
    {"phi3", NULL},        {"olmo3", NULL},     {"ministral3", NULL},
    {"gemma3_text", NULL}, {"glm4_moe", NULL},  {"minimax_m2", &minimax_names},
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

int family_tensors(const struct family *f, const struct config *c, size_t unit,
                   int (*visit)(void *arg, const struct tensor_def *def), void *arg)
{
    struct tensor_list list = {.visit = visit, .arg = arg};
    struct tensor_def table = {.rows = c->vocab, .cols = c->dim};
    if (unit == 0) {
        tensor_add(&list, "model.embed_tokens.weight", table);
    } else if (unit <= c->layers) {
        snprintf(list.prefix, sizeof list.prefix, "model.layers.%zu.", unit - 1);
        list.names = f->experts ? f->experts : &moe_usual_names;
        for (enum block_norm n = 0; n < BLOCK_NORMS; n++)
            if (block_norm_name(c, n))
                tensor_norm(&list, block_norm_name(c, n), c);
        list.part = LAYER_ATTENTION;
        block_attention(c, unit - 1)->tensors(&list, c);
        list.part = LAYER_MLP;
        block_mlp(c, unit - 1)->tensors(&list, c);
    } else {
        tensor_norm(&list, "model.norm.weight", c);
        if (!c->tied)
            tensor_add(&list, "lm_head.weight", table);
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

double family_cost(const struct family *f, const struct config *c, size_t unit, size_t positions)
{
    if (unit == 0) /* the embedding only copies a row */
        return (double)c->dim;
    if (unit > c->layers)
        return (double)c->vocab * (double)c->dim;
    const size_t value = c->mla.kv_rank ? c->mla.value : c->head;
    /* scores and values: of the causal half, or of a window */
    const size_t window = config_layer(c, unit - 1).window;
    const double keys = window && window < positions / 2 ? (double)window : (double)positions / 2;
    struct cost cost = {c, keys * (double)(c->heads * (c->head + value))};
    family_tensors(f, c, unit, cost_one, &cost);
    return cost.sum;
}
