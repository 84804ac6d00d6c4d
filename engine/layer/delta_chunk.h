/* SPDX-License-Identifier: MIT
 *
 * What both directions of the chunked delta rule need of a chunk: its rows packed, its decays and
 * its triangular factors. With G_t the sum of g up to token t of the chunk, S the state before it,
 * and all matrices of the chunk's tokens t (rows) and s:
 *
 *   D[t, s] = e^(G_t − G_s)
 *   A[t, s] = β_t·D[t, s]·(k_t·k_s) for s < t
 *   M[t, s] = D[t, s]·(q_t·k_s) for s ≤ t
 *   (1 + A)·U = β·(V − e^G·K·S)
 *   O = e^G·Q·S + M·U
 *   S becomes e^G_last·S + Σ_s e^(G_last − G_s)·k_s·u_sᵀ
 *
 * Included by delta.c and delta_back.c only. */
#ifndef LAYER_DELTA_CHUNK_H
#define LAYER_DELTA_CHUNK_H

#include "layer/delta_dims.h"
#include "num/kernels.h"

enum { DELTA_SOLVED = 16 }; /* rows of the triangular system that are solved together */

struct delta_chunk {
    const struct kernels *kern;
    struct delta_dims d;
    size_t kp, vp; /* widths, padded */
    size_t n;      /* tokens */
    float last;    /* e^G_last */
    /* In a lane; rows of DELTA_CHUNK where two tokens meet. */
    float *q, *k, *v;          /* [n, kp], [n, kp], [n, vp] */
    float *kt;                 /* [key, DELTA_CHUNK] */
    float *sum, *grow, *tail;  /* [n] G, e^G, e^(G_last − G) */
    float *beta;               /* [n] */
    float *decay, *kk, *m, *a; /* [n, DELTA_CHUNK] D, k_t·k_s, M and −A; M and A with zeros elsewhere */
    float *u;                  /* [n, vp] U */
    float *rest;               /* [n, vp] V − e^G·K·S */
};

/* A chunk of one value head: rows of qkv from `qkv` on, g and beta of that head from g and beta
 * on. */
struct delta_at {
    const float *qkv, *g, *beta;
    size_t head, n; /* value head; tokens */
};

/* The next floats of a lane, rounded up to whole vectors. */
float *delta_take(float **at, size_t floats);
/* Carves the arrays; returns the first float behind them. */
float *delta_chunk_place(struct delta_chunk *c, const struct kernels *kern, struct delta_dims d, float *lane);
void delta_chunk_load(struct delta_chunk *c, const struct delta_at *at);
/* decay, kk, m and a. */
void delta_chunk_factors(struct delta_chunk *c);
/* rest and u, from the state s [key, vp]. */
void delta_chunk_solve(struct delta_chunk *c, const float *s);
/* dst [rows, to] = src [rows, width] of row length `from`; zeros behind. */
void delta_pack(float *dst, size_t to, const float *src, size_t from, size_t rows, size_t width);
/* rows of x [n, width] times by[t]. */
void delta_scale_rows(const struct kernels *kern, float *x, const float *by, size_t n, size_t width);

/* Where a sequence's state before token `at` of a call is saved: `at` lies a multiple of
 * DELTA_CHUNK, not 0, behind the sequence's first. */
static inline size_t delta_saved_at(size_t at, size_t head, struct delta_dims d)
{
    return ((at / DELTA_CHUNK - 1) * d.value_heads + head) * d.key * d.value;
}

#endif
