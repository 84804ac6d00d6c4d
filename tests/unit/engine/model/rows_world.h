/* SPDX-License-Identifier: MIT
 *
 * Small models that are served, of all families, and stages that compute rows of them. */
#ifndef TESTS_ROWS_WORLD_H
#define TESTS_ROWS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/stage_impl.h"
#include "num/rng.h"
#include "tests/lib/fp8.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

#define COMMON(family)                                                                                       \
    "{\"model_type\":\"" family "\",\"num_hidden_layers\":2,\"vocab_size\":41,\"rms_norm_eps\":1e-5,"        \
    "\"rope_theta\":100,\"bos_token_id\":1,\"eos_token_id\":2,\"max_position_embeddings\":256,"
#define GQA                                                                                                  \
    "\"hidden_size\":20,\"intermediate_size\":28,\"num_attention_heads\":4,\"num_key_value_heads\":2,"       \
    "\"head_dim\":6,"
#define MLA                                                                                                  \
    "\"hidden_size\":20,\"intermediate_size\":28,\"num_attention_heads\":4,\"kv_lora_rank\":10,"             \
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":5,"
#define LONG "\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1,2],\"long_factor\":[2,3,5]},"
#define SINKS "\"num_local_experts\":6,\"num_experts_per_tok\":2,\"sliding_window\":7,\"swiglu_limit\":0.5,"
#define GROUPS "\"first_k_dense_replace\":1,\"norm_topk_prob\":true,\"n_group\":4,\"topk_group\":2,"
#define DELTA                                                                                                \
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":6,"                     \
    "\"linear_value_head_dim\":5,\"partial_rotary_factor\":0.4,"
#define MOE_GATED                                                                                            \
    "\"num_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":9,"                               \
    "\"shared_expert_intermediate_size\":7,"
#define MOE "\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":9,"

static const char *const models[] = {
    COMMON("llama") GQA "\"attention_bias\":true,\"mlp_bias\":true,\"torch_dtype\":\"",
    COMMON("qwen2") GQA "\"tie_word_embeddings\":true,\"torch_dtype\":\"",
    COMMON("qwen3") GQA "\"torch_dtype\":\"",
    COMMON("qwen3_moe") GQA "\"num_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":9,"
                            "\"norm_topk_prob\":true,\"torch_dtype\":\"",
    COMMON("deepseek_v2") MLA MOE "\"topk_method\":\"group_limited_greedy\",\"n_group\":4,\"topk_group\":2,"
                                  "\"q_lora_rank\":7,\"first_k_dense_replace\":0,\"torch_dtype\":\"",
    COMMON("deepseek_v3") MLA MOE GROUPS "\"n_shared_experts\":1,\"torch_dtype\":\"",
    COMMON("mistral") GQA "\"sliding_window\":5,\"torch_dtype\":\"", /* less than a block */
    COMMON("gemma3_text") GQA "\"sliding_window\":16,\"sliding_window_pattern\":2,\"torch_dtype\":\"",
    COMMON("gemma2") GQA "\"sliding_window\":16,\"attn_logit_softcapping\":0.5,"
                         "\"final_logit_softcapping\":2,\"torch_dtype\":\"",
    COMMON("olmo3") GQA "\"sliding_window\":70,\"torch_dtype\":\"",
    COMMON("granite") GQA "\"logits_scaling\":2,\"torch_dtype\":\"",
    COMMON("gpt_oss") GQA SINKS "\"torch_dtype\":\"",
    COMMON("phi3") GQA LONG "\"original_max_position_embeddings\":32,\"torch_dtype\":\"",
    COMMON("qwen3_next") GQA DELTA MOE_GATED "\"full_attention_interval\":2,\"torch_dtype\":\"",
    COMMON("qwen3_5_moe_text") GQA DELTA MOE_GATED "\"full_attention_interval\":2,\"torch_dtype\":\"",
    COMMON("qwen3_5_text") GQA DELTA
    "\"layer_types\":[\"full_attention\",\"linear_attention\"],\"torch_dtype\":\"",
    COMMON("deepseek_v32") MLA MOE GROUPS "\"q_lora_rank\":7,\"index_n_heads\":3,\"index_head_dim\":6,"
                                          "\"index_topk\":21,\"torch_dtype\":\"",
};
enum { MODELS = sizeof models / sizeof *models, ROUNDED = 6, SPARSE = MODELS - 1, STATES = MODELS - 2 };

