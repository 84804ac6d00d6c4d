/* SPDX-License-Identifier: MIT
 *
 * What num/ shares with layer/ and train/ behind the public headers: the table of vector kernels
 * chosen for this CPU, and the scratch of a process. kernels.c is compiled once per instruction
 * set, each object exporting one table; isa.c picks. A kernel works on one thread, never allocates,
 * and takes pointers aligned to their element or less. */
#ifndef NUM_KERNELS_H
#define NUM_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "num/glu.h"
#include "num/block.h"
#include "num/dtype.h"
#include "num/num.h"
#include "num/quant.h"

/* Rows of tiles are padded to a multiple of this, so that a kernel of any vector width needs no
 * column remainder. */
enum { TILE_PAD = 16 };
static inline size_t tile_pad(size_t n)
{
    return (n + TILE_PAD - 1) / TILE_PAD * TILE_PAD;
}

/* C[m, n] (+)= A[m, k] · B[k, n], everything in cache. A is read at a[i·ai + p·ak], so it may lie
 * transposed; rows of B and C hold n floats, n a multiple of TILE_PAD. Each element is one sum over
 * p in ascending order.
 */
struct tile {
    float *c;
    size_t ldc;
    const float *a;
    size_t ai, ak;
    const float *b;
    size_t ldb;
    size_t m, n, k;
    bool accumulate;
};

/* One token of the gated delta rule (layer/delta.h), whose state s is [keys, n]. With y = sᵀk and u
 * = beta·(v − decay·y): o = decay·sᵀq + qk·u, and s becomes decay·s + k·uᵀ. Sums go over keys in
 * ascending order. */
struct delta_step {
    float *o, *s;           /* [n], [keys, n] */
    const float *q, *k, *v; /* [keys], [keys], [n] */
    float decay, beta, qk;  /* qk: q·k */
    size_t keys, n;
};

struct adamw_consts {
    float gscale, decay;              /* gradient factor; 1 − lr·weight_decay */
    float beta1, rest1, beta2, rest2; /* rest = 1 − beta */
    float step_size, root_bias2, eps; /* lr/(1 − beta1^t), √(1 − beta2^t) */
};

/* Dropout of elements first … first+n−1 of a stream; see rng.c for which counter each element
 * reads. */
struct dropout_consts {
    uint32_t key[2];
    uint64_t counter;
    uint32_t threshold; /* a draw below it drops the element */
    float keep;         /* factor of the others */
};

struct kernels {
    const char *isa;
    void (*to_f32[DTYPE_COUNT])(float *dst, const void *src, size_t n);
    /* Without scales: whoever has some puts them into x. y[i·ldy + r] (+)= x[i, cols] · w[r, cols]
     * for i < nx, r < rows; ldx, ldw in elements. */
    void (*dots[DTYPE_COUNT])(float *y, size_t ldy, const float *x, size_t ldx, size_t nx, const void *w,
                              size_t ldw, size_t rows, size_t cols, bool accumulate);
    /* As block_to_f32 of block.h. */
    void (*block_to_f32)(float *dst, const void *row, enum block_type type, size_t from, size_t n);
    /* Quantized weights, by their bits. n elements from the start of a group on; the last group may
     * be shorter, by whole words. NULL: there are none of so many bits. */
    void (*quant_to_f32[QUANT_MOST + 1])(float *dst, const uint8_t *w, const float *scale, const float *bias,
                                         size_t group, size_t n);
    /* The same of MXFP4; half: of each group half of its scale. */
    void (*fp4_to_f32)(float *dst, const uint8_t *w, const float *half, size_t group, size_t n);
    /* The first n elements of a row of `width` as row8.h has it. */
    void (*row8_to_f32)(float *dst, const void *row, size_t width, size_t n);
    void (*tile)(const struct tile *t);
    void (*transpose)(float *dst, size_t ldd, const float *src, size_t lds, size_t rows, size_t cols);

    void (*add)(float *y, const float *a, const float *b, size_t n);
    void (*axpy)(float *y, float alpha, const float *x, size_t n);
    void (*mul_add)(float *y, const float *a, const float *b, size_t n); /* y += a·b, each with each */
    void (*scale)(float *y, float alpha, size_t n);
    double (*sumsq)(const float *x, size_t n);
    float (*dot)(const float *a, const float *b, size_t n);

