/* SPDX-License-Identifier: MIT
 *
 * Small models of every family against a reference implementation: logits, boundaries, gradients,
 * five optimizer steps and greedy text, however the model is cut into stages; and every cut gives
 * the bits of one stage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "file/input.h"
#include "model/stage_impl.h"
#include "tests/lib/chain.h"
#include "tests/lib/examples.h"
#include "tests/lib/near.h"
#include "tests/lib/golden.h"

enum { MOST_TOKENS = EXAMPLES_TOKENS, MICROBATCHES = EXAMPLES, STEPS = 5, GREEDY = 32, MOST_EXPERTS = 8 };
enum { END = SIZE_MAX >> 1 }; /* of a cut: the last layer, whichever that is */

/* One to four stages and more than that: even and uneven, without layers at the bottom, in the
 * middle and at the top. */
static const struct chain_cut cuts[] = {{1, {END}},       {2, {1, END}},       {2, {2, END}},
                                        {2, {0, END}},    {2, {END, END}},     {3, {1, 1, END}},
                                        {3, {1, 2, END}}, {4, {1, 2, 3, END}}, {6, {0, 1, 2, 3, 4, 4}}};
enum { CUTS = sizeof cuts / sizeof *cuts };

static const struct adamw opt = {
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f};

struct use {
    const char *name;
    const char *set; /* of adapters */
};

/* Of the text whose logits are known. */
static size_t tokens_of(const struct golden *g)
{
    const size_t n = json_array_size(golden_json(g, "logits", "ids", NULL));
    assert_in_range(n, 1, MOST_TOKENS);
    return n;
}

