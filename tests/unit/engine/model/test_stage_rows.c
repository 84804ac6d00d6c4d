/* SPDX-License-Identifier: MIT
 *
 * Serving: rows of many sequences in one call. Sequences that are served together, in drawn pieces,
 * blocks and company, get the bits they get alone and token by token from stage_decode: of every
 * family and stored type, with adapters by row, any number of threads, and stages cut in two. */
#include <errno.h>
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
#define MOE "\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":9,"

static const char *const models[] = {
    COMMON("llama") GQA "\"attention_bias\":true,\"mlp_bias\":true,\"torch_dtype\":\"",
    COMMON("qwen2") GQA "\"tie_word_embeddings\":true,\"torch_dtype\":\"",
    COMMON("qwen3") GQA "\"torch_dtype\":\"",
    COMMON("qwen3_moe") GQA "\"num_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":9,"
                            "\"norm_topk_prob\":true,\"torch_dtype\":\"",
    COMMON("deepseek_v2") MLA MOE "\"topk_method\":\"group_limited_greedy\",\"n_group\":4,\"topk_group\":2,"
                                  "\"q_lora_rank\":7,\"first_k_dense_replace\":0,\"torch_dtype\":\"",
    COMMON("deepseek_v3") MLA MOE
    "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"norm_topk_prob\":true,"
    "\"n_group\":4,\"topk_group\":2,\"torch_dtype\":\"",
    COMMON("mistral") GQA "\"sliding_window\":5,\"torch_dtype\":\"", /* less than a block */
    COMMON("gemma3_text") GQA "\"sliding_window\":16,\"sliding_window_pattern\":2,\"torch_dtype\":\"",
    COMMON("olmo3") GQA "\"sliding_window\":70,\"torch_dtype\":\"",
    COMMON("granite") GQA "\"logits_scaling\":2,\"torch_dtype\":\"",
    COMMON("phi3") GQA LONG "\"original_max_position_embeddings\":32,\"torch_dtype\":\"",
};
enum { MODELS = sizeof models / sizeof *models, ROUNDED = 6 };

/* Wide enough to be quantized, and for FP8 to have partial blocks. */
static const char wide[] = COMMON("llama") "\"hidden_size\":192,\"intermediate_size\":320,"
                                           "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                                           "\"head_dim\":64,\"torch_dtype\":\"";
static const char wide_fp8[] = COMMON("deepseek_v3") MOE
    "\"hidden_size\":136,\"intermediate_size\":150,\"num_attention_heads\":4,\"kv_lora_rank\":130,"
    "\"qk_nope_head_dim\":20,\"qk_rope_head_dim\":12,\"v_head_dim\":15,\"q_lora_rank\":140,"
    "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"norm_topk_prob\":true,\"n_group\":4,"
    "\"topk_group\":2,\"quantization_config\":{\"quant_method\":\"fp8\","
    "\"fmt\":\"e4m3\",\"weight_block_size\":[128,128]},\"torch_dtype\":\"";
/* Keys wider than the values' whole vectors. */
static const char latent[] = COMMON("deepseek_v3") MOE
    "\"hidden_size\":20,\"intermediate_size\":28,\"num_attention_heads\":4,\"kv_lora_rank\":40,"
    "\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":12,\"v_head_dim\":5,\"first_k_dense_replace\":1,"
    "\"norm_topk_prob\":true,\"n_group\":4,\"topk_group\":2,\"torch_dtype\":\"";

