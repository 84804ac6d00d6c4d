/* SPDX-License-Identifier: MIT
 *
 * Philox4x32-10 and what is drawn from it. Pure arithmetic on the caller's struct; any thread.
 *
 * Key of a stream: FNV-1a (64 bits) over the bytes of the purpose, xor the mixed seed, mixed again;
 * low word first. The mixer is SplitMix64's finalizer. Block n of a stream is Philox at counter
 * (low n, high n, 0, 0). Dropout: elements come in groups of 64. Element e of group g reads word e
 * / 16 of block next + 16·g + e mod 16, so that a vector of consecutive elements is one word of
 * consecutive blocks. Noise: bytes come in groups of 256, and byte e of group g is byte e / 16 of
 * block 16·g + e mod 16. */
#include "num/rng.h"

#include <math.h>

#include "num/kernels.h"

enum { ROUNDS = 10 };

uint64_t rng_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t rng_stream(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        h = (h ^ *p) * 0x100000001b3u;
    return h;
}

struct rng rng_for(uint64_t seed, const char *purpose)
{
    const uint64_t h = rng_mix(rng_stream(purpose) ^ rng_mix(seed + 0x9e3779b97f4a7c15u));
    return (struct rng){.key = {(uint32_t)h, (uint32_t)(h >> 32)}};
}

void rng_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

static void stream_block(uint32_t out[4], uint64_t block, const uint32_t key[2])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    rng_philox(out, counter, key);
}

uint64_t rng_u64(struct rng *rng)
{
    uint32_t w[4];
    stream_block(w, rng->next++, rng->key);
    return (uint64_t)w[1] << 32 | w[0];
}

/* Lemire's multiply-and-shift: the high word of draw·bound, redrawn while the low word falls in the
 * uneven part. */
uint64_t rng_below(struct rng *rng, uint64_t bound)
{
    const uint64_t uneven = -bound % bound;
    for (;;) {
        const unsigned __int128 product = (unsigned __int128)rng_u64(rng) * bound;
        if ((uint64_t)product >= uneven)
            return (uint64_t)(product >> 64);
    }
}

static double unit53(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

double rng_uniform(struct rng *rng)
{
    return unit53(rng_u64(rng));
}

void rng_fill_uniform(struct rng *rng, float *x, size_t n, float low, float high)
{
    for (size_t i = 0; i < n; i += 2) {
        uint32_t w[4];
        stream_block(w, rng->next++, rng->key);
        for (size_t j = 0; j < 2 && i + j < n; j++) {
            const double u = unit53((uint64_t)w[2 * j + 1] << 32 | w[2 * j]);
            x[i + j] = (float)(low + (high - (double)low) * u);
        }
    }
}

/* Box-Muller, in f64: one block gives one pair. */
void rng_fill_normal(struct rng *rng, float *x, size_t n, float mean, float std)
{
    for (size_t i = 0; i < n; i += 2) {
        uint32_t w[4];
        stream_block(w, rng->next++, rng->key);
        const double u = 1.0 - unit53((uint64_t)w[1] << 32 | w[0]); /* (0, 1] */
        const double angle = 2 * M_PI * unit53((uint64_t)w[3] << 32 | w[2]), radius = sqrt(-2 * log(u));
        x[i] = (float)(mean + std * (radius * cos(angle)));
        if (i + 1 < n)
            x[i + 1] = (float)(mean + std * (radius * sin(angle)));
    }
}

void rng_permutation(struct rng *rng, uint32_t *perm, size_t n)
{
    for (size_t i = 0; i < n; i++)
        perm[i] = (uint32_t)i;
    for (size_t left = n; left > 1; left--) {
        const size_t j = (size_t)rng_below(rng, left);
        const uint32_t was = perm[left - 1];
        perm[left - 1] = perm[j];
        perm[j] = was;
    }
}

struct dropout_consts rng_dropout_consts(const struct rng *base, float p)
{
    const double cut = ceil((double)p * 0x1p32);
    return (struct dropout_consts){
        .key = {base->key[0], base->key[1]},
        .counter = base->next,
        .threshold = cut < 0x1p32 ? (uint32_t)cut : UINT32_MAX,
        .keep = p < 1 ? (float)(1 / (1 - (double)p)) : 0,
    };
}

static float mask_of(const struct dropout_consts *c, uint64_t index)
{
    const uint64_t group = index / DROPOUT_GROUP, e = index % DROPOUT_GROUP;
    uint32_t w[4];
    stream_block(w, c->counter + group * DROPOUT_BLOCKS + e % DROPOUT_BLOCKS, c->key);
    return w[e / DROPOUT_BLOCKS] >= c->threshold ? c->keep : 0;
}

float rng_dropout(struct rng base, uint64_t index, float p)
{
    const struct dropout_consts c = rng_dropout_consts(&base, p);
    return mask_of(&c, index);
}

void rng_dropout_apply(const struct num *num, float *y, const float *x, const struct rng *base,
                       uint64_t first, size_t n, float p)
{
    const struct dropout_consts c = rng_dropout_consts(base, p);
    size_t i = 0;
    for (; i < n && (first + i) % DROPOUT_GROUP; i++)
        y[i] = x[i] * mask_of(&c, first + i);
    const size_t groups = (n - i) / DROPOUT_GROUP;
    num_kernels(num)->dropout(y + i, x + i, groups, (first + i) / DROPOUT_GROUP, &c);
    for (i += groups * DROPOUT_GROUP; i < n; i++)
        y[i] = x[i] * mask_of(&c, first + i);
}
