/* SPDX-License-Identifier: MIT
 *
 * The instructions of AMX (Intel SDM volume 1, chapter 18): eight tiles of up to sixteen rows of 64
 * bytes. They are written as assembly, for GCC 12's own words for them do not say that they read
 * and write memory. Tiles are state of the thread: amx_begin and amx_end stand around each use, for
 * a thread that has none is the quicker one to switch to another. Included by kernels alone;
 * isa.c asks the kernel for the right to use them. */
#ifndef NUM_AMX_H
#define NUM_AMX_H

#include <stddef.h>
#include <stdint.h>

enum { AMX_ROWS = 16, AMX_BYTES = 64, AMX_CELLS = 16, AMX_TILES = 8 };

struct amx_shape {
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

/* All tiles whole. */
static inline __attribute__((always_inline)) struct amx_shape amx_shape(void)
{
    struct amx_shape shape = {.palette = 1};
    for (size_t i = 0; i < AMX_TILES; i++) {
        shape.bytes[i] = AMX_BYTES;
        shape.rows[i] = AMX_ROWS;
    }
    return shape;
}

/* All tiles become 0. */
static inline __attribute__((always_inline)) void amx_begin(const struct amx_shape *shape)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*shape));
}

static inline __attribute__((always_inline)) void amx_end(void)
{
    __asm__ volatile("tilerelease");
}

/* With amx_end, what struct packed_kernels has around tiles. */
static inline void amx_begin_whole(void)
{
    const struct amx_shape shape = amx_shape();
    amx_begin(&shape);
}

/* Asks for n rows of two tiles of floats, ldc floats from one another. */
static inline __attribute__((always_inline)) void amx_fetch(const float *next, size_t ldc, size_t n)
{
    for (size_t i = 0; i < n; i++, next += ldc) {
        __builtin_prefetch(next, 1);
        __builtin_prefetch(next + AMX_CELLS, 1);
    }
}

/* Rows are `apart` bytes from one another. Tiles are named by their numbers. */
#define AMX_LOAD(tile, from, apart)                                                                          \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile                                                      \
                     :                                                                                       \
                     : "r"((const void *)(from)), "r"((ptrdiff_t)(apart))                                    \
                     : "memory")
#define AMX_STORE(to, tile, apart)                                                                           \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)"                                                  \
                     :                                                                                       \
                     : "r"((void *)(to)), "r"((ptrdiff_t)(apart))                                            \
                     : "memory")
#define AMX_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
/* sums += a · b: of each row of a, and each column of b, the sums of cells of four bytes: signed in
 * a and unsigned in b, or signed in both; or of two numbers in bf16. */
#define AMX_SIGNED_UNSIGNED(sums, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #sums : :)
#define AMX_SIGNED(sums, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #sums : :)
#define AMX_BF16(sums, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums : :)

#endif
