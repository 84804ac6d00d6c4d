/* SPDX-License-Identifier: MIT
 *
 * The parts of a block: an attention (gqa.c, mla.c) and an MLP (mlp.c, moe.c), each a function from
 * h [T, dim] to y [T, dim] with its tensors, its memory, and its way back. block.c puts norms and
 * residual sums around them. A part finds its weights by their place in its own list of tensors. */
#ifndef MODEL_PART_H
#define MODEL_PART_H

#include "file/config.h"
#include "layer/delta.h"
#include "layer/layer.h"
#include "layer/mla.h"
#include "layer/moe.h"
#include "layer/paged.h"
#include "model/slice.h"
#include "model/tensor_def.h"
#include "num/slab.h"

/* --- names ------------------------------------------------------------------------------------ */

/* What the tensors of a mixture of experts are called; shared: without a model of theirs NULL. */
struct moe_names {
    const char *router, *router_bias;    /* the latter: its own bias, where linears have some */
    const char *bias, *experts, *shared; /* what is added for the choice; of the last two: the stem */
    const char *shared_gate;             /* a gate of the shared expert, or NULL */
    const char *linears[3];              /* gate, up, down */
    enum tensor_weave weave;             /* of experts */
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
/* The same of those whose rows several ranks share; cols 0: a vector. grain: as of struct
 * tensor_def. */
void tensor_shared(struct tensor_list *list, const char *name, size_t rows, size_t cols, size_t grain);
void tensor_add(struct tensor_list *list, const char *name, struct tensor_def def); /* anything else */

/* --- weights ---------------------------------------------------------------------------------- */

/* Entry i belongs to tensor i: of the unit, or of the part where a part is called. */
struct unit_weights {
    struct linear *lin; /* matrices, with bias and LoRA where there is one */
    const float **vec;  /* vectors, f32 */
    /* Of a slice that trains: the matrices with all their rows, and which of them `lin` has. */
    const struct mat *whole;
    const struct slice_rows *cut;
};

/* Where the gradients of the weights are added, NULL where there is none to add. */
struct unit_grads {
    float **full, **a, **b;
    float **bias; /* of a linear's bias, at the linear's place */
    float **m;    /* of DoRA's magnitudes, likewise */
};

/* --- memory ----------------------------------------------------------------------------------- */

struct part_layout {
    const struct config *config;
    const struct config *whole; /* of a slice that trains: of the model; else NULL */
    const struct linear *lin;   /* which linears have LoRA, and of what rank */
    size_t tokens;              /* most tokens of a microbatch */
    size_t positions;           /* of the cache; 0: training, scoring or serving */
    size_t ring;                /* rows of the cache where it keeps a window alone; 0: as many as positions */
    size_t blocks;              /* of the paged pool; 0: not serving */
    size_t ring_blocks;   /* instead of the pool's: of each state, where a window alone is kept; 0: none */
    size_t states;        /* sequences that have a state at once, */
    size_t kept;          /* and states beside them that others begin with */
    size_t guesses;       /* most positions of a state that may be taken back */
    enum kv_type kv_type; /* of the pool */
    size_t longest;       /* most positions of a sequence */
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
        float *gate;                      /* with a gate only: [T, heads·head] */
        float *xa[4];                     /* [T, rank] */
    } gqa;
    struct {
        float *mixed, *z; /* [T, width] before the convolution; [T, value_heads·value] */
        float *b, *a;     /* [T, value_heads] */
        float *states;    /* as delta_forward saves them */
        float *o, *rstd;  /* [T, value_heads·value], [T·value_heads] */
        float *xa[5];     /* [T, rank] */
    } delta;
    struct {
        float *qa, *rstd_qa;   /* with q_rank only: [T, q_rank], [T] */
        float *q;              /* [T, heads·head], rotated */
        float *kva, *rstd_kva; /* [T, kv_rank + rope], the latter rotated; [T] */
        float *o, *lse;        /* [T, heads·value], [T, heads] */
        float *xa[5];          /* [T, rank] */
        uint64_t *seen;        /* [T, words] which keys the indexer chose, or NULL */
        size_t words;
    } mla;
    struct mlp_saved mlp;
    struct {
        float *score, *weight;    /* [T, experts], [T, chosen] */
        uint32_t *chosen;         /* [T, chosen] */
        struct moe_groups groups; /* which rows are whose */
        float *gate, *up, *xa[3]; /* [R, ffn], [R, rank] */
        struct mlp_saved shared;
        float *shared_y, *shared_score; /* with a gate of the shared only: [T, dim] before it, [T] */
    } moe;
};