/* Names the case where a comparison fails. */
struct label {
    char text[256];
};
static struct label label(const struct golden *g, const struct chain *c, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static struct label label(const struct golden *g, const struct chain *c, const char *fmt, ...)
{
    struct label l;
    int n = snprintf(l.text, sizeof l.text, "%s in %zu stages%s: ", g->name, c->spec.cut.n,
                     c->spec.split_backward ? ", split backward" : "");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(l.text + n, sizeof l.text - (size_t)n, fmt, ap);
    va_end(ap);
    return l;
}

static struct chain_spec spec_for(const struct golden *g, struct chain_cut cut)
{
    return (struct chain_spec){.model_dir = g->model_dir.text,
                               .config = g->config,
                               .tune = {.end_layer = g->config.layers},
                               .cut = cut,
                               .slots = 1,
                               .tokens = MOST_TOKENS,
                               .seqs = MICROBATCHES,
                               .positions = MOST_TOKENS};
}

/* --- logits ----------------------------------------------------------------------------------- */

static double logprob_of(const float *logits, size_t vocab, uint32_t id)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < vocab; i++)
        max = fmax(max, (double)logits[i]);
    for (size_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

struct text {
    uint32_t ids[MOST_TOKENS], start[2];
    int32_t labels[MOST_TOKENS];
};

static struct microbatch text_open(struct text *t, const struct golden *g)
{
    const size_t n = tokens_of(g);
    assert_int_equal(golden_ids(golden_json(g, "logits", "ids", NULL), t->ids, n), n);
    t->start[0] = 0;
    t->start[1] = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        t->labels[i] = i + 1 < n ? (int32_t)t->ids[i + 1] : 0;
    return (struct microbatch){.seqs = {1, t->start}, .ids = t->ids, .labels = t->labels};
}

/* Log-probabilities of the forward pass, and what passes between the stages. */
static void check_scores(const struct golden *g, struct chain_cut cut, float *logprob)
{
    size_t vocab = g->config.vocab, tokens = tokens_of(g);
    struct text text;
    struct microbatch mb = text_open(&text, g);
    struct chain c;
    struct chain_spec spec = spec_for(g, cut);
    chain_open(&c, &spec);
    chain_forward(&c, 0, &mb, 0, logprob);
    const float *logits = golden_floats(g, tokens * vocab, "logits");
    for (size_t t = 0; t < tokens; t++) {
        float want = (float)logprob_of(logits + t * vocab, vocab, (uint32_t)text.labels[t]);
        assert_near(&logprob[t], &want, 1, 1e-4, label(g, &c, "log-probability at %zu", t).text);
    }
    for (size_t i = 1; i < c.spec.cut.n; i++)
        if (chain_first(&c, i) < g->config.layers) {
            size_t n = tokens * g->config.dim, l = chain_first(&c, i);
            assert_near(c.act[i], golden_floats(g, n, "hidden.%zu", l), n, 1e-4,
                        label(g, &c, "input of layer %zu", l).text);
        }
    chain_close(&c);
}

static void scores_match(void **state)
{
    const struct use *use = *state;
    struct golden g;
    golden_open(&g, use->name);
    float one[MOST_TOKENS], more[MOST_TOKENS];
    check_scores(&g, cuts[0], one);
    for (size_t i = 1; i < CUTS; i++) {
        check_scores(&g, cuts[i], more);
        assert_same_bits(more, one, tokens_of(&g), "log-probabilities of a chain against one stage");
    }
    golden_close(&g);
}

/* The same model described by a config in the newer spelling. */
static void both_spellings_agree(void **state)
{
    const struct use *use = *state;
    struct golden g;
    struct err err;
    golden_open(&g, use->name);
    char *json;
    size_t n;
    must(input_read(data_path("cases/%s/model/config.v5.json", use->name).text, 1 << 20, &json, &n, &err),
         &err);
    struct golden newer = g;
    must(config_parse(&newer.config, json, n, &err), &err);
    free(json);
    assert_memory_equal(&newer.config, &g.config, sizeof g.config); /* padding is zero */
    float older[MOST_TOKENS], other[MOST_TOKENS];
    check_scores(&g, cuts[0], older);
    check_scores(&newer, cuts[0], other);
    assert_same_bits(other, older, tokens_of(&g), "log-probabilities under the newer config");
    golden_close(&g);
}

static void start_from(struct chain_spec *spec, struct adapter_in **ret, const struct use *use)
{
    struct err err;
    struct data_path dir = data_path("cases/%s/adapter_%s_init", use->name, use->set);
    const struct family *f = family_find(spec->config.family);
    spec->tune = (struct tune){0};
    must(adapter_read_config(&spec->tune, dir.text, f, &spec->config, &err), &err);
    must(adapter_in_open(ret, dir.text, &spec->tune, f, &spec->config, &err), &err);
}

/* Prefill in pieces of `chunk` tokens; the logits after each piece must be those of its last
 * position. */
static void check_prefill(const struct golden *g, const struct use *use, struct chain_cut cut, size_t chunk)
{
    size_t vocab = g->config.vocab, tokens = tokens_of(g);
    struct text text;
    text_open(&text, g);
    struct chain c;
    struct chain_spec spec = spec_for(g, cut);
    struct adapter_in *in = NULL;
    spec.kv = true;
    if (use->set)
        start_from(&spec, &in, use);
    chain_open(&c, &spec);
    if (in)
        chain_load(&c, in);
    adapter_in_close(in);
    const float *want = use->set ? golden_floats(g, tokens * vocab, "lora_%s.logits", use->set)
                                 : golden_floats(g, tokens * vocab, "logits");
    for (size_t at = 0, n; at < tokens; at += n) {
        n = chunk < tokens - at ? chunk : tokens - at;
        const float *got = chain_decode(&c, text.ids + at, n, at);
        assert_near(got, want + (at + n - 1) * vocab, vocab, 1e-4,
                    label(g, &c, "logits at %zu, chunks of %zu, adapter %s", at + n - 1, chunk,
                          use->set ? use->set : "none")
                        .text);
    }
    chain_close(&c);
}

static void prefill_matches(void **state)
{
    static const size_t chunks[] = {MOST_TOKENS, 1, 7, 50};
    const struct use *use = *state, base = {use->name, NULL};
    struct golden g;
    golden_open(&g, use->name);
    for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) {
        check_prefill(&g, &base, cuts[0], chunks[k]);
        check_prefill(&g, use, cuts[0], chunks[k]);
    }
    for (size_t i = 1; i < CUTS; i++)
        check_prefill(&g, i % 2 ? &base : use, cuts[i], 13);
    golden_close(&g);
}

