/* SPDX-License-Identifier: MIT
 *
 * config.json: old and new spelling, defaults, refusals by name, rotary frequencies and the
 * fingerprint. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "file/config.h"
#include "file/input.h"

#define SMALL                                                                                                \
    "\"model_type\":\"llama\",\"hidden_size\":48,\"intermediate_size\":128,\"num_hidden_layers\":3,"         \
    "\"num_attention_heads\":6,\"vocab_size\":256"

static int parse(struct config *c, const char *json, struct err *err)
{
    return config_parse(c, json, strlen(json), err);
}

static void test_defaults(void **state)
{
    (void)state;
    struct config c;
    struct err err = {""};
    if (parse(&c, "{" SMALL "}", &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(c.family, "llama");
    assert_int_equal(c.layers, 3);
    assert_int_equal(c.dim, 48);
    assert_int_equal(c.ffn, 128);
    assert_int_equal(c.heads, 6);
    assert_int_equal(c.kv_heads, 6);
    assert_int_equal(c.head, 8);
    assert_int_equal(c.vocab, 256);
    assert_int_equal(c.max_positions, 2048);
    assert_true(c.norm_eps == 1e-6f && c.init_std == 0.02f);
    assert_false(c.tied || c.attn_bias || c.mlp_bias);
    assert_int_equal(c.dtype, DTYPE_F32);
    assert_int_equal(c.rope, ROPE_DEFAULT);
    assert_true(c.rope_theta == 10000 && c.rope_factor == 1);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.neos, 1);
    assert_int_equal(c.eos[0], 2);
}

static void test_values(void **state)
{
    (void)state;
    struct config c;
    assert_int_equal(
        parse(&c,
              "{" SMALL ",\"architectures\":[\"LlamaForCausalLM\"],\"head_dim\":10,\"num_key_value_heads\":2,"
              "\"torch_dtype\":\"bfloat16\",\"tie_word_embeddings\":true,\"attention_bias\":true,"
              "\"mlp_bias\":true,\"rms_norm_eps\":1e-5,\"bos_token_id\":null,\"eos_token_id\":[7,9],"
              "\"rope_theta\":500000,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
              NULL),
        0);
    assert_int_equal(c.head, 10);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.dtype, DTYPE_BF16);
    assert_true(c.tied && c.attn_bias && c.mlp_bias);
    assert_int_equal(c.bos, -1);
    assert_int_equal(c.neos, 2);
    assert_int_equal(c.eos[0], 7);
    assert_int_equal(c.eos[1], 9);
    assert_int_equal(c.rope, ROPE_LINEAR);
    assert_true(c.rope_theta == 500000 && c.rope_factor == 4);
    assert_int_equal(parse(&c, "{" SMALL ",\"eos_token_id\":null}", NULL), 0);
    assert_int_equal(c.neos, 0);
}

static void refuse(const char *json, int code, const char *part)
{
    struct config c, before;
    struct err err = {""};
    memset(&c, 0x77, sizeof c);
    memset(&before, 0x77, sizeof before);
    if (parse(&c, json, &err) != code || !strstr(err.text, part))
        fail_msg("%s: \"%s\" does not say \"%s\"", json, err.text, part);
    assert_memory_equal(&c, &before, sizeof c);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\"hidden_act\":\"gelu\"", "hidden_act \"gelu\""},
        {"\"num_key_value_heads\":4", "num_attention_heads 6 is not a multiple of num_key_value_heads 4"},
        {"\"num_key_value_heads\":0", "num_key_value_heads is 0"},
        {"\"head_dim\":7", "head_dim 7 is odd"},
        {"\"head_dim\":\"8\"", "head_dim must be a whole number"},
        {"\"rope_scaling\":{\"rope_type\":\"yarn\"}", "factor is missing"},
        {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":1,\"beta_slow\":2}",
         "beta_fast 1 must not be below beta_slow 2"},
        {"\"rope_scaling\":{\"rope_type\":\"dynamic\"}", "rope type \"dynamic\""},
        {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}", "rope type \"dynamic\""},
        {"\"rope_scaling\":{\"type\":\"linear\"}", "factor is missing"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}", "factor is 0"},
        {"\"rope_scaling\":7", "rope_scaling must be an object"},
        {"\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}", "rope_parameters differ"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":"
         "1,"
         "\"original_max_position_embeddings\":32}",
         "high_freq_factor 1 must be above low_freq_factor 4"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":"
         "4}",
         "original_max_position_embeddings is missing"},
        {"\"partial_rotary_factor\":0.5", "partial_rotary_factor"},
        {"\"rope_theta\":-1", "rope_theta is -1"},
        {"\"torch_dtype\":\"float64\"", "dtype \"float64\""},
        {"\"architectures\":[\"LlamaForSequenceClassification\"]", "LlamaForSequenceClassification"},
        {"\"quantization_config\":{\"bits\":4}", "quantization_config"},
        {"\"attention_dropout\":0.1", "attention_dropout"},
        {"\"tie_word_embeddings\":1", "tie_word_embeddings must be true or false"},
        {"\"eos_token_id\":256", "eos_token_id must be a token id below vocab_size"},
        {"\"eos_token_id\":[1,\"x\"]", "eos_token_id"},
        {"\"eos_token_id\":[1,2,3,4,5,6,7,8,9]", "lists 9 ids, at most 8"},
        {"\"bos_token_id\":-1", "bos_token_id"},
        {"\"max_position_embeddings\":4294967296000", "max_position_embeddings is 4294967296000"},
        {"\"rms_norm_eps\":\"small\"", "rms_norm_eps must be a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[1024];
        snprintf(json, sizeof json, "{" SMALL ",%s}", cases[i][0]);
        refuse(json, -ENOTSUP, cases[i][1]);
    }
    refuse("{\"model_type\":\"gpt2\"}", -ENOTSUP, "family \"gpt2\" is not supported (known: llama, mistral");
    refuse("{}", -ENOTSUP, "model_type is missing");
    refuse("[]", -EBADMSG, "no JSON object");
    refuse("{\"a\":1,\"a\":2}", -EBADMSG, "duplicate");
    refuse("{\"a\":1,\n", -EBADMSG, "line 2");
    refuse("{\"model_type\":\"llama\",\"num_hidden_layers\":1e3}", -ENOTSUP,
           "num_hidden_layers must be a whole number");
    refuse("{\"model_type\":\"a\\u001b[31m\"}", -ENOTSUP, "\"a?[31m\"");
}

/* What no tile of attention could hold. */
static void test_heads_too_large(void **state)
{
    (void)state;
    struct config c;
    struct err err = {""};
#define MODEL "{\"model_type\":\"llama\",\"intermediate_size\":8,\"num_hidden_layers\":1,\"vocab_size\":9,"
    assert_int_equal(parse(&c, MODEL "\"hidden_size\":4096,\"num_attention_heads\":2}", &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "hidden_size / num_attention_heads is 2048, allowed are up to 1024"));
    assert_int_equal(
        parse(&c, MODEL "\"hidden_size\":1024,\"num_attention_heads\":128,\"num_key_value_heads\":1}", &err),
        -ENOTSUP);
    assert_non_null(
        strstr(err.text, "num_attention_heads is 128 times num_key_value_heads, allowed are up to 64"));
#undef MODEL
}

