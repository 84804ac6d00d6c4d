/* SPDX-License-Identifier: MIT
 *
 * Models in other forms: weights quantized into files have the bits of those that a job quantizes;
 * GGUF files and mlx-lm's directories become Hugging Face's with the numbers they stood for; woven
 * experts; models in several files; and what is refused. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file/st.h"
#include "model/write/convert.h"
#include "tests/lib/fp8.h"
#include "tests/lib/gguf.h"
#include "tests/lib/mlx.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

#define COMMON(family)                                                                                       \
    "{\"model_type\":\"" family                                                                              \
    "\",\"num_hidden_layers\":3,\"vocab_size\":41,\"rms_norm_eps\":0.0009765625,"                            \
    "\"rope_theta\":100,\"bos_token_id\":null,\"eos_token_id\":null,\"max_position_embeddings\":64,"         \
    "\"num_attention_heads\":4,"
#define GQA(dim, ffn)                                                                                        \
    "\"hidden_size\":" dim ",\"intermediate_size\":" ffn ",\"num_key_value_heads\":2,\"head_dim\":64"
#define EXPERTS "\"num_experts_per_tok\":2,\"moe_intermediate_size\":256,\"norm_topk_prob\":true"

/* Of rows that are blocks of 256. */
static const char *const families[] = {
    COMMON("qwen3") GQA("256", "256") ",\"tie_word_embeddings\":true",
    COMMON("qwen2") GQA("256", "256"),
    COMMON("qwen3_moe") GQA("256", "256") ",\"num_experts\":4," EXPERTS,
    COMMON("deepseek_v3") "\"hidden_size\":256,\"intermediate_size\":256,\"kv_lora_rank\":256,"
                          "\"q_lora_rank\":256,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"
                          "\"v_head_dim\":64,\"n_routed_experts\":8,\"n_shared_experts\":1,"
                          "\"first_k_dense_replace\":1,\"n_group\":4,\"topk_group\":2,"
                          "\"routed_scaling_factor\":2.5,\"num_nextn_predict_layers\":0," EXPERTS,
    COMMON("gpt_oss") GQA("256", "256") ",\"num_local_experts\":4,\"num_experts_per_tok\":2",
};
enum { ALL = sizeof families / sizeof *families, FAMILIES = 4, DENSE = 1, LATENT = 3, WOVEN = 4 };

struct world {
    struct temp_dir plain, dir; /* a model in f32; whatever is made of it */
    struct config c;
    char path[128], out[128]; /* in dir */
};

static void world_open(struct world *w, const char *family)
{
    struct err err;
    char json[1800];
    *w = (struct world){.plain = temp_dir_new(), .dir = temp_dir_new()};
    snprintf(json, sizeof json, "%s}", family);
    write_file(w->plain.path, "config.json", json);
    must(config_read(&w->c, w->plain.path, &err), &err);
    model_write(w->plain.path, &w->c);
    snprintf(w->path, sizeof w->path, "%s/model.gguf", w->dir.path);
    snprintf(w->out, sizeof w->out, "%s/out", w->dir.path);
}

static void world_close(struct world *w)
{
    temp_dir_free(&w->plain);
    temp_dir_free(&w->dir);
}

static struct rewrite_result convert(const struct convert_request *req)
{
    struct err err;
    struct rewrite_result done;
    must(convert_run(req, &done, &err), &err);
    return done;
}

/* After each of some tokens, with weights quantized to `bits` for it; the caller frees. */
static float *logits_of(const struct world *w, const char *model, size_t bits)
{
    struct err err;
    struct config c;
    struct tiny_batch b;
    struct chain chain;
    must(config_read(&c, model, &err), &err);
    const struct tune none = {.end_layer = c.layers};
    struct chain_spec spec = tiny_chain(model, &c, &none, (struct chain_cut){2, {1, c.layers}});
    spec.training = false;
    spec.kv = true;
    spec.weight_bits = bits;
    spec.cache_dir = w->dir.path;
    tiny_batch_init(&b, &c, 5);
    chain_open(&chain, &spec);
    float *all = malloc(TINY_TOKENS * c.vocab * sizeof *all);
    for (size_t t = 0; t < TINY_TOKENS; t++)
        memcpy(all + t * c.vocab, chain_decode(&chain, b.ids + t, 1, t), c.vocab * sizeof *all);
    chain_close(&chain);
    return all;
}

