/* SPDX-License-Identifier: MIT
 *
 * The parts of a block: an attention (gqa.c, mla.c) and an MLP (mlp.c, moe.c), each a function from
 * h [T, dim] to y [T, dim] with its tensors, its memory, and its way back. block.c puts norms and
 * residual sums around them. A part finds its weights by their place in its own list of tensors. */
#ifndef MODEL_PART_H
#define MODEL_PART_H

#include "file/config.h"
#include "layer/layer.h"
#include "layer/mla.h"
#include "layer/moe.h"
#include "layer/paged.h"
#include "model/tensor_def.h"
#include "num/slab.h"

/* --- names ------------------------------------------------------------------------------------ */

/* What the tensors of a mixture of experts are called; shared: without a model of theirs NULL. */
struct moe_names {
    const char *router, *bias, *experts, *shared; /* of the last two: the stem */
    const char *linears[3];                       /* gate, up, down */
};
extern const struct moe_names moe_usual_names;

/* Where a part lists its tensors. */
struct tensor_list {
    int (*visit)(void *arg, const struct tensor_def *def); /* once it answers other than 0, no more */
    void *arg;
    int answer;
    const struct moe_names *names; /* borrowed: the family's */
    char prefix[40];               /* "model.layers.3." */
    enum layer_part part;
};
void tensor_linear(struct tensor_list *list, const char *name, size_t rows, size_t cols);
void tensor_vector(struct tensor_list *list, const char *name, size_t rows);
void tensor_add(struct tensor_list *list, const char *name, struct tensor_def def); /* anything else */

/* --- weights ---------------------------------------------------------------------------------- */

/* Entry i belongs to tensor i: of the unit, or of the part where a part is called. */
struct unit_weights {
    struct linear *lin; /* matrices, with bias and LoRA where there is one */
    const float **vec;  /* vectors, f32 */
};

/* Where the gradients of the weights are added, NULL where there is none to add. */
struct unit_grads {
    float **full, **a, **b;
    float **bias; /* of a linear's bias, at the linear's place */
};

/* --- memory ----------------------------------------------------------------------------------- */

struct part_layout {
    const struct config *config;
    const struct linear *lin; /* which linears have LoRA, and of what rank */
    size_t tokens;            /* most tokens of a microbatch */
    size_t positions;         /* of the cache; 0: training, scoring or serving */
    size_t blocks;            /* of the paged pool; 0: not serving */
    enum kv_type kv_type;     /* of the pool */
};
/* Rows of a part that computes in a forward that is not kept. */
static inline size_t part_cached_rows(const struct part_layout *l)
{
    return l->positions || l->blocks ? l->tokens : 0;
}

struct mlp_saved {
    float *gate, *up; /* [T, ffn] */
    float *xa[3];     /* [T, rank] */
};
/* Rows of routed experts, R = T·chosen, lie expert after expert. */
union part_saved {
    struct {
        float *q0, *k0, *rstd_q, *rstd_k; /* with norms only: before them; [T·heads], [T·kv_heads] */
        float *q, *k, *v;                 /* [T, heads·head], [T, kv_heads·head]; q and k rotated */
        float *o, *lse;                   /* [T, heads·head], [T, heads] */
        float *xa[4];                     /* [T, rank] */
    } gqa;
    struct {
        float *qa, *rstd_qa;   /* with q_rank only: [T, q_rank], [T] */
        float *q;              /* [T, heads·head], rotated */
        float *kva, *rstd_kva; /* [T, kv_rank + rope], the latter rotated; [T] */
        float *o, *lse;        /* [T, heads·value], [T, heads] */
        float *xa[5];          /* [T, rank] */
    } mla;
    struct mlp_saved mlp;
    struct {
        float *score, *weight;    /* [T, experts], [T, chosen] */
        uint32_t *chosen;         /* [T, chosen] */
        struct moe_groups groups; /* which rows are whose */
        float *gate, *up, *xa[3]; /* [R, ffn], [R, rank] */
        struct mlp_saved shared;
    } moe;
};

