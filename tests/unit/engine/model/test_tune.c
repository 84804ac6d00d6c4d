/* SPDX-License-Identifier: MIT
 *
 * What is trained: targets as users write them, the parameters of every unit by name and shape, and
 * the values they start from. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/peft_rules.h"
#include "model/tune.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

static const struct config tall = {.family = "llama",
                                   .layers = 3,
                                   .dim = 32,
                                   .ffn = 40,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head = 6,
                                   .vocab = 50,
                                   .init_std = 0.05f,
                                   .attn_bias = true};

static const struct family *llama(void)
{
    const struct family *f = family_find("llama");
    assert_non_null(f);
    return f;
}

/* What a unit's parameters are. */
struct shown {
    struct param_def at[32];
    size_t n;
};

static int show_param(void *arg, const struct param_def *def)
{
    struct shown *s = arg;
    assert_in_range(s->n, 0, 31);
    s->at[s->n++] = *def;
    return 0;
}

static struct shown params(const struct tune *t, size_t unit)
{
    struct shown s = {.n = 0};
    assert_int_equal(tune_params(t, llama(), &tall, unit, show_param, &s), 0);
    assert_int_equal(tune_param_count(t, llama(), &tall, unit), s.n);
    return s;
}

static struct tune lora(const char *targets)
{
    struct err err;
    struct tune t = {.kind = TUNE_LORA, .rank = 4, .alpha = 8, .end_layer = 3, .seed = 1};
    must(tune_targets(&t, llama(), &tall, targets, &err), &err);
    return t;
}

static void families_are_found_by_name(void **state)
{
    (void)state;
    assert_null(family_find("gpt2"));
    assert_int_equal(tiny_tensor_index(llama(), &tall, 2, "model.layers.1.self_attn.k_proj.weight"), 3);
    assert_int_equal(tiny_tensor_index(llama(), &tall, 1, "model.layers.1.self_attn.k_proj.weight"), -1);
    struct config tied = tall;
    tied.tied = true;
    assert_int_equal(tiny_tensor_index(llama(), &tall, 4, "lm_head.weight"), 1);
    assert_int_equal(tiny_tensor_index(llama(), &tied, 4, "lm_head.weight"), -1);
}

static void targets_are_read_as_users_write_them(void **state)
{
    (void)state;
    struct tune t = lora("v_proj,q_proj,v_proj");
    assert_int_equal(t.ntargets, 2);
    assert_string_equal(t.targets[0], "v_proj");
    assert_string_equal(t.targets[1], "q_proj");
    t = lora("all-linear");
    assert_int_equal(t.ntargets, 7);
    assert_string_equal(t.targets[6], "down_proj");
}

static void unknown_targets_are_named(void **state)
{
    static const char *const bad[] = {"qproj",           "q_proj,lm_head", "q_proj, v_proj", ",q_proj",
                                      "input_layernorm", "attn.q_proj",    "embed_tokens"};
    static const char *const says[] = {"\"qproj\"",           "\"lm_head\"",     "\" v_proj\"",     "\"\"",
                                       "\"input_layernorm\"", "\"attn.q_proj\"", "\"embed_tokens\""};
    struct err err;
    struct tune t = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int r = tune_targets(&t, llama(), &tall, bad[i], &err);
        must_refuse(r, -EINVAL, &err, says[i]);
        must_refuse(r, -EINVAL, &err,
                    "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, or all-linear");
    }
    must_refuse(tune_targets(&t, llama(), &tall, "", &err), -EINVAL, &err, "no target modules");
    char endless[400];
    memset(endless, 'q', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    assert_int_equal(tune_targets(&t, llama(), &tall, endless, &err), -EINVAL);
}

/* Two layers with an MLP, three with experts beside a shared one. */
static const struct config mixed = {.family = "deepseek_v3",
                                    .layers = 5,
                                    .dim = 8,
                                    .ffn = 12,
                                    .heads = 2,
                                    .kv_heads = 2,
                                    .head = 6,
                                    .vocab = 9,
                                    .mla = {.kv_rank = 4, .nope = 4, .rope = 2, .value = 3},
                                    .moe = {.experts = 4,
                                            .chosen = 2,
                                            .groups = 1,
                                            .groups_chosen = 1,
                                            .ffn = 5,
                                            .shared_ffn = 5,
                                            .first = 2,
                                            .sigmoid = true,
                                            .bias = true,
                                            .scale = 1}};

