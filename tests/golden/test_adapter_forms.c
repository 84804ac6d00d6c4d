/* SPDX-License-Identifier: MIT
 *
 * Adapters whose factors differ by layer: read as PEFT reads them, written so that they are read
 * back, and said in the names of fused experts too. Forms of others that are not read name the way
 * out. */
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/near.h"
#include "tests/lib/place.h"
#include "text/pattern.h"

enum { LAYERS = PLACE_LAYERS };

static void drop(const struct place *p, const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", p->out, file);
    assert_int_equal(remove(path), 0);
}

static struct tune parse(const struct place *p, const char *json)
{
    struct err err;
    struct tune tune = {.seed = 3};
    json_t *o = json_loads(json, 0, NULL);
    assert_non_null(o);
    must(adapter_parse_config(&tune, o, "config", p->family, &p->config, &err), &err);
    json_decref(o);
    return tune;
}

/* Names and shapes of all parameters, one after the other. */
static int list_param(void *arg, const struct param_def *def)
{
    char *text = arg;
    const size_t n = strlen(text);
    assert_in_range(n, 0, 60000);
    snprintf(text + n, 65536 - n, "%s %zu %zu %a\n", def->name, def->rows, def->cols, def->scale);
    return 0;
}

static char *list_params(const struct place *p, const struct tune *tune)
{
    char *text = calloc(1, 65536);
    assert_non_null(text);
    for (size_t u = 0; u < LAYERS + 2; u++)
        tune_params(tune, p->family, &p->config, u, list_param, text);
    return text;
}

/* The values are read back from what the folder holds now. */
static void check_back(const struct place *p, const struct tune *tune, const float *values)
{
    struct err err;
    struct adapter_in *in;
    struct tune back = {.seed = 3};
    must(adapter_read_config(&back, p->out, p->family, &p->config, &err), &err);
    char *want = list_params(p, tune), *got = list_params(p, &back);
    assert_string_equal(got, want);
    free(want);
    free(got);
    must(adapter_in_open(&in, p->out, &back, p->family, &p->config, &err), &err);
    place_check(in, p, tune, values);
    adapter_in_close(in);
}

static void forms_are_read_back(void **state)
{
    static const struct {
        const char *json;
        bool mlx; /* can say it too */
    } cases[] = {
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"q_proj\",\"down_proj\"],"
         "\"rank_pattern\":{\"1.self_attn.q_proj\":2,\"down_proj\":3},\"alpha_pattern\":{\"layers.[23].*\":5}"
         "}",
         false},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"use_rslora\":true,\"target_modules\":\"all-"
         "linear\","
         "\"exclude_modules\":[\"2.mlp.up_proj\"],\"rank_pattern\":{\"v_proj\":1}}",
         false},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"v_proj\"],\"layers_to_"
         "transform\":[0,2]}",
         true},
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"v_proj\"],\"rank_pattern\":{"
         "\"v_proj\":2}}",
         true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct place p;
        struct err err;
        struct adapter_in *in;
        size_t n;
        uint64_t step;
        place_make(&p, DTYPE_F32);
        struct tune plain = place_lora(&p, "q_proj", 0, LAYERS), tune = parse(&p, cases[i].json);
        float *values = place_random(&p, &plain, &n);
        struct adapter_out_request req = place_request(&p, &plain, 1);
        must(place_write(&req, values, &err), &err);
        free(values);
        assert_true(has_file(p.out, "adapters.safetensors"));
        values = place_random(&p, &tune, &n);
        req = place_request(&p, &tune, 2);
        must(place_write(&req, values, &err), &err);
        check_back(&p, &tune, values);
        struct tune resumed = {.kind = TUNE_LORA, .seed = 3};
        must(adapter_in_open_state(&in, p.out, &resumed, p.family, &p.config, &step, &err), &err);
        place_check(in, &p, &tune, values);
        adapter_in_close(in);
        /* Not the older one: another rank for every layer is more than mlx-lm knows. */
        assert_int_equal(has_file(p.out, "adapters.safetensors"), cases[i].mlx);
        if (cases[i].mlx) {
            drop(&p, "adapter_model.safetensors");
            check_back(&p, &tune, values);
        }
        free(values);
        place_free(&p);
    }
}

/* Layers in the middle, in mlx-lm's keys alone: it makes factors for those behind them, which the
 * file lacks and which stay zero. */
static void layers_in_the_middle_are_read_in_the_form_of_mlx(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    size_t n, size;
    place_make(&p, DTYPE_F32);
    struct tune tune = place_lora(&p, "q_proj,down_proj", 1, 3);
    float *values = place_random(&p, &tune, &n);
    struct adapter_out_request req = place_request(&p, &tune, 1);
    must(place_write(&req, values, &err), &err);
    char *text = read_file(p.out, "adapter_config.json", &size);
    json_t *both = json_loadb(text, size, 0, NULL),
           *mlx = json_pack("{s:O s:O s:O}", "fine_tune_type", json_object_get(both, "fine_tune_type"),
                            "num_layers", json_object_get(both, "num_layers"), "lora_parameters",
                            json_object_get(both, "lora_parameters"));
    char *alone = json_dumps(mlx, 0);
    assert_int_equal(json_integer_value(json_object_get(mlx, "num_layers")), LAYERS - 1);
    write_file(p.out, "adapter_config.json", alone);
    drop(&p, "adapter_model.safetensors");
    check_back(&p, &tune, values);
    json_decref(both);
    json_decref(mlx);
    free(text);
    free(alone);
    free(values);
    place_free(&p);
}

