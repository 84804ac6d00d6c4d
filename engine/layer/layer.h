/* SPDX-License-Identifier: MIT
 *
 * Layers as explicit pairs. Conventions, without exception:
 *   - argument order: num, outputs, saved, inputs, weights, dims; backward: num, d_inputs,
 *     d_weights, d_outputs, saved, inputs, weights, dims. Everything not written is const.
 *   - gradients of inputs are ASSIGNED, gradients of weights are ADDED to.
 *   - activations are f32, row-major [T, width]; T counts the tokens of all sequences of a
 *     microbatch laid end to end (no padding), `struct seqs` says where each begins.
 *   - backward_x gives the gradient of the input, backward_w that of the weights; either may run
 *     without the other. */
#ifndef LAYER_LAYER_H
#define LAYER_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/gemm.h"
#include "num/glu.h"
#include "num/num.h"
#include "num/rng.h"

/* The sequences of one microbatch: tokens start[i] … start[i+1]−1 belong to sequence i. */
struct seqs {
    size_t n;              /* sequences */
    const uint32_t *start; /* n + 1 offsets, start[0] = 0, start[n] = T */
};

/* --- embedding: y[t] = W[ids[t]] -------------------------------------------------------------- */
/* y [T, W.cols]; every id < W.rows (the caller has checked). */
void embed_forward(struct num *num, float *y, const uint32_t *ids, struct mat w, size_t tokens);
/* dw [V, d] += rows of dy [T, d] scattered by id, in token order. */
void embed_backward_w(struct num *num, float *dw, const float *dy, const uint32_t *ids, size_t tokens,
                      size_t dim);

/* --- RMSNorm: y = x · rstd · w, rstd = 1/√(mean(x²)+eps) per row (Zhang & Sennrich 2019) ------ */
struct rmsnorm_dims {
    size_t rows, dim;
    float eps;
    size_t stride; /* from a row of x (and of dx) to the next where they lie in something wider; 0: dim */
};
/* w [dim] f32; saved rstd [rows]. y may be x. */
void rmsnorm_forward(struct num *num, float *y, float *rstd, const float *x, const float *w,
                     struct rmsnorm_dims dims);
/* dx = rstd·(dy·w − x·rstd²·mean(dy·w·x)); dx may be dy. */
void rmsnorm_backward_x(struct num *num, float *dx, const float *dy, const float *rstd, const float *x,
                        const float *w, struct rmsnorm_dims dims);
/* dw[j] += Σ_rows dy·x·rstd. */
void rmsnorm_backward_w(struct num *num, float *dw, const float *dy, const float *rstd, const float *x,
                        struct rmsnorm_dims dims);

/* --- linear with optional bias and LoRA: y = xWᵀ + b + s·(drop(x)Aᵀ)Bᵀ (Hu et al. 2021) ------- */
struct lora {
    const float *a; /* [rank, in] */
    const float *b; /* [out, rank] */
    size_t rank;
    float scale;       /* alpha / rank, or alpha / √rank */
    float dropout;     /* probability; 0 = none */
    struct rng drop;   /* stream of this layer, step and microbatch; element index = row·in + column */
    const float *m;    /* [out] magnitudes of DoRA (dora.h), or NULL; and what follows from them: */
    float *inv, *gain; /* [out] */
    size_t fixed;      /* so many of the last of `rank` are never updated, and have no gradient */
};
#define LORA_NONE UINT32_MAX
/* The factors as seen from the output `rows` further on, or before: of some of the outputs out of
 * those of all, and back. */
struct lora lora_moved(const struct lora *lora, ptrdiff_t rows);
struct linear {
    struct mat w;
    const float *bias;       /* [out] or NULL */
    const struct lora *lora; /* or NULL */
    size_t apart;  /* where there are several adapters: the next one's lies lora + apart; one that leaves
                     this linear alone has rank 0 there */
    size_t widest; /* of all of them: most floats of a row that xa and dyb have */
};
/* x [T, in] → y [T, out]; with LoRA saves xa = drop(x)Aᵀ [T, rank], and with DoRA [T, out] behind
 * it. y must not alias x. */
void linear_forward(struct num *num, float *y, float *xa, const float *x, const struct linear *lin,
                    size_t tokens);
/* The same for several linears, none of which needs another's y; an xa may serve all of them where
 * it is not kept. With few tokens they are computed at once. */
