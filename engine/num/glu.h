/* SPDX-License-Identifier: MIT
 *
 * The activations of gated MLPs, y = act(gate, up), as kernels, layers and configs name them. */
#ifndef NUM_GLU_H
#define NUM_GLU_H

enum glu_kind {
    GLU_SILU,      /* gate·σ(gate)·up (Shazeer 2020) */
    GLU_GELU_TANH, /* gelu(gate)·up, with the approximation by tanh (Hendrycks & Gimpel 2016) */
    GLU_CLAMPED,   /* g·σ(1.702·g)·(u + 1), g = min(gate, limit), u = up within ±limit (gpt-oss) */
    GLU_SIGMOID,   /* σ(gate)·up (Dauphin et al. 2017), of attention's gate */
    GLU_KINDS
};
struct glu {
    enum glu_kind kind;
    float limit; /* GLU_CLAMPED alone */
};

#endif
