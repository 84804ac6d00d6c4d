/* SPDX-License-Identifier: MIT
 *
 * `bench_decode NAME MODEL …`, a MODEL perhaps with :int8 or :int4 behind it, or :int4x8 for int4
 * with --compute int8: tokens generated one by one through the stage's own functions, without
 * daemons. Every token reads every weight once, so bytes of weights a second are held against what
 * the same threads read from memory when they do nothing else, measured in between. Each row comes
 * from a process started as the daemon starts a stage. */
#include "tests/bench/bench.h"

#include "daemon/stage/plan/stage_machine.h"
#include "model/stage.h"
#include "tests/bench/bench_work.h"

enum {
    PROMPT = 8,
    NEW_TOKENS = 32,
    REPEATS = 5,
};

static void decode(struct stage *s, size_t at, size_t n)
{
    struct err err;
    for (size_t i = 0; i < n; i++) {
        const uint32_t id = (uint32_t)(at + i);
        bench_must(stage_decode(s, &id, NULL, NULL, 1, at + i, &err), &err);
        stage_logits(s);
    }
}

/* "DIR:int8" is DIR with 8 bits, kept in a folder beside it. */
static size_t split_model(char *model, char *ret_kept, size_t size, enum num_compute *ret_compute)
{
    char *form = strrchr(model, ':');
    const bool bytes = form && !strcmp(form, ":int4x8");
    const size_t bits = !form ? 0 : !strcmp(form, ":int8") ? 8 : bytes || !strcmp(form, ":int4") ? 4 : 0;
    if (bits)
        *form = 0;
    *ret_compute = bytes ? NUM_INT8 : NUM_F32;
    snprintf(ret_kept, size, "%s.quantized", model);
    return bits;
}

static int child(const char *name, char *model, int threads)
{
    char kept[512];
    enum num_compute compute;
    const size_t bits = split_model(model, kept, sizeof kept, &compute);
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
                              .positions = PROMPT + NEW_TOKENS,
                              .weight_bits = bits,
                              .cache_dir = kept};
    bench_must(config_read(&spec.config, model, &err), &err);
    spec.end_layer = spec.config.layers;
    bench_must(num_new(&num, threads, &err), &err);
    num_set_compute(num, compute);
    bench_must(stage_open(&stage, num, &spec, &err), &err);
    struct machine *machine;
    bench_must(machine_new(&machine, num, &err), &err);
    struct bench_series s = {.n = REPEATS};
    decode(stage, 0, PROMPT);
    for (size_t i = 0; i < REPEATS; i++) {
        const double before = machine_read(machine), begin = bench_now();
        decode(stage, PROMPT, NEW_TOKENS);
        s.figure[i] = NEW_TOKENS / (bench_now() - begin);
        s.limit[i] = (before + machine_read(machine)) / 2;
    }
    char what[64];
    snprintf(what, sizeof what, "decode, %s, %d thread%s", name, threads, threads > 1 ? "s" : "");
    bench_print(&(struct bench_row){what, "tokens/s", "reading memory", "GB/s",
                                    1e-9 * bench_token_bytes(&spec.config, bits), 0},
                &s);
    machine_free(machine);
    stage_close(stage);
    num_free(num);
    return 0;
}

int main(int argc, char **argv)
{
    return bench_pairs(argc, argv, "bench_decode NAME MODEL[:int8|:int4|:int4x8] …", child);
}
