/* SPDX-License-Identifier: MIT
 *
 * Stages that are slices: two threads with a slice each, which gather in memory, give the logits of
 * one stage with everything, bit for bit: prompts and single tokens, cached and served, of every
 * form of weights, with adapters. And a slice maps its part alone. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/compressed.h"
#include "tests/lib/gguf.h"
#include "tests/lib/mlx.h"
#include "tests/lib/slice_world.h"

enum { TOKENS = 6, CALLS = 1 + TOKENS };

struct player {
    struct slice_member member;
    const struct slice_world *w;
    float logits[CALLS][SLICE_VOCAB];
    struct stage_bytes bytes;
    struct err err;
    int r;
};

/* Scores that choose the worst experts, of the first layer that has some. ret is to be freed. */
static float *spoil_router(struct stage *s)
{
    for (size_t i = 0; i < s->nunits; i++)
        for (size_t t = 0; t < s->units[i].ntensors; t++) {
            struct mat *w = &s->units[i].block.weights.lin[t].w;
            const float *from = w->data;
            float *ret;
            if (!strstr(s->units[i].defs[t].name, "mlp.gate.weight") ||
                !(ret = calloc(w->rows * w->cols, sizeof *ret)))
                continue;
            for (size_t k = 0; k < w->rows * w->cols; k++)
                ret[k] = -from[k];
            w->data = ret;
            return ret;
        }
    return NULL;
}

static int compute_call(struct player *p, struct stage *s, size_t call)
{
    uint32_t ids[SLICE_PROMPT], blocks[SLICE_LENGTH / STAGE_KV_BLOCK + 1];
    const size_t n = call ? 1 : SLICE_PROMPT, at = call ? SLICE_PROMPT + call - 1 : 0;
    const float *logits = NULL;
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)((at + i) * 37 % SLICE_VOCAB);
    for (uint32_t b = 0; b < sizeof blocks / sizeof *blocks; b++)
        blocks[b] = b;
    const struct stage_piece piece = {
        .blocks = blocks, .nblocks = sizeof blocks / sizeof *blocks, .at = at, .n = n};
    const uint32_t last = (uint32_t)n - 1;
    int r = p->w->paged ? stage_rows(s, &piece, 1, ids, NULL, NULL, &p->err)
                        : stage_decode(s, ids, NULL, NULL, n, at, &p->err);
    if (!r && p->w->paged)
        r = stage_rows_logits(s, &last, 1, &logits, &p->err);
    else if (!r && !(logits = stage_logits(s)))
        r = stage_gathered(s, &p->err);
    if (!r)
        memcpy(p->logits[call], logits, sizeof p->logits[call]);
    return r;
}

static void *play(void *arg)
{
    struct player *p = arg;
    struct stage *s = NULL;
    struct num *num = NULL;
    p->r = num_new(&num, 1, &p->err);
    const struct slice_world *w = p->w;
    const struct stage_spec spec = {.model_dir = w->model,
                                    .config = w->c,
                                    .tune = w->tune,
                                    .end_layer = w->c.layers,
                                    .embed = true,
                                    .head = true,
                                    .kv = true,
                                    .slots = 1,
                                    .tokens = SLICE_PROMPT,
                                    .seqs = 1,
                                    .positions = SLICE_LENGTH,
                                    .weight_bits = w->bits,
                                    .cache_dir = w->cache.path,
                                    .slice = p->member.gather.slice,
                                    .gather = &p->member.gather,
                                    .kv_blocks = w->paged ? 8 : 0,
                                    .logit_rows = 2};
    if (!p->r)
        num_set_compute(num, w->compute);
    p->r = p->r ? p->r : stage_measure(&p->bytes, &spec, &p->err);
    p->r = p->r ? p->r : stage_open(&s, num, &spec, &p->err);
    float *spoilt = NULL;
    if (!p->r)
        slice_fill_adapter(s);
    if (!p->r && w->is_unlike && p->member.gather.slice.index)
        spoilt = spoil_router(s);
    for (size_t call = 0; call < CALLS && !p->r; call++)
        p->r = compute_call(p, s, call);
    stage_close(s);
    free(spoilt);
    num_free(num);
    return NULL;
}

