/* SPDX-License-Identifier: MIT
 *
 * config.json of a Hugging Face model directory → one validated struct for all families. Old and
 * new spellings are read (rope_scaling.type, .rope_type, rope_parameters; torch_dtype, dtype). A
 * family, value or activation we do not compute is refused by name; all complaints are listed at
 * once. */
#ifndef FILE_CONFIG_H
#define FILE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "num/dtype.h"
#include "num/glu.h"
#include "num/quant.h"

struct json_t;

enum { CONFIG_MAX_EOS = 8 };

/* ROPE_LONG: each frequency is divided by a factor of its own, one of two, by the length of the
 * text (longrope). */
enum rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG };
enum { CONFIG_MAX_LONG = 128 }; /* factors of ROPE_LONG */

/* Where a block has norms: before its two parts, after them (before the sum), or both. */
enum config_norms { NORMS_BEFORE, NORMS_AFTER, NORMS_AROUND };

/* Multi-head latent attention (DeepSeek-V2). */
struct config_mla {
    size_t kv_rank;           /* kv_lora_rank; 0: the model has ordinary attention */
    size_t q_rank;            /* q_lora_rank; 0: one q_proj */
    size_t nope, rope, value; /* of a head: q·k without position, with position, v */
    size_t index_heads,
        index_head;   /* of the indexer that chooses keys (DeepSeek-V3.2): heads, width of one, */
    size_t index_top; /* and how many keys a query sees; 0: there is none */
    bool kv_b_parts;  /* kv_b_proj is stored as two tensors, see unit.c */
};

/* Gated delta rule (gated DeltaNet, layer/delta.h), the attention of linear layers. */
struct config_delta {
    size_t key_heads, value_heads; /* 0: no layer has it */
    size_t key, value;             /* widths of a head */
    size_t taps;                   /* of the convolution */
    bool fused;                    /* its projections are two linears, not four */
};

/* Mixture of experts: layers from `first` on have experts instead of one MLP; of these, where
 * `every` is more than 1, only the last of each `every`; and none that is marked as dense. */
enum { CONFIG_MAX_LAYERS = 4096 };
struct config_layers {
    uint64_t bits[CONFIG_MAX_LAYERS / 64]; /* one for each layer */
};
struct config_moe {
    size_t experts, chosen;       /* 0 experts: none */
    size_t groups, groups_chosen; /* experts are chosen within the best groups; 1 and 1: among all */
    size_t ffn, shared_ffn;       /* of one routed expert; of all shared ones together */
    size_t first;                 /* first_k_dense_replace */
    size_t every;                 /* decoder_sparse_step */
    uint64_t dense[CONFIG_MAX_LAYERS / 64]; /* mlp_only_layers, a bit for each layer */
    bool sigmoid;                           /* scores; else softmax */
    bool bias;        /* e_score_correction_bias is added for the choice, and the best two of a
                                     group count; else the best one */
    bool norm;        /* norm_topk_prob */
    bool shared_gate; /* what shared experts give is multiplied by a number of each token */
    double scale;     /* routed_scaling_factor */
};