static size_t pairs(const struct tune *t, size_t layer)
{
    return tune_param_count(t, family_find("deepseek_v3"), &mixed, layer + 1) / 2;
}

static void experts_are_told_apart_by_their_names(void **state)
{
    (void)state;
    const struct family *f = family_find("deepseek_v3");
    struct err err;
    struct tune t = {.kind = TUNE_LORA, .rank = 2, .alpha = 2, .end_layer = 5};
    must(tune_targets(&t, f, &mixed, "up_proj", &err), &err);
    assert_true(pairs(&t, 1) == 1 && pairs(&t, 2) == 5);
    must(tune_targets(&t, f, &mixed, "experts.*.up_proj,o_proj", &err), &err);
    assert_true(pairs(&t, 1) == 1 && pairs(&t, 2) == 5);
    must(tune_targets(&t, f, &mixed, "shared_experts.up_proj", &err), &err);
    assert_true(pairs(&t, 1) == 0 && pairs(&t, 2) == 1);
    must(tune_targets(&t, f, &mixed, "mlp.up_proj", &err), &err);
    assert_true(pairs(&t, 1) == 1 && pairs(&t, 2) == 0);
    must(tune_targets(&t, f, &mixed, "all-linear", &err), &err);
    assert_true(pairs(&t, 0) == 7 && pairs(&t, 4) == 4 + 3 * 5);
    must(tune_targets(&t, f, &mixed, tune_default_targets(&mixed), &err), &err);
    assert_true(pairs(&t, 0) == 2 && pairs(&t, 4) == 2);
    must_refuse(tune_targets(&t, f, &mixed, "gate", &err), -EINVAL, &err,
                "kv_b_proj, o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj, mlp.experts.*.gate_proj");
}

/* What an adapter of PEFT with these target_modules, and perhaps other keys, lies on. */
static int read_rules(struct tune *tune, const struct family *f, const struct config *c, const char *json,
                      struct err *err)
{
    json_t *o = json_loads(json, 0, NULL);
    struct peft_rules *rules = NULL;
    assert_non_null(o);
    int r = peft_rules_new(&rules, o, (struct tune_form){tune->rank, tune->alpha}, err);
    if (!r)
        r = tune_ask_all(tune, f, c, &(struct tune_ask){peft_rules_ask, rules}, err);
    peft_rules_free(rules);
    json_decref(o);
    return r;
}

/* What PEFT says by a regular expression comes back as targets, and goes out as one where it has
 * to. */