static uint32_t best(const float *logits, size_t vocab)
{
    size_t at = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[at])
            at = i;
    return (uint32_t)at;
}

static void greedy_text_matches(void **state)
{
    const struct use *use = *state;
    struct golden g;
    golden_open(&g, use->name);
    uint32_t prompt[MOST_TOKENS], tokens[GREEDY];
    size_t n = golden_ids(golden_json(&g, "generate", "prompt", NULL), prompt, MOST_TOKENS - GREEDY);
    size_t count = golden_ids(golden_json(&g, "generate", "tokens", NULL), tokens, GREEDY);
    const float *want = golden_floats(&g, GREEDY * g.config.vocab, "gen.logits");
    assert_int_equal(count, GREEDY);
    for (size_t i = 0; i < CUTS; i++) {
        struct chain c;
        struct chain_spec spec = spec_for(&g, cuts[i]);
        spec.kv = true;
        if (g.config.rope == ROPE_LONG) /* the room for a text decides how all of it is rotated */
            spec.positions = g.config.rope_original;
        chain_open(&c, &spec);
        const float *logits = chain_decode(&c, prompt, n, 0);
        for (size_t k = 0; k < GREEDY; k++) {
            assert_near(logits, want + k * g.config.vocab, g.config.vocab, 1e-4,
                        label(&g, &c, "logits of greedy token %zu", k).text);
            uint32_t id = best(logits, g.config.vocab);
            assert_int_equal(id, tokens[k]);
            logits = chain_decode(&c, &id, 1, n + k);
        }
        chain_close(&c);
    }
    golden_close(&g);
}

/* --- training --------------------------------------------------------------------------------- */

/* What must not depend on the cut, down to the bit. */
struct trained {
    double loss[STEPS + 1], norm;
    float *grads, *state; /* owned: of the first step, and after the last */
    size_t n;
};

static void trained_free(struct trained *t)
{
    free(t->grads);
    free(t->state);
}

struct grads {
    struct chain *chain;
    const struct golden *golden;
    const char *prefix;
};

/* An expert that one token reached with a small weight has gradients at the level of the rounding
 * of what they are computed from: hence the absolute part. */
static int check_grad(void *arg, const struct param_def *def)
{
    const struct grads *k = arg;
    const struct param *p = chain_param(k->chain, def->name);
    const float *want = golden_floats(k->golden, p->n, "%s.grad.base_model.model.%s", k->prefix, def->name);
    assert_near(p->g, want, p->n, 1e-4 * near_max(want, p->n) + 2e-7,
                label(k->golden, k->chain, "%s, gradient of %s", k->prefix, def->name).text);
    return 0;
}

static void check_grads(struct chain *c, const struct golden *g, const char *prefix)
{
    struct grads k = {c, g, prefix};
    for (size_t u = 0; u < g->config.layers + 2; u++)
        tune_params(&c->spec.tune, c->family, &g->config, u, check_grad, &k);
}

/* Microbatch 0 alone: what passes between the stages, upwards and downwards. */
static void check_boundaries(struct chain *c, const struct golden *g, const struct use *use, size_t tokens)
{
    size_t n = tokens * g->config.dim;
    for (size_t i = 1; i < c->spec.cut.n; i++) {
        size_t l = chain_first(c, i);
        assert_near(c->act[i], golden_floats(g, n, "lora_%s.mb0.hidden.%zu", use->set, l), n, 1e-4,
                    label(g, c, "adapter %s, input of layer %zu", use->set, l).text);
        assert_near_max(c->grad[i], golden_floats(g, n, "lora_%s.mb0.grad_hidden.%zu", use->set, l), n, 1e-4,
                        label(g, c, "adapter %s, gradient of the input of layer %zu", use->set, l).text);
    }
}

