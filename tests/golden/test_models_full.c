/* SPDX-License-Identifier: MIT
 *
 * All weights trained: the gradients of every parameter of small models against a reference
 * implementation, and as many parameters as the files have numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "tests/lib/chain.h"
#include "tests/lib/examples.h"
#include "tests/lib/near.h"

enum { KEPT = 1024 }; /* elements of a parameter up to which its whole gradient is recorded */

static const char *const cases[] = {"smollm3",        "granite",   "olmo3",    "ministral3",  "phi3",
                                    "mistral_window", "qwen3_moe", "glm4_moe", "gemma3",      "minimax_m2",
                                    "qwen3_next",     "qwen3_5",   "gpt_oss",  "deepseek_v32"};

struct checking {
    struct chain *chain;
    const struct golden *golden;
    size_t elements, compared;
    const struct stack *stack; /* while one is compared */
    double squares;
};

static double norm_of(const struct checking *k, const char *name)
{
    return json_number_value(json_object_get(golden_json(k->golden, "full_grad_norms", NULL), name));
}

static void check_norm(const struct checking *k, const char *name, double squares)
{
    const double norm = norm_of(k, name);
    if (!(fabs(sqrt(squares) - norm) <= 1e-4 * norm))
        fail_msg("%s: the gradient of %s has norm %.9g, wanted %.9g", k->golden->name, name, sqrt(squares),
                 norm);
}

/* Routed experts are recorded together: gates and ups, downs, and the biases of both. */
struct stack {
    const char *recorded, *linears[2][2]; /* as most families call them, and as minimax_m2 does */
};

static int add_squares(void *arg, const struct param_def *def)
{
    struct checking *k = arg;
    const char *at = strstr(def->name, "experts."), *dot = at ? strchr(at + strlen("experts."), '.') : NULL;
    for (size_t i = 0; dot && at[-1] == '.' && i < 4; i++) {
        const char *linear = k->stack->linears[i / 2][i % 2];
        const struct param *p = chain_param(k->chain, def->name);
        for (size_t n = 0; linear && !strcmp(dot + 1, linear) && n < p->n; n++)
            k->squares += (double)p->g[n] * (double)p->g[n];
    }
    return 0;
}

static void check_stacks(struct checking *k)
{
    static const struct stack stacks[] = {
        {"gate_up_proj", {{"gate_proj.weight", "up_proj.weight"}, {"w1.weight", "w3.weight"}}},
        {"down_proj", {{"down_proj.weight"}, {"w2.weight"}}},
        {"gate_up_proj_bias", {{"gate_proj.bias", "up_proj.bias"}}},
        {"down_proj_bias", {{"down_proj.bias"}}}};
    for (size_t l = 0; l < k->golden->config.layers; l++)
        for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
            char name[128];
            snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%s", l, stacks[i].recorded);
            k->stack = &stacks[i];
            k->squares = 0;
            tune_params(&k->chain->spec.tune, k->chain->family, &k->golden->config, l + 1, add_squares, k);
            if (norm_of(k, name) > 0)
                check_norm(k, name, k->squares);
        }
}

static int check_param(void *arg, const struct param_def *def)
{
    struct checking *k = arg;
    const struct param *p = chain_param(k->chain, def->name);
    double sum = 0;
    k->elements += p->n;
    if (def->fixed || !(norm_of(k, def->name) > 0))
        return 0;
    for (size_t i = 0; i < p->n; i++)
        sum += (double)p->g[i] * (double)p->g[i];
    check_norm(k, def->name, sum);
    k->compared++;
    if (p->n <= KEPT)
        assert_near_max(p->g, golden_floats(k->golden, p->n, "full.grad.%s", def->name), p->n, 1e-4,
                        def->name);
    return 0;
}

/* Numbers in the files of the model's own layers. */
static size_t stored_elements(const struct golden *g)
{
    struct err err;
    struct st *st;
    size_t n = 0;
    must(st_open_dir(&st, g->model_dir.text, NULL, NULL, &err), &err);
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        size_t layer = 0;
        if ((sscanf(t->name, "model.layers.%zu.", &layer) != 1 || layer < g->config.layers) &&
            strncmp(t->name, "mtp.", 4) != 0)
            n += t->elements;
    }
    st_close(st);
    return n;
}

static void check_case(const char *name, size_t stages)
{
    struct golden g;
    struct examples e;
    struct chain c;
    golden_open(&g, name);
    examples_open(&e, &g);
    struct chain_spec spec = {.model_dir = g.model_dir.text,
                              .config = g.config,
                              .tune = {.kind = TUNE_FULL, .end_layer = g.config.layers},
                              .cut = {stages, {1, g.config.layers}},
                              .training = true,
                              .split_backward = stages > 1,
                              .slots = EXAMPLES,
                              .tokens = EXAMPLES_TOKENS,
                              .seqs = 1,
                              .positions = EXAMPLES_TOKENS};
    if (stages == 1)
        spec.cut.end[0] = g.config.layers;
    chain_open(&c, &spec);
    double loss = 0;
    for (size_t i = 0; i < EXAMPLES; i++)
        loss += chain_forward(&c, i, &e.mb[i], 1.0f / (float)e.supervised, NULL);
    for (size_t i = 0; i < EXAMPLES; i++)
        chain_backward(&c, i);
    chain_tie(&c);
    assert_true(fabs(loss / (double)e.supervised -
                     json_number_value(golden_json(&g, "full", "loss_token_mean", NULL))) < 1e-4);
    struct checking k = {.chain = &c, .golden = &g};
    for (size_t u = 0; u < g.config.layers + 2; u++)
        tune_params(&c.spec.tune, c.family, &g.config, u, check_param, &k);
    check_stacks(&k);
    assert_true(k.compared >= 2 * g.config.layers + 2);
    assert_int_equal(k.elements, stored_elements(&g));
    chain_close(&c);
    golden_close(&g);
}

static void gradients_match(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t stages = 1; stages <= 2; stages++)
            check_case(cases[i], stages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_match)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
