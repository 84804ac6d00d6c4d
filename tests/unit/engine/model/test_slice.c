/* SPDX-License-Identifier: MIT
 *
 * Stages that are slices: two threads with a slice each, which gather in memory, give the logits of
 * one stage with everything, bit for bit: prompts and single tokens, cached and served, of every
 * form of weights, with adapters. And a slice maps its part alone. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
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
#include "tests/lib/gguf.h"
#include "tests/lib/mlx.h"
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

#define COMMON(family)                                                                                       \
    "{\"model_type\":\"" family "\",\"num_hidden_layers\":2,\"vocab_size\":141,\"rms_norm_eps\":1e-5,"       \
    "\"rope_theta\":100,\"bos_token_id\":1,\"eos_token_id\":2,\"max_position_embeddings\":256,"
#define GQA                                                                                                  \
    "\"hidden_size\":36,\"intermediate_size\":46,\"num_attention_heads\":6,\"num_key_value_heads\":3,"       \
    "\"head_dim\":8,"
#define WIDE                                                                                                 \
    "\"hidden_size\":256,\"intermediate_size\":512,\"num_attention_heads\":8,\"num_key_value_heads\":4,"     \
    "\"head_dim\":32,"
#define MOE "\"num_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":18,"
#define SINKS "\"num_local_experts\":6,\"num_experts_per_tok\":2,\"sliding_window\":7,\"swiglu_limit\":0.5,"
#define SHARED                                                                                               \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":18,\"n_shared_experts\":1,"  \
    "\"first_k_dense_replace\":1,"

static const char *const models[] = {
    COMMON("llama") GQA "\"attention_bias\":true,\"mlp_bias\":true",
    COMMON("qwen2") GQA "\"tie_word_embeddings\":true",
    COMMON("qwen3_moe") GQA MOE "\"norm_topk_prob\":true",
    COMMON("gemma3_text") GQA "\"sliding_window\":16,\"sliding_window_pattern\":2",
    COMMON("gemma2") GQA "\"sliding_window\":16,\"attn_logit_softcapping\":0.5,\"final_logit_softcapping\":2",
    COMMON("gpt_oss") GQA SINKS "\"hidden_act\":\"silu\"",
    COMMON("glm4_moe") GQA SHARED "\"norm_topk_prob\":true",
};
static const char wide[] = COMMON("qwen2") WIDE "\"tie_word_embeddings\":true";
static const char wide_turned[] = COMMON("llama") WIDE "\"hidden_act\":\"silu\""; /* in GGUF files */
static const char wide_moe[] = COMMON("qwen3_moe") WIDE "\"num_experts\":4,\"num_experts_per_tok\":2,"
                                                        "\"moe_intermediate_size\":128";

enum { MOST = 3, PROMPT = 40, TOKENS = 6, CALLS = 1 + TOKENS, LENGTH = PROMPT + TOKENS, VOCAB = 141 };

/* --- gathering in memory ---------------------------------------------------------------------- */

struct meeting {
    pthread_barrier_t barrier;
    const struct gather_columns *what[MOST];
    size_t count, gathers, fails_at; /* 0: never */
};
/* One who meets the others, with a thread of its own: what it does begins with this. */
struct member {
    struct meeting *meeting;
    size_t index, gathers;
    struct gather gather;
    pthread_t thread;
};

static int meet(void *owner, const struct gather_columns *what, struct err *err)
{
    struct member *m = owner;
    struct meeting *all = m->meeting;
    if (++m->gathers == all->fails_at)
        return err_set(err, -EPIPE, "rank 1 is gone");
    all->what[m->index] = what;
    pthread_barrier_wait(&all->barrier);
    const size_t width = what->first[all->count];
    for (size_t i = 0; i < all->count && (!what->to_first || !m->index); i++) {
        const size_t n = what->first[i + 1] - what->first[i];
        for (size_t row = 0; row < what->rows; row++)
            memmove(what->to + row * width + what->first[i], all->what[i]->own + row * n, n * sizeof(float));
    }
    pthread_barrier_wait(&all->barrier);
    return 0;
}