static void check_microbatches(struct chain *c, const struct golden *g, const struct use *use,
                               const struct examples *e)
{
    const json_t *sums = golden_json(g, "lora", use->set, "per_microbatch_sum_nll_and_tokens", NULL);
    for (size_t i = 0; i < MICROBATCHES; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "lora_%s.mb%zu", use->set, i);
        chain_clear_grads(c);
        double loss = chain_forward(c, i, &e->mb[i], 1, NULL);
        double want = json_number_value(json_array_get(json_array_get(sums, i), 0));
        assert_true(fabs(loss - want) <= 1e-4 * fmax(1, want / 10));
        chain_backward(c, i);
        check_grads(c, g, prefix);
        if (i == 0)
            check_boundaries(c, g, use, e->start[0][1]);
    }
    chain_clear_grads(c);
}

/* Values after some steps against those of a file. `grads`: of the first step. */
struct values {
    struct chain *chain;
    const struct golden *golden;
    const struct use *use;
    const float *got, *want, *grads;
    size_t step;
};

/* AdamW divides a gradient by its own size, so where it is small beside the rest of its tensor its
 * rounding error (some 4e-6 of the largest) moves the value by more than a step's usual 1e-4. */
static int check_values(void *arg, const struct param_def *def)
{
    struct values *v = arg;
    const size_t n = param_elements(def);
    const double noise = 4e-6 * near_max(v->grads, n);
    for (size_t i = 0; i < n; i++) {
        double loose = noise > 0 ? fmin(1, noise / fabs((double)v->grads[i])) : 0;
        double off = fabs((double)v->got[i] - (double)v->want[i]);
        if (!(off <= (double)v->step * (1e-4 + (double)opt.lr * loose)))
            fail_msg("%s%s, element %zu: %.9g, wanted %.9g",
                     label(v->golden, v->chain, "adapter %s after step %zu, ", v->use->set, v->step).text,
                     def->name, i, (double)v->got[i], (double)v->want[i]);
    }
    v->got += n;
    v->want += n;
    v->grads += n;
    return 0;
}

static void check_adapter(struct chain *c, const struct golden *g, const struct use *use, size_t step,
                          const float *grads)
{
    struct err err;
    struct adapter_in *in;
    struct data_path dir = data_path("cases/%s/adapter_%s_step%zu", use->name, use->set, step);
    must(adapter_in_open(&in, dir.text, &c->spec.tune, c->family, &g->config, &err), &err);
    float *got = chain_pack(c, false), *want = calloc(chain_elements(c, false), sizeof *want), *at = want;
    assert_non_null(want);
    for (size_t u = 0; u < g->config.layers + 2; u++) {
        const size_t n = tune_unit_elements(&c->spec.tune, c->family, &g->config, u);
        adapter_in_piece(in, &(struct param_piece){u, 0, n}, at);
        at += n;
    }
    struct values v = {c, g, use, got, want, grads, step};
    for (size_t u = 0; u < g->config.layers + 2; u++)
        tune_params(&c->spec.tune, c->family, &g->config, u, check_values, &v);
    adapter_in_close(in);
    free(got);
    free(want);
}

/* The forward passes of all microbatches, then their backward passes: as many slots as a GPipe
 * schedule has.
 */
static double run_step(struct chain *c, const struct examples *e, float dscale)
{
    double loss = 0;
    for (size_t i = 0; i < MICROBATCHES; i++)
        loss += chain_forward(c, i, &e->mb[i], dscale, NULL);
    for (size_t i = 0; i < MICROBATCHES && dscale > 0; i++)
        chain_backward(c, i);
    return loss / (double)e->supervised;
}

