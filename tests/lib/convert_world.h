/* SPDX-License-Identifier: MIT
 *
 * A model that is rewritten in another form, and what comes of it. Any failure fails the test. */
#ifndef TESTS_LIB_CONVERT_WORLD_H
#define TESTS_LIB_CONVERT_WORLD_H

#include "model/write/convert.h"
#include "tests/lib/tiny.h"

#define CONVERT_COMMON(family)                                                                               \
    "{\"model_type\":\"" family                                                                              \
    "\",\"num_hidden_layers\":3,\"vocab_size\":41,\"rms_norm_eps\":0.0009765625,"                            \
    "\"rope_theta\":100,\"bos_token_id\":null,\"eos_token_id\":null,\"max_position_embeddings\":64,"         \
    "\"num_attention_heads\":4,"
#define CONVERT_GQA(dim, ffn)                                                                                \
    "\"hidden_size\":" dim ",\"intermediate_size\":" ffn ",\"num_key_value_heads\":2,\"head_dim\":64"
#define CONVERT_EXPERTS "\"num_experts_per_tok\":2,\"moe_intermediate_size\":256,\"norm_topk_prob\":true"

/* Configs without their last brace, of models whose rows are blocks of 256. */
enum { CONVERT_DENSE = 1, CONVERT_LATENT = 3, CONVERT_WOVEN, CONVERT_ALL, CONVERT_FAMILIES = CONVERT_WOVEN };
extern const char *const convert_families[CONVERT_ALL];

struct convert_world {
    struct temp_dir plain, dir; /* a model in f32; whatever is made of it */
    struct config c;
    char path[128], out[128]; /* in dir */
};

void convert_world_open(struct convert_world *w, const char *family);
void convert_world_close(struct convert_world *w);

struct rewrite_result convert_one(const struct convert_request *req);

/* After each of some tokens, with weights quantized to `bits` for it; the caller frees. */
float *convert_logits(const struct convert_world *w, const char *model, size_t bits);

/* What came out computes as `model` does with weights quantized to `bits`; off: by a part of the
 * largest logit, 0: to the bit. */
void convert_check_alike(const struct convert_world *w, const char *model, size_t bits, double off,
                         const char *what);

#endif