/* What came out computes as `model` does with weights quantized to `bits`; off: by a part of the
 * largest logit, 0: to the bit. */
static void check_alike(const struct world *w, const char *model, size_t bits, double off, const char *what)
{
    const size_t n = TINY_TOKENS * w->c.vocab;
    float *want = logits_of(w, model, bits), *got = logits_of(w, w->out, 0);
    assert_true(near_max(want, w->c.vocab) > 0.01);
    if (off > 0)
        assert_near_max(got, want, n, off, what);
    else
        assert_same_bits(got, want, n, what);
    free(want);
    free(got);
}

/* --- quantized -------------------------------------------------------------------------------- */

/* What a plan counts for the weights is what the files have of matrices. */
static void check_measure(const struct world *w)
{
    struct err err;
    struct st *st;
    struct stage_bytes bytes;
    struct stage_spec spec = {.model_dir = w->out,
                              .end_layer = w->c.layers,
                              .embed = true,
                              .head = true,
                              .slots = 1,
                              .tokens = 4,
                              .seqs = 1,
                              .positions = 4};
    size_t matrices = 0;
    must(config_read(&spec.config, w->out, &err), &err);
    spec.tune.end_layer = w->c.layers;
    must(st_open_dir(&st, w->out, NULL, NULL, &err), &err);
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        const bool is_stack_of_vectors = strstr(t->name, "proj.bias") && !strstr(t->name, ".biases");
        matrices += t->ndim > 1 && !is_stack_of_vectors ? t->bytes : 0;
    }
    st_close(st);
    must(stage_measure(&bytes, &spec, &err), &err);
    assert_int_equal(bytes.mapped, matrices);
}

static void quantized_files_have_the_bits_of_jobs(void **state)
{
    (void)state;
    for (size_t f = 0; f < ALL; f++)
        for (size_t bits = 4; bits <= 8; bits += 4) {
            struct world w;
            struct err err;
            struct config c;
            world_open(&w, families[f]);
            const struct convert_request req = {
                .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = bits, .group = 64};
            const struct rewrite_result done = convert(&req);
            assert_true(done.quantized > 7 && done.files == 1 && !done.changed);
            must(config_read(&c, w.out, &err), &err);
            assert_true(c.quant_bits == bits && c.quant_group == 64 && c.dtype == w.c.dtype);
            check_alike(&w, w.plain.path, bits, 0, families[f]);
            check_measure(&w);
            world_close(&w);
        }
}

static json_t *config_of(const char *dir)
{
    size_t n;
    char *text = read_file(dir, "config.json", &n);
    json_t *o = json_loadb(text, n, 0, NULL);
    assert_non_null(o);
    free(text);
    return o;
}

/* Every number of bits is read again, and the more there are the nearer it comes. What has no whole
 * groups is left, and said to be. */
static void other_widths_are_read_again(void **state)
{
    (void)state;
    static const size_t widths[] = {2, 3, 4, 5, 6, 8};
    double last = INFINITY, size = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct world w;
        world_open(&w, COMMON("qwen2") GQA("256", "320"));
        const struct convert_request req = {
            .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = widths[i], .group = 128};
        convert(&req);
        check_measure(&w);
        json_t *o = config_of(w.out), *q = json_object_get(o, "quantization");
        assert_true(json_is_false(json_object_get(q, "model.layers.2.mlp.down_proj")));
        assert_null(json_object_get(q, "model.layers.2.mlp.up_proj"));
        assert_int_equal(json_object_size(q), 2 + 3);
        assert_true(json_equal(q, json_object_get(o, "quantization_config")));
        json_decref(o);
        float *want = logits_of(&w, w.plain.path, 0), *got = logits_of(&w, w.out, 0);
        const double off = near_difference(got, want, TINY_TOKENS * w.c.vocab);
        assert_true(off < last && off > 0);
        last = off;
        size = near_max(want, TINY_TOKENS * w.c.vocab);
        free(want);
        free(got);
        world_close(&w);
    }
    assert_true(last < 0.2 * size); /* random attention is near the edge of a choice */
}