struct mlp_dys {
    float *gate, *up; /* [T, ffn] gradients of their outputs; that of `down` is dy */
    float *both;      /* [T, 2·ffn] where they are fused: gate and up in each row */
    float *dyb[3];    /* [T, rank] */
};
union part_dys {
    struct {
        float *q, *k, *v; /* of their outputs; that of `o` is dy */
        float *qn, *kn;   /* with norms only: of the norms' outputs */
        float *qkv;       /* fused only: of its output, q, k and v in each row */
        float *sinks;     /* with sinks only: [T, heads] what each token adds to theirs */
        float *dyb[4];    /* [T, rank] */
    } gqa;
    struct {
        float *qan, *qa; /* with q_rank only: of the norm's output, of q_a_proj's */
        float *q, *kv;   /* of q_proj's or q_b_proj's output, of kv_b_proj's */
        float *c, *kva;  /* of the norm's output, of kv_a_proj's */
        float *dyb[5];   /* [T, rank] */
    } mla;
    struct mlp_dys mlp;
    struct {
        float *logits;             /* [T, experts] */
        float *gate, *up, *dyb[3]; /* [R, ffn], [R, rank] */
        struct mlp_dys shared;
    } moe;
};

union part_work {
    struct {
        float *q, *o, *rstd, *xa; /* [T, heads·head] twice, [T·heads], [T, rank] */
        float *qkv;               /* fused only */
        float *k, *v;             /* serving only: [T, kv_heads·head] */
    } gqa;
    struct {
        float *k, *v, *dk, *dv; /* training only: [T, heads·head], [T, heads·value], and their gradients */
        float *kv, *o;          /* training only: [T, heads·(nope + value)]; [T, heads·value] */
        float *qa, *c;          /* [T, q_rank], [T, kv_rank] normalised latents */
        float *q, *kva;         /* generation only: as saved by training */
        float *latent_q, *latent_o; /* generation only: [T, heads·(kv_rank + rope)], [T, heads·kv_rank] */
        struct mla_room room;       /* generation only */
        float *rstd, *xa;           /* [T], [T, rank] */
    } mla;
    struct {
        float *wide; /* [T, ffn], fused [T, 2·ffn] */
    } mlp;
    struct {
        size_t rows;       /* of experts that are computed together in the forward pass, at least T */
        float *x, *y;      /* [rows, dim]; backward: of one expert */
        float *wide, *act; /* [rows, ffn] and [T, ffn of the shared], [T, ffn] */
        float *dweight;    /* [T, chosen] */
        uint32_t *set;     /* [rows] serving only: adapters of the rows */
    } moe;
};

union part_kv {
    struct {
        float *k, *v; /* [positions, kv_heads·head] */
    } gqa;
    struct {
        float *latent; /* [positions, kv_rank + rope] */
    } mla;
};

union part_pool {
    struct {
        struct paged_pool k, v;
    } gqa;
    struct {
        struct paged_pool latent; /* one head of kv_rank + rope, whose first part is also the value */
    } mla;
};

size_t part_rank(const struct part_layout *l, size_t linear); /* of the widest adapter; 0: no LoRA */
size_t part_max_rank(const struct part_layout *l, size_t first, size_t linears); /* of a run of them */

/* --- computing -------------------------------------------------------------------------------- */

/* Tables of rotation: of layers that see all, of those with a window, and of queries where these
 * are also multiplied by something. Those that a model has no need of are empty. */
enum rope_table { ROPE_OF_ALL, ROPE_OF_WINDOW, ROPE_OF_QUERY, ROPE_TABLES };

/* The same for every layer of a microbatch, but for what block.c sets. */
struct block_ctx {
    struct num *num;                  /* borrowed */
    const struct config *config;      /* borrowed */
    const struct rope *ropes;         /* [ROPE_TABLES] borrowed */
    const struct rope *rope, *rope_q; /* of the layer: of keys and of queries; NULL: it is not rotated */
    size_t window;                    /* of the layer, as in struct attn_dims */
    struct seqs seqs;                 /* training and scoring: whole sequences */
    const uint32_t *pos;              /* [tokens] each token's row in the tables of rotation */
    size_t tokens;
    /* Serving: rows of many sequences. */
    const struct paged_span *spans; /* [nspans] all rows, in their order */
    size_t nspans;
    const uint32_t *set; /* [tokens] each row's adapter, as in struct linear_use; NULL elsewhere */
};

struct part {
    void (*tensors)(struct tensor_list *list, const struct config *c);
    /* bwd_x_only: for what only backward_x reads */
    void (*saved_carve)(union part_saved *ret, struct slab *slab, struct slab *bwd_x_only,
                        const struct part_layout *l);
    void (*dys_carve)(union part_dys *ret, struct slab *slab, const struct part_layout *l);
    void (*work_carve)(union part_work *ret, struct slab *slab, const struct part_layout *l);
    void (*kv_carve)(union part_kv *ret, struct slab *slab, const struct part_layout *l); /* attention only */
    void (*pool_carve)(union part_pool *ret, struct slab *slab, const struct part_layout *l); /* likewise */

