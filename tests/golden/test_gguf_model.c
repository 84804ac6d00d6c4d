/* SPDX-License-Identifier: MIT
 *
 * Models in GGUF files against the folders that they would be: the logits of every family, in every
 * type of blocks, whole and split, and their bits where nothing is in blocks; what a plan counts;
 * weights that are quantized again; adapters, and merging them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <sys/stat.h>

#include "model/write/merge.h"
#include "tests/lib/gguf.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

#define COMMON(family)                                                                                       \
    "{\"model_type\":\"" family                                                                              \
    "\",\"num_hidden_layers\":2,\"vocab_size\":41,\"rms_norm_eps\":0.0009765625,"                            \
    "\"rope_theta\":100,\"bos_token_id\":null,\"eos_token_id\":null,\"max_position_embeddings\":64,"         \
    "\"hidden_size\":256,\"intermediate_size\":256,\"num_attention_heads\":4,"
#define GQA "\"num_key_value_heads\":2,\"head_dim\":64"
#define LATENT                                                                                               \
    "\"kv_lora_rank\":256,\"q_lora_rank\":256,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"                \
    "\"v_head_dim\":64,\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":256,"      \
    "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"routed_scaling_factor\":2.5,"

#define LINEAR                                                                                               \
    ",\"full_attention_interval\":2,\"linear_num_key_heads\":2,\"linear_key_head_dim\":32,"                  \
    "\"partial_rotary_factor\":0.25"
#define SHARED                                                                                               \
    ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":256,"                            \
    "\"shared_expert_intermediate_size\":256"

static const char *const families[] = {
    COMMON("llama") GQA,
    COMMON("qwen2") GQA ",\"tie_word_embeddings\":true",
    COMMON("qwen3") GQA,
    COMMON("qwen3_moe") GQA ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":256,"
                            "\"norm_topk_prob\":true",
    COMMON("deepseek_v2") LATENT "\"topk_method\":\"greedy\"",
    COMMON("deepseek_v3") LATENT "\"norm_topk_prob\":true,\"n_group\":4,\"topk_group\":2,"
                                 "\"num_nextn_predict_layers\":0",
    COMMON("smollm3") GQA ",\"no_rope_layers\":[1,1]",
    COMMON("granite") GQA ",\"attention_multiplier\":0.25,\"embedding_multiplier\":2,"
                          "\"residual_multiplier\":0.5,\"logits_scaling\":4,\"attention_bias\":true",
    COMMON("glm4_moe") GQA ",\"attention_bias\":true,\"use_qk_norm\":true,\"n_routed_experts\":4,"
                           "\"num_experts_per_tok\":2,\"moe_intermediate_size\":256,\"n_shared_experts\":1,"
                           "\"first_k_dense_replace\":1,\"routed_scaling_factor\":1.5,"
                           "\"num_nextn_predict_layers\":0",
    COMMON("gpt_oss") GQA ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":6,"
                          "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"truncate\":false,"
                          "\"original_max_position_embeddings\":16}",
    COMMON("gemma2") GQA ",\"sliding_window\":6,\"query_pre_attn_scalar\":64,\"attn_logit_softcapping\":0.5,"
                         "\"final_logit_softcapping\":1.5",
    COMMON("gemma3_text") GQA
    ",\"sliding_window\":6,\"sliding_window_pattern\":2,\"query_pre_attn_scalar\":64,"
    "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}",
    COMMON("olmo3") GQA ",\"sliding_window\":6,\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
                        "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
                        "\"original_max_position_embeddings\":16}",
    COMMON("phi3") "\"num_key_value_heads\":2,\"partial_rotary_factor\":0.125,\"sliding_window\":null,"
                   "\"original_max_position_embeddings\":16,\"rope_scaling\":{\"type\":\"longrope\","
                   "\"short_factor\":[1,1.5,2,2.5],\"long_factor\":[2,3,4,5]}",
    COMMON("ministral3") GQA ",\"sliding_window\":null,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
                             "\"original_max_position_embeddings\":16,\"mscale\":1,\"mscale_all_dim\":1,"
                             "\"llama_4_scaling_beta\":0.125}",
    COMMON("minimax_m2") GQA ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"rotary_dim\":32,"
                             "\"use_qk_norm\":true",
    COMMON("qwen3_next") GQA LINEAR SHARED ",\"linear_num_value_heads\":6,\"linear_value_head_dim\":128",
    COMMON("qwen3_5_text") GQA LINEAR ",\"linear_num_value_heads\":4,\"linear_value_head_dim\":64,"
                                      "\"tie_word_embeddings\":true",
    COMMON("qwen3_5_moe_text") GQA LINEAR SHARED
    ",\"linear_num_value_heads\":6,\"linear_value_head_dim\":128",
};
enum {
    FAMILIES = sizeof families / sizeof *families,
    LLAMA = 0,
    LATENT_ONE = 5,
    SPLIT_ONE = FAMILIES - 3, /* one of its projections lies in two tensors */
    WOVEN_ONE = FAMILIES - 1, /* its value heads lie in another order */
};

