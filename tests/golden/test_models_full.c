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

static const char *const cases[] = {"smollm3",        "granite",   "olmo3",    "ministral3", "phi3",
                                    "mistral_window", "qwen3_moe", "glm4_moe", "gemma3",     "minimax_m2"};

struct checking {
    struct chain *chain;
    const struct golden *golden;
    size_t elements, compared;
};

/* Routed experts are recorded together under other names. */
static int check_param(void *arg, const struct param_def *def)
{
    struct checking *k = arg;
    const struct param *p = chain_param(k->chain, def->name);
    const json_t *norms = golden_json(k->golden, "full_grad_norms", NULL);
    const json_t *norm = json_object_get(norms, def->name);
    double sum = 0;
    k->elements += p->n;
    if (def->fixed || !norm)
        return 0;
    for (size_t i = 0; i < p->n; i++)
        sum += (double)p->g[i] * (double)p->g[i];
    if (!(fabs(sqrt(sum) - json_number_value(norm)) <= 1e-4 * json_number_value(norm)))
        fail_msg("%s: the gradient of %s has norm %.9g, wanted %.9g", k->golden->name, def->name, sqrt(sum),
                 json_number_value(norm));
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
        if (sscanf(t->name, "model.layers.%zu.", &layer) != 1 || layer < g->config.layers)
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
