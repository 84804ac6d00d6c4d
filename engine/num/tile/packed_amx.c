/* SPDX-License-Identifier: MIT
 *
 * The tiles of packed.h for factors rounded to bf16, on CPUs with AMX. Compiled once, with that
 * instruction set. Any thread, no state. */
#include "num/packed.h"

#include "num/tile/amx.h"
#include "num/simd.h"
#include "num/tile/packed_round.h"
#include "num/tile/packed_trans.h"

enum { MR = 2 * AMX_ROWS, NR = 2 * AMX_CELLS, ROW = NR * sizeof(float) };

/* Two by two tiles of C. Of A a row's cells lie together, as of B a step's do. */
static void tile(const struct packed_tile *t)
{
    const float *a = t->a, *b = t->b, *next = t->next_c;
    float *below = t->c + AMX_ROWS * t->ldc;
    const size_t apart = t->k * sizeof *a, row = t->ldc * sizeof *below, fetched = MR * AMX_CELLS / t->k;
    if (t->accumulate) {
        AMX_LOAD(0, t->c, row);
        AMX_LOAD(1, t->c + AMX_CELLS, row);
        AMX_LOAD(2, below, row);
        AMX_LOAD(3, below + AMX_CELLS, row);
    } else {
        AMX_ZERO(0);
        AMX_ZERO(1);
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (size_t p = 0; p < t->k;
         p += AMX_CELLS, a += AMX_CELLS, b += AMX_CELLS * NR, next += fetched * t->ldc) {
        AMX_LOAD(4, a, apart);
        AMX_LOAD(6, b, ROW);
        AMX_BF16(0, 4, 6);
        AMX_LOAD(7, b + AMX_CELLS, ROW);
        AMX_BF16(1, 4, 7);
        AMX_LOAD(5, a + AMX_ROWS * t->k, apart);
        AMX_BF16(2, 5, 6);
        AMX_BF16(3, 5, 7);
        amx_fetch(next, t->ldc, fetched);
    }
    AMX_STORE(t->c, 0, row);
    AMX_STORE(t->c + AMX_CELLS, 1, row);
    AMX_STORE(below, 2, row);
    AMX_STORE(below + AMX_CELLS, 3, row);
}

static void pack_trans_nr(float *dst, const float *src, size_t lds, size_t k, const float *next)
{
    pack_trans(dst, src, lds, k, next, NR);
}

const struct packed_kernels packed_kernels_amx = {
    .mr = MR,
    .nr = NR,
    .per = 2,
    .deep = AMX_CELLS,
    .nc = 512,
    .in_rows = true,
    .tile = tile,
    .begin = amx_begin_whole,
    .end = amx_end,
    .pack_trans_nr = pack_trans_nr,
    .round = round_row,
    .round_by_k = round_by_k,
    .pair_by_k = pair_by_k,
};
