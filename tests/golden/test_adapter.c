/* SPDX-License-Identifier: MIT
 *
 * What training leaves behind: PEFT adapters, states to continue from and whole models are written
 * so that others and we can read them again; what does not fit is refused by name; a full disk
 * costs nothing that was there. */
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

#include "tests/lib/chain.h"
#include "tests/lib/near.h"
#include "tests/lib/place.h"
#include "tests/lib/golden.h"
#include "tests/lib/tiny.h"

enum { LAYERS = PLACE_LAYERS };
static const struct chain_cut whole = {1, {LAYERS}}, three = {3, {1, 3, LAYERS}};
static const struct adamw opt = {
    .lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .weight_decay = 0.01f};

/* --- adapters --------------------------------------------------------------------------------- */

static const struct {
    const char *key, *value; /* as JSON */
} peft_keys[] = {{"peft_type", "\"LORA\""},
                 {"task_type", "\"CAUSAL_LM\""},
                 {"revision", "null"},
                 {"inference_mode", "true"},
                 {"r", "3"},
                 {"lora_alpha", "6.0"},
                 {"lora_dropout", "0.125"},
                 {"exclude_modules", "null"},
                 {"fan_in_fan_out", "false"},
                 {"bias", "\"none\""},
                 {"use_rslora", "false"},
                 {"use_dora", "false"},
                 {"modules_to_save", "null"},
                 {"init_lora_weights", "true"},
                 {"layers_pattern", "null"},
                 {"rank_pattern", "{}"},
                 {"alpha_pattern", "{}"},
                 {"target_parameters", "null"},
                 {"auto_mapping", "null"},
                 {"loftq_config", "{}"},
                 {"megatron_config", "null"},
                 {"layer_replication", "null"},
                 {"layers_to_transform", "[1, 2]"},
                 {"megatron_core", "\"megatron.core\""},
                 {"target_modules", "[\"q_proj\", \"down_proj\"]"},
                 {"fine_tune_type", "\"lora\""},
                 {"num_layers", "3"},
                 {"lora_parameters", "{\"rank\": 3, \"scale\": 2.0, \"dropout\": 0.125, \"keys\": "
                                     "[\"self_attn.q_proj\", \"mlp.down_proj\"]}"}};

static void check_peft_config(const struct place *p)
{
    size_t n;
    char *text = read_file(p->out, "adapter_config.json", &n);
    assert_non_null(text);
    json_t *o = json_loadb(text, n, 0, NULL);
    assert_true(json_is_object(o));
    for (size_t i = 0; i < sizeof peft_keys / sizeof *peft_keys; i++) {
        json_t *want = json_loads(peft_keys[i].value, JSON_DECODE_ANY, NULL);
        if (!json_equal(json_object_get(o, peft_keys[i].key), want))
            fail_msg("adapter_config.json: %s is not %s", peft_keys[i].key, peft_keys[i].value);
        json_decref(want);
    }
    assert_string_equal(json_string_value(json_object_get(o, "base_model_name_or_path")), p->model);
    json_decref(o);
    free(text);
}

static void check_peft_tensors(const struct place *p)
{
    struct err err;
    struct st *st;
    char path[256];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", p->out);
    must(st_open_file(&st, path, &err), &err);
    assert_int_equal(st_count(st), 2 * 2 * 2); /* layers, targets, factors */
    const struct st_tensor *a = st_find(st, "base_model.model.model.layers.2.mlp.down_proj.lora_A.weight"),
                           *b = st_find(st, "base_model.model.model.layers.2.mlp.down_proj.lora_B.weight");
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(a->dtype, DTYPE_F32);
    assert_int_equal(a->shape[0], 3);
    assert_int_equal(a->shape[1], p->config.ffn);
    assert_int_equal(b->shape[0], p->config.dim);
    assert_int_equal(b->shape[1], 3);
    st_close(st);
}