enum {
    SEQS = 5,
    LENGTH = 140, /* positions of each: three times the keys that are scored together, and a bit */
    ROWS = 48,    /* most of a call */
    SHARED = 32,  /* positions that the last two sequences have in common: whole blocks */
    TABLE = (LENGTH + STAGE_KV_BLOCK - 1) / STAGE_KV_BLOCK,
    BLOCKS = SEQS * TABLE + 3,
    ADAPTERS = 3,
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
static void fill_adapters(struct stage *s, size_t first)
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

static void line_open(struct line *l, const struct world *w, size_t stages, int threads, bool paged)
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

static void line_close(struct line *l)
{
    for (size_t i = 0; i < l->n; i++)
        stage_close(l->stage[i]);
    num_free(l->num);
}

/* One call over all stages; logits [n, vocab] of the rows asked for. */
static const float *line_rows(struct line *l, const struct stage_piece *pieces, size_t n, const uint32_t *ids,
                              const uint32_t *rows, size_t asked)
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
static uint32_t adapter_of(const struct world *w, size_t seq)
{
    return seq < ADAPTERS && w->adapters ? (uint32_t)(seq % w->adapters) : STAGE_NO_ADAPTER;
}

/* Each sequence alone, token by token, where no other adapter is: by stage_decode, where keys and
 * values are F32. */
static void decode_alone(struct world *w)
{
    const size_t vocab = w->c.vocab;
    w->want = calloc(SEQS * LENGTH * vocab, sizeof *w->want);
    for (size_t i = 0; i < SEQS; i++) {
        const uint32_t adapter = adapter_of(w, i);
        struct world one = *w;
        struct line l;
        struct err err;
        one.adapters = adapter != STAGE_NO_ADAPTER;
        if (one.adapters) {
            one.tune[0] = w->tune[adapter];
            one.first = adapter;
        }
        line_open(&l, &one, 1, 1, false);
        for (size_t t = 0; t < LENGTH; t++) {
            must(stage_decode(l.stage[0], &w->ids[i][t], NULL, NULL, 1, t, &err), &err);
            memcpy(w->want + (i * LENGTH + t) * vocab, stage_logits(l.stage[0]), vocab * sizeof(float));
        }
        line_close(&l);
    }
}

static void rows_alone(struct world *w)
{
    struct line l;
    const size_t vocab = w->c.vocab;
    uint32_t blocks[TABLE];
    const uint32_t row = 0;
    for (uint32_t b = 0; b < TABLE; b++)
        blocks[b] = b;
    line_open(&l, w, 1, 1, true);
    w->want = calloc(SEQS * LENGTH * vocab, sizeof *w->want);
    for (size_t i = 0; i < SEQS; i++)
        for (size_t t = 0; t < LENGTH; t++) {
            const struct stage_piece piece = {blocks, TABLE, t, 1, adapter_of(w, i)};
            memcpy(w->want + (i * LENGTH + t) * vocab, line_rows(&l, &piece, 1, &w->ids[i][t], &row, 1),
                   vocab * sizeof(float));
        }
    line_close(&l);
}

/* --- drawn schedules -------------------------------------------------------------------------- */

struct served {
    uint32_t blocks[SEQS][TABLE];
    size_t done[SEQS];
};

/* Blocks in a drawn order; the last sequence reads the first blocks of the one before. */
static void draw_blocks(struct served *s, struct rng *rng)
{
    uint32_t free_blocks[BLOCKS];
    rng_permutation(rng, free_blocks, BLOCKS);
    for (size_t i = 0, at = 0; i < SEQS; i++)
        for (size_t b = 0; b < TABLE; b++)
            s->blocks[i][b] = free_blocks[at++];
    memcpy(s->blocks[SEQS - 1], s->blocks[SEQS - 2], SHARED / STAGE_KV_BLOCK * sizeof **s->blocks);
    s->done[SEQS - 1] = SHARED;
}

/* Some sequences' next pieces, one token or many; perhaps two pieces of one sequence. */
static size_t draw_pieces(const struct world *w, struct served *s, struct rng *rng,
                          struct stage_piece *pieces, size_t *whose)
{
    size_t n = 0, rows = 0;
    for (size_t k = 0; k < 2 * SEQS; k++) {
        const size_t i = rng_below(rng, SEQS), left = LENGTH - s->done[i];
        size_t many = rng_below(rng, 3) ? 1 : 1 + rng_below(rng, 40);
        if (i == SEQS - 1 && s->done[SEQS - 2] < SHARED)
            continue;
        many = many < left ? many : left;
        many = many < ROWS - rows ? many : ROWS - rows;
        if (!many)
            continue;
        pieces[n] = (struct stage_piece){s->blocks[i], TABLE, s->done[i], many, adapter_of(w, i)};
        whose[n++] = i;
        s->done[i] += many;
        rows += many;
    }
    return n;
}

static bool is_done(const struct served *s)
{
    for (size_t i = 0; i < SEQS; i++)
        if (s->done[i] < LENGTH)
            return false;
    return true;
}

static void check_call(const struct world *w, struct line *l, const struct stage_piece *pieces,
                       const size_t *whose, size_t n)
{
    const size_t vocab = w->c.vocab;
    uint32_t ids[ROWS], rows[ROWS];
    size_t all = 0;
    for (size_t p = 0; p < n; p++)
        for (size_t t = 0; t < pieces[p].n; t++, all++) {
            ids[all] = w->ids[whose[p]][pieces[p].at + t];
            rows[all] = (uint32_t)all;
        }
    const float *logits = line_rows(l, pieces, n, ids, rows, all);
    for (size_t p = 0, row = 0; p < n; p++)
        for (size_t t = 0; t < pieces[p].n; t++, row++)
            if (memcmp(logits + row * vocab, w->want + (whose[p] * LENGTH + pieces[p].at + t) * vocab,
                       vocab * sizeof *logits) != 0)
                fail_msg("%s, sequence %zu, position %zu of a piece of %zu from %zu on, among %zu pieces, "
                         "is not what it is alone",
                         w->c.family, whose[p], pieces[p].at + t, pieces[p].n, pieces[p].at, n);
}

static void check_world(const struct world *w)
{
    for (int threads = 1; threads <= 3; threads++) {
        const size_t stages = threads == 2 ? 2 : 1;
        struct rng rng = rng_for((uint64_t)threads, "schedule");
        struct served s = {0};
        struct line l;
        line_open(&l, w, stages, threads, true);
        draw_blocks(&s, &rng);
        while (!is_done(&s)) {
            struct stage_piece pieces[2 * SEQS];
            size_t whose[2 * SEQS];
            const size_t n = draw_pieces(w, &s, &rng, pieces, whose);
            if (n)
                check_call(w, &l, pieces, whose, n);
        }
        line_close(&l);
    }
}

/* --- worlds ----------------------------------------------------------------------------------- */

static void world_make(struct world *w, const char *text, const char *dtype)
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

static void world_adapters(struct world *w)
{
    struct err err;
    struct tune t = {.kind = TUNE_LORA, .rank = 3, .alpha = 6, .end_layer = w->c.layers, .dropout = 0.5f};
    must(tune_targets(&t, family_find(w->c.family), &w->c, "all-linear", &err), &err);
    for (size_t i = 0; i < ADAPTERS; i++) {
        w->tune[i] = t;
        w->tune[i].rank = 3 + 2 * i;
    }
    w->adapters = ADAPTERS;
}

/* The first leaves alone what the others lie on, and each is in other layers. */
static void spread_adapters(struct world *w)
{
    struct err err;
    const struct family *f = family_find(w->c.family);
    world_adapters(w);
    must(tune_targets(&w->tune[0], f, &w->c, tune_default_targets(&w->c), &err), &err);
    w->tune[0].first_layer = w->c.layers - 1;
    w->tune[2].end_layer = 1;
}

static void world_free(struct world *w)
{
    free(w->want);
    temp_dir_free(&w->dir);
    temp_dir_free(&w->cache);
}

static void families_are_served_as_they_decode(void **state)
{
    (void)state;
    static const char *const types[] = {"float32", "bfloat16", "float16"};
    for (size_t i = 0; i < MODELS; i++) {
        struct world w;
        world_make(&w, models[i], types[i % 3]);
        decode_alone(&w);
        check_world(&w);
        world_free(&w);
    }
}

static void adapters_by_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        struct world w;
        world_make(&w, models[i], "float32");
        world_adapters(&w);
        decode_alone(&w);
        const size_t apart = LENGTH * w.c.vocab;
        assert_true(memcmp(w.want + (SEQS - 1) * apart, w.want + (SEQS - 2) * apart,
                           SHARED * w.c.vocab * sizeof(float)) == 0); /* the same text */
        check_world(&w);
        world_free(&w);
    }
}