/* One reading names everything that is wrong, or says how much more there is. */
static void test_all_at_once(void **state)
{
    (void)state;
    struct config c;
    struct err err = {""};
    assert_int_equal(
        parse(&c, "{\"model_type\":\"llama\",\"hidden_size\":50,\"num_attention_heads\":6}", &err), -ENOTSUP);
    assert_non_null(strstr(
        err.text, "num_hidden_layers is missing; intermediate_size is missing; vocab_size is missing"));
    assert_non_null(strstr(err.text, "; hidden_size 50 is not a multiple of num_attention_heads 6"));
    assert_int_equal(
        parse(
            &c,
            "{\"model_type\":\"llama\",\"hidden_size\":99999999999,\"intermediate_size\":99999999999,"
            "\"vocab_size\":99999999999,\"num_hidden_layers\":99999999999,\"head_dim\":99999999999,"
            "\"num_attention_heads\":99999999999,\"rms_norm_eps\":7,\"hidden_act\":\"relu\",\"rope_theta\":0,"
            "\"num_key_value_heads\":99999999999,\"initializer_range\":-1,\"dtype\":\"int8\"}",
            &err),
        -ENOTSUP);
    assert_non_null(strstr(err.text, "; and "));
    assert_non_null(strstr(err.text, " more"));
}