struct world {
    struct temp_dir plain, dir;
    char path[128], folder_out[128], file_out[128], adapter[128];
    struct config as_folder, as_file;
};

static void world_open(struct world *w, const char *family, struct gguf_how how)
{
    struct err err;
    char json[1800];
    *w = (struct world){.plain = temp_dir_new(), .dir = temp_dir_new()};
    snprintf(json, sizeof json, "%s}", family);
    write_file(w->plain.path, "config.json", json);
    must(config_read(&w->as_folder, w->plain.path, &err), &err);
    model_write(w->plain.path, &w->as_folder);
    snprintf(w->path, sizeof w->path, how.split ? "%s/model" : "%s/model.gguf", w->dir.path);
    gguf_convert(w->plain.path, w->path, &w->as_folder, how);
    if (how.split)
        strcat(w->path, "-00001-of-00002.gguf");
    must(config_read(&w->as_file, w->path, &err), &err);
    snprintf(w->folder_out, sizeof w->folder_out, "%s/folder", w->dir.path);
    snprintf(w->file_out, sizeof w->file_out, "%s/file", w->dir.path);
    snprintf(w->adapter, sizeof w->adapter, "%s/adapter", w->dir.path);
}

static void world_close(struct world *w)
{
    temp_dir_free(&w->plain);
    temp_dir_free(&w->dir);
}

/* --- the same numbers ------------------------------------------------------------------------- */

static float *logits_of(const char *model, const struct config *c, size_t stages)
{
    struct tune none = {.end_layer = c->layers};
    struct tiny_batch b;
    struct chain chain;
    tiny_batch_init(&b, c, 5);
    struct chain_spec spec =
        tiny_chain(model, c, &none, (struct chain_cut){stages, {stages == 1 ? 2 : 1, 2}});
    spec.training = false;
    spec.kv = true;
    chain_open(&chain, &spec);
    float *all = malloc(TINY_TOKENS * c->vocab * sizeof *all);
    for (size_t t = 0; t < TINY_TOKENS; t++)
        memcpy(all + t * c->vocab, chain_decode(&chain, b.ids + t, 1, t), c->vocab * sizeof *all);
    chain_close(&chain);
    return all;
}

static double loss_of(const char *model, const struct config *c)
{
    struct tune none = {.end_layer = c->layers};
    struct tiny_batch b;
    struct chain chain;
    tiny_batch_init(&b, c, 5);
    struct chain_spec spec = tiny_chain(model, c, &none, (struct chain_cut){1, {2}});
    spec.training = false;
    chain_open(&chain, &spec);
    const double loss = chain_forward(&chain, 0, &b.mb, 0, NULL);
    chain_close(&chain);
    return loss;
}

static void check_alike(const char *family, struct gguf_how how)
{
    struct world w;
    world_open(&w, family, how);
    const size_t n = TINY_TOKENS * w.as_folder.vocab;
    float *want = logits_of(w.plain.path, &w.as_folder, 1), *got = logits_of(w.path, &w.as_file, 1),
          *two = logits_of(w.path, &w.as_file, 2);
    assert_same_bits(two, got, n, family);
    if (how.block)
        assert_near(got, want, n, 1e-4, family);
    else
        assert_same_bits(got, want, n, family);
    assert_true(near_max(want, w.as_folder.vocab) > 0.01);
    free(want);
    free(got);
    free(two);
    const double is = loss_of(w.path, &w.as_file), expected = loss_of(w.plain.path, &w.as_folder);
    if (!(fabs(is - expected) <= 1e-5 * expected))
        fail_msg("%s: the loss is %.9g, not %.9g", family, is, expected);
    world_close(&w);
}

static void families_are_those_of_folders(void **state)
{
    (void)state;
    for (size_t i = 0; i < FAMILIES; i++) {
        check_alike(families[i], (struct gguf_how){.block = BLOCK_NONE});
        check_alike(families[i], (struct gguf_how){.block = BLOCK_Q6_K});
    }
}

static void types_are_those_of_floats(void **state)
{
    (void)state;
    for (enum block_type type = 1; type < BLOCK_COUNT; type++)
        check_alike(families[LLAMA], (struct gguf_how){.block = type});
}