static void regular_expressions_are_understood(void **state)
{
    (void)state;
    const struct family *f = family_find("deepseek_v3");
    struct err err;
    char regex[TUNE_REGEX];
    struct tune t = {.kind = TUNE_LORA, .rank = 2, .alpha = 2, .end_layer = 5}, again = t;
    must(read_rules(&t, f, &mixed,
                    "{\"target_modules\": \".*\\\\.(o_proj|mlp\\\\.experts\\\\.\\\\d+\\\\.up_proj)\"}", &err),
         &err);
    assert_true(t.first_layer == 0 && t.end_layer == 5 && t.ntargets == 2);
    assert_true(pairs(&t, 0) == 1 && pairs(&t, 3) == 5);
    t.first_layer = 3;
    t.end_layer = 5;
    assert_true(tune_regex(&t, &mixed, regex, sizeof regex));
    json_t *config = json_pack("{s:s}", "target_modules", regex);
    char *text = json_dumps(config, 0);
    must(read_rules(&again, f, &mixed, text, &err), &err);
    free(text);
    json_decref(config);
    assert_true(again.first_layer == 3 && again.end_layer == 5 && pairs(&again, 3) == 5 &&
                pairs(&again, 2) == 0);
    must(read_rules(&again, f, &mixed,
                    "{\"target_modules\": \"model\\\\.layers\\\\.(1|2)\\\\.self_attn\\\\.q_proj\"}", &err),
         &err);
    assert_true(again.first_layer == 1 && again.end_layer == 3 && again.ntargets == 1);
    assert_false(tune_regex(&again, &mixed, regex, sizeof regex)); /* a list of names will do */
    static const struct {
        const char *json, *says;
        int code;
    } bad[] = {
        {"{\"target_modules\": \"q_proj\"}", NULL, -ENOENT}, /* whole names */
        {"{\"target_modules\": \".*experts\\\\.[01]\\\\.up_proj\"}",
         "takes some of mlp.experts.*.up_proj in layer 2", -ENOTSUP},
        {"{\"target_modules\": [\"up_proj\"], \"rank_pattern\": {\"experts.1.up_proj\": 9}}",
         "mlp.experts.*.up_proj in layer 2 factors of several ranks", -ENOTSUP},
        {"{\"target_modules\": \".*(\"}", "\"target_modules\": ", -EINVAL},
        {"{\"target_modules\": 7}", "\"target_modules\" must be a text or a list of texts", -EINVAL},
        {"{\"target_modules\": [7]}", "\"target_modules\" must be a text or a list of texts", -EINVAL},
        {"{\"target_modules\": [\"q_proj\"], \"rank_pattern\": {\"q_proj\": 0}}",
         "impossible number for q_proj", -EINVAL},
        {"{\"target_modules\": [\"q_proj\"], \"alpha_pattern\": [8]}", "\"alpha_pattern\" must be an object",
         -EINVAL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int r = read_rules(&again, f, &mixed, bad[i].json, &err);
        assert_int_equal(r, bad[i].code);
        if (bad[i].says)
            must_refuse(r, r, &err, bad[i].says);
    }
}

/* The ranks and scales of two linears in five layers; 0 where they have no factors. */
enum { Q, DOWN, LINEARS };
struct seen {
    size_t rank[5][LINEARS];
    double scale[5][LINEARS];
    size_t n;
};

static int see(void *arg, const struct param_def *def)
{
    struct seen *s = arg;
    size_t layer;
    const bool q = strstr(def->name, ".q_proj."), down = strstr(def->name, ".down_proj.");
    assert_int_equal(sscanf(def->name, "model.layers.%zu.", &layer), 1);
    if (def->role == PARAM_A && (q || down)) {
        s->rank[layer][q ? Q : DOWN] = def->rows;
        s->scale[layer][q ? Q : DOWN] = def->scale;
    }
    s->n++;
    return 0;
}

static void expect_ranks(const struct tune *t, const struct config *c, size_t linear, const size_t want[5])
{
    struct seen s = {.n = 0};
    for (size_t u = 0; u < c->layers + 2; u++)
        assert_int_equal(tune_params(t, llama(), c, u, see, &s), 0);
    for (size_t l = 0; l < c->layers; l++)
        if (s.rank[l][linear] != want[l])
            fail_msg("layer %zu, %s: rank %zu, wanted %zu", l, linear == Q ? "q_proj" : "down_proj",
                     s.rank[l][linear], want[l]);
}

/* PEFT's own rules, case by case: the expectations were made with PEFT 0.20's
 * check_target_module_exists and get_pattern_key on the names of a Llama of five layers. */
static void places_follow_the_rules_of_peft(void **state)
{
    static const struct {
        const char *json;
        size_t q[5], down[5];
    } cases[] = {
        {"{\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [0, 2, 4]}", {4, 0, 4, 0, 4}, {0}},
        {"{\"target_modules\": [\"q_proj\"], \"layers_to_transform\": 3}", {0, 0, 0, 4, 0}, {0}},
        {"{\"target_modules\": [\"q_proj\"], \"layers_to_transform\": []}", {4, 4, 4, 4, 4}, {0}},
        {"{\"target_modules\": [\"q_proj\"], \"layers_to_transform\": [1], \"layers_pattern\": \"layers\"}",
         {0, 4, 0, 0, 0},
         {0}},
        {"{\"target_modules\": [\"q_proj\", \"model.layers.4.mlp.down_proj\"], \"layers_to_transform\": [1], "
         "\"layers_pattern\": [\"h\", \"layers\"]}",
         {0, 4, 0, 0, 0},
         {0, 0, 0, 0, 4}},
        {"{\"target_modules\": [\"q_proj\", \"down_proj\", \"c_attn\"], \"exclude_modules\": "
         "[\"3.mlp.down_proj\"]}",
         {4, 4, 4, 4, 4},
         {4, 4, 4, 0, 4}},
        {"{\"target_modules\": \"all-linear\", \"exclude_modules\": \".*\\\\.[13]\\\\..*(q|down)_proj\"}",
         {4, 0, 4, 0, 4},
         {4, 0, 4, 0, 4}},
        {"{\"target_modules\": [\"q_proj\", \"down_proj\"], \"rank_pattern\": {\"down_proj\": 2, "
         "\"1.self_attn.q_proj\": 8, "
         "\"q_proj\": 6}}",
         {6, 8, 6, 6, 6},
         {2, 2, 2, 2, 2}},
        {"{\"target_modules\": [\"q_proj\"], \"rank_pattern\": {\"_proj\": 2, \"layers.[12].*\": 3}}",
         {4, 3, 3, 4, 4},
         {0}},
        {"{\"target_modules\": "
         "\".*layers\\\\.(0|2)\\\\.self_attn\\\\.q_proj|.*layers\\\\.3\\\\.mlp\\\\.down_proj\"}",
         {4, 0, 4, 0, 0},
         {0, 0, 0, 4, 0}},
    };
    (void)state;
    struct config c = tall;
    c.layers = 5;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err;
        struct tune t = {.kind = TUNE_LORA, .rank = 4, .alpha = 8};
        must(read_rules(&t, llama(), &c, cases[i].json, &err), &err);
        expect_ranks(&t, &c, Q, cases[i].q);
        expect_ranks(&t, &c, DOWN, cases[i].down);
    }
}