struct mlp_dys {
    float *gate, *up; /* [T, ffn] gradients of their outputs; that of `down` is dy */
    float *both;      /* [T, 2·ffn] where they are fused: gate and up in each row */
    float *dyb[3];    /* [T, rank] */
    float *all[2];    /* of a slice: gate and up with the columns of all, [T, whole ffn] */
};
union part_dys {
    struct {
        float *q, *k, *v; /* of their outputs; that of `o` is dy */
        float *qn, *kn;   /* with norms only: of the norms' outputs */
        float *wide;      /* of what is taken apart: q, k and v in each row, or each head's q and gate */
        float *gate;      /* with a gate only: [T, heads·head] */
        float *sinks;     /* with sinks only: [T, heads] what each token adds to theirs */
        float *dyb[4];    /* [T, rank] */
        float *all[3];    /* of a slice: of the outputs of q, k and v, with the columns of all */
    } gqa;
    struct {
        float *qan, *qa; /* with q_rank only: of the norm's output, of q_a_proj's */
        float *q, *kv;   /* of q_proj's or q_b_proj's output, of kv_b_proj's */
        float *c, *kva;  /* of the norm's output, of kv_a_proj's */
        float *dyb[5];   /* [T, rank] */
    } mla;
    struct {
        float *mixed, *z, *b, *a; /* of the linears' outputs; fused: `mixed` is not kept */
        float *wide, *ba;         /* fused only: of the two outputs, as they are */
        float *conv;              /* [T, width] of the convolution's output */
        float *norm;              /* [T, value_heads·value] of the norm's output */
        float *a_log;             /* [T, value_heads] what each token adds to it */
        float *dyb[5];            /* [T, rank] */
    } delta;
    struct mlp_dys mlp;
    struct {
        float *logits;             /* [T, experts] */
        float *gate, *up, *dyb[3]; /* [R, ffn], [R, rank] */
        float *all[2];             /* of a slice: gate and up with the columns of all, [R, whole ffn] */
        struct mlp_dys shared;
        float *shared_y, *shared_score; /* as in part_saved */
    } moe;
};

/* Of an indexer: in indexer.h's words. */
struct mla_index_work {
    uint32_t *blocks;         /* [positions / PAGED_BLOCK + 1] the table of keys that lie in one piece */
    struct paged_span *spans; /* [T] generation and serving only */
    uint32_t *chosen;         /* [T, top]; training: of rows that are scored together */
    float *q, *k, *w;         /* [T, heads·head], [T, head], [T, heads] */
    float *scores;            /* [INDEXER_ROWS, stride] */
    size_t stride;
};