    double (*logsumexp)(const float *x, size_t n);
    void (*exp_minus)(float *x, size_t n, float minus, float scale); /* x = exp(x − minus)·scale */
    /* One row of an online softmax: s = exp(s − m) with m the new maximum, *sum and *max brought up
     * to date; returns what earlier results must be multiplied by. */
    float (*softmax_online)(float *s, size_t n, float *max, float *sum);
    /* The same for n rows that lie as columns, s[c·ld + i] for c < keys and i < n: max, sum and
     * what earlier results must be multiplied by are [n]. */
    void (*softmax_columns)(float *s, size_t ld, size_t keys, size_t n, float *max, float *sum,
                            float *rescale);
    /* Of one key and n queries: the scores in p become exp(p − lse), and dp = p·(dp − delta). */
    void (*softmax_back)(float *p, float *dp, const float *lse, const float *delta, size_t n);

    float (*rmsnorm)(float *y, const float *x, const float *w, size_t n, float eps); /* returns rstd */
    void (*rmsnorm_back)(float *dx, const float *dy, const float *x, const float *w, size_t n, float rstd);
    void (*rmsnorm_dw)(float *dw, const float *dy, const float *x, size_t n, float rstd);
    void (*rope)(float *x, const float *cos, const float *sin, size_t half, bool inverse); /* (i, i + half) */
    void (*rope_neighbours)(float *x, const float *cos, const float *sin, size_t half,
                            bool inverse); /* (2i, 2i + 1) */
    /* By kind; limit: of GLU_CLAMPED. */
    void (*glu[GLU_KINDS])(float *y, const float *g, const float *u, size_t n, float limit);
    void (*glu_back[GLU_KINDS])(float *dg, float *du, const float *dy, const float *g, const float *u,
                                size_t n, float limit);
    void (*delta)(const struct delta_step *step);
    void (*adamw)(float *w, float *m, float *v, const float *g, size_t n, const struct adamw_consts *c);
    /* y = x · mask for whole groups of DROPOUT_GROUP elements, `group` being the number of the
     * first. */
    void (*dropout)(float *y, const float *x, size_t groups, uint64_t group, const struct dropout_consts *c);
    /* Random bytes [groups · NOISE_GROUP], `group` being the number of the first; see rng.c. */
    void (*noise)(uint8_t *to, size_t groups, uint64_t group, const uint32_t key[2]);
};

extern const struct kernels kernels_base;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;

const struct kernels *isa_pick(void); /* the best table this CPU and operating system can run */
/* How this CPU rounds: as CPUs that say the same. The name of that table, and "avx512/amx" where
 * products in bf16, and they alone, have the bits of AMX. */
const char *isa_rounding(void);

/* --- rng.c: the generator itself, and how dropout lays elements on its blocks ----------------- */
enum { DROPOUT_GROUP = 64, DROPOUT_BLOCKS = 16, NOISE_GROUP = 256 };
struct rng;
void rng_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]); /* one block, 10 rounds */
struct dropout_consts rng_dropout_consts(const struct rng *base, float p);
/* y[i] = x[i] · rng_dropout(base, first + i, p); y may be x. */
void rng_dropout_apply(const struct num *num, float *y, const float *x, const struct rng *base,
                       uint64_t first, size_t n, float p);

/* --- num.c: the process's unit ---------------------------------------------------------------- */
const struct kernels *num_kernels(const struct num *num);
struct int_kernels;
const struct int_kernels *num_integers(const struct num *num); /* integer.h */
struct int_tiles;
const struct int_tiles *num_int_tiles(const struct num *num); /* integer.h */
struct packed_kernels;
/* packed.h; both may be NULL. For factors rounded to bf16: with an instruction for them where that
 * is faster, or else the same. */
const struct packed_kernels *num_packed(const struct num *num);
const struct packed_kernels *num_packed_bf16(const struct num *num);
const struct packed_kernels *num_packed_bytes(const struct num *num); /* never NULL */
/* Floats of scratch, 64-byte aligned, set aside when the unit was made (pages are only touched when
 * used). The panel and the converted factors (weights as f32, or the rows of a product in the order
 * of its tiles) are gemm's own; the block belongs to the layer that runs; lanes and converted
 * factors are one per thread. */
struct scratch {
    float *data; /* borrowed: num */
    size_t floats;
};
enum { NUM_LANE_FLOATS = 1 << 19 }; /* tiles of attention, and of a factor a thread packs for itself */
struct scratch num_panel(const struct num *num);
struct scratch num_block(const struct num *num);
struct scratch num_lane(const struct num *num, int thread);
struct scratch num_converted(const struct num *num, int thread);
struct scratch num_converted_all(const struct num *num); /* of all threads, as one */

#endif
