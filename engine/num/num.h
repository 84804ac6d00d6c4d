/* SPDX-License-Identifier: MIT
 *
 * The arithmetic unit of a process: which vector kernels the CPU has, how many threads, and the
 * scratch that matrix products convert stored weights into. Every layer takes one as its first
 * argument; it is not shared between threads that compute at the same time. */
#ifndef NUM_NUM_H
#define NUM_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct num;

/* 144 MiB that layers share, one at a time: a block of logits (256 of a vocabulary of 128 Ki: with
 * fewer rows, packing the head for each block costs as much as a third of multiplying), inputs
 * after dropout. Only what is used is ever memory. */
enum { NUM_BLOCK_FLOATS = 36 << 20 };

/* threads: 0 = as many as the OpenMP runtime allows. The caller frees with num_free (NULL is
 * fine). */
int num_new(struct num **ret, int threads, struct err *err);
void num_free(struct num *num);

int num_threads(const struct num *num);
/* "avx512", "avx2", "neon", "base": what the vector kernels were compiled for. Sums in f32 have the
 * same bits where it is the same, and else differ by rounding; where OpenBLAS multiplies ("neon",
 * "base"), which kernels that takes for a CPU counts as well. */
const char *num_isa(const struct num *num);
/* What numbers rounded to bf16 are multiplied with: "amx_bf16", where the CPU has it, whose sums
 * have bits of their own; "avx512_bf16", where the CPU has that and is faster with it, which is
 * timed in num_new; else as num_isa. The bits of these two are the same. */
const char *num_isa_bf16(const struct num *num);
bool num_is_bf16_fast(const struct num *num); /* it has, and is */
/* What bytes are multiplied with: "amx", "vnni", "avxvnni", "avx2", "neon", "base". The bits are
 * the same. */
const char *num_isa_bytes(const struct num *num);

/* What x · Wᵀ and dy · W are multiplied in (gemm_xwt, gemm_xw): NUM_F32, as from the beginning;
 * NUM_INT8: with quantized weights x is rounded to 8 bits for many rows, and for few with weights
 * of 4 bits; NUM_BF16: for many rows both factors are rounded to bf16, and sums are f32;
 * NUM_BYTES: for many rows both are rounded to 8 bits, whatever weights are stored in (product.h).
 */
enum num_compute { NUM_F32, NUM_INT8, NUM_BF16, NUM_BYTES, NUM_COMPUTES };
const char *num_compute_name(enum num_compute compute); /* "f32", "int8", "bf16", "int8" */
void num_set_compute(struct num *num, enum num_compute compute);
enum num_compute num_compute(const struct num *num);

/* With NUM_BYTES: the key of the random numbers that round dy, from here on; NULL, as from the
 * beginning: it is rounded to the nearest. Each W has a key of its own (struct mat). */
void num_set_noise(struct num *num, const uint32_t key[2]);
/* false: there are none. Else those of W with that stream have this key. */
bool num_noise(const struct num *num, uint64_t stream, uint32_t ret_key[2]);

/* Batch invariance (He 2025): while it is on, the bits of a row of x · Wᵀ depend on that row of x
 * and on W alone, not on how many rows there are. They are those that gemm_xwt gives one row. Off
 * at first; training is faster without. */
void num_set_invariant(struct num *num, bool invariant);
bool num_is_invariant(const struct num *num);

#endif
