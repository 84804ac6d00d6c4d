/* SPDX-License-Identifier: MIT
 *
 * `bench_decode NAME MODEL …`: tokens generated one by one through the stage's own functions, without
 * daemons. Every token reads every weight once, so bytes of weights a second are held against what the same
 * threads read from memory when they do nothing else, measured in between. Each row comes from a process
 * started as the daemon starts a stage. */
#include "tests/bench/bench.h"

#include "model/stage.h"

enum {
    PROMPT = 8,
    NEW_TOKENS = 32,
    REPEATS = 5,
    THREADS_MAX = 2,
    READ_MIB = 512,
    LINE = 64,
    CHUNK_LINES = 4096
};

typedef uint64_t line_of_words __attribute__((vector_size(LINE)));

/* Bytes of the matrices a token is multiplied with: the layers' and the head's. */
static double weight_bytes(const struct config *c)
{
    const double attention = 2.0 * (double)(c->heads + c->kv_heads) * (double)(c->head * c->dim);
    const double layer = attention + 3.0 * (double)c->dim * (double)c->ffn;
    return (double)dtype_size(c->dtype) * ((double)c->layers * layer + (double)c->vocab * (double)c->dim);
}

/* What a chunk adds up to, read as four streams: one alone does not keep the memory busy. */
static uint64_t add_up(const line_of_words *chunk)
{
    const size_t quarter = CHUNK_LINES / 4;
    line_of_words acc[4] = {0};
    uint64_t sum = 0;
    for (size_t i = 0; i < quarter; i++) {
        acc[0] += chunk[i];
        acc[1] += chunk[i + quarter];
        acc[2] += chunk[i + 2 * quarter];
        acc[3] += chunk[i + 3 * quarter];
    }
    for (size_t w = 0; w < LINE / sizeof(uint64_t); w++)
        sum += acc[0][w] + acc[1][w] + acc[2][w] + acc[3][w];
    return sum;
}

/* GB/s of adding up a block far larger than the caches, by all threads. */
static double read_memory(const line_of_words *words)
{
    const size_t n = (size_t)READ_MIB * (1 << 20) / LINE;
    uint64_t sum = 0;
    const double begin = bench_now();
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (size_t i = 0; i < n; i += CHUNK_LINES)
        sum += add_up(words + i);
    const double took = bench_now() - begin;
    if (sum != n * (LINE / sizeof(uint64_t))) { /* every word is one; and the sum is not optimized away */
        fputs("bench_decode: memory does not hold what was written to it\n", stderr);
        exit(1);
    }
    return 1e-9 * (double)n * LINE / took;
}

/* Written by the threads that will read it. */
static line_of_words *ones(void)
{
    const size_t n = (size_t)READ_MIB * (1 << 20) / LINE;
    line_of_words *words = bench_alloc(n * sizeof *words);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < n; i++)
        words[i] = (line_of_words){0} + 1;
    return words;
}

static void decode(struct stage *s, size_t at, size_t n)
{
    struct err err;
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)(at + i);
        bench_must(stage_decode(s, &id, NULL, NULL, 1, at + i, &err), &err);
        stage_logits(s);
    }
}

static int child(const char *name, const char *model, int threads)
{
    struct err err;
    struct num *num;
    struct stage *stage;
    struct stage_spec spec = {.model_dir = model,
                              .embed = true,
                              .head = true,
                              .kv = true,
                              .slots = 1,
                              .tokens = PROMPT,
                              .seqs = 1,
                              .positions = PROMPT + NEW_TOKENS};
    bench_must(config_read(&spec.config, model, &err), &err);
    spec.end_layer = spec.config.layers;
    bench_must(num_new(&num, threads, &err), &err);
    bench_must(stage_open(&stage, num, &spec, &err), &err);
    line_of_words *words = ones();
    struct bench_series s = {.n = REPEATS};
    decode(stage, 0, PROMPT);
    for (size_t i = 0; i < REPEATS; i++) {
        const double before = read_memory(words), begin = bench_now();
        decode(stage, PROMPT, NEW_TOKENS);
        s.figure[i] = NEW_TOKENS / (bench_now() - begin);
        s.limit[i] = (before + read_memory(words)) / 2;
    }
    char what[64];
    snprintf(what, sizeof what, "decode, %s, %d thread%s", name, threads, threads > 1 ? "s" : "");
    bench_print(
        &(struct bench_row){what, "tokens/s", "reading memory", "GB/s", 1e-9 * weight_bytes(&spec.config), 0},
        &s);
    free(words);
    stage_close(stage);
    num_free(num);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "child"))
        return child(argv[2], argv[3], atoi(argv[4]));
    if (argc < 3 || argc % 2 == 0) {
        fputs("usage: bench_decode NAME MODEL [NAME MODEL …]\n", stderr);
        return 2;
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int failed = 0;
    for (int i = 1; i < argc; i += 2)
        for (int threads = 1; threads <= (cores < THREADS_MAX ? cores : THREADS_MAX); threads++) {
            char kind[] = "child", number[12];
            snprintf(number, sizeof number, "%d", threads);
            char *args[] = {argv[0], kind, argv[i], argv[i + 1], number, NULL};
            failed |= bench_again(threads, args);
        }
    return failed;
}
