/* SPDX-License-Identifier: MIT
 *
 * The gated delta rule (Yang, Kautz & Hatamizadeh 2024, "Gated Delta Networks") and what stands
 * around it in a layer: a short convolution, norms of q and k, and the gates. Conventions as in
 * layer.h. Each value head has a state S [key, value], zero before a sequence:
 *
 *   S ← e^g·S,  u = β·(v − Sᵀk),  S ← S + k·uᵀ,  o = Sᵀq
 *
 * Training computes chunks of DELTA_CHUNK tokens, in which u follows from a triangular system (Yang
 * et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length").
 * Generation goes token by token, so its bits do not depend on how a text is cut. */
#ifndef LAYER_DELTA_H
#define LAYER_DELTA_H

#include "layer/delta_dims.h"
#include "layer/layer.h"

/* --- the convolution and its norms ------------------------------------------------------------ */
/* y [T, width]: y_t = Σ_j w[c, j]·x_{t−taps+1+j} of each channel c alone, zeros before a sequence.
 * w [width, taps]. */
void delta_conv_forward(struct num *num, float *y, const float *x, const float *w, struct seqs seqs,
                        struct delta_dims d);
void delta_conv_backward_x(struct num *num, float *dx, const float *dy, const float *w, struct seqs seqs,
                           struct delta_dims d);
void delta_conv_backward_w(struct num *num, float *dw, const float *dy, const float *x, struct seqs seqs,
                           struct delta_dims d);
/* In place on y [T, width]: each head of q and k is divided by √(Σx² + 1e-6), and q by √key as
 * well. scale [T, 2·key_heads] gets what they were multiplied by; NULL: not wanted. */
void delta_norm_forward(struct num *num, float *y, float *scale, size_t tokens, struct delta_dims d);
/* In place: dy becomes the gradient before the norm. y, scale: what the forward gave. */
void delta_norm_backward_x(struct num *num, float *dy, const float *y, const float *scale, size_t tokens,
                           struct delta_dims d);

/* --- the gates -------------------------------------------------------------------------------- */
/* g = −e^a_log·softplus(a + dt_bias), beta = σ(b); all [T, value_heads], a_log and dt_bias
 * [value_heads]. g may be a, beta may be b. */
void delta_gates_forward(float *g, float *beta, const float *a, const float *b, const float *a_log,
                         const float *dt_bias, size_t tokens, struct delta_dims d);
/* da, db, and da_log, what each token adds to the gradient of a_log; that of dt_bias is the sum of
 * da. da may be dg, db may be dbeta. */
void delta_gates_backward_x(float *da, float *db, float *da_log, const float *dg, const float *dbeta,
                            const float *a, const float *b, const float *a_log, const float *dt_bias,
                            size_t tokens, struct delta_dims d);

/* --- the rule --------------------------------------------------------------------------------- */
/* Training: o [T, value_heads·value] from qkv [T, width], g and beta [T, value_heads]. Saves the
 * states before every chunk but a sequence's first: states [delta_saved(T), delta_state_floats]. */
void delta_forward(struct num *num, float *o, float *states, const float *qkv, const float *g,
                   const float *beta, struct seqs seqs, struct delta_dims d);
void delta_backward_x(struct num *num, float *dqkv, float *dg, float *dbeta, const float *d_o,
                      const float *states, const float *qkv, const float *g, const float *beta,
                      struct seqs seqs, struct delta_dims d);

/* --- generation ------------------------------------------------------------------------------- */
/* Rows row … row+n−1 of a call are the next tokens of one sequence. */
struct delta_run {
    float *state, *tail; /* of the sequence, brought up to date */
    size_t row, n;
    bool is_first; /* nothing stands before them: what lies in state and tail does not count */
};
/* As delta_conv_forward, on what `tail` holds. Later runs may go on where earlier ones end. */
void delta_conv_steps(struct num *num, float *y, const float *x, const float *w, const struct delta_run *runs,
                      size_t n, struct delta_dims d);
/* As delta_forward, token by token. */
void delta_steps(struct num *num, float *o, const float *qkv, const float *g, const float *beta,
                 const struct delta_run *runs, size_t n, struct delta_dims d);

#endif
