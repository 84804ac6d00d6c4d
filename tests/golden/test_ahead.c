/* SPDX-License-Identifier: MIT
 *
 * The layer behind the last, which predicts a token more, against a plain f64 implementation: as
 * it reads a text, however that is cut, and as it goes on from its own output. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "model/stage.h"
#include "num/rng.h"
#include "tests/lib/gguf.h"
#include "tests/lib/golden.h"
#include "tests/lib/near.h"
#include "tests/lib/reference.h"
#include "tests/lib/tiny.h"

enum { TOKENS = 21, ROWS = TOKENS - 1, CUT = 13, BLOCKS = 3 };

static const uint32_t table[BLOCKS] = {2, 0, 1};

static struct stage *open_stage(struct num *num, const char *dir, const struct config *c)
{
    struct err err;
    struct stage *s;
    const struct stage_spec spec = {.model_dir = dir,
                                    .config = *c,
                                    .tune = {.end_layer = c->layers},
                                    .first_layer = c->is_ahead ? c->layers - 1 : 0,
                                    .end_layer = c->layers,
                                    .embed = true,
                                    .head = true,
                                    .slots = 1,
                                    .tokens = TOKENS,
                                    .seqs = 1,
                                    .positions = TOKENS + 1,
                                    .kv = true,
                                    .kv_blocks = BLOCKS,
                                    .logit_rows = 1};
    must(stage_open(&s, num, &spec, &err), &err);
    return s;
}

/* Rows at positions at … of a text; y, if any, is what the stage gives. */
static void run(struct stage *s, const uint32_t *ids, const float *x, float *y, size_t at, size_t n)
{
    struct err err;
    const struct stage_piece piece = {
        .blocks = table, .nblocks = BLOCKS, .at = at, .n = n, .adapter = STAGE_NO_ADAPTER};
    must(stage_rows(s, &piece, 1, ids, x, y, &err), &err);
}

static void check_logits(struct stage *s, size_t row, const double *want, size_t vocab, const char *where)
{
    struct err err;
    const uint32_t at = (uint32_t)row;
    const float *got;
    must(stage_rows_logits(s, &at, 1, &got, &err), &err);
    for (size_t i = 0; i < vocab; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-4))
            fail_msg("%s: logit %zu is %.9g, in f64 %.9g", where, i, (double)got[i], want[i]);
}

static void as_doubles(double *to, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (double)x[i];
}

/* --- tests ------------------------------------------------------------------------------------ */

#define COMMON(family)                                                                                       \
    "{\"model_type\":\"" family "\",\"num_hidden_layers\":1,\"vocab_size\":41,\"hidden_size\":20,"           \
    "\"intermediate_size\":28,\"num_attention_heads\":4,\"n_routed_experts\":8,\"num_experts_per_tok\":3,"   \
    "\"moe_intermediate_size\":9,\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"norm_topk_prob\":"     \
    "true,"                                                                                                  \
    "\"routed_scaling_factor\":1.5,\"rms_norm_eps\":1e-5,\"rope_theta\":100,\"max_position_embeddings\":64," \
    "\"num_nextn_predict_layers\":1,\"torch_dtype\":\"float32\","
static const char glm[] = COMMON("glm4_moe") "\"num_key_value_heads\":2,\"head_dim\":8}",
                  deepseek[] = COMMON("deepseek_v3") "\"kv_lora_rank\":10,\"qk_nope_head_dim\":6,"
                                                     "\"qk_rope_head_dim\":4,\"v_head_dim\":5,\"n_group\":4,"
                                                     "\"topk_group\":2,\"q_lora_rank\":7}",
                  qwen[] =
                      COMMON("qwen3_next") "\"num_key_value_heads\":2,\"head_dim\":8,\"num_experts\":8,"
                                           "\"shared_expert_intermediate_size\":7,"
                                           "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
                                           "\"linear_key_head_dim\":6,\"linear_value_head_dim\":5,"
                                           "\"partial_rotary_factor\":0.5,\"full_attention_interval\":2}";
static const char qwen35[] =
    COMMON("qwen3_5_text") "\"num_key_value_heads\":2,\"head_dim\":8,\"mtp_num_hidden_layers\":1,"
                           "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
                           "\"linear_key_head_dim\":6,\"linear_value_head_dim\":5,"
                           "\"partial_rotary_factor\":0.5,\"full_attention_interval\":2}";

