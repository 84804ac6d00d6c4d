/* SPDX-License-Identifier: MIT
 *
 * config.json of a Hugging Face model directory → one validated struct for all families. Old and new
 * spellings are read (rope_scaling.type, .rope_type, rope_parameters; torch_dtype, dtype). A family, value or
 * activation we do not compute is refused by name; all complaints are listed at once. */
#ifndef FILE_CONFIG_H
#define FILE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "num/dtype.h"

enum { CONFIG_MAX_EOS = 8 };

enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3 };

struct config {
    char family[32]; /* model_type: "llama" */
    size_t layers, dim, ffn, heads, kv_heads, head, vocab, max_positions;
    float norm_eps;
    float init_std; /* initializer_range, 0.02 if absent */
    bool tied;      /* tie_word_embeddings */
    bool attn_bias, mlp_bias;
    enum dtype dtype; /* torch_dtype / dtype: what a full fine-tune is written as */
    enum rope_kind rope;
    double rope_theta, rope_factor, rope_low, rope_high; /* llama3: low_freq_factor, high_freq_factor */
    size_t rope_original;                                /* original_max_position_embeddings */
    int32_t bos;                                         /* −1 = none */
    int32_t eos[CONFIG_MAX_EOS];
    size_t neos;
};

/* Reads DIR/config.json and, for eos ids, DIR/generation_config.json if it is there (its list wins, as in
 * transformers). */
int config_read(struct config *ret, const char *dir, struct err *err);
int config_parse(struct config *ret, const char *json, size_t n,
                 struct err *err); /* the same on text, for tests */

/* inv_freq [head/2], scaled as the config says (linear; llama3: the piecewise rule of Llama 3.1's
 * rope_scaling, see transformers' modeling_rope_utils). */
void config_inv_freq(const struct config *c, double *inv_freq);

/* Hash over config and the names, dtypes and shapes of all tensors (not their data): two nodes with the same
 * fingerprint hold the same model layout. BLAKE2b would need libsodium: this is 128-bit MurmurHash3 x64,
 * written as 32 hex digits; it guards against mistakes, not against an enemy. With a sharded directory reads
 * every shard's header. */
int config_fingerprint(char ret[33], const char *dir, struct err *err);

#endif
