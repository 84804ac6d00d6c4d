/* SPDX-License-Identifier: MIT
 *
 * The families known here, and the tensors of a unit: the embedding's, a layer's (norms, attention,
 * MLP), the head's. Called by whoever opens, measures, or writes a model. */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "model/block.h"

static const struct family families[] = {
    {"llama", &part_gqa},     {"mistral", &part_gqa},     {"qwen2", &part_gqa},       {"qwen3", &part_gqa},
    {"qwen3_moe", &part_gqa}, {"deepseek_v2", &part_mla}, {"deepseek_v3", &part_mla},
};

const struct family *family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (!strcmp(families[i].model_type, model_type))
            return &families[i];
    return NULL;
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
        tensor_vector(&list, "input_layernorm.weight", c->dim);
        tensor_vector(&list, "post_attention_layernorm.weight", c->dim);
        list.part = LAYER_ATTENTION;
        f->attention->tensors(&list, c);
        list.part = LAYER_MLP;
        block_mlp(c, unit - 1)->tensors(&list, c);
    } else {
        tensor_vector(&list, "model.norm.weight", c->dim);
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
    /* scores and values of the causal half */
    struct cost cost = {c, (double)positions * (double)(c->heads * (c->head + value)) / 2};
    family_tensors(f, c, unit, cost_one, &cost);
    return cost.sum;
}