union part_work {
    struct {
        float *q, *o, *rstd, *xa; /* [T, heads·head] twice, [T·heads], [T, rank] */
        float *wide;              /* as in part_dys */
        float *k, *v;             /* serving, or with a ring: [T, kv_heads·head] */
        float *gate;              /* with a gate, not training: [T, heads·head] */
    } gqa;
    struct {
        float *qkv;          /* [T, width] */
        float *wide, *ba;    /* fused only: as in part_dys */
        float *y, *norm;     /* [T, value_heads·value] */
        float *g, *beta;     /* [T, value_heads] */
        float *rstd, *xa;    /* [T·value_heads], [T, rank] */
        float *dqkv, *scale; /* training only: [T, width], [T, 2·key_heads] */
        float *dg, *dbeta;   /* training only: [T, value_heads] */
        float *mixed, *z;    /* generation only: as saved by training, and so are: */
        float *b, *a, *o;
        struct delta_run *runs; /* serving only: [T] */
        /* With guesses only: a state that may be wrong, and what is computed again, as saved. */
        float *guess_state, *guess_tail;
        float *again_qkv, *again_o, *again_g, *again_beta;
    } delta;
    struct {
        float *k, *v, *dk, *dv; /* training only: [T, heads·head], [T, heads·value], and their gradients */
        float *kv, *o;          /* training only: [T, heads·(nope + value)]; [T, heads·value] */
        float *qa, *c;          /* [T, q_rank], [T, kv_rank] normalised latents */
        float *q, *kva;         /* generation only: as saved by training */
        float *latent_q, *latent_o; /* generation only: [T, heads·(kv_rank + rope)], [T, heads·kv_rank] */
        struct mla_room room;       /* generation only */
        struct mla_index_work index;
        float *rstd, *xa; /* [T], [T, rank] */
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
        float *k, *v; /* [positions, kv_heads·head], or [ring, …] */
        size_t ring;
    } gqa;
    struct {
        float *latent; /* [positions, kv_rank + rope] */
        float *index;  /* [positions, index_head] keys of the indexer, or NULL */
    } mla;
    struct {
        float *state, *tail; /* [delta_state_floats], [delta_tail_floats] */
    } delta;
};

union part_pool {
    struct {
        struct paged_pool k, v;
    } gqa;
    struct {
        struct paged_pool latent; /* one head of kv_rank + rope, whose first part is also the value */
        struct paged_pool index;  /* keys of the indexer; width 0: there is none */
    } mla;
    struct {
        float *state, *tail; /* as in part_kv, [states + kept] of each */
        /* Of each of `states`, what the linears gave for positions that may be taken back:
         * [guesses, width], and [guesses, value_heads] twice. */
        float *mixed, *b, *a;
        size_t guesses;
    } delta;
};

/* Floats of a row of xa and dyb: of the widest adapter; 0: no LoRA. */
size_t part_rank(const struct part_layout *l, size_t linear);
size_t part_max_rank(const struct part_layout *l, size_t first, size_t linears); /* of a run of them */

/* --- computing -------------------------------------------------------------------------------- */

/* Tables of rotation: of layers that see all, of those with a window, and of queries where these
 * are also multiplied by something. Those that a model has no need of are empty. */
enum rope_table { ROPE_OF_ALL, ROPE_OF_WINDOW, ROPE_OF_QUERY, ROPE_TABLES };

/* Serving: a piece of a sequence, for layers with a state. */
struct state_piece {
    size_t state, row, at, n; /* rows row … row+n−1 are positions at … at+n−1 */
    size_t reached;           /* positions that the state has taken in; up to `at` they are logged */
    size_t stays;             /* what it takes in of them and of the piece: positions before this one */
};

/* Of a stage that is a slice: where its layers gather what all slices give. */
struct part_gather {
    const struct gather *how; /* borrowed */
    float *wide;              /* scratch for the columns of all: of what is multiplied last, */
    float *own;               /* and for its own columns of the output, or of a gradient */
    int failed;               /* −errno: nothing was gathered since, and err says why */
    struct err err;
};

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
    const struct state_piece *pieces; /* [npieces] the same rows */
    size_t npieces;
    const uint32_t *set;        /* [tokens] each row's adapter, as in struct linear_use; NULL elsewhere */
    struct part_gather *gather; /* borrowed; NULL: the stage is no slice */
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
    /* Attention only. One state over another, by number; NULL: it has none. */
    void (*state_copy)(const union part_pool *pool, const struct config *c, size_t to, size_t from);
};

/* A wish for [rows, width], the columns of all slices, of which `own` are this one's; grain as of
 * the tensor whose rows they are. */
struct gather_columns part_columns_of(const struct part_gather *g, float *to, const float *own, size_t rows,
                                      size_t width, size_t grain);
/* Gathers, unless that has failed before; returns g->failed. */
int part_gather_run(struct part_gather *g, const struct gather_columns *what);
/* Both; where it fails, `to` is 0. */
void part_gather_columns(const struct block_ctx *ctx, float *to, const float *own, size_t rows, size_t width,
                         size_t grain);
/* What has a gradient of all outputs of a tensor, where the own outputs of that are `dy`: of a
 * slice `all`, once it has gathered them there; else `dy`. */
