/* SPDX-License-Identifier: MIT
 *
 * The tiles of packed.h, in plain C on GCC's vector extensions. Compiled once per instruction set that has them, with
 * -DPACKED=packed_kernels_X. Any thread, no state. */
#include "num/packed.h"

#include "num/simd.h"

enum {
    STEPS = 8, /* of k in one turn of the loop */
    AHEAD =
        32, /* steps before the end at which C is fetched: any earlier, and A and B drive it out of the first cache again */
    LINE = 16, /* floats of a cache line */
    NV = PACKED_WIDE / VL,
};

#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* a: elements of a row `along` apart, rows `apart`. */
struct factors {
    const float *a;
    size_t along, apart;
    const float *b;
};

INLINE void step(vf acc[PACKED_TALL][NV], struct factors f, size_t p)
{
    vf b[NV];
    UNROLL
    for (int j = 0; j < NV; j++)
        b[j] = load(f.b + p * PACKED_WIDE + (size_t)j * VL);
    UNROLL
    for (size_t i = 0; i < PACKED_TALL; i++) {
        vf x = splat(f.a[p * f.along + i * f.apart]);
        UNROLL
        for (int j = 0; j < NV; j++)
            add_product(&acc[i][j], x, b[j]);
    }
}

/* The next k steps. */
INLINE void steps(vf acc[PACKED_TALL][NV], struct factors *f, size_t k)
{
    for (; k >= STEPS; k -= STEPS) {
        UNROLL
        for (size_t p = 0; p < STEPS; p++)
            step(acc, *f, p);
        f->a += STEPS * f->along;
        f->b += STEPS * PACKED_WIDE;
    }
    for (; k; k--) {
        step(acc, *f, 0);
        f->a += f->along;
        f->b += PACKED_WIDE;
    }
}

INLINE void multiply(float *c, size_t ldc, struct factors f, size_t k, bool accumulate)
{
    vf acc[PACKED_TALL][NV] = {0};
    const size_t first = k > AHEAD ? (k - AHEAD) / STEPS * STEPS : 0;
    steps(acc, &f, first);
    UNROLL
    for (size_t i = 0; i < PACKED_TALL; i++)
        __builtin_prefetch(c + i * ldc, 1);
    steps(acc, &f, k - first);
    UNROLL
    for (size_t i = 0; i < PACKED_TALL; i++)
        UNROLL
    for (int j = 0; j < NV; j++) {
        float *to = c + i * ldc + (size_t)j * VL;
        store(to, accumulate ? load(to) + acc[i][j] : acc[i][j]);
    }
}

static void tile(float *c, size_t ldc, const float *a, const float *b, size_t k, bool accumulate)
{
    multiply(c, ldc, (struct factors){a, PACKED_TALL, 1, b}, k, accumulate);
}

static void tile_in_place(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t k,
                          bool accumulate)
{
    multiply(c, ldc, (struct factors){a, 1, lda, b}, k, accumulate);
}

/* Four rows at a time: of more, a power of two apart, each would drive the others out of the first cache. */
INLINE void turn(float *dst, const float *src, size_t lds, size_t k, const size_t wide)
{
    for (size_t r = 0; r < wide; r += 4) {
        const size_t at = r + 4 <= wide ? r : wide - 4;
        const float *from = src + at * lds;
        float *to = dst + at;
        size_t p = 0;
        for (; p + 4 <= k; p += 4, from += 4, to += 4 * wide) {
            if (p % LINE == 0)
                for (size_t i = 0; i < 4; i++)
                    __builtin_prefetch(from + (i + wide) * lds);
            transpose4(to, wide, from, lds);
        }
        for (; p < k; p++, from++, to += wide)
            for (size_t i = 0; i < 4; i++)
                to[i] = from[i * lds];
    }
}

INLINE void take(float *dst, const float *src, size_t lds, size_t k, const size_t wide)
{
    for (size_t p = 0; p < k; p++)
        memcpy(dst + p * wide, src + p * lds, wide * sizeof *dst);
}

static void turn_tall(float *dst, const float *src, size_t lds, size_t k)
{
    turn(dst, src, lds, k, PACKED_TALL);
}

static void turn_wide(float *dst, const float *src, size_t lds, size_t k)
{
    turn(dst, src, lds, k, PACKED_WIDE);
}

static void take_tall(float *dst, const float *src, size_t lds, size_t k)
{
    take(dst, src, lds, k, PACKED_TALL);
}

static void take_wide(float *dst, const float *src, size_t lds, size_t k)
{
    take(dst, src, lds, k, PACKED_WIDE);
}

extern const struct packed_kernels PACKED;
const struct packed_kernels PACKED = {
    .tile = tile,
    .tile_in_place = tile_in_place,
    .turn_tall = turn_tall,
    .turn_wide = turn_wide,
    .take_tall = take_tall,
    .take_wide = take_wide,
};