/* --- rotary frequencies ----------------------------------------------------------------------- */

static void check_freq(const char *json, const double *want, size_t n)
{
    struct config c;
    double got[32];
    assert_int_equal(parse(&c, json, NULL), 0);
    assert_int_equal(c.head / 2, n);
    config_inv_freq(&c, got);
    for (size_t i = 0; i < n; i++) {
        if (fabs(got[i] - want[i]) > 1e-14 * want[i])
            fail_msg("inv_freq %zu: %.17g instead of %.17g", i, got[i], want[i]);
    }
}

static void test_inv_freq(void **state)
{
    (void)state;
    check_freq("{" SMALL "}", (double[]){1, 0.1, 0.01, 0.001}, 4);
    check_freq("{" SMALL ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}",
               (double[]){0.25, 0.025, 0.0025, 0.00025}, 4);
    /* original 64, factors 1 and 4: waves shorter than 16 stay, longer than 64 are stretched by 8.
     * Base 10000 has wavelengths 6.28, 62.8, 628, 6283: the second lies between, at 64/62.83 =
     * 1.01859 turns, so 0.0061972 of it stays. */
    double turns = 64 * 0.1 / (2 * M_PI), keep = (turns - 1) / 3;
    check_freq("{" SMALL ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
               "\"high_freq_factor\":4,\"original_max_position_embeddings\":64}}",
               (double[]){1, (1 - keep) * 0.0125 + keep * 0.1, 0.00125, 0.000125}, 4);
}

/* --- real files ------------------------------------------------------------------------------- */

static int read_file(struct config *c, const char *path, struct err *err)
{
    char *json;
    size_t n;
    assert_int_equal(input_read(path, 1 << 20, &json, &n, err), 0);
    int r = config_parse(c, json, n, err);
    free(json);
    return r;
}

static void test_both_spellings(void **state)
{
    (void)state;
    static const char *const names[] = {"llama_gqa_rope3", "llama_tied_bf16", "qwen3_tied",
                                        "deepseek_v2_lite", "deepseek_v3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        struct config before, after;
        struct err err = {""};
        snprintf(path, sizeof path, "tests/data/cases/%s/model/config.json", names[i]);
        if (read_file(&before, path, &err) < 0)
            fail_msg("%s", err.text);
        snprintf(path, sizeof path, "tests/data/cases/%s/model/config.v5.json", names[i]);
        if (read_file(&after, path, &err) < 0)
            fail_msg("%s", err.text);
        assert_memory_equal(&before, &after, sizeof before);
    }
}

#define TINY(family, more)                                                                                   \
    "{\"model_type\":\"" family "\",\"hidden_size\":48,\"intermediate_size\":128,\"num_hidden_layers\":3,"   \
    "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"vocab_size\":256" more "}"
#define MLA                                                                                                  \
    ",\"kv_lora_rank\":8,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":5,\"n_routed_"         \
    "experts\":8,"                                                                                           \
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":12"

#define LATENT(heads, rank)                                                                                  \
    "{\"model_type\":\"deepseek_v3\",\"num_attention_heads\":" #heads ",\"kv_lora_rank\":" #rank             \
    ",\"qk_rope_head_dim\":4}"
#define INDEXER ",\"index_n_heads\":5,\"index_head_dim\":6,\"index_topk\":7"

static struct config must_parse(const char *json)
{
    struct config c;
    struct err err = {""};
    if (parse(&c, json, &err) < 0)
        fail_msg("%s: %s", json, err.text);
    return c;
}