/* Wide enough to be quantized, and for FP8 to have partial blocks. */
static const char wide[] = COMMON("llama") "\"hidden_size\":192,\"intermediate_size\":320,"
                                           "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                                           "\"head_dim\":64,\"torch_dtype\":\"";
static const char wide_fp8[] = COMMON("deepseek_v32") MOE GROUPS
    "\"hidden_size\":136,\"intermediate_size\":150,\"num_attention_heads\":4,\"kv_lora_rank\":130,"
    "\"qk_nope_head_dim\":20,\"qk_rope_head_dim\":12,\"v_head_dim\":15,\"q_lora_rank\":140,\"index_topk\":50,"
    "\"n_shared_experts\":1,\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
    "\"weight_block_size\":[128,128]},\"index_n_heads\":10,\"index_head_dim\":14,\"torch_dtype\":\"";
/* Keys wider than the values' whole vectors. */
static const char latent[] = COMMON("deepseek_v3") MOE GROUPS
    "\"hidden_size\":20,\"intermediate_size\":28,\"num_attention_heads\":4,\"kv_lora_rank\":40,"
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":12,\"v_head_dim\":5,\"torch_dtype\":\"";

/* Heads that share keys, too many for a thread's scratch, and no even number of them. */
static const char many_heads[] = COMMON("llama") "\"hidden_size\":4,\"intermediate_size\":4,"
                                                 "\"num_attention_heads\":15,\"num_key_value_heads\":1,"
                                                 "\"head_dim\":1024,\"torch_dtype\":\"";