static bool fits(const struct pattern *pattern, struct pattern_scratch *scratch, const char *name)
{
    struct err err;
    struct pattern_walk walk = PATTERN_WALK;
    struct pattern_hit hit;
    const int r = pattern_next(pattern, scratch, name, strlen(name), &walk, &hit, &err);
    assert_true(r >= 0);
    return r;
}

/* transformers 5 has no numbers of experts, and PEFT asks for their modules without. */
static void experts_are_named_with_and_without_numbers(void **state)
{
    static const struct {
        const char *name;
        bool plain, late; /* in all layers; in the last two */
    } names[] = {
        {"model.layers.1.mlp.experts.up_proj", true, false},
        {"model.layers.1.mlp.experts.13.up_proj", true, false},
        {"model.layers.3.mlp.experts.up_proj", true, true},
        {"model.layers.3.mlp.experts.0.up_proj", true, true},
        {"model.layers.3.self_attn.o_proj", true, true},
        {"model.layers.0.self_attn.o_proj", true, false},
        {"model.layers.0.mlp.up_proj", false, false},
        {"model.layers.3.mlp.experts.gate_proj", false, false},
        {"model.layers.3.mlp.shared_experts.up_proj", false, false},
    };
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct place p;
        struct err err;
        struct pattern *pattern;
        struct pattern_scratch *scratch;
        char regex[TUNE_REGEX], whole[TUNE_REGEX + 16];
        place_make(&p, DTYPE_F32);
        strcpy(p.config.family, "qwen3_moe");
        p.config.moe = (struct config_moe){
            .experts = 3, .chosen = 2, .groups = 1, .groups_chosen = 1, .ffn = 7, .first = 1, .scale = 1};
        p.family = family_find(p.config.family);
        struct tune tune = place_lora(&p, "experts.*.up_proj,o_proj", late ? 2 : 0, LAYERS);
        assert_true(tune_regex(&tune, &p.config, regex, sizeof regex));
        snprintf(whole, sizeof whole, "\\A(?:%s)\\z", regex);
        must(pattern_new_regex(&pattern, whole, &err), &err);
        must(pattern_scratch_new(&scratch, &err), &err);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (fits(pattern, scratch, names[i].name) != (late ? names[i].late : names[i].plain))
                fail_msg("%s: %s", regex, names[i].name);
        pattern_free(pattern);
        pattern_scratch_free(scratch);
        place_free(&p);
    }
}

/* Layers without experts between layers with experts: every layer has its own linears, and the same
 * names. */
static void dense_layers_lie_among_experts(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    size_t n;
    place_make(&p, DTYPE_F32);
    strcpy(p.config.family, "qwen3_moe");
    p.config.moe = (struct config_moe){
        .experts = 3, .chosen = 2, .groups = 1, .groups_chosen = 1, .ffn = 7, .dense = {1 << 2}, .scale = 1};
    p.family = family_find(p.config.family);
    for (int regex = 0; regex < 2; regex++) {
        const struct tune tune =
            place_lora(&p, regex ? "experts.*.up_proj,mlp.up_proj" : "all-linear", 0, LAYERS);
        float *values = place_random(&p, &tune, &n);
        const struct adapter_out_request req = place_request(&p, &tune, 1);
        assert_int_equal(tune_param_count(&tune, p.family, &p.config, 2), regex ? 2 * 3 : 2 * (4 + 3 * 3));
        assert_int_equal(tune_param_count(&tune, p.family, &p.config, 3), regex ? 2 : 2 * (4 + 3));
        must(place_write(&req, values, &err), &err);
        check_back(&p, &tune, values);
        drop(&p, "adapter_model.safetensors");
        check_back(&p, &tune, values);
        free(values);
    }
    place_free(&p);
}

static void pickled_adapters_are_refused(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    struct adapter_in *in = NULL;
    place_make(&p, DTYPE_F32);
    const struct tune tune = place_lora(&p, "q_proj", 0, 1);
    write_file(p.model, "adapter_model.bin", "PK");
    must_refuse(adapter_in_open(&in, p.model, &tune, p.family, &p.config, &err), -ENOTSUP, &err,
                "python3 -c \"import torch, safetensors.torch as s; s.save_file(");
    must_refuse(-ENOTSUP, -ENOTSUP, &err, "'adapter_model.safetensors')\""); /* the command is whole */
    assert_null(in);
    place_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_are_read_back),
        cmocka_unit_test(layers_in_the_middle_are_read_in_the_form_of_mlx),
        cmocka_unit_test(experts_are_named_with_and_without_numbers),
        cmocka_unit_test(dense_layers_lie_among_experts),
        cmocka_unit_test(pickled_adapters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