/* count 1: alone. */
static struct player *play_all(const struct slice_world *w, size_t count)
{
    struct player *p = calloc(count, sizeof *p);
    for (size_t i = 0; i < count; i++)
        p[i].w = w;
    slice_meet_all(p, sizeof *p, count, w->fails_at, play);
    return p;
}

static void check(struct slice_world *w, size_t count)
{
    char what[80];
    for (int paged = 0; paged < 2; paged++) {
        w->paged = paged;
        struct player *one = play_all(w, 1), *all = play_all(w, count);
        size_t mapped = 0;
        must(one->r, &one->err);
        for (size_t i = 0; i < count; i++) {
            must(all[i].r, &all[i].err);
            assert_true(all[i].bytes.mapped < one->bytes.mapped);
            assert_true(all[i].bytes.kv < one->bytes.kv);
            mapped += all[i].bytes.mapped;
        }
        assert_true(mapped >= one->bytes.mapped); /* all of it, and the embedding more than once */
        for (size_t call = 0; call < CALLS; call++) {
            snprintf(what, sizeof what, "%s in %zu slices, call %zu%s", w->c.family, count, call,
                     paged ? ", served" : "");
            assert_same_bits(all->logits[call], one->logits[call], SLICE_VOCAB, what);
        }
        free(one);
        free(all);
    }
}

/* --- the tests -------------------------------------------------------------------------------- */

static void families(void **state)
{
    (void)state;
    static const char *const types[] = {"float32", "bfloat16", "float16"};
    for (size_t i = 0; i < sizeof slice_models / sizeof *slice_models; i++) {
        struct slice_world w;
        slice_world_make(&w, slice_models[i], types[i % 3]);
        check(&w, 2 + i % 2);
        slice_world_free(&w);
    }
}

static void adapters(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i += 2) {
        struct slice_world w;
        struct err err;
        slice_world_make(&w, slice_models[i], "float32");
        w.tune = (struct tune){.kind = TUNE_LORA, .rank = 3, .alpha = 6, .end_layer = w.c.layers};
        must(tune_targets(&w.tune, family_find(w.c.family), &w.c, "all-linear", &err), &err);
        check(&w, 3);
        slice_world_free(&w);
    }
}

static void few_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int compute = NUM_F32; compute <= NUM_INT8; compute++) {
            struct slice_world w;
            slice_world_make(&w, i % 2 ? slice_wide_moe : slice_wide, "bfloat16");
            w.bits = i / 2 ? 8 : 4;
            w.compute = (enum num_compute)compute;
            check(&w, 2 + i / 2);
            slice_world_free(&w);
        }
}

/* As mlx-lm and llama.cpp have them. */
static void stored_bits(void **state)
{
    (void)state;
    struct slice_world w, plain;
    struct err err;
    slice_world_make(&plain, slice_wide_moe, "float32");
    slice_world_make(&w, slice_wide_moe,
                     "float32\",\"quantization\":{\"group_size\":32,\"bits\":4},\"x\":\"");
    mlx_convert(plain.dir.path, w.dir.path, &plain.c, (struct mlx_how){.bits = 4, .group = 32});
    check(&w, 2);
    slice_world_free(&w);
    slice_world_free(&plain);
    slice_world_make(&plain, slice_wide_moe, "float32");
    slice_world_make(&w, slice_wide_moe,
                     "float32\",\"quantization\":{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"},\"x\":\"");
    mlx_convert(plain.dir.path, w.dir.path, &plain.c, (struct mlx_how){.bits = 4, .group = 32, .fp4 = true});
    check(&w, 2);
    slice_world_free(&w);
    slice_world_free(&plain);
    slice_world_make(&plain, slice_wide_turned, "float32");
    slice_world_make(&w, slice_wide_turned, "float32");
    snprintf(w.model, sizeof w.model, "%s/model.gguf", w.dir.path);
    gguf_convert(plain.dir.path, w.model, &plain.c, (struct gguf_how){.block = BLOCK_Q8_0});
    must(config_read(&w.c, w.model, &err), &err);
    check(&w, 2);
    slice_world_free(&w);
    slice_world_free(&plain);
}