static void odd_forms_are_too(void **state)
{
    (void)state;
    check_alike(families[LATENT_ONE], (struct gguf_how){.block = BLOCK_Q8_0, .kv_b_parts = true});
    check_alike(families[LLAMA], (struct gguf_how){.block = BLOCK_Q4_K, .split = true});
    check_alike(families[SPLIT_ONE],
                (struct gguf_how){.block = BLOCK_Q4_K, .rest = BLOCK_Q8_0, .split = true});
    check_alike(families[WOVEN_ONE], (struct gguf_how){.block = BLOCK_Q4_K});
}

/* --- memory ----------------------------------------------------------------------------------- */

/* What a plan counts for the weights is what the file has of matrices. */
static void check_counted(const char *family, struct gguf_how how)
{
    struct world w;
    struct err err;
    struct st *st;
    struct stage_bytes bytes;
    size_t matrices = 0;
    world_open(&w, family, how);
    const struct stage_spec spec = tiny_whole(w.path, &w.as_file, 4);
    must(st_open_dir(&st, w.path, NULL, NULL, &err), &err);
    for (size_t i = 0; i < st_count(st); i++)
        matrices += st_at(st, i)->ndim == 2 ? st_at(st, i)->bytes : 0; /* taps of three become vectors */
    st_close(st);
    must(stage_measure(&bytes, &spec, &err), &err);
    assert_int_equal(bytes.mapped, matrices);
    world_close(&w);
}

static void plans_count_what_is_stored(void **state)
{
    (void)state;
    check_counted(families[3], (struct gguf_how){.block = BLOCK_Q4_K});
    check_counted(families[SPLIT_ONE], (struct gguf_how){.block = BLOCK_Q4_K, .rest = BLOCK_Q8_0});
    check_counted(families[WOVEN_ONE], (struct gguf_how){.block = BLOCK_Q4_K});
}

/* --- adapters --------------------------------------------------------------------------------- */

/* eps: a gradient of nearly nothing, whose sign rounding decides, makes no step. */
static const struct adamw opt = {.lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-3f};

/* Some steps of LoRA on all linears. */
static struct tiny_trained train(const char *model, const struct config *c)
{
    struct tune lora = {.kind = TUNE_LORA, .rank = 4, .alpha = 8, .end_layer = c->layers, .seed = 7};
    struct err err;
    must(tune_targets(&lora, family_find(c->family), c, "all-linear", &err), &err);
    const struct chain_spec spec = tiny_chain(model, c, &lora, (struct chain_cut){2, {1, 2}});
    return tiny_train(&spec, &opt, 3, false);
}

/* Rows of q and k lie in another order: what is trained on them must not. */
static void adapters_are_those_of_folders(void **state)
{
    (void)state;
    static const struct {
        size_t family;
        struct gguf_how how;
    } files[] = {{LLAMA, {.block = BLOCK_NONE}},     {LLAMA, {.block = BLOCK_Q8_0}},
                 {LLAMA, {.block = BLOCK_Q4_K}},     {SPLIT_ONE, {.block = BLOCK_Q4_K, .rest = BLOCK_Q6_K}},
                 {WOVEN_ONE, {.block = BLOCK_Q4_K}}, {WOVEN_ONE, {.block = BLOCK_Q5_0}}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct world w;
        world_open(&w, families[files[i].family], files[i].how);
        const struct tiny_trained got = train(w.path, &w.as_file), want = train(w.plain.path, &w.as_folder);
        assert_int_equal(got.n, want.n);
        assert_near(got.values, want.values, want.n, 1e-4, "values of adapters");
        free(got.values);
        free(want.values);
        world_close(&w);
    }
}

/* PEFT's files, with factors on the q_proj of each layer that has one. */
static void write_adapter(const char *dir, const struct config *c)
{
    enum { RANK = 2 };
    const size_t rows = c->heads * c->head * (c->attn_gate ? 2 : 1),
                 first = config_layers_have(&c->linear, 0) ? 1 : 0, n = 2 * (c->layers - first);
    struct st_out_tensor list[4];
    char names[4][128], path[256];
    float x[RANK * 512];
    struct st_writer *out;
    struct err err;
    mkdir(dir, 0755);
    write_file(dir, "adapter_config.json",
               "{\"peft_type\":\"LORA\",\"task_type\":\"CAUSAL_LM\",\"r\":2,\"lora_alpha\":4,"
               "\"target_modules\":[\"q_proj\"]}");
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i],
                 "base_model.model.model.layers.%zu.self_attn.q_proj.lora_%s.weight", first + i / 2,
                 i % 2 ? "B" : "A");
        list[i] = (struct st_out_tensor){.name = names[i],
                                         .dtype = DTYPE_F32,
                                         .ndim = 2,
                                         .shape = {i % 2 ? rows : RANK, i % 2 ? RANK : c->dim}};
    }
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    must(st_writer_open(&out, path, list, n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < RANK * 512; k++)
            x[k] = (float)((k * 31 + i * 7) % 19) / 100 - 0.09f;
        must(st_writer_put(out, names[i], x, RANK * (i % 2 ? rows : c->dim), &err), &err);
    }
    must(st_writer_finish(out, &err), &err);
}

