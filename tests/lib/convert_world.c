/* SPDX-License-Identifier: MIT */
#include "tests/lib/convert_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/near.h"

const char *const convert_families[CONVERT_ALL] = {
    CONVERT_COMMON("qwen3") CONVERT_GQA("256", "256") ",\"tie_word_embeddings\":true",
    CONVERT_COMMON("qwen2") CONVERT_GQA("256", "256"),
    CONVERT_COMMON("qwen3_moe") CONVERT_GQA("256", "256") ",\"num_experts\":4," CONVERT_EXPERTS,
    CONVERT_COMMON(
        "deepseek_v3") "\"hidden_size\":256,\"intermediate_size\":256,\"kv_lora_rank\":256,"
                       "\"q_lora_rank\":256,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"
                       "\"v_head_dim\":64,\"n_routed_experts\":8,\"n_shared_experts\":1,"
                       "\"first_k_dense_replace\":1,\"n_group\":4,\"topk_group\":2,"
                       "\"routed_scaling_factor\":2.5,\"num_nextn_predict_layers\":0," CONVERT_EXPERTS,
    CONVERT_COMMON("gpt_oss") CONVERT_GQA("256", "256") ",\"num_local_experts\":4,\"num_experts_per_tok\":2",
};

void convert_world_open(struct convert_world *w, const char *family)
{
    struct err err;
    char json[1800];
    *w = (struct convert_world){.plain = temp_dir_new(), .dir = temp_dir_new()};
    snprintf(json, sizeof json, "%s}", family);
    write_file(w->plain.path, "config.json", json);
    must(config_read(&w->c, w->plain.path, &err), &err);
    model_write(w->plain.path, &w->c);
    snprintf(w->path, sizeof w->path, "%s/model.gguf", w->dir.path);
    snprintf(w->out, sizeof w->out, "%s/out", w->dir.path);
}

void convert_world_close(struct convert_world *w)
{
    temp_dir_free(&w->plain);
    temp_dir_free(&w->dir);
}

struct rewrite_result convert_one(const struct convert_request *req)
{
    struct err err;
    struct rewrite_result done;
    must(convert_run(req, &done, &err), &err);
    return done;
}

float *convert_logits(const struct convert_world *w, const char *model, size_t bits)
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

void convert_check_alike(const struct convert_world *w, const char *model, size_t bits, double off,
                         const char *what)
{
    const size_t n = TINY_TOKENS * w->c.vocab;
    float *want = convert_logits(w, model, bits), *got = convert_logits(w, w->out, 0);
    assert_true(near_max(want, w->c.vocab) > 0.01);
    if (off > 0)
        assert_near_max(got, want, n, off, what);
    else
        assert_same_bits(got, want, n, what);
    free(want);
    free(got);
}