/* `do_one` of each of `count` that lie `size` bytes apart, all at the same time. */
static void meet_all(void *members, size_t size, size_t count, size_t fails_at, void *(*do_one)(void *))
{
    struct meeting meeting = {.count = count, .fails_at = fails_at};
    pthread_barrier_init(&meeting.barrier, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++) {
        struct member *m = (struct member *)((char *)members + i * size);
        *m = (struct member){.meeting = &meeting, .index = i, .gather = {{i, count}, meet, m}};
        assert_int_equal(pthread_create(&m->thread, NULL, do_one, m), 0);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(((struct member *)((char *)members + i * size))->thread, NULL);
    pthread_barrier_destroy(&meeting.barrier);
}

/* --- a model and who computes it -------------------------------------------------------------- */

struct world {
    struct temp_dir dir, cache;
    char model[128]; /* the folder, or a file in it */
    struct config c;
    struct tune tune;
    size_t bits;
    enum num_compute compute;
    bool paged;
    bool by_layer; /* while training */
    bool travels;  /* and gradients go to a replica and come back */
    size_t fails_at;
    bool is_unlike; /* the second slice gets other scores of experts, as an unlike CPU may */
};
struct player {
    struct member member;
    const struct world *w;
    float logits[CALLS][VOCAB];
    struct stage_bytes bytes;
    struct err err;
    int r;
};

static void fill_adapter(struct stage *s)
{
    for (size_t i = 0; i < s->nunits; i++)
        for (size_t p = 0; p < s->units[i].nparams; p++) {
            const struct param *param = &s->units[i].params[p];
            struct rng rng = rng_for(40, param->def.name);
            rng_fill_normal(&rng, param->w, param->n, 0, 0.2f);
        }
}

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
    uint32_t ids[PROMPT], blocks[LENGTH / STAGE_KV_BLOCK + 1];
    const size_t n = call ? 1 : PROMPT, at = call ? PROMPT + call - 1 : 0;
    const float *logits = NULL;
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)((at + i) * 37 % VOCAB);
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
    const struct world *w = p->w;
    const struct stage_spec spec = {.model_dir = w->model,
                                    .config = w->c,
                                    .tune = w->tune,
                                    .end_layer = w->c.layers,
                                    .embed = true,
                                    .head = true,
                                    .kv = true,
                                    .slots = 1,
                                    .tokens = PROMPT,
                                    .seqs = 1,
                                    .positions = LENGTH,
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
        fill_adapter(s);
    if (!p->r && w->is_unlike && p->member.gather.slice.index)
        spoilt = spoil_router(s);
    for (size_t call = 0; call < CALLS && !p->r; call++)
        p->r = compute_call(p, s, call);
    stage_close(s);
    free(spoilt);
    num_free(num);
    return NULL;
}

/* --- training --------------------------------------------------------------------------------- */

enum { STEPS = 2, SEQS = 2 };

struct learner {
    struct member member;
    const struct world *w;
    double losses[STEPS], norms[STEPS];
    float *values; /* owned: [n] what was trained */
    size_t n;
    size_t sent; /* gradients that travel */
    struct err err;
    int r;
};

/* As from another replica: what is not sent is of no use to anybody. */
static void send_and_return(struct learner *l, struct stage *s)
{
    const struct param_share part = {0, 0, stage_shared_values(s, UNIT_GRADS, 0, 0)};
    float *sent = calloc(part.n, sizeof *sent);
    assert_non_null(sent);
    stage_pack_grads(s, &part, sent);
    for (size_t i = 0; i < s->nunits; i++) {
        const struct unit *u = &s->units[i];
        for (size_t p = 0; p < u->nparams; p++)
            for (size_t k = 0; k < u->params[p].n && !u->params[p].def.fixed; k++)
                u->params[p].g[k] = NAN;
        for (size_t k = 0; k < u->lent_n; k++)
            u->lent_g[k] = NAN;
    }
    stage_unpack_grads(s, &part, sent);
    l->sent = part.n;
    free(sent);
}