static struct config make(const struct temp_dir *dir, const char *json)
{
    struct err err;
    struct config c, ahead;
    write_file(dir->path, "config.json", json);
    must(config_read(&c, dir->path, &err), &err);
    assert_true(config_ahead(&ahead, &c));
    model_write(dir->path, &ahead);
    return ahead;
}

/* Of a text whose last token was guessed. */
static void check(const char *json)
{
    struct temp_dir dir = temp_dir_new();
    const struct config c = make(&dir, json);
    const size_t dim = c.dim, vocab = c.vocab, n = TOKENS * dim;
    struct num *num;
    struct err err;
    uint32_t ids[TOKENS];
    float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    double *exact = calloc(n, sizeof *exact), *y_of[2];
    assert_true(x && y && exact);
    struct rng rng = rng_for(5, "what the model gave");
    rng_fill_normal(&rng, x, n, 0, 1);
    for (size_t i = 0; i < TOKENS; i++)
        ids[i] = (uint32_t)(i * 29 % vocab);
    must(num_new(&num, 2, &err), &err);
    struct stage *s = open_stage(num, dir.path, &c);
    as_doubles(exact, x, n);
    double *want = reference_ahead(dir.path, &c, exact, ids, ROWS, &y_of[0]);
    run(s, ids, x, y, 0, CUT); /* and the rest */
    check_logits(s, CUT - 1, want + (CUT - 1) * vocab, vocab, "behind the first rows");
    run(s, ids + CUT, x + CUT * dim, y + CUT * dim, CUT, ROWS - CUT);
    check_logits(s, ROWS - CUT - 1, want + (ROWS - 1) * vocab, vocab, "behind all rows");
    memcpy(exact + ROWS * dim, y_of[0] + (ROWS - 1) * dim, dim * sizeof *exact);
    double *more = reference_ahead(dir.path, &c, exact, ids, TOKENS, &y_of[1]);
    run(s, ids + ROWS, y + (ROWS - 1) * dim, NULL, ROWS, 1);
    check_logits(s, 0, more + ROWS * vocab, vocab, "behind its own output");
    free(x), free(y), free(exact), free(want), free(more), free(y_of[0]), free(y_of[1]);
    stage_close(s);
    num_free(num);
    temp_dir_free(&dir);
}

static void it_predicts_as_in_f64(void **state)
{
    (void)state;
    check(glm);
    check(deepseek);
    check(qwen);
}

/* Under llama.cpp's names. */
static void check_file(const char *json)
{
    struct temp_dir dir = temp_dir_new();
    struct config c, ahead[2];
    struct num *num;
    struct err err;
    char path[2][160];
    float x[3 * 20];
    const uint32_t ids[3] = {3, 1, 40}, last = 2;
    const float *got[2];
    struct stage *s[2];
    ahead[0] = make(&dir, json);
    snprintf(path[0], sizeof path[0], "%s", dir.path);
    snprintf(path[1], sizeof path[1], "%s/model.gguf", dir.path);
    gguf_convert(path[0], path[1], &ahead[0], (struct gguf_how){.block = BLOCK_NONE});
    must(config_read(&c, path[1], &err), &err);
    assert_true(config_ahead(&ahead[1], &c));
    must(num_new(&num, 1, &err), &err);
    for (size_t i = 0; i < 3 * c.dim; i++)
        x[i] = (float)(i % 7) - 3;
    for (size_t i = 0; i < 2; i++) {
        s[i] = open_stage(num, path[i], &ahead[i]);
        run(s[i], ids, x, NULL, 0, 3);
        must(stage_rows_logits(s[i], &last, 1, &got[i], &err), &err);
    }
    assert_same_bits(got[1], got[0], c.vocab, "logits of the layer in a GGUF file");
    for (size_t i = 0; i < 2; i++)
        stage_close(s[i]);
    num_free(num);
    temp_dir_free(&dir);
}

static void a_gguf_file_has_it(void **state)
{
    (void)state;
    check_file(glm);
    check_file(qwen35);
}

static void others_have_none(void **state)
{
    (void)state;
    struct golden g;
    struct config c;
    golden_open(&g, "qwen3_tied");
    assert_false(config_ahead(&c, &g.config));
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_predicts_as_in_f64),
        cmocka_unit_test(a_gguf_file_has_it),
        cmocka_unit_test(others_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
