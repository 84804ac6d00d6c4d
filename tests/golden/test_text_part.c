/* SPDX-License-Identifier: MIT
 *
 * The text part of a model that also sees pictures computes as that text model does: whichever of
 * two ways its tensors are called, and after it was written as a model of its own. */
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

#include "file/text_part.h"
#include "model/write/convert.h"
#include "tests/lib/golden.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

enum { NAMES = 256, TOKENS = TINY_TOKENS };

/* Both ways: as transformers 4 released them, and as transformers 5 writes them. */
static const struct {
    const char *head, *others, *picture;
} ways[] = {{"language_model.model.", "language_model.", "vision_tower.layers.0.weight"},
            {"model.language_model.", "", "model.multi_modal_projector.weight"}};

static void way_name(char ret[160], const char *name, size_t way)
{
    if (!strncmp(name, "model.", 6))
        snprintf(ret, 160, "%s%s", ways[way].head, name + 6);
    else
        snprintf(ret, 160, "%s%s", ways[way].others, name);
}

/* The golden model's tensors under other names, with one of the part that sees. */
static void write_tensors(const char *dir, const struct st *st, size_t way)
{
    static char names[NAMES][160];
    struct st_out_tensor list[NAMES];
    struct st_writer *w;
    struct err err;
    char path[256];
    size_t n = st_count(st);
    assert_in_range(n, 1, NAMES - 1);
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *t = st_at(st, i);
        way_name(names[i], t->name, way);
        list[i] = (struct st_out_tensor){.name = names[i], .dtype = t->dtype, .ndim = t->ndim};
        memcpy(list[i].shape, t->shape, sizeof t->shape);
    }
    list[n] = (struct st_out_tensor){.name = ways[way].picture, .dtype = DTYPE_F32, .ndim = 1, .shape = {1}};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(st_writer_open(&w, path, list, n + 1, &err), &err);
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *t = st_at(st, i);
        float *x = malloc(t->elements * sizeof *x);
        assert_non_null(x);
        dtype_to_f32(x, t->data, t->dtype, t->elements);
        must(st_writer_put(w, names[i], x, t->elements, &err), &err);
        free(x);
    }
    must(st_writer_put(w, ways[way].picture, (float[]){1}, 1, &err), &err);
    must(st_writer_finish(w, &err), &err);
}

static void write_config(const char *dir, const char *whole, const char *architecture, const char *model)
{
    size_t n;
    char *text = read_file(model, "config.json", &n);
    json_t *inner = json_loadb(text, n, 0, NULL);
    const char *key = json_object_get(inner, "dtype") ? "dtype" : "torch_dtype";
    json_t *dtype = json_incref(json_object_get(inner, key));
    json_object_del(inner, "architectures");
    json_object_del(inner, key);
    json_t *outer = json_pack("{s:s s:[s] s:o s:o s:{s:i}}", "model_type", whole, "architectures",
                              architecture, "text_config", inner, key, dtype, "vision_config", "depth", 2);
    char *json = json_dumps(outer, 0);
    write_file(dir, "config.json", json);
    json_decref(outer);
    free(json);
    free(text);
}

static float *logits_of(const char *dir)
{
    struct err err;
    struct chain chain;
    struct config c;
    uint32_t ids[TOKENS];
    must(config_read(&c, dir, &err), &err);
    const struct tune none = {.end_layer = c.layers};
    struct chain_spec spec = tiny_chain(dir, &c, &none, (struct chain_cut){2, {1, c.layers}});
    spec.training = false;
    spec.kv = true;
    for (size_t i = 0; i < TOKENS; i++)
        ids[i] = (uint32_t)(7 * i % c.vocab);
    chain_open(&chain, &spec);
    float *all = malloc(TOKENS * c.vocab * sizeof *all);
    assert_non_null(all);
    for (size_t t = 0; t < TOKENS; t++)
        memcpy(all + t * c.vocab, chain_decode(&chain, ids + t, 1, t), c.vocab * sizeof *all);
    chain_close(&chain);
    return all;
}