struct linear_use {
    float *y, *xa;
    const float *x;
    const struct linear *lin;
    size_t tokens;
    /* [tokens] or NULL: row t has adapter set[t], counted from the linear's; LORA_NONE: none. Such
     * an xa is scratch and nothing is dropped. Rows of one adapter that follow one another share a
     * product. */
    const uint32_t *set;
};
void linear_forward_each(struct num *num, const struct linear_use *uses, size_t n);
/* dx [T, in] = dy W + LoRA path (added to dx when `accumulate`: q, k, v share one input).
 * With LoRA writes dyb = s·dy·B [T, rank], and with DoRA [T, out] behind it, which backward_w
 * needs. */
void linear_backward_x(struct num *num, float *dx, float *dyb, const float *dy, const struct linear *lin,
                       size_t tokens, bool accumulate);
/* LoRA: da [rank, in] += dybᵀ·drop(x), db [out, rank] += s·dyᵀ·xa; DoRA: dm [out] too. What is
 * fixed gets 0. */
struct lora_grads {
    float *a, *b, *m; /* m: NULL without DoRA, or where another adds to it */
};
void lora_backward_w(struct num *num, struct lora_grads g, const float *dy, const float *dyb, const float *xa,
                     const float *x, const struct linear *lin, size_t tokens);
/* dyb alone, for the lowest trained layer, where no dx is wanted. */
void lora_backward_dyb(struct num *num, float *dyb, const float *dy, const struct linear *lin, size_t tokens);
/* Full: dw [out, in] += dyᵀx; dbias [out] += Σ_rows dy (either may be NULL). */
void linear_backward_w(struct num *num, float *dw, float *dbias, const float *dy, const float *x,
                       size_t tokens, size_t in, size_t out);

/* --- rotary position embedding (Su et al. 2021) ----------------------------------------------- */
/* Which two elements are rotated together: (i, i + width/2) as in Llama and Qwen, (2i, 2i + 1) in
 * DeepSeek. */
enum rope_pairs { ROPE_HALVES, ROPE_NEIGHBOURS };
struct rope {
    float *cos, *sin;        /* [positions, width/2] tables, owned */
    size_t positions, width; /* rows; width: elements of a head that are rotated */
    enum rope_pairs pairs;
};
/* inv_freq [width/2] already scaled (linear, llama3, yarn: see file/config.h); mscale multiplies
 * both tables (1 for Llama). */
int rope_init(struct rope *rope, const double *inv_freq, size_t positions, size_t width,
              enum rope_pairs pairs, double mscale, struct err *err);
/* More rows behind those there are: positions from 0 on again, with other frequencies. */
int rope_extend(struct rope *rope, const double *inv_freq, size_t positions, double mscale, struct err *err);
/* Multiplies a row of both tables. */
void rope_scale_row(struct rope *rope, size_t row, double factor);
void rope_done(struct rope *rope);
/* In place on the first `width` elements of each of x [T, heads, head]; token t is rotated by row
 * pos[t] (< rope.positions), its position where there are no rows behind. `inverse` rotates back:
 * since the rotation is orthogonal but for mscale, that is the backward pass. */
void rope_apply(struct num *num, float *x, const uint32_t *pos, const struct rope *rope, size_t tokens,
                size_t heads, size_t head, bool inverse);

enum { ATTN_RING = 64 }; /* keys that are scored together lie in one piece of a ring */

/* --- causal grouped-query attention, in blocks with online softmax (Dao 2022): no T×T matrix -- */
struct attn_dims {
    size_t heads, kv_heads; /* heads % kv_heads == 0 */
    size_t head;            /* width of q·k */
    float scale;            /* of the scores, 1/√head for Llama */
    size_t value;           /* width of v and of o; 0: head */
    size_t v_stride;  /* from a row of v to the next where v lies in something wider; 0: kv_heads·value */
    size_t row_heads; /* of a row of q and of o where these are only some of its heads; 0: heads. Generation
                         alone */
    size_t window;    /* a query sees so many keys: its own and those right before it; 0: all before it */
    size_t ring;      /* with a window: k and v have so many rows, a multiple of ATTN_RING, and position p is
                         in row p mod ring; 0: in row p. Generation alone */
    float softcap;    /* scores become softcap·tanh(score / softcap); 0: they stay */
    const float *sinks; /* [heads] or NULL: a score of each head that joins the softmax, and has no value */
    /* [T, chosen_words] or NULL: query t sees key s of its sequence, of those before it and its
     * own, where bit s of row t is set; at least one is. Training alone. */
    const uint64_t *chosen;
    size_t chosen_words;
};
/* Training: q [T, heads·head], k [T, kv_heads·head], v [T, kv_heads·value] of whole sequences → o
 * [T, heads·value], saved lse [T, heads] (log Σ exp of the scaled scores). */