static void check_training(const struct golden *g, const struct use *use, struct chain_cut cut, bool split,
                           struct trained *ret)
{
    struct examples e;
    struct chain c;
    struct chain_spec spec = spec_for(g, cut);
    struct adapter_in *in;
    examples_open(&e, g);
    spec.training = true;
    spec.split_backward = split;
    spec.slots = MICROBATCHES;
    start_from(&spec, &in, use);
    chain_open(&c, &spec);
    chain_load(&c, in);
    adapter_in_close(in);
    check_microbatches(&c, g, use, &e);
    const json_t *losses = golden_json(g, "lora", use->set, "loss_before_each_step_0_to_5", NULL);
    char prefix[64];
    snprintf(prefix, sizeof prefix, "lora_%s", use->set);
    for (size_t step = 0; step <= STEPS; step++) {
        ret->loss[step] = run_step(&c, &e, 1.0f / (float)e.supervised);
        float got = (float)ret->loss[step], want = (float)json_number_value(json_array_get(losses, step));
        assert_near(&got, &want, 1, 1e-4,
                    label(g, &c, "adapter %s, loss before step %zu", use->set, step).text);
        if (step == 0) {
            check_grads(&c, g, prefix);
            ret->grads = chain_pack_grads(&c);
            ret->norm = chain_norm(&c);
        }
        if (step == STEPS)
            break;
        chain_update(&c, &opt, step + 1);
        if (step == 0 || step + 1 == STEPS)
            check_adapter(&c, g, use, step + 1, ret->grads);
    }
    ret->n = chain_elements(&c, false);
    ret->state = chain_pack(&c, true);
    chain_close(&c);
}

static void training_matches(void **state)
{
    const struct use *use = *state;
    struct golden g;
    struct trained one = {0};
    golden_open(&g, use->name);
    check_training(&g, use, cuts[0], false, &one);
    double want = json_number_value(golden_json(&g, "lora", use->set, "grad_global_norm", NULL));
    assert_true(fabs(one.norm - want) < 1e-4 * want);
    for (size_t i = 0; i < CUTS; i++)
        for (int split = 0; split < 2; split++) {
            struct trained more = {0};
            check_training(&g, use, cuts[i], split, &more);
            assert_memory_equal(more.loss, one.loss, sizeof one.loss);
            assert_memory_equal(&more.norm, &one.norm, sizeof one.norm);
            assert_same_bits(more.grads, one.grads, one.n, "gradients of a chain against one stage");
            assert_same_bits(more.state, one.state, 3 * one.n, "adapter and moments against one stage");
            trained_free(&more);
        }
    trained_free(&one);
    golden_close(&g);
}

/* The four examples laid end to end in one microbatch do not see each other. */
static void packed_sequences_match(void **state)
{
    const struct use *use = *state;
    struct golden g;
    struct examples e;
    golden_open(&g, use->name);
    examples_open(&e, &g);
    struct chain c;
    struct chain_spec spec = spec_for(&g, cuts[1]);
    struct adapter_in *in;
    spec.training = true;
    spec.positions = 0; /* each begins at position 0 again: the longest of them decides */
    for (size_t k = 0; k < MICROBATCHES; k++)
        spec.positions = e.start[k][1] > spec.positions ? e.start[k][1] : spec.positions;
    start_from(&spec, &in, use);
    chain_open(&c, &spec);
    chain_load(&c, in);
    adapter_in_close(in);
    double loss = chain_forward(&c, 0, &e.packed, 1.0f / (float)e.supervised, NULL) / (double)e.supervised;
    double want = json_number_value(golden_json(&g, "lora", use->set, "loss_token_mean", NULL));
    assert_true(fabs(loss - want) < 1e-4);
    chain_backward(&c, 0);
    char prefix[64];
    snprintf(prefix, sizeof prefix, "lora_%s", use->set);
    check_grads(&c, &g, prefix);
    chain_close(&c);
    golden_close(&g);
}

/* --- which experts ---------------------------------------------------------------------------- */