static void test_families(void **state)
{
    (void)state;
    struct config c = must_parse(TINY("qwen2", ",\"sliding_window\":100,\"use_sliding_window\":false"));
    assert_true(c.attn_bias && !c.attn_out_bias && !c.qk_norm && c.bos == -1 && c.neos == 0);
    c = must_parse(TINY("mistral", ",\"sliding_window\":null"));
    assert_true(!c.attn_bias && c.head == 8 && c.kv_heads == 2);
    c = must_parse(TINY("qwen3", ""));
    assert_true(c.qk_norm && c.head == 128);
    c = must_parse(TINY("qwen3_moe",
                        ",\"num_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":20,"
                        "\"norm_topk_prob\":true"));
    assert_true(c.moe.experts == 8 && c.moe.chosen == 3 && c.moe.norm && !c.moe.sigmoid && !c.moe.shared_ffn);
    c = must_parse(
        TINY("deepseek_v2", MLA ",\"n_shared_experts\":2,\"first_k_dense_replace\":1,\"q_lora_rank\":null"));
    assert_true(c.mla.kv_rank == 8 && c.mla.q_rank == 0 && c.head == 10 && c.rope_pairs);
    assert_true(c.moe.shared_ffn == 24 && c.moe.first == 1 && c.moe.groups == 1 && !c.moe.bias);
    c = must_parse(TINY("deepseek_v3", MLA ",\"n_group\":4,\"topk_group\":2,\"q_lora_rank\":16,"
                                           "\"num_nextn_predict_layers\":1,\"quantization_config\":{"
                                           "\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}"));
    assert_true(c.moe.sigmoid && c.moe.bias && c.moe.groups == 4 && c.moe.groups_chosen == 2 && c.fp8);
    assert_int_equal(c.extra_layers, 1);
    c = must_parse(TINY("deepseek_v32", MLA INDEXER ",\"n_group\":4,\"topk_group\":2,\"q_lora_rank\":16"));
    assert_true(c.mla.index_heads == 5 && c.mla.index_head == 6 && c.mla.index_top == 7 && c.moe.sigmoid);
    c = must_parse(TINY("kimi_k2", MLA ",\"architectures\":[\"DeepseekV3ForCausalLM\"],"
                                       "\"num_nextn_predict_layers\":0"));
    assert_true(c.mla.kv_rank == 8 && c.moe.sigmoid && c.moe.bias && c.moe.groups == 1 && !c.extra_layers);
}

/* As released: no type is given, and experts are in MXFP4. */
static void test_gpt_oss(void **state)
{
    (void)state;
    struct config c = must_parse(
        TINY("gpt_oss", ",\"num_local_experts\":8,\"num_experts_per_tok\":4,\"sliding_window\":128,"
                        "\"swiglu_limit\":7.0,\"attention_bias\":true,\"hidden_act\":\"silu\","
                        "\"quantization_config\":{\"quant_method\":\"mxfp4\"}"));
    assert_true(c.sinks && c.attn_bias && c.attn_out_bias && c.mlp_bias && c.experts_fp4 && !c.quant_bits);
    assert_true(c.glu.kind == GLU_CLAMPED && c.glu.limit > 6.9f && c.dtype == DTYPE_BF16 && !c.tied);
    assert_true(c.moe.experts == 8 && c.moe.norm && !c.moe.sigmoid && c.moe.ffn == c.ffn);
    assert_true(config_layer(&c, 0).window == 128 && config_layer(&c, 1).window == 0);
}

