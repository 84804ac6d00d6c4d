/* SPDX-License-Identifier: MIT
 *
 * The arithmetic unit: owns the scratch of a process and knows its threads and kernels. Made once
 * by whoever owns the computing thread, then passed to every layer by that thread. */
#include "num/faster.h"
#include "num/integer.h"
#include "num/kernels.h"
#include "num/packed.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_MAX = 1024,
    PANEL_FLOATS = 1 << 20, /* inputs in the order of quantized kernels: gemm_few.c, gemm_bytes.c */
    CONVERTED_FLOATS =
        1 << 20, /* a factor as it is multiplied: weights in f32 (gemm.c), packed rows (product.c) */
};

struct num {
    int threads;
    const struct kernels *kernels;
    const struct int_kernels *integers;
    const struct int_tiles *int_tiles;
    const struct packed_kernels *packed, *bf16, *bytes;
    enum num_compute compute;
    uint32_t noise[2]; /* and whether there is one: */
    bool has_noise;
    bool invariant;
    float *scratch; /* owned: panel, block, a lane for each thread, converted factors for each thread */
};

/* Tiles of AMX, which no CPU has that is faster without. Otherwise the instruction for bf16 where
 * it is the faster way to the same bits, or else what f32 has. */
static const struct packed_kernels *pick_bf16(const struct num *num)
{
    const struct packed_kernels *amx = isa_pick_packed_amx(), *k = isa_pick_packed_bf16();
    if (num->packed && amx)
        return amx;
    return num->packed && k && faster_than(k, num->packed, num_panel(num).data) ? k : num->packed;
}

int num_new(struct num **ret, int threads, struct err *err)
{
    if (threads < 0 || threads > THREADS_MAX)
        return err_set(err, -EINVAL,
                       "threads = %d: give 0 for all the cores this process may use, or a number up to %d",
                       threads, THREADS_MAX);
    if (threads == 0)
        threads = omp_get_max_threads();
    const size_t floats =
        PANEL_FLOATS + NUM_BLOCK_FLOATS + (size_t)threads * (NUM_LANE_FLOATS + CONVERTED_FLOATS);
    struct num *num = calloc(1, sizeof *num);
    if (!num || !(num->scratch = aligned_alloc(64, floats * sizeof *num->scratch))) {
        free(num);
        return err_set(err, -ENOMEM, "no memory for %zu MiB of scratch for %d threads: use fewer threads",
                       floats * sizeof(float) >> 20, threads);
    }
    num->threads = threads;
    num->kernels = isa_pick();
    num->integers = isa_pick_int();
    num->int_tiles = isa_pick_int_tiles();
    num->packed = isa_pick_packed();
    num->bf16 = pick_bf16(num);
    num->bytes = isa_pick_packed_bytes();
    *ret = num;
    return 0;
}

void num_free(struct num *num)
{
    if (!num)
        return;
    free(num->scratch);
    free(num);
}

int num_threads(const struct num *num)
{
    return num->threads;
}

static const char *const compute_names[NUM_COMPUTES] = {
    [NUM_F32] = "f32", [NUM_INT8] = "int8", [NUM_BF16] = "bf16", [NUM_BYTES] = "int8"};

const char *num_compute_name(enum num_compute compute)
{
    return compute_names[compute];
}

void num_set_compute(struct num *num, enum num_compute compute)
{
    num->compute = compute;
}

enum num_compute num_compute(const struct num *num)
{
    return num->compute;
}

void num_set_noise(struct num *num, const uint32_t key[2])
{
    num->has_noise = key != NULL;
    if (key)
        memcpy(num->noise, key, sizeof num->noise);
}

bool num_noise(const struct num *num, uint64_t stream, uint32_t ret_key[2])
{
    ret_key[0] = num->noise[0] ^ (uint32_t)stream;
    ret_key[1] = num->noise[1] ^ (uint32_t)(stream >> 32);
    return num->has_noise;
}

void num_set_invariant(struct num *num, bool invariant)
{
    num->invariant = invariant;
}

bool num_is_invariant(const struct num *num)
{
    return num->invariant;
}

const char *num_isa(const struct num *num)
{
    return num->kernels->isa;
}

bool num_is_bf16_fast(const struct num *num)
{
    return num->bf16 != num->packed;
}

const char *num_isa_bf16(const struct num *num)
{
    return !num_is_bf16_fast(num) ? num_isa(num) : num->bf16->in_rows ? "amx_bf16" : "avx512_bf16";
}

const char *num_isa_bytes(const struct num *num)
{
    return num->bytes->bytes->isa;
}

const struct kernels *num_kernels(const struct num *num)
{
    return num->kernels;
}

const struct int_kernels *num_integers(const struct num *num)
{
    return num->integers;
}

const struct int_tiles *num_int_tiles(const struct num *num)
{
    return num->int_tiles;
}

const struct packed_kernels *num_packed(const struct num *num)
{
    return num->packed;
}

const struct packed_kernels *num_packed_bf16(const struct num *num)
{
    return num->bf16;
}

const struct packed_kernels *num_packed_bytes(const struct num *num)
{
    return num->bytes;
}

struct scratch num_panel(const struct num *num)
{
    return (struct scratch){num->scratch, PANEL_FLOATS};
}

struct scratch num_block(const struct num *num)
{
    return (struct scratch){num->scratch + PANEL_FLOATS, NUM_BLOCK_FLOATS};
}

struct scratch num_lane(const struct num *num, int thread)
{
    return (struct scratch){num->scratch + PANEL_FLOATS + NUM_BLOCK_FLOATS + (size_t)thread * NUM_LANE_FLOATS,
                            NUM_LANE_FLOATS};
}

struct scratch num_converted(const struct num *num, int thread)
{
    return (struct scratch){num_lane(num, num->threads).data + (size_t)thread * CONVERTED_FLOATS,
                            CONVERTED_FLOATS};
}

struct scratch num_converted_all(const struct num *num)
{
    return (struct scratch){num_converted(num, 0).data, (size_t)num->threads * CONVERTED_FLOATS};
}
