/* SPDX-License-Identifier: MIT
 *
 * The form of an adapter that mlx-lm reads: names, shapes and values by a reading of the file that
 * shares nothing with the writer, and the way back. */
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

enum { LAYERS = PLACE_LAYERS };

/* A tensor of the result's adapters.safetensors by a reading of its own: the header's offsets, f32
 * as they lie. */
static const float *mlx_tensor(const char *file, const char *name, const char *shape)
{
    uint64_t header;
    memcpy(&header, file, sizeof header);
    json_t *o = json_loadb(file + 8, header, 0, NULL);
    const json_t *t = json_object_get(o, name);
    if (!t)
        fail_msg("%s is not in the file", name);
    char *is = json_dumps(json_object_get(t, "shape"), JSON_COMPACT);
    assert_string_equal(is, shape);
    assert_string_equal(json_string_value(json_object_get(t, "dtype")), "F32");
    size_t at = (size_t)json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
    free(is);
    json_decref(o);
    return (const float *)(const void *)(file + 8 + header + at);
}

/* Random values for a result in both forms, to be freed. */
static float *write_random(const struct place *p, const struct tune *tune)
{
    struct err err;
    size_t n;
    float *values = place_random(p, tune, &n);
    const struct adapter_out_request req = place_request(p, tune, 1);
    must(place_write(&req, values, &err), &err);
    return values;
}

/* Both factors of both targets in the three layers: there transposed. */
static void mlx_reads_the_same_factors(void **state)
{
    (void)state;
    struct place p;
    size_t n;
    place_make(&p, DTYPE_F32);
    struct tune tune = place_lora(&p, "q_proj,down_proj", 1, 3);
    float *values = write_random(&p, &tune);
    char *file = read_file(p.out, "adapters.safetensors", &n);
    assert_non_null(file);
    const float *at = values;
    for (int layer = 1; layer < 3; layer++) {
        const float *w = at;
        for (int target = 0; target < 2; target++) {
            const size_t in = target ? p.config.ffn : p.config.dim,
                         out = target ? p.config.dim : p.config.heads * p.config.head;
            char name[96], shape[32];
            snprintf(name, sizeof name, "model.layers.%d.%s.lora_a", layer,
                     target ? "mlp.down_proj" : "self_attn.q_proj");
            snprintf(shape, sizeof shape, "[%zu,3]", in);
            const float *a = mlx_tensor(file, name, shape);
            for (size_t i = 0; i < 3 * in; i++)
                assert_true(a[i % in * 3 + i / in] == w[i]);
            w += 3 * in;
            name[strlen(name) - 1] = 'b';
            snprintf(shape, sizeof shape, "[3,%zu]", out);
            const float *b = mlx_tensor(file, name, shape);
            for (size_t i = 0; i < 3 * out; i++)
                assert_true(b[i % 3 * out + i / 3] == w[i]);
            w += 3 * out;
        }
        at += 3 * place_elements(&p, &tune, 2);
    }
    free(file);
    free(values);
    place_free(&p);
}

/* Without PEFT's file, and then without its keys, the same adapter is read; a scale is taken as it
 * is. */
static void adapters_of_mlx_are_read(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    struct adapter_in *in;
    char path[256];
    place_make(&p, DTYPE_F32);
    struct tune tune = place_lora(&p, "q_proj,down_proj", 1, LAYERS), back = {.seed = 1};
    float *values = write_random(&p, &tune);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", p.out);
    assert_int_equal(remove(path), 0);
    for (int mlx = 0; mlx < 2; mlx++) {
        if (mlx)
            write_file(
                p.out, "adapter_config.json",
                "{\"fine_tune_type\":\"lora\",\"num_layers\":3,\"lora_parameters\":{\"rank\":3,\"scale\":20,"
                "\"dropout\":0.0,\"keys\":[\"self_attn.q_proj\",\"mlp.down_proj\"]}}");
        must(adapter_read_config(&back, p.out, p.family, &p.config, &err), &err);
        assert_true(back.rank == 3 && back.first_layer == 1 && back.end_layer == LAYERS);
        assert_true(tune_scale(&back) == (mlx ? 20 : 2));
        must(adapter_in_open(&in, p.out, &back, p.family, &p.config, &err), &err);
        place_check(in, &p, &tune, values);
        adapter_in_close(in);
    }
    write_file(p.out, "adapter_config.json",
               "{\"num_layers\":-1,\"lora_parameters\":{\"rank\":3,\"scale\":20,\"dropout\":0.0}}");
    must(adapter_read_config(&back, p.out, p.family, &p.config, &err), &err);
    assert_true(back.ntargets == 7 && back.first_layer == 1); /* layer 0 has no factors at all */
    must_refuse(adapter_in_open(&in, p.out, &back, p.family, &p.config, &err), -EINVAL, &err,
                "lacks model.layers.1.self_attn.k_proj.lora_a");
    free(values);
    place_free(&p);
}