/* What single layers have of their own. */
static void test_layers(void **state)
{
    (void)state;
    struct config c = must_parse(TINY("mistral", ""));
    assert_true(config_layer(&c, 0).window == 4096 && config_layer(&c, 1).window == 4096);
    c = must_parse(TINY("mistral", ",\"sliding_window\":64,\"max_position_embeddings\":64"));
    assert_int_equal(config_layer(&c, 0).window, 0); /* it hides nothing */
    c = must_parse(
        TINY("qwen2", ",\"use_sliding_window\":true,\"sliding_window\":64,\"max_window_layers\":1"));
    assert_true(config_layer(&c, 0).window == 0 && config_layer(&c, 1).window == 64);
    c = must_parse(TINY("gemma3_text", ",\"sliding_window_pattern\":2,\"sliding_window\":8"));
    assert_true(config_layer(&c, 0).window == 8 && config_layer(&c, 1).window == 0);
    assert_true(c.tied && c.norm_plus_one && c.norms == NORMS_AROUND && c.rope_window_theta == 10000);
    c = must_parse(TINY("gemma2", ",\"sliding_window\":8,\"final_logit_softcapping\":null"));
    assert_true(config_layer(&c, 0).window == 8 && config_layer(&c, 1).window == 0 && c.tied);
    assert_true(c.attn_softcap == 50 && c.logit_softcap == 0 && c.norms == NORMS_AROUND && !c.qk_norm);
    c = must_parse(TINY("smollm3", ",\"no_rope_layers\":[1,0,1]"));
    assert_true(config_layer(&c, 0).is_rotated && !config_layer(&c, 1).is_rotated && c.tied);
    c = must_parse(TINY("olmo3", ",\"sliding_window\":8,\"layer_types\":[\"sliding_attention\",\"full_"
                                 "attention\",\"full_attention\"]"));
    assert_true(config_layer(&c, 0).window == 8 && config_layer(&c, 1).window == 0);
    assert_true(c.qk_norm_whole && c.norms == NORMS_AFTER && c.rope_window_theta == 0);
    c = must_parse(TINY("qwen3_5_text", ",\"partial_rotary_factor\":0.5,\"full_attention_interval\":2"));
    assert_true(config_layer(&c, 0).is_linear && !config_layer(&c, 1).is_linear && c.attn_gate);
    assert_true(config_has_state(&c, 0, 2) && !config_has_state(&c, 1, 2) && !c.delta.fused);
    assert_true(c.delta.key_heads == 16 && c.delta.value_heads == 32 && c.delta.taps == 4);
}

/* One of two lists of factors, by the length of the text. */
static void test_longrope(void **state)
{
    (void)state;
    struct config c =
        must_parse(TINY("phi3", ",\"original_max_position_embeddings\":16,"
                                "\"max_position_embeddings\":256,\"rope_scaling\":{\"type\":\"su\","
                                "\"short_factor\":[1,2,3,4],\"long_factor\":[5,6,7,8]}"));
    double brief[4], longer[4];
    config_inv_freq(&c, brief);
    config_inv_freq_long(&c, longer);
    assert_true(!config_is_long(&c, 16) && config_is_long(&c, 17) && c.fused);
    for (size_t i = 0; i < 4; i++)
        assert_true(fabs(brief[i] / longer[i] - (double)(i + 5) / (double)(i + 1)) < 1e-12);
    assert_true(fabs(config_rope_scale(&c) - sqrt(2)) < 1e-12); /* √(1 + ln 16 / ln 16) */
    assert_true(config_rope_floats(&c, 16) == 16 * 8 && config_rope_floats(&c, 17) == (16 + 17) * 8);
}