/* Alpha by its own pattern, and the scale that follows; one rank and alpha for all leave no
 * forms. */
static void alphas_have_patterns_too(void **state)
{
    (void)state;
    struct err err;
    struct config c = tall;
    c.layers = 5;
    struct seen s = {.n = 0};
    struct tune t = {.kind = TUNE_LORA, .rank = 4, .alpha = 8};
    must(read_rules(&t, llama(), &c,
                    "{\"target_modules\": [\"q_proj\", \"down_proj\"], \"rank_pattern\": {\"q_proj\": 16}, "
                    "\"alpha_pattern\": {\"4.self_attn.q_proj\": 4}}",
                    &err),
         &err);
    for (size_t u = 1; u <= 5; u++)
        tune_params(&t, llama(), &c, u, see, &s);
    assert_true(t.nforms == 3 && s.n == 2 * 2 * 5);
    assert_true(s.scale[0][Q] == 0.5 && s.scale[4][Q] == 0.25 && s.scale[0][DOWN] == 2);
    t.rslora = true;
    for (size_t u = 1; u <= 5; u++)
        tune_params(&t, llama(), &c, u, see, &s);
    assert_true(s.scale[0][Q] == 2 && s.scale[4][Q] == 1 && s.scale[0][DOWN] == 4);
    must(read_rules(&t, llama(), &c,
                    "{\"target_modules\": [\"q_proj\"], \"rank_pattern\": {\"q_proj\": 16}, "
                    "\"alpha_pattern\": {\"q_proj\": 4}}",
                    &err),
         &err);
    assert_true(t.nforms == 0 && t.rank == 16 && t.alpha == 4);
}