    void (*forward)(const struct block_ctx *ctx, float *y, union part_saved *saved, const float *h,
                    const struct unit_weights *w, union part_work *work);
    /* dh NULL: not wanted, only what backward_w needs. */
    void (*backward_x)(const struct block_ctx *ctx, float *dh, union part_dys *dys, const float *dy,
                       const union part_saved *saved, const struct unit_weights *w, union part_work *work);
    void (*backward_w)(const struct block_ctx *ctx, const struct unit_grads *g, const union part_dys *dys,
                       const float *dy, const union part_saved *saved, const float *h,
                       const struct unit_weights *w, union part_work *work);
    /* Attention only. The next ctx->tokens positions, first at position `at`. */
    void (*forward_cached)(const struct block_ctx *ctx, float *y, union part_kv *kv, size_t at,
                           const float *h, const struct unit_weights *w, union part_work *work);
    /* Attention only. The rows of ctx->spans; num_is_invariant. */
    void (*forward_paged)(const struct block_ctx *ctx, float *y, const union part_pool *pool, const float *h,
                          const struct unit_weights *w, union part_work *work);
};

extern const struct part part_gqa, part_mla, part_mlp, part_moe;

/* One linear's weight gradients, LoRA's or its own and its bias's; `in` is its input. */
void part_linear_grads(struct num *num, const struct unit_grads *g, size_t linear, const float *dy,
                       const float *dyb, const float *xa, const float *in, const struct unit_weights *w,
                       size_t tokens);
/* dx (added to when `accumulate`) and dyb; only dyb where dx is NULL. */
void part_linear_back(struct num *num, float *dx, float *dyb, const float *dy, const struct linear *lin,
                      size_t tokens, bool accumulate);
/* A pool of l->blocks blocks. */
void part_pool_carve(struct paged_pool *ret, struct slab *slab, const struct part_layout *l, size_t kv_heads,
                     size_t width);
bool part_wants(const struct unit_grads *g, size_t first, size_t linears);

/* --- mlp.c: three linears around an activation, also those of experts ------------------------- */
enum { MLP_GATE, MLP_UP, MLP_DOWN, MLP_LINEARS };
/* Where gate and up are one linear, only these. */
enum { MLP_BOTH, MLP_FUSED_DOWN, MLP_FUSED };
struct mlp_kind {
    struct glu glu;
    bool fused;
};
/* names [3]: of gate, up and down. */
void mlp_tensors(struct tensor_list *list, const char *stem, const char *const *names, size_t ffn, size_t dim,
                 bool bias);
void mlp_saved_carve(struct mlp_saved *ret, struct slab *slab, const struct part_layout *l, size_t first,
                     bool fused, size_t tokens, size_t ffn);
void mlp_dys_carve(struct mlp_dys *ret, struct slab *slab, const struct part_layout *l, size_t first,
                   bool fused, size_t tokens, size_t ffn);
/* lin [3]; wide [T, ffn], fused [T, 2·ffn]; set as in struct linear_use */
void mlp_forward(struct num *num, float *y, const struct mlp_saved *saved, const float *h,
                 const struct linear *lin, struct mlp_kind kind, const uint32_t *set, size_t tokens,
                 float *wide);
void mlp_backward_x(struct num *num, float *dh, const struct mlp_dys *dys, const float *dy,
                    const struct mlp_saved *saved, const struct linear *lin, struct mlp_kind kind,
                    size_t tokens, float *wide, bool accumulate);
/* `first`: index of the gate, or of what it is fused into, among the part's tensors. */
void mlp_backward_w(struct num *num, const struct unit_grads *g, size_t first, const struct mlp_dys *dys,
                    const float *dy, const struct mlp_saved *saved, const float *h,
                    const struct unit_weights *w, struct mlp_kind kind, size_t tokens, float *wide);
/* to [T, width] = columns from … of x [T, stride], and back. */
void part_columns_take(float *to, size_t width, const float *x, size_t stride, size_t from, size_t tokens);
void part_columns_put(float *x, size_t stride, size_t from, const float *own, size_t width, size_t tokens);

#endif