static void check_model(const char *model, const char *whole, const char *architecture, size_t way)
{
    struct err err;
    struct st *st;
    struct rewrite_result done;
    struct config c, is;
    char out[160];
    struct temp_dir dir = temp_dir_new(), made = temp_dir_new();
    must(config_read(&is, model, &err), &err);
    must(st_open_dir(&st, model, NULL, NULL, &err), &err);
    write_tensors(dir.path, st, way);
    write_config(dir.path, whole, architecture, model);
    must(config_read(&c, dir.path, &err), &err);
    assert_true(c.is_text_part && !strcmp(c.family, is.family) && c.tied == is.tied);
    const size_t n = TOKENS * c.vocab;
    float *want = logits_of(model), *got = logits_of(dir.path);
    assert_same_bits(got, want, n, "the text part");
    free(got);
    snprintf(out, sizeof out, "%s/out", made.path);
    must(convert_run(&(struct convert_request){.model = dir.path, .out = out, .dtype = DTYPE_COUNT}, &done,
                     &err),
         &err);
    must(config_read(&c, out, &err), &err);
    assert_false(c.is_text_part);
    got = logits_of(out);
    assert_same_bits(got, want, n, "the text part by itself");
    free(got);
    free(want);
    st_close(st);
    temp_dir_free(&dir);
    temp_dir_free(&made);
}

static void check(const char *name, const char *whole, const char *architecture, size_t way)
{
    struct golden g;
    golden_open(&g, name);
    check_model(g.model_dir.text, whole, architecture, way);
    golden_close(&g);
}

/* --- experts in one tensor -------------------------------------------------------------------- */

static const char stacked[] =
    "{\"model_type\":\"qwen3_5_moe_text\",\"num_hidden_layers\":2,\"vocab_size\":41,\"hidden_size\":20,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,\"num_experts\":3,"
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":9,\"shared_expert_intermediate_size\":7,"
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":6,"
    "\"linear_value_head_dim\":5,\"full_attention_interval\":2,\"torch_dtype\":\"float32\"}";
enum { EXPERTS = 3, FFN = 9, DIM = 20 };

struct stack {
    float gate_up[EXPERTS][2 * FFN][DIM], down[EXPERTS][DIM][FFN];
};

static void copy_expert(float *to, const struct st *st, size_t layer, size_t expert, const char *linear)
{
    char name[96];
    snprintf(name, sizeof name, "model.layers.%zu.mlp.experts.%zu.%s.weight", layer, expert, linear);
    const struct st_tensor *t = st_find(st, name);
    assert_non_null(t);
    memcpy(to, t->data, FFN * DIM * sizeof *to);
}

/* Qwen3.5's file, as it is released, of one with each expert by itself. */
static void write_stacked(const char *dir, const struct st *st)
{
    static char names[2 * EXPERTS][64];
    static struct stack stacks[2];
    struct st_out_tensor list[NAMES];
    struct st_writer *w;
    struct err err;
    char path[256];
    size_t n = 0;
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        if (strstr(t->name, ".experts."))
            continue;
        list[n] = (struct st_out_tensor){.name = t->name, .dtype = t->dtype, .ndim = t->ndim};
        memcpy(list[n++].shape, t->shape, sizeof t->shape);
    }
    for (size_t l = 0; l < 2; l++) {
        snprintf(names[2 * l], sizeof *names, "model.layers.%zu.mlp.experts.gate_up_proj", l);
        snprintf(names[2 * l + 1], sizeof *names, "model.layers.%zu.mlp.experts.down_proj", l);
        list[n++] = (struct st_out_tensor){
            .name = names[2 * l], .dtype = DTYPE_F32, .ndim = 3, .shape = {EXPERTS, 2 * FFN, DIM}};
        list[n++] = (struct st_out_tensor){
            .name = names[2 * l + 1], .dtype = DTYPE_F32, .ndim = 3, .shape = {EXPERTS, DIM, FFN}};
        for (size_t e = 0; e < EXPERTS; e++) {
            copy_expert(stacks[l].gate_up[e][0], st, l, e, "gate_proj");
            copy_expert(stacks[l].gate_up[e][FFN], st, l, e, "up_proj");
            copy_expert(stacks[l].down[e][0], st, l, e, "down_proj");
        }
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(st_writer_open(&w, path, list, n, &err), &err);
    for (size_t i = 0; i + 4 < n; i++) {
        const struct st_tensor *t = st_find(st, list[i].name);
        must(st_writer_put(w, t->name, t->data, t->elements, &err), &err);
    }
    for (size_t l = 0; l < 2; l++) {
        must(st_writer_put(w, names[2 * l], stacks[l].gate_up[0][0], EXPERTS * 2 * FFN * DIM, &err), &err);
        must(st_writer_put(w, names[2 * l + 1], stacks[l].down[0][0], EXPERTS * DIM * FFN, &err), &err);
    }
    must(st_writer_finish(w, &err), &err);
}