static void layers_are_read_as_users_write_them(void **state)
{
    (void)state;
    struct err err;
    struct tune t = {.kind = TUNE_LORA, .rank = 2, .alpha = 2, .end_layer = 5};
    must(tune_layers(&t, &mixed, "1-3", &err), &err);
    assert_true(t.first_layer == 1 && t.end_layer == 4);
    must(tune_layers(&t, &mixed, "4", &err), &err);
    assert_true(t.first_layer == 4 && t.end_layer == 5);
    static const char *const bad[] = {"",
                                      "-",
                                      "1-",
                                      "-1",
                                      "3-1",
                                      "0-5",
                                      "5",
                                      "1-2-3",
                                      " 1-2",
                                      "1-+2",
                                      "1 -2",
                                      "x",
                                      "99999999999999999999",
                                      "1-99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        must_refuse(tune_layers(&t, &mixed, bad[i], &err), -EINVAL, &err, "between 0 and 4");
    assert_true(t.first_layer == 4 && t.end_layer == 5);
    tune_last_layers(&t, &mixed, 2);
    assert_true(t.first_layer == 3 && t.end_layer == 5);
    tune_last_layers(&t, &mixed, 16);
    assert_true(t.first_layer == 0 && t.end_layer == 5);
    tune_last_layers(&t, &mixed, 0);
    assert_true(t.first_layer == 0 && t.end_layer == 5);
}

static void the_scale_is_of_rank_or_its_root(void **state)
{
    (void)state;
    struct tune t = {.kind = TUNE_LORA, .rank = 16, .alpha = 8};
    assert_true(tune_scale(&t) == 0.5);
    t.rslora = true;
    assert_true(tune_scale(&t) == 2);
}

/* What balances a router is written with the model and never updated. */
static int find_fixed(void *arg, const struct param_def *def)
{
    if (def->fixed)
        snprintf(arg, sizeof def->name, "%s", def->name);
    return 0;
}

static void the_routers_bias_is_fixed(void **state)
{
    (void)state;
    char name[TENSOR_NAME + 32] = "";
    const struct tune full = {.kind = TUNE_FULL, .end_layer = 5};
    tune_params(&full, family_find("deepseek_v3"), &mixed, 3, find_fixed, name);
    assert_string_equal(name, "model.layers.2.mlp.gate.e_score_correction_bias");
}

static void lora_parameters_have_peft_names(void **state)
{
    (void)state;
    struct tune t = lora("k_proj,mlp.down_proj");
    t.first_layer = 1;
    t.end_layer = 2;
    for (size_t unit = 0; unit < tall.layers + 2; unit++)
        assert_int_equal(params(&t, unit).n, unit == 2 ? 4 : 0);
    const struct shown shown = params(&t, 2);
    const struct param_def *defs = shown.at;
    assert_string_equal(defs[0].name, "model.layers.1.self_attn.k_proj.lora_A.weight");
    assert_int_equal(defs[0].role, PARAM_A);
    assert_int_equal(defs[0].rows, 4);
    assert_int_equal(defs[0].cols, 32);
    assert_string_equal(defs[1].name, "model.layers.1.self_attn.k_proj.lora_B.weight");
    assert_int_equal(defs[1].role, PARAM_B);
    assert_int_equal(defs[1].rows, 12);
    assert_int_equal(defs[1].cols, 4);
    assert_string_equal(defs[2].name, "model.layers.1.mlp.down_proj.lora_A.weight");
    assert_int_equal(defs[2].cols, 40);
    assert_int_equal(tune_unit_elements(&t, llama(), &tall, 2), 4 * 32 + 12 * 4 + 4 * 40 + 32 * 4);
    assert_int_equal(tune_lowest_layer(&t, &tall), 1);
}

static void full_training_has_every_tensor(void **state)
{
    (void)state;
    struct tune t = {.kind = TUNE_FULL}, none = {.kind = TUNE_NONE};
    for (size_t unit = 0; unit < tall.layers + 2; unit++) {
        const struct shown shown = params(&t, unit);
        assert_int_equal(shown.n, family_tensor_count(llama(), &tall, unit));
        assert_int_equal(params(&none, unit).n, 0);
        for (size_t i = 0; i < shown.n; i++) {
            assert_int_equal(tiny_tensor_index(llama(), &tall, unit, shown.at[i].name), i);
            assert_int_equal(shown.at[i].tensor, i);
        }
    }
    assert_int_equal(tune_unit_elements(&t, llama(), &tall, 4), 32 + 50 * 32);
    assert_int_equal(tune_lowest_layer(&t, &tall), 0);
    assert_int_equal(tune_lowest_layer(&none, &tall), 3);
}

static void fresh_values_follow_seed_and_name(void **state)
{
    (void)state;
    struct tune t = lora("q_proj"), other = t;
    const struct shown first = params(&t, 1), second = params(&t, 2);
    const struct param_def *defs = first.at;
    float a[128], again[128], b[96];
    other.seed = 2;
    param_init(a, &defs[0], &t, &tall);
    param_init(again, &defs[0], &t, &tall);
    assert_same_bits(again, a, 128, "values drawn twice");
    double bound = 1 / sqrt(32.0);
    assert_true(near_max(a, 128) <= bound && near_max(a, 128) > 0.9 * bound);
    param_init(again, &defs[0], &other, &tall);
    assert_true(near_difference(again, a, 128) > 0.01);
    param_init(again, &second.at[0], &t, &tall);
    assert_true(near_difference(again, a, 128) > 0.01);
    memset(b, 0x7f, sizeof b);
    param_init(b, &defs[1], &t, &tall);
    assert_true(near_max(b, 96) == 0);
}

/* Neither factor is zero, and their product is, whatever the linear; of one rank they differ from
 * linear to linear. */
static void orthogonal_factors_cancel(void **state)
{
    (void)state;
    struct tune t = lora("q_proj");
    t.rank = 6;
    t.init = LORA_INIT_ORTHOGONAL;
    const struct shown first = params(&t, 1), second = params(&t, 2);
    const struct param_def *da = &first.at[0], *db = &first.at[1];
    float a[6 * 32], b[48 * 6], other[6 * 32];
    assert_true(param_elements(da) == 6 * 32 && db->rows <= 48);
    assert_int_equal(param_init(a, da, &t, &tall), 0);
    assert_int_equal(param_init(b, db, &t, &tall), 0);
    assert_int_equal(param_init(other, &second.at[0], &t, &tall), 0);
    assert_true(near_difference(other, a, 6 * 32) > 0.01);
    double size = 0;
    for (size_t o = 0; o < db->rows; o++) {
        double row[32] = {0};
        for (size_t r = 0; r < 6; r++)
            for (size_t i = 0; i < 32; i++)
                row[i] += (double)b[o * 6 + r] * (double)a[r * 32 + i];
        for (size_t i = 0; i < 32; i++)
            assert_true(fabs(row[i]) < 1e-8);
    }
    for (size_t i = 0; i < 6 * 32; i++)
        size += (double)a[i] * (double)a[i];
    /* Half of the rank holds numbers of variance 1/100, and turning them changes no length. */
    assert_true(fabs(size / (3 * 32 * 0.01) - 1) < 0.4 && near_max(b, db->rows * 6) > 0.05);
}

static void gaussian_factors_have_peft_deviation(void **state)
{
    (void)state;
    struct tune t = lora("q_proj");
    t.rank = 16;
    t.init = LORA_INIT_GAUSSIAN;
    const struct shown first = params(&t, 1);
    float a[16 * 32], b[48 * 16];
    assert_int_equal(param_init(a, &first.at[0], &t, &tall), 0);
    assert_int_equal(param_init(b, &first.at[1], &t, &tall), 0);
    double sum = 0;
    for (size_t i = 0; i < 16 * 32; i++)
        sum += (double)a[i] * (double)a[i];
    assert_true(fabs(sqrt(sum / (16 * 32)) * 16 - 1) < 0.15);
    assert_true(near_max(b, param_elements(&first.at[1])) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_found_by_name),
        cmocka_unit_test(targets_are_read_as_users_write_them),
        cmocka_unit_test(unknown_targets_are_named),
        cmocka_unit_test(experts_are_told_apart_by_their_names),
        cmocka_unit_test(regular_expressions_are_understood),
        cmocka_unit_test(places_follow_the_rules_of_peft),
        cmocka_unit_test(alphas_have_patterns_too),
        cmocka_unit_test(layers_are_read_as_users_write_them),
        cmocka_unit_test(the_scale_is_of_rank_or_its_root),
        cmocka_unit_test(the_routers_bias_is_fixed),
        cmocka_unit_test(lora_parameters_have_peft_names),
        cmocka_unit_test(full_training_has_every_tensor),
        cmocka_unit_test(fresh_values_follow_seed_and_name),
        cmocka_unit_test(orthogonal_factors_cancel),
        cmocka_unit_test(gaussian_factors_have_peft_deviation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
