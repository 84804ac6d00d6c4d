/* SPDX-License-Identifier: MIT
 *
 * A few positions in one call of stage_decode leave the bits of one after the other: in the logits,
 * and in the caches, which all later logits show. In every family, with weights of every number of
 * bits, with an adapter, and in every number type of products. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/stage.h"
#include "tests/lib/golden.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

#define COMMON(family)                                                                                       \
    "{\"model_type\":\"" family "\",\"num_hidden_layers\":3,\"vocab_size\":41,\"rms_norm_eps\":1e-5,"        \
    "\"rope_theta\":100,\"bos_token_id\":1,\"eos_token_id\":2,\"max_position_embeddings\":64,"               \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4,"
#define GQA "\"num_key_value_heads\":2,\"head_dim\":16"

static const char *const families[] = {
    COMMON("llama") GQA,
    COMMON("qwen2") GQA ",\"tie_word_embeddings\":true",
    COMMON("qwen3_moe") GQA ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
                            "\"norm_topk_prob\":true",
    COMMON(
        "deepseek_v3") "\"kv_lora_rank\":32,\"q_lora_rank\":96,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"
                       "\"v_head_dim\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_"
                       "size\":32,"
                       "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"norm_topk_prob\":true,\"n_"
                       "group\":4,"
                       "\"topk_group\":2,\"routed_scaling_factor\":2.5,\"num_nextn_predict_layers\":0",
};
enum { FAMILIES = sizeof families / sizeof *families, PROMPT = 3, TOKENS = 27 };

struct variant {
    size_t weight_bits;
    enum num_compute compute;
    bool has_adapter;
};

static void open_chain(struct chain *c, const char *model, const char *cache, const struct config *config,
                       struct variant v)
{
    struct err err;
    struct tune tune = {.end_layer = config->layers};
    if (v.has_adapter) {
        tune =
            (struct tune){.kind = TUNE_LORA, .rank = 3, .alpha = 6, .end_layer = config->layers, .seed = 3};
        must(tune_targets(&tune, family_find(config->family), config, "all-linear", &err), &err);
    }
    struct chain_spec spec = {.model_dir = model,
                              .config = *config,
                              .tune = tune,
                              .cut = {2, {1, config->layers}},
                              .slots = 1,
                              .tokens = TOKENS,
                              .seqs = 1,
                              .positions = TOKENS,
                              .kv = true,
                              .weight_bits = v.weight_bits,
                              .cache_dir = cache};
    chain_open(c, &spec);
    num_set_compute(c->num, v.compute);
    if (!v.has_adapter)
        return;
    float *values = chain_pack(c, false); /* B is zero in a new adapter, and would hide A */
    for (size_t i = 0; i < chain_elements(c, false); i++)
        values[i] = (float)((int)(i * 7 % 13) - 6) / 64;
    chain_unpack(c, values, false);
    free(values);
}

static void check(const char *model, const char *cache, const struct config *config, struct variant v,
                  size_t at_once)
{
    struct chain one, few;
    uint32_t ids[TOKENS];
    char what[160];
    for (size_t i = 0; i < TOKENS; i++)
        ids[i] = (uint32_t)(i * 17 % config->vocab);
    open_chain(&one, model, cache, config, v);
    open_chain(&few, model, cache, config, v);
    chain_decode(&one, ids, PROMPT, 0);
    chain_decode(&few, ids, PROMPT, 0);
    for (size_t at = PROMPT, n; at < TOKENS; at += n) {
        n = at_once < TOKENS - at ? at_once : TOKENS - at;
        const float *want = NULL, *got = chain_decode(&few, ids + at, n, at);
        for (size_t i = 0; i < n; i++)
            want = chain_decode(&one, ids + at + i, 1, at + i);
        snprintf(what, sizeof what, "%s, %zu bits, compute %d, %s: logits at %zu of %zu at once",
                 config->family, v.weight_bits, (int)v.compute, v.has_adapter ? "adapter" : "no adapter",
                 at + n - 1, n);
        assert_same_bits(got, want, config->vocab, what);
    }
    chain_close(&few);
    chain_close(&one);
}

static void of_any_weights(void **state)
{
    (void)state;
    static const struct variant variants[] = {{0, NUM_F32, false}, {0, NUM_F32, true},   {0, NUM_BF16, false},
                                              {8, NUM_F32, true},  {8, NUM_INT8, false}, {4, NUM_F32, false},
                                              {4, NUM_INT8, true}};
    for (size_t f = 0; f < FAMILIES; f++) {
        struct temp_dir model = temp_dir_new(), cache = temp_dir_new();
        struct err err;
        struct config config;
        char json[1800];
        snprintf(json, sizeof json, "%s}", families[f]);
        write_file(model.path, "config.json", json);
        must(config_read(&config, model.path, &err), &err);
        model_write(model.path, &config);
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
            for (size_t at_once = 3; at_once <= STAGE_DECODE_ALIKE; at_once++)
                check(model.path, cache.path, &config, variants[v], at_once);
        temp_dir_free(&model);
        temp_dir_free(&cache);
    }
}

/* Real shapes, f32 and bf16. */
static void of_recorded_models(void **state)
{
    (void)state;
    static const char *const names[] = {"llama_gqa_rope3",  "llama_tied_bf16", "qwen3_tied",
                                        "deepseek_v2_lite", "deepseek_v3",     "qwen3_next"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct golden g;
        golden_open(&g, names[i]);
        for (size_t at_once = 3; at_once <= STAGE_DECODE_ALIKE; at_once++)
            check(g.model_dir.text, NULL, &g.config, (struct variant){0}, at_once);
        golden_close(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(of_any_weights),
                                       cmocka_unit_test(of_recorded_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