/* As released, below the model that sees, and written again: under the names that they had. */
static void stacked_experts_are_those_of_each_by_itself(void **state)
{
    (void)state;
    struct err err;
    struct st *st;
    struct config c;
    struct temp_dir plain = temp_dir_new(), dir = temp_dir_new();
    write_file(plain.path, "config.json", stacked);
    write_file(dir.path, "config.json", stacked);
    must(config_read(&c, plain.path, &err), &err);
    model_write(plain.path, &c);
    must(st_open_dir(&st, plain.path, NULL, NULL, &err), &err);
    write_stacked(dir.path, st);
    st_close(st);
    float *want = logits_of(plain.path), *got = logits_of(dir.path);
    assert_same_bits(got, want, TOKENS * c.vocab, "stacked experts");
    check_model(dir.path, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", 1);
    check_model(plain.path, "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", 1);
    free(want);
    free(got);
    temp_dir_free(&plain);
    temp_dir_free(&dir);
}

static void text_parts_compute_as_text_models(void **state)
{
    (void)state;
    check("gemma3", "gemma3", "Gemma3ForConditionalGeneration", 0);
    check("ministral3", "mistral3", "Mistral3ForConditionalGeneration", 1);
    check("qwen3_5", "qwen3_5", "Qwen3_5ForConditionalGeneration", 1);
}

/* A file of a text model with such a tensor is still another model. */
static void other_models_have_no_such_parts(void **state)
{
    (void)state;
    struct config c;
    struct err err;
    static const char known[] = "{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\"}}";
    must_refuse(config_parse(&c, known, strlen(known), &err), -ENOTSUP, &err, "\"llava\" is not supported");
    assert_true(text_part_is_other("model.vision_tower.x") && !text_part_is_other("model.layers.0.vision"));
}

/* Another name of the same family. */
static void text_of_qwen3_vl_is_qwen3(void **state)
{
    (void)state;
    json_t *root = json_pack("{s:s s:{s:s}}", "model_type", "qwen3_vl", "text_config", "model_type",
                             "qwen3_vl_text"),
           *text = text_part_config(root, NULL);
    assert_string_equal(json_string_value(json_object_get(text, "model_type")), "qwen3");
    json_decref(text);
    json_decref(root);
}

/* Kimi-K2.5: also where it is called by its own family's other name. */
static void text_of_kimi_k25_is_kimi_k2(void **state)
{
    (void)state;
    static const char *const types[] = {"kimi_k2", "deepseek_v3"};
    for (size_t i = 0; i < 2; i++) {
        json_t *root =
                   json_pack("{s:s s:{s:s s:{s:s}}}", "model_type", "kimi_k25", "text_config", "model_type",
                             types[i], "quantization_config", "quant_method", "compressed-tensors"),
               *text = text_part_config(root, NULL);
        assert_string_equal(json_string_value(json_object_get(text, "model_type")), "kimi_k2");
        assert_non_null(json_object_get(text, "quantization_config"));
        json_decref(text);
        json_decref(root);
    }
    assert_true(text_part_is_other("mm_projector.linear_1.weight"));
}

/* What stands outside of the text part's config, also names of layers in it. */
static void keys_outside_count(void **state)
{
    (void)state;
    json_t *root = json_pack("{s:s s:s s:b s:{s:i s:{s:i}} s:{s:s s:i}}", "model_type", "gemma3", "dtype",
                             "bfloat16", "tie_word_embeddings", 0, "quantization", "bits", 4,
                             "language_model.model.layers.0.mlp.up_proj", "bits", 8, "text_config",
                             "model_type", "gemma3_text", "hidden_size", 8),
           *text = text_part_config(root, "A");
    const json_t *own = json_object_get(json_object_get(text, "quantization"), "model.layers.0.mlp.up_proj");
    assert_int_equal(json_integer_value(json_object_get(own, "bits")), 8);
    assert_true(json_is_false(json_object_get(text, "tie_word_embeddings")));
    assert_string_equal(json_string_value(json_array_get(json_object_get(text, "architectures"), 0)), "A");
    json_decref(text);
    json_decref(root);
    char *name = text_part_name("base_model.model.model.language_model.layers.1.mlp.up_proj.lora_A.weight");
    assert_string_equal(name, "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight");
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_parts_compute_as_text_models),
        cmocka_unit_test(other_models_have_no_such_parts),
        cmocka_unit_test(keys_outside_count),
        cmocka_unit_test(text_of_qwen3_vl_is_qwen3),
        cmocka_unit_test(text_of_kimi_k25_is_kimi_k2),
        cmocka_unit_test(stacked_experts_are_those_of_each_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