/* The experts of every token in every layer that has some, and their weights. */
static void choices_match(void **state)
{
    const struct use *use = *state;
    struct golden g;
    struct text text;
    struct chain c;
    golden_open(&g, use->name);
    struct microbatch mb = text_open(&text, &g);
    struct chain_spec spec = spec_for(&g, cuts[0]);
    const struct config_moe *m = &g.config.moe;
    const size_t picks = tokens_of(&g) * m->chosen;
    float logprob[MOST_TOKENS], weight[MOST_EXPERTS];
    chain_open(&c, &spec);
    chain_forward(&c, 0, &mb, 0, logprob);
    for (size_t l = m->first; l < g.config.layers; l++) {
        const union part_saved *s = &c.stage[0]->slot[0].in.saved[l].mlp;
        const float *want = golden_floats(&g, picks, "route.%zu.weight", l);
        int64_t index[MOST_TOKENS * MOST_EXPERTS];
        golden_longs(&g, index, picks, "route.%zu.index", l);
        for (size_t i = 0; i < picks; i += m->chosen)
            for (size_t j = 0; j < m->chosen; j++) { /* the reference lists them in another order */
                size_t k = 0;
                while (k < m->chosen && s->moe.chosen[i + k] != (uint32_t)index[i + j])
                    k++;
                if (k == m->chosen)
                    fail_msg("layer %zu, token %zu: expert %d is not chosen", l, i / m->chosen,
                             (int)index[i + j]);
                weight[j] = s->moe.weight[i + k];
                assert_near(&weight[j], &want[i + j], 1, 1e-5, "weight of an expert");
            }
    }
    chain_close(&c);
    golden_close(&g);
}

static bool has_experts(const char *name)
{
    return strstr(name, "deepseek") || strstr(name, "moe") || strstr(name, "minimax") || strstr(name, "next");
}

int main(void)
{
    static struct use uses[] = {
        {"llama_gqa_rope3", "attn"},
        {"llama_gqa_rope3", "all"},
        {"llama_tied_bf16", "attn"},
        {"qwen3_tied", "attn"},
        {"qwen3_tied", "all"},
        {"deepseek_v2_lite", "attn"},
        {"deepseek_v2_lite", "shared"},
        {"deepseek_v2_lite", "experts"},
        {"deepseek_v3", "attn"},
        {"deepseek_v3", "shared"},
        {"deepseek_v3", "experts"},
        {"smollm3", "attn"},
        {"granite", "attn"},
        {"olmo3", "attn"},
        {"ministral3", "attn"},
        {"mistral_window", "all"},
        {"qwen3_moe", "attn"},
        {"glm4_moe", "attn"},
        {"deepseek_v32", "attn"},
        {"gemma3", "all"},
        {"minimax_m2", "attn"},
        {"gpt_oss", "attn"},
        {"gpt_oss_mxfp4", "attn"},
        {"phi3", "all"},
        {"qwen3_next", "attn"},
        {"qwen3_5", "attn"},
    };
    enum { USES = sizeof uses / sizeof *uses };
    static const struct {
        const char *name;
        void (*run)(void **state);
        bool per_model, experts; /* once for a model; only where it has experts */
    } checks[] = {
        {"scores_match", scores_match, true, false},
        {"both_spellings_agree", both_spellings_agree, true, false},
        {"choices_match", choices_match, true, true},
        {"greedy_text_matches", greedy_text_matches, true, false},
        {"prefill_matches", prefill_matches, false, false},
        {"training_matches", training_matches, false, false},
        {"packed_sequences_match", packed_sequences_match, false, false},
    };
    enum { CHECKS = sizeof checks / sizeof *checks };
    static char names[USES * CHECKS][96];
    struct CMUnitTest tests[USES * CHECKS];
    size_t n = 0;
    for (size_t u = 0; u < USES; u++)
        for (size_t k = 0; k < CHECKS; k++) {
            bool first = u == 0 || strcmp(uses[u].name, uses[u - 1].name) != 0;
            if ((checks[k].per_model && !first) || (checks[k].experts && !has_experts(uses[u].name)))
                continue;
            snprintf(names[n], sizeof *names, "%s (%s%s%s)", checks[k].name, uses[u].name,
                     checks[k].per_model ? "" : ", ", checks[k].per_model ? "" : uses[u].set);
            tests[n] = (struct CMUnitTest){names[n], checks[k].run, NULL, NULL, &uses[u]};
            n++;
        }
    return _cmocka_run_group_tests("models", tests, n, NULL, NULL);
}