static int learn_step(struct learner *l, struct stage *s, uint64_t step)
{
    uint32_t ids[PROMPT], start[SEQS + 1] = {0, PROMPT / 3, PROMPT};
    int32_t labels[PROMPT];
    size_t bad;
    for (size_t i = 0; i < PROMPT; i++) {
        ids[i] = (uint32_t)((step * 11 + i * 37) % VOCAB);
        labels[i] = i % 5 ? (int32_t)((step + i * 53) % VOCAB) : -100;
    }
    const struct xent xent = {.labels = labels, .dscale = 0.03f};
    int r = stage_begin(s, 0, (struct seqs){SEQS, start}, step, &l->err);
    if (!r)
        r = stage_input_ids(s, 0, ids, &l->err);
    if (r)
        return r;
    stage_forward(s, 0, NULL);
    l->losses[step - 1] = stage_loss(s, 0, &xent);
    if (s->spec.split_backward) {
        stage_backward_x(s, 0, NULL, NULL);
        stage_backward_w(s, 0);
    } else {
        stage_backward(s, 0, NULL, NULL);
    }
    if (l->w->travels)
        send_and_return(l, s);
    stage_gather_grads(s);
    if (s->spec.config.tied && s->spec.tune.kind == TUNE_FULL)
        stage_add_tied_grad(s, stage_tied_grad(s));
    l->norms[step - 1] = stage_sumsq(s, 0, &bad);
    stage_update(s, 1, &(struct adamw){0.01f, 0.9f, 0.999f, 1e-8f, 0.01f}, step);
    return stage_gathered(s, &l->err);
}

static void keep_values(struct learner *l, const struct stage *s)
{
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        for (size_t i = 0; i < s->nunits; i++)
            for (size_t p = 0; p < s->units[i].nparams; p++) {
                const struct param *param = &s->units[i].params[p];
                if (l->values)
                    memcpy(l->values + n, param->w, param->n * sizeof *param->w);
                n += param->n;
            }
        l->n = n;
        l->values = l->values ? l->values : calloc(n, sizeof *l->values);
    }
}

static void *learn(void *arg)
{
    struct learner *l = arg;
    const struct world *w = l->w;
    struct stage *s = NULL;
    struct num *num = NULL;
    const struct stage_spec spec = {.model_dir = w->model,
                                    .config = w->c,
                                    .tune = w->tune,
                                    .end_layer = w->c.layers,
                                    .embed = true,
                                    .head = true,
                                    .training = true,
                                    .split_backward = w->paged,
                                    .by_layer = w->by_layer,
                                    .slots = 1,
                                    .tokens = PROMPT,
                                    .seqs = SEQS,
                                    .positions = LENGTH,
                                    .weight_bits = w->bits,
                                    .cache_dir = w->cache.path,
                                    .slice = l->member.gather.slice,
                                    .gather = &l->member.gather};
    l->r = num_new(&num, 1, &l->err);
    if (!l->r)
        num_set_compute(num, w->compute);
    l->r = l->r ? l->r : stage_open(&s, num, &spec, &l->err);
    if (!l->r && w->tune.kind == TUNE_LORA && w->tune.init != LORA_INIT_PISSA)
        fill_adapter(s);
    for (uint64_t step = 1; step <= STEPS && !l->r; step++)
        l->r = learn_step(l, s, step);
    if (!l->r)
        keep_values(l, s);
    stage_close(s);
    num_free(num);
    return NULL;
}

static struct learner *learn_all(const struct world *w, size_t count)
{
    struct learner *l = calloc(count, sizeof *l);
    for (size_t i = 0; i < count; i++)
        l[i].w = w;
    meet_all(l, sizeof *l, count, 0, learn);
    return l;
}

static void learners_free(struct learner *l, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(l[i].values);
    free(l);
}

/* Each slice has the losses, norms and values of one rank. `paged` stands for halves of a
 * backward. */
