/* SPDX-License-Identifier: MIT
 *
 * Slices of a stage, a thread each, which gather in memory; and the models that they share. */
#ifndef TESTS_LIB_SLICE_WORLD_H
#define TESTS_LIB_SLICE_WORLD_H

#include <errno.h>
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
#include "tests/lib/near.h"
#include "tests/lib/tiny.h"

#define SLICE_COMMON(family)                                                                                 \
    "{\"model_type\":\"" family "\",\"num_hidden_layers\":2,\"vocab_size\":141,\"rms_norm_eps\":1e-5,"       \
    "\"rope_theta\":100,\"bos_token_id\":1,\"eos_token_id\":2,\"max_position_embeddings\":256,"
#define SLICE_GQA                                                                                            \
    "\"hidden_size\":36,\"intermediate_size\":46,\"num_attention_heads\":6,\"num_key_value_heads\":3,"       \
    "\"head_dim\":8,"
#define SLICE_WIDE                                                                                           \
    "\"hidden_size\":256,\"intermediate_size\":512,\"num_attention_heads\":8,\"num_key_value_heads\":4,"     \
    "\"head_dim\":32,"
#define SLICE_MOE "\"num_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":18,"
#define SLICE_SINKS                                                                                          \
    "\"num_local_experts\":6,\"num_experts_per_tok\":2,\"sliding_window\":7,\"swiglu_limit\":0.5,"
#define SLICE_SHARED                                                                                         \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":18,\"n_shared_experts\":1,"  \
    "\"first_k_dense_replace\":1,"

static const char *const slice_models[] = {
    SLICE_COMMON("llama") SLICE_GQA "\"attention_bias\":true,\"mlp_bias\":true",
    SLICE_COMMON("qwen2") SLICE_GQA "\"tie_word_embeddings\":true",
    SLICE_COMMON("qwen3_moe") SLICE_GQA SLICE_MOE "\"norm_topk_prob\":true",
    SLICE_COMMON("gemma3_text") SLICE_GQA "\"sliding_window\":16,\"sliding_window_pattern\":2",
    SLICE_COMMON("gemma2") SLICE_GQA
    "\"sliding_window\":16,\"attn_logit_softcapping\":0.5,\"final_logit_softcapping\":2",
    SLICE_COMMON("gpt_oss") SLICE_GQA SLICE_SINKS "\"hidden_act\":\"silu\"",
    SLICE_COMMON("glm4_moe") SLICE_GQA SLICE_SHARED "\"norm_topk_prob\":true",
};
static const char slice_wide[] = SLICE_COMMON("qwen2") SLICE_WIDE "\"tie_word_embeddings\":true";
static const char slice_wide_turned[] =
    SLICE_COMMON("llama") SLICE_WIDE "\"hidden_act\":\"silu\""; /* in GGUF files */
static const char slice_wide_moe[] =
    SLICE_COMMON("qwen3_moe") SLICE_WIDE "\"num_experts\":4,\"num_experts_per_tok\":2,"
                                         "\"moe_intermediate_size\":128";

enum { SLICE_MEMBERS = 3, SLICE_PROMPT = 40, SLICE_LENGTH = 46, SLICE_VOCAB = 141 };

/* --- gathering in memory ---------------------------------------------------------------------- */

struct slice_meeting {
    pthread_barrier_t barrier;
    const struct gather_columns *what[SLICE_MEMBERS];
    size_t count, gathers, fails_at; /* 0: never */
};
/* One who meets the others, with a thread of its own: what it does begins with this. */
struct slice_member {
    struct slice_meeting *meeting;
    size_t index, gathers;
    struct gather gather;
    pthread_t thread;
};

static inline int slice_meet(void *owner, const struct gather_columns *what, struct err *err)
{
    struct slice_member *m = owner;
    struct slice_meeting *all = m->meeting;
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
static inline void slice_meet_all(void *members, size_t size, size_t count, size_t fails_at,
                                  void *(*do_one)(void *))
{
    struct slice_meeting meeting = {.count = count, .fails_at = fails_at};
    pthread_barrier_init(&meeting.barrier, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++) {
        struct slice_member *m = (struct slice_member *)((char *)members + i * size);
        *m = (struct slice_member){.meeting = &meeting, .index = i, .gather = {{i, count}, slice_meet, m}};
        assert_int_equal(pthread_create(&m->thread, NULL, do_one, m), 0);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(((struct slice_member *)((char *)members + i * size))->thread, NULL);
    pthread_barrier_destroy(&meeting.barrier);
}

/* --- a model ---------------------------------------------------------------------------------- */

struct slice_world {
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

static inline void slice_world_make(struct slice_world *w, const char *text, const char *dtype)
{
    struct err err;
    char json[2400];
    *w = (struct slice_world){.dir = temp_dir_new(), .cache = temp_dir_new()};
    snprintf(json, sizeof json, "%s,\"torch_dtype\":\"%s\"}", text, dtype);
    snprintf(w->model, sizeof w->model, "%s", w->dir.path);
    write_file(w->dir.path, "config.json", json);
    must(config_read(&w->c, w->dir.path, &err), &err);
    model_write(w->dir.path, &w->c);
    w->tune.end_layer = w->c.layers;
}

static inline void slice_world_free(struct slice_world *w)
{
    temp_dir_free(&w->dir);
    temp_dir_free(&w->cache);
}

static inline void slice_fill_adapter(struct stage *s)
{
    for (size_t i = 0; i < s->nunits; i++)
        for (size_t p = 0; p < s->units[i].nparams; p++) {
            const struct param *param = &s->units[i].params[p];
            struct rng rng = rng_for(40, param->def.name);
            rng_fill_normal(&rng, param->w, param->n, 0, 0.2f);
        }
}

#endif