/* mlx-lm's layout: experts in stacks, also those that are not quantized. */
static void experts_lie_in_stacks(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct st *st;
    world_open(&w, COMMON("qwen3_moe") GQA("256", "256") ",\"num_experts\":4,\"num_experts_per_tok\":2,"
                                                         "\"moe_intermediate_size\":192");
    const struct convert_request req = {
        .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 4, .group = 128};
    convert(&req);
    must(st_open_dir(&st, w.out, NULL, NULL, &err), &err);
    const struct st_tensor *up = st_find(st, "model.layers.1.mlp.switch_mlp.up_proj.weight"),
                           *scales = st_find(st, "model.layers.1.mlp.switch_mlp.up_proj.scales"),
                           *down = st_find(st, "model.layers.1.mlp.switch_mlp.down_proj.weight");
    assert_true(up && scales && down);
    assert_string_equal(up->dtype_name, "U32");
    assert_true(up->ndim == 3 && up->shape[0] == 4 && up->shape[1] == 192 && up->shape[2] == 32);
    assert_true(scales->ndim == 3 && scales->shape[2] == 2 && scales->dtype == DTYPE_BF16);
    assert_true(down->ndim == 3 && down->shape[2] == 192 && down->dtype == DTYPE_F32);
    assert_null(st_find(st, "model.layers.1.mlp.switch_mlp.down_proj.scales"));
    for (size_t i = 0; i < st_count(st); i++)
        assert_null(strstr(st_at(st, i)->name, ".experts."));
    st_close(st);
    check_measure(&w);
    world_close(&w);
}

/* --- woven experts ---------------------------------------------------------------------------- */

static void case_open(struct world *w, char model[64], const char *name)
{
    struct err err;
    snprintf(model, 64, "tests/data/cases/%s/model", name);
    *w = (struct world){.plain = temp_dir_new(), .dir = temp_dir_new()};
    must(config_read(&w->c, model, &err), &err);
    snprintf(w->out, sizeof w->out, "%s/out", w->dir.path);
}

/* As transformers writes them: the same bytes under the same names. */
static void woven_experts_stay_woven(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct st *got, *want;
    char model[64];
    case_open(&w, model, "gpt_oss");
    convert(&(struct convert_request){.model = model, .out = w.out, .dtype = DTYPE_COUNT});
    must(st_open_dir(&got, w.out, NULL, NULL, &err), &err);
    must(st_open_dir(&want, model, NULL, NULL, &err), &err);
    assert_int_equal(st_count(got), st_count(want));
    for (size_t i = 0; i < st_count(want); i++) {
        const struct st_tensor *a = st_at(got, i), *b = st_at(want, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->ndim == b->ndim && !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape));
        assert_true(a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes));
    }
    st_close(got);
    st_close(want);
    world_close(&w);
}

/* Every number of MXFP4 is one of BF16; few rows are multiplied with blocks in whole numbers. */
static void released_experts_become_bf16(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct config c;
    char model[64];
    case_open(&w, model, "gpt_oss_mxfp4");
    assert_true(w.c.experts_fp4);
    convert(&(struct convert_request){.model = model, .out = w.out, .dtype = DTYPE_COUNT});
    must(config_read(&c, w.out, &err), &err);
    assert_true(!c.experts_fp4 && c.dtype == DTYPE_BF16);
    check_alike(&w, model, 0, 1e-5, "experts of MXFP4 as BF16");
    world_close(&w);
}

/* mlx-lm has gate and up apart, and biases in stacks. */
static void woven_experts_are_quantized_apart(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct st *st;
    world_open(&w, families[WOVEN]);
    convert(&(struct convert_request){
        .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 4, .group = 64});
    must(st_open_dir(&st, w.out, NULL, NULL, &err), &err);
    const struct st_tensor *up = st_find(st, "model.layers.1.mlp.experts.up_proj.weight"),
                           *bias = st_find(st, "model.layers.1.mlp.experts.up_proj.bias");
    assert_true(up && up->ndim == 3 && up->shape[0] == 4 && up->shape[1] == 256 && up->shape[2] == 32);
    assert_true(bias && bias->ndim == 2 && bias->shape[0] == 4 && bias->shape[1] == 256);
    st_close(st);
    world_close(&w);
}

/* --- from GGUF files -------------------------------------------------------------------------- */