static void check_training(struct world *w, size_t count)
{
    for (int how = 0; how < 4; how++) {
        w->paged = how == 1;
        w->by_layer = how == 2;
        w->travels = how == 3;
        struct learner *one = learn_all(w, 1), *all = learn_all(w, count);
        must(one->r, &one->err);
        assert_true(one->n > 0);
        for (size_t i = 0; i < count; i++) {
            char what[120];
            snprintf(what, sizeof what, "%s, slice %zu of %zu, way %d", w->c.family, i, count, how);
            must(all[i].r, &all[i].err);
            assert_memory_equal(all[i].losses, one->losses, sizeof one->losses);
            assert_same_bits(all[i].values, one->values, one->n, what);
            assert_memory_equal(all[i].norms, one->norms, sizeof one->norms);
            if (w->travels && w->tune.kind == TUNE_FULL) /* its own rows, of 3 KV heads two, and vectors */
                assert_true(4 * all[i].sent < 3 * one->sent);
        }
        learners_free(one, 1);
        learners_free(all, count);
    }
}

/* count 1: alone. */
static struct player *play_all(const struct world *w, size_t count)
{
    struct player *p = calloc(count, sizeof *p);
    for (size_t i = 0; i < count; i++)
        p[i].w = w;
    meet_all(p, sizeof *p, count, w->fails_at, play);
    return p;
}

static void world_make(struct world *w, const char *text, const char *dtype)
{
    struct err err;
    char json[1200];
    *w = (struct world){.dir = temp_dir_new(), .cache = temp_dir_new()};
    snprintf(json, sizeof json, "%s,\"torch_dtype\":\"%s\"}", text, dtype);
    snprintf(w->model, sizeof w->model, "%s", w->dir.path);
    write_file(w->dir.path, "config.json", json);
    must(config_read(&w->c, w->dir.path, &err), &err);
    model_write(w->dir.path, &w->c);
    w->tune.end_layer = w->c.layers;
}

static void world_free(struct world *w)
{
    temp_dir_free(&w->dir);
    temp_dir_free(&w->cache);
}

static void check(struct world *w, size_t count)
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
            assert_same_bits(all->logits[call], one->logits[call], VOCAB, what);
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
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct world w;
        world_make(&w, models[i], types[i % 3]);
        check(&w, 2 + i % 2);
        world_free(&w);
    }
}

static void adapters(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i += 2) {
        struct world w;
        struct err err;
        world_make(&w, models[i], "float32");
        w.tune = (struct tune){.kind = TUNE_LORA, .rank = 3, .alpha = 6, .end_layer = w.c.layers};
        must(tune_targets(&w.tune, family_find(w.c.family), &w.c, "all-linear", &err), &err);
        check(&w, 3);
        world_free(&w);
    }
}

static void training(void **state)
{
    (void)state;
    static const size_t which[] = {0, 1, 3, 4, 7, 2, 5, 6};
    for (size_t k = 0; k < sizeof which / sizeof *which; k++)
        for (int full = 0; full < 2; full++) {
            struct world w;
            struct err err;
            world_make(&w, which[k] < 7 ? models[which[k]] : wide, k % 2 ? "bfloat16" : "float32");
            w.tune = (struct tune){.kind = full ? TUNE_FULL : TUNE_LORA, .end_layer = w.c.layers};
            if (!full) {
                w.tune.rank = 3;
                w.tune.alpha = 6;
                w.tune.dropout = k == 1 ? 0.3f : 0;
                must(tune_targets(&w.tune, family_find(w.c.family), &w.c, "all-linear", &err), &err);
            }
            for (int compute = NUM_F32; compute < NUM_COMPUTES; compute++) {
                w.compute = (enum num_compute)compute;
                w.bits = 0;
                check_training(&w, 2 + k % 2);
                w.bits = compute == NUM_BYTES ? 8 : 4;
                if (!full && which[k] == 7)
                    check_training(&w, 3);
            }
            world_free(&w);
        }
}

/* Magnitudes, whose norms are those of whole rows, and what begins with the principal part of a
 * whole weight. */