struct config {
    char family[32]; /* model_type: "llama" */
    size_t layers, dim, ffn, heads, kv_heads, vocab, max_positions;
    size_t head; /* width of q·k */
    float norm_eps;
    float init_std;     /* initializer_range, 0.02 if absent */
    bool tied;          /* tie_word_embeddings */
    bool attn_bias;     /* of q_proj, k_proj, v_proj */
    bool attn_out_bias; /* of o_proj */
    bool qk_norm;       /* RMSNorm of each head's q and k, */
    bool qk_norm_whole; /* or of all heads at once */
    bool attn_gate;     /* what attention gives is multiplied by σ of a gate, which q_proj gives as well */
    bool sinks;         /* a score of each head joins the softmax, and has no value */
    bool mlp_bias;      /* of the linears of MLPs, experts and routers */
    bool fused;         /* q, k and v are one linear, and so are gate and up of a dense MLP */
    enum config_norms norms; /* of a block */
    bool norm_plus_one;      /* norms multiply by 1 + what is stored */
    struct glu glu;          /* of every MLP */
    double embed_scale;      /* what embeddings are multiplied by, */
    double residual_scale;   /* what a part of a block gives (norms stand before it alone), */
    double logit_scale;      /* and logits; 0: by nothing */
    double attn_scale;       /* of the scores; 0: as config_attn_scale has it */
    double attn_softcap;     /* of scores, as in layer/softcap.h, */
    double logit_softcap;    /* and of logits; 0: none */
    size_t window;           /* positions that a query of the windowed layers sees; 0: none has a window */
    struct config_layers windowed, unrotated, linear;
    bool experts_fp4; /* linears of experts are stored in MXFP4 (OCP), as gpt-oss is released */
    bool fp8;         /* linears are stored as F8_E4M3 with a scale for each 128×128 block, */
    bool fp8_rows;    /* or for each row, or all of them */
    bool compressed;  /* as compressed-tensors has them, which says of each whether it is */
    size_t quant_bits,
        quant_group;            /* matrices are stored in MLX's quantization, most of them like this, or as
                                       QUANT_CENTRED; */
    enum quant_kind quant_kind; /* bits 0: they are not */
    bool mixed;                 /* each tensor has a type of its own, which the files say alone (GGUF) */
    enum dtype dtype;           /* torch_dtype / dtype: what a full fine-tune is written as */
    size_t extra_layers; /* stored after the others and not part of the model (multi-token prediction), */
    bool extra_apart;    /* or under names of their own: mtp.*, with attention over all positions */
    bool is_ahead;       /* of config_ahead: the last layer is the only one, and predicts a token more */
    bool is_text_part;   /* of a model that also sees pictures: its files hold more, see text_part.h */
    struct config_mla mla;
    struct config_delta delta;
    struct config_moe moe;
    enum rope_kind rope;
    size_t rope_width;        /* how much of a head is rotated; 0: all */
    double rope_window_theta; /* of windowed layers, which then are not scaled; 0: as the others */
    double rope_query_beta;   /* queries grow with the logarithm of their position; 0: they do not */
    double rope_factors[2][CONFIG_MAX_LONG]; /* ROPE_LONG: of texts up to rope_original, and of longer ones */
    bool rope_untruncated;                   /* yarn: the ramp's ends need not be whole */
    bool rope_pairs;                         /* rotates pairs (2i, 2i + 1), not (i, i + head/2) */
    double rope_theta, rope_factor, rope_low, rope_high; /* llama3: low_freq_factor, high_freq_factor; yarn:
                                                            beta_slow, beta_fast */
    double rope_mscale, rope_mscale_all;                 /* yarn; 0: not given */
    double rope_attention;                               /* yarn's attention_factor; 0: not given */
    size_t rope_original;                                /* original_max_position_embeddings */
    int32_t bos;                                         /* −1 = none */
    int32_t eos[CONFIG_MAX_EOS];
    size_t neos;
};

/* Is layer l one with experts? */
static inline bool config_has_experts(const struct config *c, size_t layer)
{
    const struct config_moe *m = &c->moe;
    return m->experts && layer >= m->first && (m->every < 2 || (layer + 1) % m->every == 0) &&
           !(m->dense[layer / 64 % (CONFIG_MAX_LAYERS / 64)] >> layer % 64 & 1);
}

static inline bool config_layers_have(const struct config_layers *set, size_t layer)
{
    return set->bits[layer / 64 % (CONFIG_MAX_LAYERS / 64)] >> layer % 64 & 1;
}

/* What layer l has that others may not have. */
struct config_layer {
    bool has_experts, is_rotated;
    bool is_linear; /* with config.delta, not with attention over all positions */
    size_t window;  /* 0: its queries see all before them */
};
static inline struct config_layer config_layer(const struct config *c, size_t layer)
{
    return (struct config_layer){config_has_experts(c, layer), !config_layers_have(&c->unrotated, layer),
                                 config_layers_have(&c->linear, layer),
                                 config_layers_have(&c->windowed, layer) ? c->window : 0};
}