void attn_forward(struct num *num, float *o, float *lse, const float *q, const float *k, const float *v,
                  struct seqs seqs, struct attn_dims dims);
/* dq, dk, dv (dense) from do; recomputes the probabilities from q, k and lse. Deterministic. */
void attn_backward_x(struct num *num, float *dq, float *dk, float *dv, const float *d_o, const float *o,
                     const float *lse, const float *q, const float *k, const float *v, struct seqs seqs,
                     struct attn_dims dims);
/* With sinks: dsink [T, heads], what each query adds to their gradients. */
void attn_sinks_backward(struct num *num, float *dsink, const float *d_o, const float *o, const float *lse,
                         size_t tokens, struct attn_dims dims);
/* Generation: q [n, heads·head] are the newest n of `len` positions whose k [len, kv_heads·head]
 * and v [len, kv_heads·value] lie in the cache; in a ring, the newest window − 1 + n at least. */
void attn_cached(struct num *num, float *o, const float *q, const float *k, const float *v, size_t n,
                 size_t len, struct attn_dims dims);

/* --- the activation of a gated MLP: y = act(g, u), see num/glu.h ------------------------------ */
void glu_forward(struct num *num, float *y, const float *g, const float *u, struct glu glu, size_t n);
/* dg, du may alias g, u when those are no longer needed; dg may alias dy. */
void glu_backward_x(struct num *num, float *dg, float *du, const float *dy, const float *g, const float *u,
                    struct glu glu, size_t n);

/* --- output head and cross-entropy ------------------------------------------------------------ */
/* Only rows with a label are computed, in blocks of rows, so that logits [T, V] never exist; the
 * gradient of the head's input (and weight) falls out of the same pass, for recomputing the logits
 * later would cost a third more. */
/* Several may share a head: W has some rows of it. Each gets all logits, and makes some inputs of
 * dh. */
struct xent_shared {
    struct mat whole;     /* with all rows, of which W's begin at `first`; */
    size_t first;         /* */
    size_t input, inputs; /* inputs input … input+inputs−1 are its own */
    float *own;           /* scratch [xent_rows, the larger of W.rows and `inputs`] */
    void *owner;          /* borrowed */
    /* all [rows, width] of what everybody has of it */
    void (*gather)(void *owner, float *all, const float *own, size_t rows, size_t width);
};
struct xent {
    const int32_t *labels; /* [T] next token of each position, < V (the caller has checked); negative, as −100
                              = not supervised */
    float dscale; /* what dlogits are multiplied by: 1 / supervised tokens of the whole step; 0 = forward only
                   */
    const float *weight;              /* [T] or NULL: dlogits of a row are multiplied by this as well */
    float *logprob;                   /* [T] or NULL: log-probability of the label, 0 where there is none */
    float softcap;                    /* as of logits_cap */
    const struct xent_shared *shared; /* borrowed; NULL: W is the head */
};
/* h [T, d], W [V, d]. Returns Σ −log p(label) (f64, rows in order) and writes dh [T, d] (0 in
 * unsupervised rows) when dscale ≠ 0; dw [V, d] += dlogitsᵀ·h when dw is not NULL. */
double xent_forward(struct num *num, float *dh, float *dw, const float *h, struct mat w,
                    const struct xent *xent, size_t tokens);
struct likely {
    uint32_t id;
    float logprob;
};
/* Of one row of logits [vocab]: the log-probability of `id`, and the `top` likeliest tokens
 * (≤ vocab), the likeliest first; of two that are equally likely the lower id. */
float xent_row(struct num *num, const float *logits, size_t vocab, uint32_t id, struct likely *likely,
               size_t top);
/* logits [n] become softcap·tanh(logit / softcap); 0: they stay. */
void logits_cap(struct num *num, float *logits, size_t n, float softcap);
/* Rows whose logits exist at once, at most, of so many tokens; */
size_t xent_rows(size_t tokens, size_t vocab, size_t dim);
/* and most floats of num's block that it touches. */
size_t xent_scratch(size_t tokens, size_t vocab, size_t dim);

#endif