/* DoRA: the magnitudes lie there as `m`, and both forms say what the adapter is. */
static void magnitudes_are_written_for_both(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    struct adapter_in *in;
    size_t n;
    char path[256];
    place_make(&p, DTYPE_F32);
    struct tune tune = place_lora(&p, "q_proj,down_proj", 1, LAYERS), back = {.seed = 1};
    tune.dora = true;
    float *values = write_random(&p, &tune);
    char *file = read_file(p.out, "adapters.safetensors", &n), shape[32];
    const size_t out = p.config.heads * p.config.head;
    snprintf(shape, sizeof shape, "[%zu]", out);
    assert_same_bits(mlx_tensor(file, "model.layers.1.self_attn.q_proj.m", shape),
                     values + 3 * (p.config.dim + out), out, "m of q_proj");
    free(file);
    for (int peft = 1; peft >= 0; peft--) {
        back.dora = false;
        must(adapter_read_config(&back, p.out, p.family, &p.config, &err), &err);
        assert_true(back.dora && back.rank == 3);
        must(adapter_in_open(&in, p.out, &back, p.family, &p.config, &err), &err);
        place_check(in, &p, &tune, values);
        adapter_in_close(in);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", p.out);
        assert_int_equal(remove(path), peft ? 0 : -1);
        write_file(
            p.out, "adapter_config.json",
            "{\"fine_tune_type\":\"dora\",\"num_layers\":3,\"lora_parameters\":{\"rank\":3,\"scale\":2,"
            "\"dropout\":0.0,\"keys\":[\"self_attn.q_proj\",\"mlp.down_proj\"]}}");
    }
    free(values);
    place_free(&p);
}

/* Routed experts: a pair for each to PEFT, one tensor for all of a layer, not transposed, to
 * mlx-lm. */
static void check_experts(const char *family, const char *stack, const char *targets)
{
    enum { EXPERTS = 3, RANK = 3 };
    struct place p;
    struct err err;
    struct adapter_in *in;
    size_t n;
    char path[256];
    place_make(&p, DTYPE_F32);
    strcpy(p.config.family, family);
    p.config.moe = (struct config_moe){
        .experts = EXPERTS, .chosen = 2, .groups = 1, .groups_chosen = 1, .ffn = 7, .first = 1, .scale = 1};
    p.family = family_find(p.config.family);
    struct tune tune = place_lora(&p, targets, 0, LAYERS), back = {.seed = 1};
    float *values = write_random(&p, &tune);
    char *file = read_file(p.out, "adapters.safetensors", &n);
    assert_non_null(file);
    const size_t attn = RANK * (p.config.heads * p.config.head + p.config.dim), a = RANK * p.config.dim,
                 b = RANK * 7;
    const float *layer2 = values + 3 * (place_elements(&p, &tune, 1) + place_elements(&p, &tune, 2)) + attn;
    char shape[32], name[2][80], config[200];
    snprintf(shape, sizeof shape, "[3,3,%zu]", p.config.dim);
    for (int i = 0; i < 2; i++)
        snprintf(name[i], sizeof name[i], "model.layers.2.%s.up_proj.lora_%c", stack, "ab"[i]);
    snprintf(config, sizeof config,
             "{\"num_layers\":4,\"lora_parameters\":{\"rank\":3,\"scale\":2,\"keys\":"
             "[\"self_attn.o_proj\",\"%s.up_proj\"]}}",
             stack);
    const float *as = mlx_tensor(file, name[0], shape), *bs = mlx_tensor(file, name[1], "[3,7,3]");
    for (size_t e = 0; e < EXPERTS; e++) {
        assert_same_bits(as + e * a, layer2 + e * (a + b), a, "lora_a of an expert");
        assert_same_bits(bs + e * b, layer2 + e * (a + b) + a, b, "lora_b of an expert");
    }
    free(file);
    for (int peft = 1; peft >= 0; peft--) {
        must(adapter_read_config(&back, p.out, p.family, &p.config, &err), &err);
        must(adapter_in_open(&in, p.out, &back, p.family, &p.config, &err), &err);
        place_check(in, &p, &tune, values);
        adapter_in_close(in);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", p.out);
        assert_int_equal(remove(path), peft ? 0 : -1);
        write_file(p.out, "adapter_config.json", config);
    }
    free(values);
    place_free(&p);
}

static void experts_are_written_for_both(void **state)
{
    (void)state;
    check_experts("qwen3_moe", "mlp.switch_mlp", "experts.*.up_proj,o_proj");
    check_experts("gpt_oss", "mlp.experts", "experts.*.up_proj,o_proj");
    check_experts("minimax_m2", "block_sparse_moe.switch_mlp", "experts.*.w3,o_proj");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlx_reads_the_same_factors),
        cmocka_unit_test(adapters_of_mlx_are_read),
        cmocka_unit_test(magnitudes_are_written_for_both),
        cmocka_unit_test(experts_are_written_for_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