/* Numbers and zeros in words, of groups and of rows. */
static void compressed_bits(void **state)
{
    (void)state;
    static const struct compressed_how hows[] = {
        {.format = "int-quantized", .bits = 8, .side = DTYPE_BF16},
        {.format = "pack-quantized", .bits = 4, .wide = 32, .side = DTYPE_BF16, .zeros = true},
        {.format = "pack-quantized", .bits = 8, .side = DTYPE_F32, .zeros = true},
        {.format = "mxfp4-pack-quantized", .bits = 4, .wide = 32, .side = DTYPE_BF16},
    };
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        struct slice_world w, plain;
        char more[1200], type[1300];
        slice_world_make(&plain, slice_wide_moe, "float32");
        compressed_config(more, sizeof more, hows[i]); /* ,"torch_dtype":"bfloat16",… */
        snprintf(type, sizeof type, "%s,\"x\":\"", more + strlen(",\"torch_dtype\":\""));
        slice_world_make(&w, slice_wide_moe, type);
        compressed_convert(plain.dir.path, w.dir.path, &plain.c, hows[i]);
        check(&w, 2);
        slice_world_free(&w);
        slice_world_free(&plain);
    }
}

/* What rounds in another way would choose other experts, and then nothing fits together. */
static void the_first_slice_chooses_the_experts(void **state)
{
    (void)state;
    for (size_t i = 2; i < 7; i += 4) {
        struct slice_world w;
        slice_world_make(&w, slice_models[i], "float32");
        w.is_unlike = true;
        check(&w, 2);
        slice_world_free(&w);
    }
}

static void refusals(void **state)
{
    (void)state;
    struct err err;
    struct config c = {.family = "llama", .dim = 64, .ffn = 64, .vocab = 64, .heads = 8, .kv_heads = 2};
    must(slice_check(&c, 2, false, &err), &err);
    must_refuse(slice_check(&c, 4, false, &err), -EINVAL, &err,
                "this model has 2 KV heads, so at most 2 nodes can share a stage: lower tp");
    c.mla.kv_rank = 8;
    must_refuse(slice_check(&c, 2, false, &err), -ENOTSUP, &err,
                "has latent attention, which several nodes cannot");
    c.mla.kv_rank = 0;
    c.fp8 = true;
    must_refuse(slice_check(&c, 2, false, &err), -ENOTSUP, &err, "weights in FP8");
    c.fused = true;
    must_refuse(slice_check(&c, 2, false, &err), -ENOTSUP, &err, "queries, keys and values in one matrix");
}

/* A slice that cannot gather says why, and does not wait for the others again. */
static void a_lost_rank(void **state)
{
    (void)state;
    struct slice_world w;
    slice_world_make(&w, slice_models[0], "float32");
    w.fails_at = 3;
    struct player *all = play_all(&w, 2);
    for (size_t i = 0; i < 2; i++)
        must_refuse(all[i].r, -EPIPE, &all[i].err, "rank 1 is gone");
    assert_int_equal(all[0].member.gathers, 3);
    free(all);
    slice_world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families),        cmocka_unit_test(adapters),
        cmocka_unit_test(few_bits),        cmocka_unit_test(stored_bits),
        cmocka_unit_test(compressed_bits), cmocka_unit_test(the_first_slice_chooses_the_experts),
        cmocka_unit_test(refusals),        cmocka_unit_test(a_lost_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
