/* SPDX-License-Identifier: MIT
 *
 * A model with an indexer beside the same model without: as long as a query may see all keys they
 * have the same bits, and then others; in training, in chunks of a prompt, and token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "num/rng.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

enum { TOP = 70, LONG = 150, SHORT = 33, TOKENS = LONG + SHORT, VOCAB = 41 };

/* A folder with the model; `of`: its family and the keys of its own. */
static struct config model_of(const struct temp_dir *dir, const char *of)
{
    struct config c;
    struct err err;
    char json[1200];
    snprintf(json, sizeof json,
             "{%s,\"num_hidden_layers\":2,\"vocab_size\":%d,\"hidden_size\":20,\"intermediate_size\":28,"
             "\"num_attention_heads\":4,\"kv_lora_rank\":10,\"q_lora_rank\":7,\"qk_nope_head_dim\":6,"
             "\"qk_rope_head_dim\":4,\"v_head_dim\":5,\"n_routed_experts\":8,\"num_experts_per_tok\":3,"
             "\"moe_intermediate_size\":9,\"first_k_dense_replace\":1,\"max_position_embeddings\":256,"
             "\"torch_dtype\":\"float32\"}",
             of, VOCAB);
    write_file(dir->path, "config.json", json);
    must(config_read(&c, dir->path, &err), &err);
    model_write(dir->path, &c);
    return c;
}

struct outcome {
    float logprob[TOKENS], grad[TOKENS]; /* of two sequences; of the input, a number for each token */
    float chunks[LONG / 30][VOCAB], tokens[LONG][VOCAB];
};

static struct chain_spec spec_of(const struct temp_dir *dir, const struct config *c)
{
    return (struct chain_spec){.model_dir = dir->path,
                               .config = *c,
                               .tune = {.end_layer = c->layers},
                               .cut = {1, {c->layers}},
                               .slots = 1,
                               .tokens = TOKENS,
                               .seqs = 2,
                               .positions = LONG};
}

static void train(struct outcome *o, const struct temp_dir *dir, const struct config *c, const uint32_t *ids)
{
    static const uint32_t start[] = {0, LONG, TOKENS};
    struct chain_spec spec = spec_of(dir, c);
    struct chain chain;
    int32_t labels[TOKENS];
    for (size_t t = 0; t < TOKENS; t++)
        labels[t] = (int32_t)ids[t];
    spec.tune = (struct tune){.kind = TUNE_FULL, .end_layer = c->layers};
    spec.training = true;
    spec.cut = (struct chain_cut){2, {0, c->layers}};
    chain_open(&chain, &spec);
    const struct microbatch mb = {.seqs = {2, start}, .ids = ids, .labels = labels};
    chain_forward(&chain, 0, &mb, 1, o->logprob);
    chain_backward(&chain, 0);
    for (size_t t = 0; t < TOKENS; t++)
        o->grad[t] = chain.grad[1][t * c->dim];
    chain_close(&chain);
}

static void generate(struct outcome *o, const struct temp_dir *dir, const struct config *c,
                     const uint32_t *ids)
{
    struct chain_spec spec = spec_of(dir, c);
    struct chain chain;
    spec.kv = true;
    chain_open(&chain, &spec);
    for (size_t i = 0; i < LONG / 30; i++)
        memcpy(o->chunks[i], chain_decode(&chain, ids + 30 * i, 30, 30 * i), sizeof o->chunks[i]);
    for (size_t t = 0; t < LONG; t++)
        memcpy(o->tokens[t], chain_decode(&chain, ids + t, 1, t), sizeof o->tokens[t]);
    chain_close(&chain);
}

static void check(const char *what, size_t position, const float *a, const float *b, size_t n, bool want)
{
    if (!memcmp(a, b, n * sizeof *a) != want)
        fail_msg("%s of position %zu: %s bits", what, position, want ? "other" : "the same");
}

static void short_texts_see_all(void **state)
{
    (void)state;
    static struct outcome with, without;
    const struct temp_dir dirs[] = {temp_dir_new(), temp_dir_new()};
    const struct config sparse = model_of(&dirs[0], "\"model_type\":\"deepseek_v32\",\"index_n_heads\":3,"
                                                    "\"index_head_dim\":6,\"index_topk\":70"),
                        dense = model_of(&dirs[1], "\"model_type\":\"deepseek_v3\"");
    struct rng rng = rng_for(1, "ids");
    uint32_t ids[TOKENS];
    assert_int_equal(sparse.mla.index_top, TOP);
    for (size_t t = 0; t < TOKENS; t++)
        ids[t] = (uint32_t)rng_below(&rng, VOCAB);
    train(&with, &dirs[0], &sparse, ids);
    train(&without, &dirs[1], &dense, ids);
    generate(&with, &dirs[0], &sparse, ids);
    generate(&without, &dirs[1], &dense, ids);
    for (size_t t = 0; t < TOKENS; t++) {
        check("log-probability", t, with.logprob + t, without.logprob + t, 1, t < TOP || t >= LONG);
        check("gradient", t, with.grad + t, without.grad + t, 1, t >= LONG); /* later queries see it */
    }
    for (size_t t = 0; t < LONG; t++)
        check("logits", t, with.tokens[t], without.tokens[t], VOCAB, t < TOP);
    for (size_t i = 0; i < LONG / 30; i++) /* the last of a chunk */
        check("logits of a chunk", 30 * i, with.chunks[i], without.chunks[i], VOCAB, 30 * (i + 1) <= TOP);
    temp_dir_free(&dirs[0]);
    temp_dir_free(&dirs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_texts_see_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
