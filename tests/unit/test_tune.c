/* SPDX-License-Identifier: MIT
 *
 * What is trained: targets as users write them, the parameters of every unit by name and shape, and the
 * values they start from. */
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

/* What PEFT says by a regular expression comes back as targets, and goes out as one where it has to. */
static void regular_expressions_are_understood(void **state)
{
    (void)state;
    const struct family *f = family_find("deepseek_v3");
    struct err err;
    char regex[TUNE_REGEX];
    struct tune t = {.kind = TUNE_LORA, .rank = 2, .alpha = 2, .end_layer = 5}, again = t;
    must(tune_targets_regex(&t, f, &mixed, ".*\\.(o_proj|mlp\\.experts\\.\\d+\\.up_proj)", &err), &err);
    assert_true(t.first_layer == 0 && t.end_layer == 5 && t.ntargets == 2);
    assert_true(pairs(&t, 0) == 1 && pairs(&t, 3) == 5);
    t.first_layer = 3;
    t.end_layer = 5;
    assert_true(tune_regex(&t, &mixed, regex, sizeof regex));
    must(tune_targets_regex(&again, f, &mixed, regex, &err), &err);
    assert_true(again.first_layer == 3 && again.end_layer == 5 && pairs(&again, 3) == 5 &&
                pairs(&again, 2) == 0);
    must(tune_targets_regex(&again, f, &mixed, "model\\.layers\\.(1|2)\\.self_attn\\.q_proj", &err), &err);
    assert_true(again.first_layer == 1 && again.end_layer == 3 && again.ntargets == 1);
    assert_false(tune_regex(&again, &mixed, regex, sizeof regex)); /* a list of names will do */
    static const char *const bad[][2] = {
        {"q_proj", "matches no linear layer"}, /* whole names */
        {".*layers\\.[024]\\.self_attn\\.q_proj", "leaves out layer 1"},
        {".*experts\\.[01]\\.up_proj", "takes some of mlp.experts.*.up_proj in layer 2"},
        {".*(o_proj|layers\\.3\\..*q_proj)", "in some layers and not in others"},
        {".*(", "cannot be used"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int r = tune_targets_regex(&again, f, &mixed, bad[i][0], &err);
        must_refuse(r, r == -ENOTSUP ? -ENOTSUP : -EINVAL, &err, bad[i][1]);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_found_by_name),
        cmocka_unit_test(targets_are_read_as_users_write_them),
        cmocka_unit_test(unknown_targets_are_named),
        cmocka_unit_test(experts_are_told_apart_by_their_names),
        cmocka_unit_test(regular_expressions_are_understood),
        cmocka_unit_test(layers_are_read_as_users_write_them),
        cmocka_unit_test(the_scale_is_of_rank_or_its_root),
        cmocka_unit_test(the_routers_bias_is_fixed),
        cmocka_unit_test(lora_parameters_have_peft_names),
        cmocka_unit_test(full_training_has_every_tensor),
        cmocka_unit_test(fresh_values_follow_seed_and_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