static void check_gguf(size_t family, struct gguf_how how)
{
    struct world w;
    struct err err;
    struct config c;
    world_open(&w, families[family]);
    if (how.split)
        snprintf(w.path, sizeof w.path, "%s/model", w.dir.path);
    gguf_convert(w.plain.path, w.path, &w.c, how);
    if (how.split)
        strcat(w.path, "-00001-of-00002.gguf");
    const struct convert_request req = {.model = w.path, .out = w.out, .dtype = DTYPE_F32};
    convert(&req);
    must(config_read(&c, w.out, &err), &err);
    assert_true(!c.mixed && !c.mla.kv_b_parts && c.dtype == DTYPE_F32);
    /* A row at a time is multiplied with blocks in whole numbers. */
    check_alike(&w, w.path, 0, 1e-5, families[family]);
    world_close(&w);
}

static void gguf_files_become_folders(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++)
        check_gguf(f, (struct gguf_how){.block = BLOCK_Q4_K});
    check_gguf(DENSE, (struct gguf_how){.block = BLOCK_MXFP4, .split = true});
    check_gguf(LATENT, (struct gguf_how){.block = BLOCK_Q8_0, .kv_b_parts = true});
}

static void gguf_files_are_quantized_again(void **state)
{
    (void)state;
    static const size_t family[] = {0, LATENT};
    for (size_t i = 0; i < 2; i++) {
        struct world w;
        world_open(&w, families[family[i]]);
        gguf_convert(w.plain.path, w.path, &w.c,
                     (struct gguf_how){.block = BLOCK_Q6_K, .kv_b_parts = family[i] == LATENT});
        const struct convert_request req = {
            .model = w.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 8, .group = 64};
        convert(&req);
        check_alike(&w, w.path, 8, 0, "quantized again");
        world_close(&w);
    }
}

/* --- from others ------------------------------------------------------------------------------ */

/* All tensors under the names of `plain`, with its numbers to a part `tolerance` of the largest. */
static void check_numbers(const struct world *w, double tolerance)
{
    struct err err;
    struct st *got, *want;
    must(st_open_dir(&got, w->out, NULL, NULL, &err), &err);
    must(st_open_dir(&want, w->plain.path, NULL, NULL, &err), &err);
    assert_int_equal(st_count(got), st_count(want));
    for (size_t i = 0; i < st_count(want); i++) {
        const struct st_tensor *a = st_at(got, i), *b = st_at(want, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->ndim == b->ndim && !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape));
        assert_int_equal(a->dtype, DTYPE_F32);
        float *x = malloc(a->bytes), *y = malloc(b->bytes);
        memcpy(x, a->data, a->bytes); /* aligned */
        memcpy(y, b->data, b->bytes);
        assert_near_max(x, y, a->elements, tolerance, a->name);
        free(x);
        free(y);
    }
    st_close(got);
    st_close(want);
}

static void mlx_directories_become_plain(void **state)
{
    (void)state;
    for (size_t bits = 2; bits <= 9; bits++) {
        const size_t f = bits % FAMILIES;
        const struct mlx_how how = {.bits = bits == 9   ? 4
                                            : bits == 7 ? 0
                                                        : bits,
                                    .group = 32,
                                    .fp4 = bits == 9,
                                    .half = bits % 2};
        struct world w;
        struct err err;
        struct config c;
        char mlx[160], json[1900];
        world_open(&w, families[f]);
        struct temp_dir dir = temp_dir_new();
        mlx_convert(w.plain.path, dir.path, &w.c, how);
        snprintf(mlx, sizeof mlx, ",\"quantization\":{\"group_size\":32,\"bits\":%zu%s}}", how.bits,
                 how.fp4 ? ",\"mode\":\"mxfp4\"" : "");
        snprintf(json, sizeof json, "%s%s", families[f], how.bits ? mlx : "}");
        write_file(dir.path, "config.json", json);
        const struct convert_request req = {.model = dir.path, .out = w.out, .dtype = DTYPE_F32};
        convert(&req);
        must(config_read(&c, w.out, &err), &err);
        assert_int_equal(c.quant_bits, 0);
        check_numbers(&w, 1e-6);
        temp_dir_free(&dir);
        world_close(&w);
    }
}