static void adapters_are_written_for_peft_and_read_back(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    struct adapter_in *in;
    size_t n;
    place_make(&p, DTYPE_F32);
    struct tune tune = place_lora(&p, "q_proj,down_proj", 1, 3), back = {.dropout = 0.125f, .seed = 3};
    float *values = place_random(&p, &tune, &n);
    struct adapter_out_request req = place_request(&p, &tune, 1234567);
    must(place_write(&req, values, &err), &err);
    check_peft_config(&p);
    check_peft_tensors(&p);
    must(adapter_read_config(&back, p.out, p.family, &p.config, &err), &err);
    assert_int_equal(back.kind, TUNE_LORA);
    assert_int_equal(back.rank, tune.rank);
    assert_true(back.alpha == tune.alpha);
    assert_int_equal(back.ntargets, tune.ntargets);
    assert_int_equal(back.first_layer, 1);
    assert_int_equal(back.end_layer, 3);
    must(adapter_in_open(&in, p.out, &back, p.family, &p.config, &err), &err);
    assert_false(adapter_in_has_state(in));
    place_check(in, &p, &tune, values);
    adapter_in_close(in);
    uint64_t step = 0;
    must(adapter_in_open_state(&in, p.out, &back, p.family, &p.config, &step, &err), &err);
    assert_true(adapter_in_has_state(in));
    assert_int_equal(step, 1234567);
    place_check(in, &p, &tune, values);
    adapter_in_close(in);
    free(values);
    place_free(&p);
}

/* An adapter of some layers is not one of all, wherever they lie. */
static void layers_are_read_back(void **state)
{
    static const size_t ranges[][2] = {{0, 1}, {0, LAYERS - 1}, {LAYERS - 1, LAYERS}, {0, LAYERS}};
    (void)state;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        struct place p;
        struct err err;
        size_t n;
        place_make(&p, DTYPE_F32);
        struct tune tune = place_lora(&p, "q_proj", ranges[i][0], ranges[i][1]), back = {.seed = 3};
        float *values = place_random(&p, &tune, &n);
        struct adapter_out_request req = place_request(&p, &tune, 1);
        must(place_write(&req, values, &err), &err);
        must(adapter_read_config(&back, p.out, p.family, &p.config, &err), &err);
        assert_int_equal(back.first_layer, ranges[i][0]);
        assert_int_equal(back.end_layer, ranges[i][1]);
        free(values);
        place_free(&p);
    }
}