static void test_family_refusals(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {TINY("deepseek_v2", MLA ",\"first_k_dense_replace\":\"1\""),
         "first_k_dense_replace must be a number of layers"},
        {TINY("gemma2", ",\"attn_logit_softcapping\":0"), "attn_logit_softcapping"},
        {TINY("gemma3_text", ",\"final_logit_softcapping\":30"), "final_logit_softcapping is not supported"},
        {TINY("gemma3_text", ",\"layer_types\":[\"sliding_attention\"]"), "each of the 3 layers"},
        {TINY("olmo3", ",\"layer_types\":[\"full_attention\",\"linear_attention\",\"full_attention\"]"),
         "\"linear_attention\""},
        {TINY("phi3",
              ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1],\"long_factor\":[1]}"),
         "long_factor must be a list of 4 factors"},
        {TINY("glm4_moe", ",\"partial_rotary_factor\":0.4"),
         "partial_rotary_factor 0.4 rotates 3 elements of a head of 8"},
        {TINY("gemma3_text",
              ",\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_type\":"
              "\"linear\",\"factor\":2}}"),
         "rope_parameters differ by kind of layer"},
        {TINY("qwen3_moe", ",\"num_experts\":8,\"num_experts_per_tok\":9,\"moe_intermediate_size\":20"),
         "num_experts_per_tok 9 is more than the 8 experts"},
        {TINY("deepseek_v2", MLA ",\"norm_topk_prob\":true"), "norm_topk_prob is not supported"},
        {TINY("deepseek_v2", MLA ",\"topk_method\":\"noaux_tc\""), "topk_method \"noaux_tc\""},
        {TINY("deepseek_v3", MLA ",\"n_group\":3"), "8 experts cannot form 3 groups"},
        {TINY("deepseek_v3", MLA ",\"n_group\":4,\"topk_group\":5"), "topk_group 5 of 4 groups"},
        {TINY("deepseek_v3", MLA ",\"moe_layer_freq\":2"), "moe_layer_freq"},
        {TINY("deepseek_v3", MLA ",\"attention_bias\":true"), "attention_bias"},
        {TINY("deepseek_v3", ""), "kv_lora_rank is missing"},
        {TINY("deepseek_v3", ",\"kv_lora_rank\":4097,\"qk_rope_head_dim\":4"),
         "kv_lora_rank is 4097, allowed are 1 to 4096"},
        {LATENT(129, 704), "num_attention_heads 129 share a latent of kv_lora_rank + qk_rope_head_dim 708"},
        {TINY("deepseek_v32", MLA INDEXER), "q_lora_rank is missing, and the indexer"},
        {TINY("deepseek_v32", MLA ",\"q_lora_rank\":16"), "index_topk is missing"},
        {TINY("deepseek_v32", MLA ",\"q_lora_rank\":16,\"index_n_heads\":1,\"index_head_dim\":3,"
                                  "\"index_topk\":1"),
         "index_head_dim 3 is less than qk_rope_head_dim 4"},
        {TINY("llama", ",\"quantization_config\":{\"quant_method\":\"fp8\"}"), "only fp8"},
        {TINY("llama", ",\"quantization_config\":{\"quant_method\":\"gptq\"}"), "\"gptq\" stores them"},
        {TINY("llama", ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\"}"),
         "of compressed-tensors \"config_groups\" are missing"},
        {TINY("qwen3_5_text", ",\"partial_rotary_factor\":0.5,\"linear_num_value_heads\":24"),
         "linear_num_value_heads 24 is not a multiple of linear_num_key_heads 16"},
        {TINY("qwen3_5_text", ",\"partial_rotary_factor\":0.5,\"linear_key_head_dim\":257"),
         "linear_key_head_dim"},
        {TINY("qwen3_5_text",
              ",\"partial_rotary_factor\":0.5,\"layer_types\":[\"linear_attention\",\"sliding_attention\","
              "\"full_attention\"]"),
         "layer_types: \"sliding_attention\" is not supported (full_attention and linear_attention are)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refuse(cases[i][0], -ENOTSUP, cases[i][1]);
}

