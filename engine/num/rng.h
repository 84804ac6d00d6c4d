/* SPDX-License-Identifier: MIT
 *
 * Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel Random Numbers: As Easy as
 * 1, 2, 3", SC'11): the value at (seed, purpose, index) is a pure function, so every node draws the
 * same numbers however the model is split. A purpose is a string such as "shuffle/3" or
 * "init/model.layers.0.mlp.up_proj.weight". */
#ifndef NUM_RNG_H
#define NUM_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint32_t key[2]; /* from seed and purpose */
    uint64_t next;   /* counter of the next 128-bit block */
};

/* Spreads the bits of a number: the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable
 * pseudorandom number generators", 2014, figure 17). For hashes too. */
uint64_t rng_mix(uint64_t x);
struct rng rng_for(uint64_t seed, const char *purpose);
/* A number for a name, for struct mat. */
uint64_t rng_stream(const char *name);
uint64_t rng_u64(struct rng *rng);
uint64_t rng_below(struct rng *rng, uint64_t bound); /* unbiased; bound > 0 */
double rng_uniform(struct rng *rng);                 /* [0, 1), 53 bits */
void rng_fill_uniform(struct rng *rng, float *x, size_t n, float low, float high);
void rng_fill_normal(struct rng *rng, float *x, size_t n, float mean, float std);
void rng_permutation(struct rng *rng, uint32_t *perm, size_t n); /* Fisher-Yates over 0..n-1 */

/* Dropout mask factor of element `index`: 0 with probability p, else 1/(1−p). Pure, for
 * regenerating in backward. */
float rng_dropout(struct rng base, uint64_t index, float p);

#endif
