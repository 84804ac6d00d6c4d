/* SPDX-License-Identifier: MIT
 *
 * `bench_blocks`: weights in GGUF's blocks. One row of x, as in generation: bytes of weights a
 * second are held against what the same threads read from memory when they do nothing else,
 * measured in between. Many rows, as a prompt has them, by the products of training or by those of
 * serving: held against the same with weights in f32. Each number of threads is
 * a process started as the daemon starts a stage. */
#include "tests/bench/bench.h"

#include "daemon/stage/plan/stage_machine.h"
#include "num/gemm.h"

enum {
    COLS = 4096,
    BYTES = 256 << 20, /* of each matrix: more than caches hold */
    BYTE = 0x21,       /* of all weights: halves that are small numbers */
    REPEATS = 7,
    PROMPT = 256, /* rows of x */
    HEIGHT = 1024,
};

static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(i % 17) / 17 - 0.5F;
}

static bool has_goal(enum block_type type)
{
    return type == BLOCK_Q4_0 || type == BLOCK_Q8_0 || type == BLOCK_Q4_K || type == BLOCK_Q6_K;
}

static void product(struct num *num, struct machine *machine, void *weights, enum block_type type)
{
    const size_t row = block_row_bytes(type, COLS), rows = BYTES / row;
    const struct mat w = {.data = weights, .rows = rows, .cols = COLS, .block = type};
    float *y = bench_alloc(rows * sizeof *y), x[COLS];
    struct bench_series s = {.n = REPEATS};
    fill(x, COLS);
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
    bench_print(&(struct bench_row){what, "GB/s", "reading memory", "GB/s", 1, has_goal(type) ? 0.85 : 0},
                &s);
    free(y);
}

/* Seconds that many rows take. */
static double many_rows(struct num *num, float *y, const float *x, struct mat w)
{
    const double begin = bench_now();
    gemm_xwt(num, y, x, w, PROMPT, false);
    return bench_now() - begin;
}

static void prompt(struct num *num, const void *weights, enum block_type type, bool serving)
{
    const struct mat w = {.data = weights, .rows = HEIGHT, .cols = COLS, .block = type};
    float *x = bench_alloc(sizeof *x * PROMPT * COLS), *y = bench_alloc(sizeof *y * PROMPT * HEIGHT),
          *plain = bench_alloc(sizeof *plain * HEIGHT * COLS);
    const struct mat f32 = {.data = plain, .dtype = DTYPE_F32, .rows = HEIGHT, .cols = COLS};
    const double work = 2e-9 * PROMPT * HEIGHT * COLS;
    struct bench_series s = {.n = REPEATS};
    fill(x, (size_t)PROMPT * COLS);
    fill(plain, (size_t)HEIGHT * COLS);
    num_set_invariant(num, serving);
    many_rows(num, y, x, w);
    for (size_t i = 0; i < REPEATS; i++) {
        s.limit[i] = work / many_rows(num, y, x, f32);
        s.figure[i] = work / many_rows(num, y, x, w);
    }
    num_set_invariant(num, false);
    char what[64];
    snprintf(what, sizeof what, "%d rows%s, %s, %d thread%s", PROMPT, serving ? ", serving" : "",
             block_name(type), num_threads(num), num_threads(num) > 1 ? "s" : "");
    bench_print(&(struct bench_row){what, "GFLOP/s", "f32", "GFLOP/s", 1, has_goal(type) ? 0.85 : 0}, &s);
    free(x), free(y), free(plain);
}

static int child(const char *name, char *types, int threads)
{
    const bool many = !strcmp(name, "prompt");
    struct err err;
    struct num *num;
    struct machine *machine;
    bench_must(num_new(&num, threads, &err), &err);
    bench_must(machine_new(&machine, num, &err), &err);
    void *weights = bench_alloc(BYTES);
    memset(weights, BYTE, BYTES);
    for (enum block_type type = 1; type < BLOCK_COUNT; type++)
        if (strcmp(types, "all") && strcmp(types, block_name(type)))
            continue;
        else if (many)
            prompt(num, weights, type, false), prompt(num, weights, type, true);
        else
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
                     : bench_pairs(argc, argv, "bench_blocks [blocks|prompt TYPE|all]", child);
}