/* As FP8 is released; and to bf16 where nothing was asked for. */
static void fp8_becomes_other_types(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct config c;
    world_open(&w, families[LATENT]);
    fp8_convert(w.plain.path, &w.c);
    json_t *o = config_of(w.plain.path);
    json_object_set_new(
        o, "quantization_config",
        json_pack("{s:s s:s s:[ii]}", "quant_method", "fp8", "fmt", "e4m3", "weight_block_size", 128, 128));
    char *text = json_dumps(o, 0);
    write_file(w.plain.path, "config.json", text);
    free(text);
    json_decref(o);
    struct convert_request req = {.model = w.plain.path, .out = w.out, .dtype = DTYPE_F32};
    convert(&req);
    must(config_read(&c, w.out, &err), &err);
    assert_true(!c.fp8 && c.dtype == DTYPE_F32);
    float *want = logits_of(&w, w.plain.path, 0), *got = logits_of(&w, w.out, 0);
    assert_near_max(got, want, TINY_TOKENS * w.c.vocab, 1e-5, "f32 of FP8");
    free(want);
    free(got);
    snprintf(w.out, sizeof w.out, "%s/eight", w.dir.path);
    req.dtype = DTYPE_COUNT;
    req.bits = 8;
    req.group = 64;
    convert(&req);
    check_alike(&w, w.plain.path, 8, 0, "8 bits of FP8");
    world_close(&w);
}

/* --- several files ---------------------------------------------------------------------------- */

static void large_models_are_several_files(void **state)
{
    (void)state;
    for (size_t bits = 0; bits <= 4; bits += 4) {
        struct world w;
        struct err err;
        struct st *st;
        size_t n, bytes = 0;
        world_open(&w, families[2]);
        const struct convert_request req = {.model = w.plain.path,
                                            .out = w.out,
                                            .dtype = DTYPE_COUNT,
                                            .bits = bits,
                                            .group = 64,
                                            .shard_bytes = bits ? 400000 : 3000000};
        const struct rewrite_result done = convert(&req);
        assert_in_range(done.files, 3, 20);
        char *text = read_file(w.out, "model.safetensors.index.json", &n);
        json_t *index = json_loadb(text, n, 0, NULL);
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
            done.bytes);
        json_decref(index);
        free(text);
        must(st_open_dir(&st, w.out, NULL, NULL, &err), &err);
        size_t of[20] = {0};
        for (size_t i = 0; i < st_count(st); i++) {
            const struct st_tensor *t = st_at(st, i);
            of[t->file] += t->bytes;
            bytes += t->bytes;
        }
        st_close(st);
        for (size_t i = 0; i < done.files; i++)
            assert_in_range(of[i], 1, req.shard_bytes);
        assert_int_equal(bytes, done.bytes);
        check_alike(&w, w.plain.path, bits, 0, "several files");
        world_close(&w);
    }
}

/* What the model does not have, as layers behind its last. */
static void other_tensors_come_along(void **state)
{
    (void)state;
    static const float x[15] = {1, -2, 3, 0.5f, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43};
    struct world w;
    struct err err;
    struct st *st;
    struct st_writer *out;
    char path[128], all[128];
    float back[15];
    world_open(&w, families[DENSE]);
    const struct st_out_tensor list[] = {
        {.name = "model.layers.3.eh_proj.weight", .dtype = DTYPE_F32, .ndim = 2, .shape = {3, 5}},
        {.name = "model.layers.3.norm.weight", .dtype = DTYPE_BF16, .ndim = 1, .shape = {15}},
        {.name = "model.layers.3.nothing", .dtype = DTYPE_F32, .ndim = 2, .shape = {4, 0}}};
    snprintf(path, sizeof path, "%s/model.safetensors", w.plain.path);
    snprintf(all, sizeof all, "%s/all.safetensors", w.plain.path);
    must(st_open_dir(&st, w.plain.path, NULL, NULL, &err), &err);
    assert_int_equal(rename(path, all), 0);
    snprintf(path, sizeof path, "%s/more.safetensors", w.plain.path);
    must(st_writer_open(&out, path, list, 3, &err), &err);
    for (size_t i = 0; i < 2; i++)
        must(st_writer_put(out, list[i].name, x, 15, &err), &err);
    must(st_writer_finish(out, &err), &err);
    json_t *map = json_object(), *index = json_pack("{s:{} s:o}", "metadata", "weight_map", map);
    for (size_t i = 0; i < st_count(st); i++)
        json_object_set_new(map, st_at(st, i)->name, json_string("all.safetensors"));
    for (size_t i = 0; i < 3; i++)
        json_object_set_new(map, list[i].name, json_string("more.safetensors"));
    st_close(st);
    char *text = json_dumps(index, 0);
    write_file(w.plain.path, "model.safetensors.index.json", text);
    free(text);
    json_decref(index);
    const struct convert_request req = {
        .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 8, .group = 64};
    convert(&req);
    must(st_open_dir(&st, w.out, NULL, NULL, &err), &err);
    for (size_t i = 0; i < 3; i++) {
        const struct st_tensor *t = st_find(st, list[i].name);
        assert_non_null(t);
        assert_true(t->dtype == list[i].dtype && t->ndim == list[i].ndim &&
                    !memcmp(t->shape, list[i].shape, sizeof t->shape));
        dtype_to_f32(back, t->data, t->dtype, t->elements);
        assert_memory_equal(back, x, t->elements * sizeof *x);
    }
    st_close(st);
    world_close(&w);
}