const float *part_gather_back(const struct block_ctx *ctx, float *all, const float *dy,
                              const struct unit_weights *w, size_t tensor, size_t grain);
/* What a linear multiplies that takes the outputs of all, [rows, width]: of a slice it is gathered
 * in `wide`; else `own`. */
const float *part_gather_wide(const struct block_ctx *ctx, const float *own, size_t rows, size_t width,
                              size_t grain);
/* x [rows, width] of the first slice, for all: what is decided by x is then decided alike, also on
 * CPUs that round in other ways. */
void part_gather_first(const struct block_ctx *ctx, float *x, size_t rows, size_t width);

extern const struct part part_gqa, part_mla, part_delta, part_mlp, part_moe;

/* One linear's weight gradients, LoRA's or its own and its bias's; `in` is its input. Of a slice dy
 * and `in` are whole: factors get all of their gradient then, a matrix that of its own rows. */
void part_linear_grads(const struct block_ctx *ctx, const struct unit_grads *g, size_t linear,
                       const float *dy, const float *dyb, const float *xa, const float *in,
                       const struct unit_weights *w, size_t tokens);
/* dx (added to when `accumulate`) and dyb; only dyb where dx is NULL. */
void part_linear_back(struct num *num, float *dx, float *dyb, const float *dy, const struct linear *lin,
                      size_t tokens, bool accumulate);
/* The same of what slices may share. dy is whole, dx has the inputs `own` alone: dx = dy·W sums
 * over outputs, so each rank makes whole sums, with some columns of W. */
void part_shared_back(const struct block_ctx *ctx, float *dx, float *dyb, const float *dy,
                      const struct unit_weights *w, size_t linear, struct slice_rows own, size_t tokens,
                      bool accumulate);
/* The inputs that are a slice's own, of `width`; grain as of the tensor whose outputs they are. Of
 * no slice all. */
struct slice_rows part_own(const struct block_ctx *ctx, size_t width, size_t grain);
/* Where a slice puts its own columns of dh, and dh gets those of all; no slice has a place of its
 * own. */
float *part_own_dh(const struct block_ctx *ctx, float *dh);
void part_gather_dh(const struct block_ctx *ctx, float *dh, size_t rows, size_t width);
/* A pool of l->blocks blocks, or of rings. */
void part_pool_carve(struct paged_pool *ret, struct slab *slab, const struct part_layout *l, size_t kv_heads,
                     size_t width);
bool part_wants(const struct unit_grads *g, size_t first, size_t linears);

/* Rows of experts that a call computes together at most. */
size_t part_moe_rows(const struct config *c, size_t tokens);

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
/* whole_ffn: of a slice that trains, the width of all; else 0. */
void mlp_dys_carve(struct mlp_dys *ret, struct slab *slab, const struct part_layout *l, size_t first,
                   bool fused, size_t tokens, size_t ffn, size_t whole_ffn);
/* lin [3]; wide [T, ffn], fused [T, 2·ffn]. Of a slice y is [T, lin[down].w.rows]: its own
 * columns. */
void mlp_forward(const struct block_ctx *ctx, float *y, const struct mlp_saved *saved, const float *h,
                 const struct linear *lin, struct mlp_kind kind, float *wide);
/* `first`: index of the gate, or of what it is fused into, among the part's tensors. */
void mlp_backward_x(const struct block_ctx *ctx, float *dh, const struct mlp_dys *dys, const float *dy,
                    const struct mlp_saved *saved, const struct unit_weights *w, size_t first,
                    struct mlp_kind kind, size_t tokens, float *wide);
void mlp_backward_w(const struct block_ctx *ctx, const struct unit_grads *g, size_t first,
                    const struct mlp_dys *dys, const float *dy, const struct mlp_saved *saved, const float *h,
                    const struct unit_weights *w, struct mlp_kind kind, size_t tokens, float *wide);
/* to [T, width] = columns from … of x [T, stride], and back. */
void part_columns_take(float *to, size_t width, const float *x, size_t stride, size_t from, size_t tokens);
void part_columns_put(float *x, size_t stride, size_t from, const float *own, size_t width, size_t tokens);

#endif