/* The first of a model's extra layers as a model of its own (multi-token prediction; DeepSeek-V3,
 * arXiv 2412.19437, section 2.2): behind the layers of `c`, and is_ahead. False: there is none, or
 * not under the names of a layer. */
bool config_ahead(struct config *ret, const struct config *c);

/* What a model of this family names under "architectures"; NULL: we do not know the family. */
const char *config_architecture(const char *model_type);
/* Has a layer of first … end−1 a state, which goes on from position to position and never back? */
static inline bool config_has_state(const struct config *c, size_t first, size_t end)
{
    bool has = false;
    for (size_t l = first; l < end; l++)
        has = has || config_layers_have(&c->linear, l);
    return has;
}

/* What an entry of compressed-tensors' "config_groups" says of weights: its whole numbers have
 * `bits`, and a scale is that of `wide` columns (0: of a row). bits 0: they are F8_E4M3. */
struct config_packing {
    size_t bits, wide;
    enum quant_kind kind;
    bool has_zeros, is_blocks; /* is_blocks: of F8_E4M3 */
};
/* NULL, or what is not read of it, a part of a sentence. `format`: of the whole, where the entry
 * has none of its own. */
const char *config_packing(struct config_packing *ret, const struct json_t *group, const char *format);

/* What MLX's "mode" of a quantization says; NULL, or a word that is not read here: affine. */
enum quant_kind config_quant_kind(const char *mode);
/* Reads DIR/config.json and, for eos ids, DIR/generation_config.json if it is there (its list wins,
 * as in transformers). */
int config_read(struct config *ret, const char *dir, struct err *err);
int config_parse(struct config *ret, const char *json, size_t n,
                 struct err *err); /* the same on text, for tests */

/* How many positions the model was made for: max_position_embeddings, or what the scaling of its
 * rotation makes of the original ones where that is more (some configs give the original number as
 * the former). */
size_t config_positions(const struct config *c);

/* How much of a head is rotated: all of it, its first rope_width elements, or qk_rope_head_dim. */
size_t config_rope_width(const struct config *c);
/* inv_freq [width/2], scaled as the config says (linear; llama3: the piecewise rule of Llama 3.1's
 * rope_scaling; yarn: Peng et al. 2023; see transformers' modeling_rope_utils). */
void config_inv_freq(const struct config *c, double *inv_freq);
/* The same of windowed layers, and of texts longer than rope_original; where the config has nothing
 * of its own for them, as above. */
void config_inv_freq_window(const struct config *c, double *inv_freq);
void config_inv_freq_long(const struct config *c, double *inv_freq);
/* Has it other frequencies for texts of so many positions? */
bool config_is_long(const struct config *c, size_t positions);
/* What a query at this position is multiplied by. */
double config_query_scale(const struct config *c, size_t position);
/* Numbers in the tables of cosines and sines for texts of up to so many positions. */
double config_rope_floats(const struct config *c, size_t positions);
/* What the tables of cosines and sines are multiplied by, and the scale of attention's scores.
 * DeepSeek puts yarn's correction into the second, others into the first. */
double config_rope_scale(const struct config *c);
double config_attn_scale(const struct config *c);

/* Hash over config, the names of all tensors and the bytes they take together (not their data;
 * shapes follow from the config): two nodes with the same fingerprint hold the same model layout.
 * BLAKE2b would need libsodium: this is 128-bit MurmurHash3 x64, written as 32 hex digits; it
 * guards against mistakes, not against an enemy. Shards that are not there do not matter as long as
 * the index says total_size. */
int config_fingerprint(char ret[33], const char *dir, struct err *err);
/* The same with a config of that folder that was read before: it may have been replaced since. */
int config_fingerprint_of(char ret[33], const struct config *c, const char *dir, struct err *err);

#endif