static void forms_of_training(void **state)
{
    (void)state;
    static const size_t dense[] = {0, 1, 3};
    for (size_t k = 0; k < 2 * sizeof dense / sizeof *dense; k++) {
        struct world w;
        struct err err;
        world_make(&w, models[dense[k / 2]], k / 2 % 2 ? "bfloat16" : "float32");
        w.tune = (struct tune){.kind = TUNE_LORA, .rank = 3, .alpha = 6, .end_layer = w.c.layers};
        w.tune.dora = k % 2;
        w.tune.dropout = k % 2 ? 0.3f : 0;
        must(tune_targets(&w.tune, family_find(w.c.family), &w.c, "all-linear", &err), &err);
        if (!w.tune.dora) {
            w.tune.init = LORA_INIT_PISSA;
            tune_fix_half(&w.tune);
        }
        for (int compute = NUM_F32; compute < NUM_COMPUTES; compute++) {
            w.compute = (enum num_compute)compute;
            w.bits = compute == NUM_INT8 ? 8 : 0;
            check_training(&w, 2 + k / 2 % 2);
        }
        world_free(&w);
    }
}

static void few_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int compute = NUM_F32; compute <= NUM_INT8; compute++) {
            struct world w;
            world_make(&w, i % 2 ? wide_moe : wide, "bfloat16");
            w.bits = i / 2 ? 8 : 4;
            w.compute = (enum num_compute)compute;
            check(&w, 2 + i / 2);
            world_free(&w);
        }
}

/* As mlx-lm and llama.cpp have them. */
static void stored_bits(void **state)
{
    (void)state;
    struct world w, plain;
    struct err err;
    world_make(&plain, wide_moe, "float32");
    world_make(&w, wide_moe, "float32\",\"quantization\":{\"group_size\":32,\"bits\":4},\"x\":\"");
    mlx_convert(plain.dir.path, w.dir.path, &plain.c, (struct mlx_how){.bits = 4, .group = 32});
    check(&w, 2);
    world_free(&w);
    world_free(&plain);
    world_make(&plain, wide_moe, "float32");
    world_make(&w, wide_moe,
               "float32\",\"quantization\":{\"group_size\":32,\"bits\":4,\"mode\":\"mxfp4\"},\"x\":\"");
    mlx_convert(plain.dir.path, w.dir.path, &plain.c, (struct mlx_how){.bits = 4, .group = 32, .fp4 = true});
    check(&w, 2);
    world_free(&w);
    world_free(&plain);
    world_make(&plain, wide_turned, "float32");
    world_make(&w, wide_turned, "float32");
    snprintf(w.model, sizeof w.model, "%s/model.gguf", w.dir.path);
    gguf_convert(plain.dir.path, w.model, &plain.c, (struct gguf_how){.block = BLOCK_Q8_0});
    must(config_read(&w.c, w.model, &err), &err);
    check(&w, 2);
    world_free(&w);
    world_free(&plain);
}

/* What rounds in another way would choose other experts, and then nothing fits together. */
static void the_first_slice_chooses_the_experts(void **state)
{
    (void)state;
    for (size_t i = 2; i < 7; i += 4) {
        struct world w;
        world_make(&w, models[i], "float32");
        w.is_unlike = true;
        check(&w, 2);
        world_free(&w);
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
    c.fused = true;
    must_refuse(slice_check(&c, 2, false, &err), -ENOTSUP, &err, "queries, keys and values in one matrix");
}

/* A slice that cannot gather says why, and does not wait for the others again. */
static void a_lost_rank(void **state)
{
    (void)state;
    struct world w;
    world_make(&w, models[0], "float32");
    w.fails_at = 3;
    struct player *all = play_all(&w, 2);
    for (size_t i = 0; i < 2; i++)
        must_refuse(all[i].r, -EPIPE, &all[i].err, "rank 1 is gone");
    assert_int_equal(all[0].member.gathers, 3);
    free(all);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families),          cmocka_unit_test(adapters),
        cmocka_unit_test(few_bits),          cmocka_unit_test(the_first_slice_chooses_the_experts),
        cmocka_unit_test(stored_bits),       cmocka_unit_test(refusals),
        cmocka_unit_test(a_lost_rank),       cmocka_unit_test(training),
        cmocka_unit_test(forms_of_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
