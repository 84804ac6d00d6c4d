/* SPDX-License-Identifier: MIT
 *
 * `bench_blocks`: one row of x times weights in GGUF's blocks, as in generation. Bytes of weights a
 * second are held against what the same threads read from memory when they do nothing else,
 * measured in between. Each number of threads is a process started as the daemon starts a stage. */
#include "tests/bench/bench.h"

#include "daemon/stage/plan/stage_machine.h"
#include "num/gemm.h"

enum {
    COLS = 4096,
    BYTES = 256 << 20, /* of each matrix: more than caches hold */
    BYTE = 0x21,       /* of all weights: halves that are small numbers */
    REPEATS = 7,
};

static void product(struct num *num, struct machine *machine, void *weights, enum block_type type)
{
    const size_t row = block_row_bytes(type, COLS), rows = BYTES / row;
    const struct mat w = {.data = weights, .rows = rows, .cols = COLS, .block = type};
    float *y = bench_alloc(rows * sizeof *y), x[COLS];
    struct bench_series s = {.n = REPEATS};
    for (size_t i = 0; i < COLS; i++)
        x[i] = (float)(i % 17) / 17 - 0.5F;
    gemm_xwt(num, y, x, w, 1, false);
    for (size_t i = 0; i < REPEATS; i++) {
        const double before = machine_read(machine), begin = bench_now();
        gemm_xwt(num, y, x, w, 1, false);
        s.figure[i] = 1e-9 * (double)(rows * row) / (bench_now() - begin);
        s.limit[i] = (before + machine_read(machine)) / 2;
    }
    char what[64];
    snprintf(what, sizeof what, "one row, %s, %d thread%s", block_name(type), num_threads(num),
             num_threads(num) > 1 ? "s" : "");
    const bool has_goal =
        type == BLOCK_Q4_0 || type == BLOCK_Q8_0 || type == BLOCK_Q4_K || type == BLOCK_Q6_K;
    bench_print(&(struct bench_row){what, "GB/s", "reading memory", "GB/s", 1, has_goal ? 0.85 : 0}, &s);
    free(y);
}

static int child(const char *name, char *types, int threads)
{
    (void)name;
    struct err err;
    struct num *num;
    struct machine *machine;
    bench_must(num_new(&num, threads, &err), &err);
    bench_must(machine_new(&machine, num, &err), &err);
    void *weights = bench_alloc(BYTES);
    memset(weights, BYTE, BYTES);
    for (enum block_type type = 1; type < BLOCK_COUNT; type++)
        if (!strcmp(types, "all") || !strcmp(types, block_name(type)))
            product(num, machine, weights, type);
    free(weights);
    machine_free(machine);
    num_free(num);
    return 0;
}

int main(int argc, char **argv)
{
    char blocks[] = "blocks", all[] = "all";
    char *every[] = {argv[0], blocks, all, NULL};
    return argc == 1 ? bench_pairs(3, every, "", child)
                     : bench_pairs(argc, argv, "bench_blocks [blocks TYPE|all]", child);
}