static void test_directory(void **state)
{
    (void)state;
    struct config c;
    struct err err = {""};
    if (config_read(&c, "tests/data/models/llama", &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(c.kv_heads, 4);
    assert_int_equal(c.neos, 2); /* generation_config.json lists 1 and 2, config.json only 2 */
    assert_int_equal(c.eos[0], 1);
    assert_int_equal(c.eos[1], 2);
    assert_int_equal(config_read(&c, "/nonexistent", &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent has no config.json"));
}

/* --- fingerprint ------------------------------------------------------------------------------ */

static void put(const char *dir, const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put_text(const char *dir, const char *name, const char *text)
{
    put(dir, name, text, strlen(text));
}

static void test_too_large(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_config.XXXXXX", path[64];
    struct config c;
    struct err err = {""};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/config.json", dir);
    put_text(dir, "config.json", "{}");
    assert_int_equal(truncate(path, 100 << 20), 0); /* a hole */
    assert_int_equal(config_read(&c, dir, &err), -EFBIG);
    assert_non_null(strstr(err.text, "config.json has 104857600 bytes; such a file has no more than"));
    unlink(path);
    rmdir(dir);
}

static void put_shard(const char *dir, const char *name, const char *header, size_t data_bytes,
                      unsigned char fill)
{
    unsigned char all[1024];
    uint64_t n = strlen(header);
    assert_true(8 + n + data_bytes <= sizeof all);
    memset(all, fill, sizeof all);
    memcpy(all, &n, 8);
    memcpy(all + 8, header, n);
    put(dir, name, all, 8 + n + data_bytes);
}

static void fingerprint(char ret[33], const char *dir)
{
    struct err err = {""};
    memset(ret, 0, 33);
    if (config_fingerprint(ret, dir, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(strlen(ret), 32);
}

/* The same tensors with other data, in other files, under another spelling of the config: the same
 * model layout. */
static void test_fingerprint(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_config.XXXXXX", one[33], two[33], three[33];
    assert_non_null(mkdtemp(dir));
    put_text(dir, "config.json", "{" SMALL ",\"torch_dtype\":\"float16\"}");
    put_shard(dir, "model.safetensors",
              "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
              "\"y\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[4,8]}}",
              8, 1);
    fingerprint(one, dir);
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    put_text(dir, "config.json", "{\"dtype\":\"float16\",\"rope_theta\":1e4," SMALL "}");
    put_text(dir, "model.safetensors.index.json", "{\"weight_map\":{\"y\":\"a\",\"x\":\"b\"}}");
    put_shard(dir, "b", "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, 2);
    put_shard(dir, "a", "{\"y\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}  ", 4, 3);
    fingerprint(two, dir);
    assert_string_equal(one, two);
    put_shard(dir, "a", "{\"y\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}  ", 8, 3);
    fingerprint(three, dir);
    assert_string_not_equal(one, three);
    put_shard(dir, "a", "{\"y\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}  ", 4, 3);
    put_text(dir, "config.json", "{" SMALL ",\"torch_dtype\":\"float16\",\"rms_norm_eps\":1e-5}");
    fingerprint(three, dir);
    assert_string_not_equal(one, three);
    /* An index that says how much there is makes the shards unnecessary. */
    snprintf(path, sizeof path, "%s/a", dir);
    unlink(path);
    put_text(dir, "config.json", "{" SMALL ",\"torch_dtype\":\"float16\"}");
    assert_int_equal(config_fingerprint(three, dir, NULL), -ENOENT);
    put_text(dir, "model.safetensors.index.json",
             "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"y\":\"a\",\"x\":\"b\"}}");
    fingerprint(three, dir);
    assert_string_equal(one, three);
    put_shard(dir, "a", "", 0, 0);
    static const char *const names[] = {"config.json", "model.safetensors.index.json", "a", "b"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* What the rotation is scaled to counts where the config still gives the original length. */
static void test_positions(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        size_t want;
    } cases[] = {
        {TINY("llama", ",\"max_position_embeddings\":512"), 512},
        {TINY("llama",
              ",\"max_position_embeddings\":512,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"),
         2048},
        {TINY("llama",
              ",\"max_position_embeddings\":131072,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
              "\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192}"),
         131072},
        {TINY("qwen2", ",\"max_position_embeddings\":32768,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
                       "\"original_max_position_embeddings\":32768}"),
         131072},
        {TINY("qwen2",
              ",\"max_position_embeddings\":163840,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
              "\"original_max_position_embeddings\":4096}"),
         163840},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct config c = must_parse(cases[i].json);
        assert_int_equal(config_positions(&c), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_values),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_positions),      cmocka_unit_test(test_inv_freq),
        cmocka_unit_test(test_both_spellings), cmocka_unit_test(test_families),
        cmocka_unit_test(test_gpt_oss),        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_longrope),       cmocka_unit_test(test_family_refusals),
        cmocka_unit_test(test_too_large),      cmocka_unit_test(test_heads_too_large),
        cmocka_unit_test(test_directory),      cmocka_unit_test(test_fingerprint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