static void adapters_on_other_linears(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        struct world w;
        world_make(&w, models[i], "float32");
        spread_adapters(&w);
        decode_alone(&w);
        check_world(&w);
        world_free(&w);
    }
}

static void quantized_weights(void **state)
{
    (void)state;
    for (size_t bits = 4; bits <= 8; bits += 4)
        for (int compute = NUM_F32; compute <= NUM_INT8; compute++) {
            struct world w;
            world_make(&w, wide, "bfloat16");
            w.bits = bits;
            w.compute = (enum num_compute)compute;
            world_adapters(&w);
            decode_alone(&w);
            check_world(&w);
            world_free(&w);
        }
}

static void wide_rows(void **state)
{
    (void)state;
    for (int fp8 = 0; fp8 < 2; fp8++) {
        struct world w;
        world_make(&w, fp8 ? wide_fp8 : wide, "bfloat16");
        assert_int_equal(w.c.fp8, fp8);
        decode_alone(&w);
        check_world(&w);
        world_free(&w);
    }
}

/* Rounded keys and values have bits of their own; these are invariant too, and near the exact. */
static void check_rounded(const char *model, enum kv_type type, bool adapters, double most)
{
    struct world w;
    world_make(&w, model, "float32");
    if (adapters)
        world_adapters(&w);
    rows_alone(&w);
    float *exact = w.want;
    w.kv_type = type;
    rows_alone(&w);
    const double off = near_logprobs(w.want, exact, SEQS * LENGTH, w.c.vocab);
    if (!(off > 0 && off < most))
        fail_msg("%s with keys and values in %s is off by %g", w.c.family, kv_type_name(type), off);
    free(exact);
    check_world(&w);
    world_free(&w);
}