/* Norms that multiply by 1 more, and a convolution's extents, are as they were. */
static void what_is_left_alone_is_as_it_was(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct st *was, *is;
    world_open(&w, COMMON("qwen3_next") GQA("40", "28") ",\"num_experts\":3,\"linear_num_key_heads\":2,"
                                                        "\"linear_num_value_heads\":4,"
                                                        "\"linear_key_head_dim\":6,"
                                                        "\"linear_value_head_dim\":5,"
                                                        "\"full_attention_interval\":2," EXPERTS);
    convert(&(struct convert_request){.model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT});
    must(st_open_dir(&was, w.plain.path, NULL, NULL, &err), &err);
    must(st_open_dir(&is, w.out, NULL, NULL, &err), &err);
    assert_int_equal(st_count(is), st_count(was));
    for (size_t i = 0; i < st_count(was); i++) {
        const struct st_tensor *a = st_at(was, i), *b = st_find(is, a->name);
        assert_non_null(b);
        assert_int_equal(a->ndim, b->ndim);
        assert_memory_equal(a->shape, b->shape, sizeof a->shape);
        assert_int_equal(a->bytes, b->bytes);
        if (memcmp(a->data, b->data, a->bytes) != 0)
            fail_msg("%s is not as it was", a->name);
    }
    st_close(was);
    st_close(is);
    world_close(&w);
}

/* --- refused ---------------------------------------------------------------------------------- */

static void what_cannot_be_made_is_refused(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct rewrite_result done;
    char more[160];
    world_open(&w, families[DENSE]);
    struct convert_request req = {
        .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 4, .group = 64};
    convert(&req);
    snprintf(more, sizeof more, "%s/more", w.dir.path);
    must_refuse(convert_run(&req, &done, &err), -EEXIST, &err, "not empty");
    req.model = w.out;
    req.out = more;
    must_refuse(convert_run(&req, &done, &err), -ENOTSUP, &err, "is quantized to 4 bits already");
    assert_false(has_file(w.dir.path, "more"));
    world_close(&w);
    req.group = 128;
    world_open(&w, "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"vocab_size\":41,\"hidden_size\":32,"
                   "\"intermediate_size\":32,\"num_attention_heads\":2,\"rms_norm_eps\":1e-5");
    req.model = w.plain.path;
    req.out = w.out;
    must_refuse(convert_run(&req, &done, &err), -EINVAL, &err,
                "no matrix whose rows are a multiple of 128: choose smaller groups");
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_files_have_the_bits_of_jobs),
        cmocka_unit_test(other_widths_are_read_again),
        cmocka_unit_test(experts_lie_in_stacks),
        cmocka_unit_test(woven_experts_stay_woven),
        cmocka_unit_test(released_experts_become_bf16),
        cmocka_unit_test(woven_experts_are_quantized_apart),
        cmocka_unit_test(gguf_files_become_folders),
        cmocka_unit_test(gguf_files_are_quantized_again),
        cmocka_unit_test(mlx_directories_become_plain),
        cmocka_unit_test(fp8_becomes_other_types),
        cmocka_unit_test(large_models_are_several_files),
        cmocka_unit_test(other_tensors_come_along),
        cmocka_unit_test(what_is_left_alone_is_as_it_was),
        cmocka_unit_test(what_cannot_be_made_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