enum {
    SEQS = 5,
    LENGTH = 140, /* positions of each: three times the keys that are scored together, and a bit */
    ROWS = 48,    /* most of a call */
    SHARED = 32,  /* positions that the last two sequences have in common: whole blocks */
    TABLE = (LENGTH + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
    BLOCKS = SEQS * TABLE + 3,
    ADAPTERS = 3,
    KEPT = 2,
    GUESSES = 6,
};

/* A model and what is asked of it. */
struct world {
    struct temp_dir dir, cache;
    char kept[128];
    struct config c;
    size_t bits;
    enum kv_type kv_type;
    enum num_compute compute;
    struct tune tune[ADAPTERS];
    size_t adapters; /* 0: no LoRA */
    bool rings;      /* where there is a window */
    size_t first;    /* the number that the values of tune[0] follow from */
    uint32_t ids[SEQS][LENGTH];
    float *want; /* [SEQS, LENGTH, vocab] owned */
};

/* Stages in one process, one after the other. */
struct line {
    struct num *num;
    struct stage *stage[2];
    size_t n, dim;
    float x[ROWS * 192];
};

/* What zero factors would hide. The same values for the same adapter, wherever it is. */
static inline void fill_adapters(struct stage *s, size_t first)
{
    for (size_t i = 0; i < s->nunits; i++) {
        const struct unit *u = &s->units[i];
        for (size_t set = 0; set < u->sets; set++)
            for (size_t p = 0; p < u->all_nparams[set]; p++) {
                const struct param *param = &u->all_params[set * u->most + p];
                struct rng rng = rng_for(40 + first + set, param->def.name);
                rng_fill_normal(&rng, param->w, param->n, 0, 0.2f);
            }
    }
}

static inline void line_open(struct line *l, const struct world *w, size_t stages, int threads, bool paged)
{
    struct err err;
    *l = (struct line){.n = stages, .dim = w->c.dim};
    must(num_new(&l->num, threads, &err), &err);
    num_set_compute(l->num, w->compute);
    for (size_t i = 0; i < stages; i++) {
        struct stage_spec spec = {.model_dir = w->dir.path,
                                  .config = w->c,
                                  .tune = {.end_layer = w->c.layers},
                                  .first_layer = i,
                                  .end_layer = i + 1 == stages ? w->c.layers : i + 1,
                                  .embed = i == 0,
                                  .head = i + 1 == stages,
                                  .kv = true,
                                  .slots = 1,
                                  .tokens = ROWS,
                                  .seqs = 1,
                                  .positions = LENGTH,
                                  .weight_bits = w->bits,
                                  .cache_dir = w->kept,
                                  .kv_blocks = paged ? BLOCKS : 0,
                                  .states = SEQS,
                                  .kept = KEPT,
                                  .guesses = GUESSES,
                                  .ring_blocks = w->rings && paged ? stage_ring_blocks(&w->c) : 0,
                                  .kv_type = w->kv_type,
                                  .logit_rows = ROWS};
        if (w->adapters) {
            spec.tune = w->tune[0];
            spec.more = w->tune + 1;
            spec.nmore = w->adapters - 1;
        }
        must(stage_open(&l->stage[i], l->num, &spec, &err), &err);
        fill_adapters(l->stage[i], w->first);
    }
}

static inline void line_close(struct line *l)
{
    for (size_t i = 0; i < l->n; i++)
        stage_close(l->stage[i]);
    num_free(l->num);
}

/* One call over all stages; logits [n, vocab] of the rows asked for. */
static inline const float *line_rows(struct line *l, const struct stage_piece *pieces, size_t n,
                                     const uint32_t *ids, const uint32_t *rows, size_t asked)
{
    struct err err;
    const float *logits;
    for (size_t i = 0; i < l->n; i++)
        must(stage_rows(l->stage[i], pieces, n, i ? NULL : ids, i ? l->x : NULL, i + 1 < l->n ? l->x : NULL,
                        &err),
             &err);
    must(stage_rows_logits(l->stage[l->n - 1], rows, asked, &logits, &err), &err);
    return logits;
}

/* Without one where the adapters are there: a world of its own. */
static inline uint32_t adapter_of(const struct world *w, size_t seq)
{
    return seq < ADAPTERS && w->adapters ? (uint32_t)(seq % w->adapters) : STAGE_NO_ADAPTER;
}

/* --- worlds ----------------------------------------------------------------------------------- */

static inline void world_make(struct world *w, const char *text, const char *dtype)
{
    struct err err;
    char json[1200];
    *w = (struct world){.dir = temp_dir_new(), .cache = temp_dir_new()};
    snprintf(w->kept, sizeof w->kept, "%s/kept", w->cache.path);
    snprintf(json, sizeof json, "%s%s\"}", text, dtype);
    write_file(w->dir.path, "config.json", json);
    must(config_read(&w->c, w->dir.path, &err), &err);
    model_write(w->dir.path, &w->c);
    if (w->c.fp8)
        fp8_convert(w->dir.path, &w->c);
    struct rng rng = rng_for(9, "ids");
    for (size_t i = 0; i < SEQS; i++)
        for (size_t t = 0; t < LENGTH; t++)
            w->ids[i][t] = (uint32_t)rng_below(&rng, w->c.vocab);
    memcpy(w->ids[SEQS - 1], w->ids[SEQS - 2], SHARED * sizeof **w->ids);
}

static inline void world_adapters(struct world *w)
{
    struct err err;
    struct tune t = {.kind = TUNE_LORA, .rank = 3, .alpha = 6, .end_layer = w->c.layers, .dropout = 0.5f};
    must(tune_targets(&t, family_find(w->c.family), &w->c, "all-linear", &err), &err);
    for (size_t i = 0; i < ADAPTERS; i++) {
        w->tune[i] = t;
        w->tune[i].rank = 3 + 2 * i;
    }
    w->tune[1].dora = !config_has_experts(&w->c, 0) && !config_has_experts(&w->c, w->c.layers - 1);
    w->adapters = ADAPTERS;
}

/* The first leaves alone what the others lie on, and each is in other layers. */
static inline void spread_adapters(struct world *w)
{
    struct err err;
    const struct family *f = family_find(w->c.family);
    world_adapters(w);
    must(tune_targets(&w->tune[0], f, &w->c, tune_default_targets(&w->c), &err), &err);
    w->tune[0].first_layer = w->c.layers - 1;
    w->tune[0].dora = true;
    w->tune[2].end_layer = 1;
}

static inline void world_free(struct world *w)
{
    free(w->want);
    temp_dir_free(&w->dir);
    temp_dir_free(&w->cache);
}

#endif