static void rounded_keys_and_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROUNDED; i++)
        check_rounded(models[i], KV_INT8, i % 2, 0.015);
    for (size_t i = 0; i < ROUNDED; i += 2)
        check_rounded(models[i], KV_BF16, false, 0.003);
    check_rounded(latent, KV_INT8, false, 0.015);
    check_rounded(wide, KV_INT8, true, 0.05); /* several groups in a head */
}

/* --- the head, and what is refused ------------------------------------------------------------ */

static void open_small(struct world *w, struct line *l, uint32_t blocks[TABLE])
{
    world_make(w, models[0], "float32");
    line_open(l, w, 1, 1, true);
    for (uint32_t b = 0; b < TABLE; b++)
        blocks[b] = TABLE - b;
}

static void hidden_and_logprobs(void **state)
{
    (void)state;
    struct world w;
    struct line l;
    struct err err;
    uint32_t blocks[TABLE];
    open_small(&w, &l, blocks);
    const struct stage_piece piece = {blocks, TABLE, 0, 7, STAGE_NO_ADAPTER};
    const uint32_t rows[] = {6, 2};
    const float *logits = line_rows(&l, &piece, 1, w.ids[0], rows, 2);
    float hidden[2 * 20], again[2 * 41], first[41];
    must(stage_rows_hidden(l.stage[0], rows, 2, hidden, &err), &err);
    gemm_xwt(l.num, again, hidden, l.stage[0]->head_w, 2, false);
    assert_same_bits(again, logits, 2 * w.c.vocab, "logits of the hidden states");
    memcpy(first, logits, sizeof first);
    struct likely a[3], b[3];
    const float got = stage_rows_logprob(l.stage[0], 1, 5, a, 3);
    assert_true(got == xent_row(l.num, logits + w.c.vocab, w.c.vocab, 5, b, 3));
    assert_memory_equal(a, b, sizeof a);
    logits = line_rows(&l, &piece, 1, w.ids[0], rows, 1);
    assert_same_bits(logits, first, w.c.vocab, "logits of one row");
    line_close(&l);
    world_free(&w);
}