/* What PEFT wrote is read, and written again it has the same tensors and the same keys. */
static void adapters_of_peft_are_read(void **state)
{
    (void)state;
    struct golden g;
    struct err err;
    struct adapter_in *in;
    struct tune tune = {0};
    struct st *ours, *theirs;
    golden_open(&g, "llama_gqa_rope3");
    struct data_path dir = data_path("cases/llama_gqa_rope3/adapter_all_init");
    const struct family *f = family_find(g.config.family);
    struct place p = {.dir = temp_dir_new(), .config = g.config, .family = f};
    assert_int_equal(g.config.layers, LAYERS);
    snprintf(p.out, sizeof p.out, "%s/out", p.dir.path);
    snprintf(p.model, sizeof p.model, "someone/model");
    must(adapter_read_config(&tune, dir.text, f, &g.config, &err), &err);
    assert_int_equal(tune.rank, 4);
    assert_true(tune.alpha == 8);
    assert_int_equal(tune.ntargets, 7);
    assert_int_equal(tune.end_layer, LAYERS);
    must(adapter_in_open(&in, dir.text, &tune, f, &g.config, &err), &err);
    size_t n, at = 0;
    float *values = place_random(&p, &tune, &n);
    for (size_t u = 0; u < LAYERS + 2; u++) {
        adapter_in_piece(in, &(struct param_piece){u, 0, place_elements(&p, &tune, u)}, values + at);
        at += 3 * place_elements(&p, &tune, u);
    }
    adapter_in_close(in);
    struct adapter_out_request req = place_request(&p, &tune, 0);
    must(place_write(&req, values, &err), &err);
    must(st_open_file(&theirs,
                      data_path("cases/llama_gqa_rope3/adapter_all_init/adapter_model.safetensors").text,
                      &err),
         &err);
    char path[256];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", p.out);
    must(st_open_file(&ours, path, &err), &err);
    assert_int_equal(st_count(ours), st_count(theirs));
    for (size_t i = 0; i < st_count(ours); i++) {
        const struct st_tensor *a = st_at(ours, i), *b = st_at(theirs, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->shape, b->shape, a->ndim * sizeof *a->shape);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    st_close(ours);
    st_close(theirs);
    free(values);
    golden_close(&g);
    place_free(&p);
}

static float *train(const struct place *p, const struct tune *tune, struct chain_cut cut, const char *from,
                    size_t steps)
{
    struct tune read = *tune;
    struct err err;
    struct adapter_in *in;
    struct tiny_batch batch;
    struct chain c;
    struct chain_spec spec = tiny_chain(p->model, &p->config, tune, cut);
    uint64_t done = 0;
    chain_open(&c, &spec);
    if (from) {
        must(adapter_in_open_state(&in, from, &read, p->family, &p->config, &done, &err), &err);
        chain_load(&c, in);
        adapter_in_close(in);
    }
    for (uint64_t step = done + 1; step <= done + steps; step++) {
        tiny_batch_init(&batch, &p->config, step);
        chain_forward(&c, 0, &batch.mb, 1, NULL);
        chain_backward(&c, 0);
        chain_tie(&c);
        chain_update(&c, &opt, step);
    }
    float *all = chain_pack(&c, true);
    chain_close(&c);
    return all;
}

/* Stopped, saved and continued in another cut, training gives the bits of training without a
 * stop. */
static void continued_training_loses_nothing(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    place_make(&p, DTYPE_BF16);
    struct tune tunes[] = {place_lora(&p, "all-linear", 0, LAYERS), {.kind = TUNE_FULL, .end_layer = LAYERS}};
    for (size_t i = 0; i < 2; i++) {
        const struct tune *tune = &tunes[i];
        size_t n = 0;
        for (size_t u = 0; u < LAYERS + 2; u++)
            n += 3 * place_elements(&p, tune, u);
        float *straight = train(&p, tune, whole, NULL, 4), *first = train(&p, tune, three, NULL, 2);
        struct adapter_out_request req = place_request(&p, tune, 2);
        must(place_write(&req, first, &err), &err);
        float *second = train(&p, tune, whole, p.out, 2);
        assert_same_bits(second, straight, n, "continued training against training in one go");
        free(straight);
        free(first);
        free(second);
    }
    place_free(&p);
}

/* --- whole models ----------------------------------------------------------------------------- */

static void check_model(const struct place *p, const float *values)
{
    struct err err;
    struct config config;
    struct tune tune = {.kind = TUNE_FULL, .end_layer = LAYERS};
    must(config_read(&config, p->out, &err), &err);
    struct chain_spec spec = tiny_chain(p->out, &config, &tune, three);
    struct chain c;
    chain_open(&c, &spec);
    float *got = chain_pack(&c, false), *at = got;
    for (size_t u = 0; u < LAYERS + 2; u++) {
        size_t n = place_elements(p, &tune, u);
        uint16_t *half = calloc(n, sizeof *half);
        float *want = calloc(n, sizeof *want);
        assert_non_null(half);
        assert_non_null(want);
        memcpy(want, values, n * sizeof *want);
        if (p->config.dtype == DTYPE_BF16) {
            dtype_from_f32(half, values, DTYPE_BF16, n);
            dtype_to_f32(want, half, DTYPE_BF16, n);
        }
        assert_same_bits(at, want, n, "weights of the written model");
        free(half);
        free(want);
        at += n;
        values += 3 * n;
    }
    free(got);
    chain_close(&c);
}

static void whole_models_load_again(void **state)
{
    (void)state;
    for (enum dtype dtype = DTYPE_F32; dtype < DTYPE_COUNT; dtype++) {
        struct place p;
        struct err err;
        struct tune tune = {.kind = TUNE_FULL, .end_layer = LAYERS};
        size_t n;
        if (dtype == DTYPE_F16)
            continue;
        place_make(&p, dtype);
        write_file(p.model, "tokenizer.json", "{\"words\": []}\n");
        float *values = place_random(&p, &tune, &n);
        struct adapter_out_request req = place_request(&p, &tune, 7);
        must(place_write(&req, values, &err), &err);
        check_model(&p, values);
        assert_true(has_file(p.out, "tokenizer.json"));
        assert_false(has_file(p.out, "chat_template.jinja"));
        assert_false(has_file(p.out, "adapter_config.json"));
        uint64_t step;
        struct adapter_in *in;
        must(adapter_in_open_state(&in, p.out, &tune, p.family, &p.config, &step, &err), &err);
        assert_int_equal(step, 7);
        place_check(in, &p, &tune, values); /* not rounded, whatever the model's type */
        adapter_in_close(in);
        free(values);
        place_free(&p);
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

/* An adapter_config.json that would do, if nothing else were in it. */
#define USUAL "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"q_proj\"],"

static const struct {
    const char *json, *says;
} foreign[] = {
    {USUAL "\"rank_pattern\":{\"q_proj\":-8}}", "rank_pattern"},
    {USUAL "\"alpha_pattern\":{\"q_proj\":\"8\"}}", "alpha_pattern"},
    {USUAL "\"exclude_modules\":\"(\"}", "exclude_modules"},
    {USUAL "\"exclude_modules\":[\"q_proj\"]}", "all are excluded"},
    {USUAL "\"layers_to_transform\":[1],\"layers_pattern\":\"h\"}",
     "no linear of the layers in layers_to_transform"},
    {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"q_proj\",\"lm_head\"]}",
     "\"lm_head\" has factors"},
    {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":\"q_proj\"}",
     "matches no linear layer"},
    {USUAL "\"modules_to_save\":[\"x\"]}", "modules_to_save"},
    {USUAL "\"fan_in_fan_out\":true}", "fan_in_fan_out"},
    {USUAL "\"bias\":\"all\"}", "\"bias\": \"all\""},
    {USUAL "\"use_bdlora\":true}", "use_bdlora"},
    {USUAL "\"init_lora_weights\":\"pissa\"}",
     "\"pissa\", so the factors belong to weights that PEFT changed"},
    {USUAL "\"init_lora_weights\":\"pissa_niter_16\"}", "path_initial_model_for_weight_conversion"},
    {USUAL "\"init_lora_weights\":\"corda\"}", "path_initial_model_for_weight_conversion"},
    {USUAL "\"init_lora_weights\":\"OLoRA\"}", "path_initial_model_for_weight_conversion"},
    {USUAL "\"init_lora_weights\":\"lora_ga\"}", "path_initial_model_for_weight_conversion"},
    {USUAL "\"init_lora_weights\":\"loftq\"}", "merge_and_unload"},
    {USUAL "\"init_lora_weights\":\"milora\"}", "\"milora\" is not known here"},
    {USUAL "\"init_lora_weights\":3}", "must be true, false or a text"},
    {"{\"peft_type\":\"IA3\",\"r\":4}", "peft_type is \"IA3\""},
    {"{\"r\":4}", "peft_type is \"missing\""},
    {"{\"peft_type\":\"LORA\",\"lora_alpha\":8,\"target_modules\":[\"q_proj\"]}", "r and lora_alpha"},
    {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":-8,\"target_modules\":[\"q_proj\"]}",
     "r and lora_alpha"},
    {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":[\"c_attn\"]}",
     "\"c_attn\"; there are q_proj"},
    {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8}", "no target modules"},
    {USUAL "\"layers_to_transform\":[\"1\"]}", "layers_to_transform"},
    {USUAL "\"layers_to_transform\":9}", "between 0 and 3"},
    {"{\"fine_tune_type\":\"full\"}", "\"fine_tune_type\": \"full\""},
    {"{\"lora_parameters\":{\"rank\":0,\"scale\":1}}", "rank and scale"},
    {"{\"lora_parameters\":{\"rank\":2,\"scale\":-1}}", "rank and scale"},
    {"{\"lora_parameters\":{\"rank\":2,\"scale\":1,\"keys\":[\"c_attn\"]}}", "\"c_attn\"; there are q_proj"},
    {"[]", "is this the directory of an adapter?"},
    {"{", "line 1"},
};

static void foreign_settings_are_refused(void **state)
{
    (void)state;
    struct place p;
    place_make(&p, DTYPE_F32);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        struct err err = {""};
        struct tune tune = {.rank = 77}, before = tune;
        write_file(p.model, "adapter_config.json", foreign[i].json);
        int r = adapter_read_config(&tune, p.model, p.family, &p.config, &err);
        assert_true(r < 0);
        must_refuse(r, r, &err, foreign[i].says);
        must_refuse(r, r, &err, p.model);
        assert_memory_equal(&tune, &before, sizeof tune);
    }
    struct err err;
    struct tune tune = {0};
    write_file(p.model, "adapter_config.json",
               "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"target_modules\":\"all-linear\",\"use_"
               "rslora\":true,"
               "\"layers_to_transform\":2}");
    must(adapter_read_config(&tune, p.model, p.family, &p.config, &err), &err);
    assert_int_equal(tune.ntargets, 7);
    assert_true(tune.alpha == 8 && tune.rslora && tune_scale(&tune) == 4);
    assert_int_equal(tune.first_layer, 2);
    assert_int_equal(tune.end_layer, 3);
    assert_int_equal(adapter_read_config(&tune, "/nonexistent", p.family, &p.config, &err), -EINVAL);
    place_free(&p);
}

/* Ways to initialize that leave the weights of the model as they are. */
static void harmless_beginnings_are_read(void **state)
{
    static const char *const inits[] = {"true",         "false",   "null",     "\"gaussian\"",
                                        "\"Gaussian\"", "\"eva\"", "\"mica\"", "\"orthogonal\""};
    (void)state;
    struct place p;
    place_make(&p, DTYPE_F32);
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        struct err err;
        struct tune tune = {0};
        char text[256];
        snprintf(text, sizeof text, USUAL "\"init_lora_weights\":%s}", inits[i]);
        write_file(p.model, "adapter_config.json", text);
        must(adapter_read_config(&tune, p.model, p.family, &p.config, &err), &err);
        assert_int_equal(tune.rank, 4);
    }
    place_free(&p);
}

/* The adapter file of `tune` with one thing wrong with it. */
static void write_tensors(const struct place *p, const char *file, const struct st_out_tensor *list, size_t n,
                          float value)
{
    struct err err;
    struct st_writer *w;
    char path[256];
    float values[1024];
    for (size_t i = 0; i < 1024; i++)
        values[i] = value;
    snprintf(path, sizeof path, "%s/%s", p->model, file);
    must(st_writer_open(&w, path, list, n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        size_t elements = 1;
        for (size_t d = 0; d < list[i].ndim; d++)
            elements *= list[i].shape[d];
        must(st_writer_put(w, list[i].name, values, elements, &err), &err);
    }
    must(st_writer_finish(w, &err), &err);
}

#define Q "base_model.model.model.layers.0.self_attn.q_proj."

static void tensors_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        size_t n;
        struct st_out_tensor t[3];
        const char *says;
    } bad[] = {
        {1, {{.name = Q "lora_A.weight", .ndim = 2, .shape = {3, 20}}}, "lacks " Q "lora_B.weight"},
        {2,
         {{.name = Q "lora_A.weight", .ndim = 2, .shape = {20, 3}},
          {.name = Q "lora_B.weight", .ndim = 2, .shape = {24, 3}}},
         "lora_A.weight has the wrong shape or type: [20, 3] F32, wanted [3, 20]"},
        {2,
         {{.name = Q "lora_A.weight", .ndim = 3, .shape = {3, 4, 5}},
          {.name = Q "lora_B.weight", .ndim = 2, .shape = {24, 3}}},
         "lora_A.weight has the wrong shape"},
        {3,
         {{.name = Q "lora_A.weight", .ndim = 2, .shape = {3, 20}},
          {.name = Q "lora_B.weight", .ndim = 2, .shape = {24, 3}},
          {.name = Q "lora_magnitude_vector", .ndim = 1, .shape = {24}}},
         "holds " Q "lora_magnitude_vector"},
    };
    (void)state;
    struct place p;
    struct err err;
    struct adapter_in *in = NULL;
    uint64_t step = 99;
    place_make(&p, DTYPE_F32);
    struct tune tune = place_lora(&p, "q_proj", 0, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_tensors(&p, "adapter_model.safetensors", bad[i].t, bad[i].n, 0);
        must_refuse(adapter_in_open(&in, p.model, &tune, p.family, &p.config, &err), -EINVAL, &err,
                    bad[i].says);
        must_refuse(-EINVAL, -EINVAL, &err, p.model);
    }
    assert_int_equal(adapter_in_open_state(&in, p.model, &tune, p.family, &p.config, &step, &err), -ENOENT);
    assert_non_null(strstr(err.text, "training_state.safetensors"));
    assert_null(in);
    assert_int_equal(step, 99);
    place_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_are_written_for_peft_and_read_back),
        cmocka_unit_test(layers_are_read_back),
        cmocka_unit_test(adapters_of_peft_are_read),
        cmocka_unit_test(continued_training_loses_nothing),
        cmocka_unit_test(whole_models_load_again),
        cmocka_unit_test(foreign_settings_are_refused),
        cmocka_unit_test(harmless_beginnings_are_read),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