static void check_merged(const char *family, struct gguf_how how)
{
    struct world w;
    struct st *got, *want;
    struct rewrite_result done;
    struct config c;
    struct err err;
    world_open(&w, family, how);
    write_adapter(w.adapter, &w.as_folder);
    const struct merge_request file = {w.path, w.adapter, w.file_out, DTYPE_F32, NULL, NULL},
                               folder = {w.plain.path, w.adapter, w.folder_out, DTYPE_F32, NULL, NULL};
    must(merge_run(&folder, &done, &err), &err);
    must(merge_run(&file, &done, &err), &err);
    assert_int_equal(done.changed, w.as_folder.delta.key_heads ? 1 : 2);
    must(st_open_dir(&got, w.file_out, NULL, NULL, &err), &err);
    must(st_open_dir(&want, w.folder_out, NULL, NULL, &err), &err);
    assert_int_equal(st_count(got), st_count(want));
    for (size_t i = 0; i < st_count(want); i++) {
        const struct st_tensor *a = st_at(got, i), *b = st_at(want, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->bytes, b->bytes);
        if (memcmp(a->data, b->data, a->bytes) != 0)
            fail_msg("%s: %s has other values", family, a->name);
    }
    st_close(got);
    st_close(want);
    must(config_read(&c, w.file_out, &err), &err);
    assert_false(c.mixed);
    world_close(&w);
}

/* The folder that is written is one of Hugging Face's, with its rows and experts. */
static void merged_models_are_those_of_folders(void **state)
{
    (void)state;
    check_merged(families[LLAMA], (struct gguf_how){.block = BLOCK_Q5_K});
    check_merged(families[3], (struct gguf_how){.block = BLOCK_Q8_0});
    check_merged(families[SPLIT_ONE], (struct gguf_how){.block = BLOCK_Q8_0, .rest = BLOCK_Q4_K});
    check_merged(families[WOVEN_ONE], (struct gguf_how){.block = BLOCK_Q5_K});
}

/* --- quantized again -------------------------------------------------------------------------- */

/* --weights int4 of blocks is what it is of the numbers that they stand for. */
static void check_quantized(const char *family, struct gguf_how how)
{
    struct world w;
    struct tiny_batch b;
    world_open(&w, family, how);
    tiny_batch_init(&b, &w.as_folder, 5);
    float logits[2][41];
    for (size_t i = 0; i < 2; i++) {
        const struct config *c = i ? &w.as_file : &w.as_folder;
        struct tune none = {.end_layer = 2};
        struct chain chain;
        struct chain_spec spec = tiny_chain(i ? w.path : w.plain.path, c, &none, (struct chain_cut){1, {2}});
        spec.training = false;
        spec.kv = true;
        spec.weight_bits = 4;
        spec.cache_dir = w.dir.path;
        chain_open(&chain, &spec);
        memcpy(logits[i], chain_decode(&chain, b.ids, 4, 0), sizeof logits[i]);
        chain_close(&chain);
    }
    assert_same_bits(logits[1], logits[0], 41, "int4 of blocks");
    world_close(&w);
}

static void weights_are_quantized_again(void **state)
{
    (void)state;
    check_quantized(families[LLAMA], (struct gguf_how){.block = BLOCK_Q6_K});
    check_quantized(families[SPLIT_ONE], (struct gguf_how){.block = BLOCK_Q6_K, .rest = BLOCK_Q5_K});
    check_quantized(families[WOVEN_ONE], (struct gguf_how){.block = BLOCK_Q6_K});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_those_of_folders),
        cmocka_unit_test(types_are_those_of_floats),
        cmocka_unit_test(odd_forms_are_too),
        cmocka_unit_test(plans_count_what_is_stored),
        cmocka_unit_test(adapters_are_those_of_folders),
        cmocka_unit_test(merged_models_are_those_of_folders),
        cmocka_unit_test(weights_are_quantized_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