static void refuses_bad_rows(void **state)
{
    (void)state;
    struct world w;
    struct line l;
    struct err err;
    uint32_t blocks[TABLE], ids[ROWS + 1] = {0};
    open_small(&w, &l, blocks);
    struct stage *s = l.stage[0];
    struct stage_piece p = {blocks, 2, 30, 3, STAGE_NO_ADAPTER};
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -ERANGE, &err,
                "piece 0 ends at position 33, but its table has blocks for 32 positions");
    p = (struct stage_piece){blocks, TABLE, 0, 3, STAGE_NO_ADAPTER};
    blocks[0] = BLOCKS;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -ERANGE, &err, "piece 0 lies in block 48");
    blocks[0] = 7;
    ids[2] = 41;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -ERANGE, &err, "token 41 is outside");
    ids[2] = 0;
    p.adapter = 1;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -ERANGE, &err, "adapter 1, but there are 1");
    p.adapter = 0;
    p.at = SIZE_MAX;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -E2BIG, &err, "longest has 140");
    p.at = LENGTH - 2;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -E2BIG, &err, "longest has 140");
    p.at = 0, p.n = 0;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -EINVAL, &err, "no rows");
    must_refuse(stage_rows(s, &p, 0, ids, NULL, NULL, &err), -EINVAL, &err, "there are no rows");
    p.n = ROWS + 1;
    must_refuse(stage_rows(s, &p, 1, ids, NULL, NULL, &err), -E2BIG, &err, "more rows than the plan's 48");
    p.n = 3;
    must(stage_rows(s, &p, 1, ids, NULL, NULL, &err), &err);
    const float *logits;
    const uint32_t wrong = 3;
    must_refuse(stage_rows_logits(s, &wrong, 1, &logits, &err), -ERANGE, &err, "row 3 is asked for");
    must_refuse(stage_rows_logits(s, &wrong, ROWS + 1, &logits, &err), -E2BIG, &err, "the plan allows 48");
    must_refuse(stage_decode(s, ids, NULL, NULL, 1, 0, &err), -E2BIG, &err, "not within");
    line_close(&l);
    line_open(&l, &w, 1, 1, false);
    must_refuse(stage_rows(l.stage[0], &p, 1, ids, NULL, NULL, &err), -EINVAL, &err, "no paged KV pool");
    line_close(&l);
    world_free(&w);
}

static void refuses_bad_pools(void **state)
{
    (void)state;
    struct world w;
    struct err err;
    struct stage_bytes few, many;
    world_make(&w, models[0], "float32");
    struct stage_spec spec = {.model_dir = w.dir.path,
                              .config = w.c,
                              .end_layer = 2,
                              .embed = true,
                              .head = true,
                              .kv = true,
                              .slots = 1,
                              .tokens = 8,
                              .seqs = 1,
                              .positions = 64,
                              .kv_blocks = 10,
                              .logit_rows = 8};
    must(stage_measure(&few, &spec, &err), &err);
    spec.kv_blocks = 20;
    must(stage_measure(&many, &spec, &err), &err);
    assert_true(many.kv - few.kv >= 10 * 2 * 2 * STAGE_KV_BLOCK * w.c.kv_heads * w.c.head * sizeof(float));
    assert_int_equal(many.work, few.work);
    assert_int_equal(many.slots, few.slots);
    const size_t rows = 20 * STAGE_KV_BLOCK * 2 * 2 * w.c.kv_heads, slack = 1024;
    spec.kv_type = KV_BF16;
    must(stage_measure(&few, &spec, &err), &err);
    assert_in_range(few.kv, rows * w.c.head * 2, rows * w.c.head * 2 + slack);
    spec.kv_type = KV_INT8;
    must(stage_measure(&few, &spec, &err), &err);
    assert_in_range(few.kv, rows * (w.c.head + 2), rows * (w.c.head + 2) + slack);
    spec.kv_type = KV_F32;
    spec.kv = false;
    must_refuse(stage_measure(&few, &spec, &err), -EINVAL, &err, "serves, and does nothing else");
    spec.kv = true;
    spec.kv_blocks = SIZE_MAX;
    must_refuse(stage_measure(&few, &spec, &err), -EOVERFLOW, &err, "can be numbered");
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_served_as_they_decode),
        cmocka_unit_test(adapters_by_row),
        cmocka_unit_test(adapters_on_other_linears),
        cmocka_unit_test(quantized_weights),
        cmocka_unit_test(wide_rows),
        cmocka_unit_test(rounded_keys_and_values),
        cmocka_unit_test(hidden_and_logprobs),
        cmocka_unit_test(refuses_bad_rows),
        cmocka_unit_test(refuses_bad_pools),
    };
    return cmocka_run_group_tests_name("stage_rows", tests, NULL, NULL);
}
