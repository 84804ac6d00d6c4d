/* SPDX-License-Identifier: MIT
 *
 * Inside of config.c: what its other files read for it. Nobody else includes
 * this. */
#ifndef FILE_CONFIG_IMPL_H
#define FILE_CONFIG_IMPL_H

#include "file/config.h"
#include "file/config_reader.h"

/* config_family.c: everything but eos ids from a second file. */
void config_read_family(struct config_reader *r, struct config *c);

/* config_parts.c. What a family assumes where keys are absent. */
struct config_usual {
    size_t positions;      /* max_position_embeddings */
    size_t heads, vocab;   /* 0: they must be given, as the next */
    size_t ffn;            /* intermediate_size */
    size_t kv_heads, head; /* 0: as many as heads, hidden_size / heads */
    double theta, rotated; /* base of the rotation, 0: 10000; how much of a head is rotated, 0: all, always */
    double eps;            /* of norms, 0: 1e-6 */
    int32_t bos, eos;      /* −1: none */
    bool tied;
    const char *act_key; /* NULL: hidden_act */
    enum glu_kind glu;
};
void config_read_common(struct config_reader *r, struct config *c, const struct config_usual *usual);
void config_read_heads(struct config_reader *r, struct config *c, const struct config_usual *usual);
void config_read_latent(struct config_reader *r, struct config *c);
void config_read_indexer(struct config_reader *r, struct config *c); /* the latent keys have been read */
/* bos, eos: as in config_usual; an explicit null is none. */
void config_read_tokens(struct config_reader *r, struct config *c, int32_t bos, int32_t eos);
/* sliding_window; 0: there is none, or it hides nothing. */
size_t config_read_window(struct config_reader *r, const struct config *c, size_t usual);
/* Which layers have the window: as layer_types says, or where it is absent is_windowed. */
void config_read_kinds(struct config_reader *r, struct config *c,
                       bool (*is_windowed)(const struct config *c, size_t layer));
void config_add_layer(struct config_layers *set, size_t layer);
/* The keys of how many there are, and of how wide one is. */
void config_read_experts(struct config_reader *r, struct config *c, const char *count, const char *width);
void config_read_dense(struct config_reader *r, struct config *c); /* mlp_only_layers */
/* Shared experts, dense layers at the start, and the scale of weights. */
void config_read_shared(struct config_reader *r, struct config *c);
/* Groups of experts, of at least so many: n_group of them, topk_group of which are searched. */
void config_read_groups(struct config_reader *r, struct config *c, size_t least);
/* Layers behind the last that only predict further tokens. */
void config_read_extra(struct config_reader *r, struct config *c, const char *key, size_t usual);
/* One id, a list of them, or nothing: JSON null, or an absent key, leave the list as it is. */
void config_read_eos(struct config_reader *r, const json_t *v, struct config *c);

/* config_delta.c: heads of linear layers, and which layers these are. */
void config_read_delta(struct config_reader *r, struct config *c);

/* config_quant.c */
void config_read_quantization(struct config_reader *r, struct config *c);

/* config_rope.c: fills in the rope_ fields from rope_parameters, rope_scaling and rope_theta, and
 * partial_rotary_factor. Heads have been read. */
void config_read_rope(struct config_reader *r, struct config *c, const struct config_usual *usual);

#endif
