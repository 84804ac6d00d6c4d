/* SPDX-License-Identifier: MIT
 *
 * Multi-head latent attention (DeepSeek-V2, 2024): keys and values of all heads are linear in one
 * latent c [T, rank] (kv_b_proj), beside a rotated key that all heads share. Training expands them
 * and attends as usual; generation keeps c and the shared key alone: for few tokens it moves
 * kv_b_proj to the other side of the products, so that the latent is key and value of every head,
 * for many it expands a few heads at a time. Conventions as in layer.h. */
#ifndef LAYER_MLA_H
#define LAYER_MLA_H

#include "layer/layer.h"

struct mla_dims {
    size_t heads, nope, rope, value; /* of a head: key without position, with position, value */
    size_t rank;
};

/* k [T, heads, nope + rope] and v [T, heads, value] from kv [T, heads, nope + value] (kv_b_proj's
 * output) and the shared key: the last `rope` of each row of kva [T, rank + rope]. */
void mla_expand_forward(struct num *num, float *k, float *v, const float *kv, const float *kva,
                        struct mla_dims dims, size_t tokens);
/* dkv, and in dkva the shared key's gradient, which is the sum over heads. */
void mla_expand_backward_x(struct num *num, float *dkv, float *dkva, const float *dk, const float *dv,
                           struct mla_dims dims, size_t tokens);

/* latent_q [T, heads, rank + rope] from q [T, heads, nope + rope]: what the latent has to be
 * multiplied by to give q·k. kv_b with its LoRA, without dropout, or with the adapters of `set`, as
 * in struct linear_use. The bits of a row depend on that row alone. */
void mla_absorb_q(struct num *num, float *latent_q, const float *q, const struct linear *kv_b,
                  const uint32_t *set, struct mla_dims dims, size_t tokens);
/* o [T, heads, value] from the latents each head has gathered, latent_o [T, heads, rank]. */
void mla_absorb_o(struct num *num, float *o, const float *latent_o, const struct linear *kv_b,
                  const uint32_t *set, struct mla_dims dims, size_t tokens);

/* Scratch of mla_expanded for so many heads at once; c and kv hold a block of at most MLA_BLOCK
 * positions. */
enum { MLA_BLOCK = 512 };
struct mla_room {
    size_t heads;
    float *w;      /* [heads·(nope + value), rank] their share of kv_b_proj */
    float *c, *kv; /* [block, rank], [block, heads·(nope + value)] */
    float *k, *v;  /* [positions, heads·(nope + rope)], [positions, heads·value] */
};
/* Heads to make room for: as many as 32 MiB hold, and at least one; 0 where calls of `tokens` never
 * expand. */
size_t mla_room_heads(struct mla_dims dims, size_t tokens, size_t positions);
/* Whether the newest `tokens` of `len` positions cost less with keys and values of all of them
 * expanded than with the expansion on the other side of the products. */
bool mla_is_expanded(struct mla_dims dims, size_t tokens, size_t len);
/* o [T, heads, value] of the newest T of len positions, whose queries are q [T, heads, nope +
 * rope]: keys and values of a few heads at a time from the cache's rows latent [len, rank + rope].
 * kv_b with its LoRA, without dropout. */
void mla_expanded(struct num *num, float *o, const float *q, const float *latent, const struct linear *kv_b,
                  const struct mla_room *room, struct mla_dims dims, float scale, size_t tokens, size_t len);

#endif
