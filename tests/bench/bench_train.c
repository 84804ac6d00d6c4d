/* SPDX-License-Identifier: MIT
 *
 * `bench_train F32_MODEL BF16_MODEL`: LoRA steps and prefill through the stage's own functions, without
 * daemons, as fractions of sgemm's peak measured in between; and what a training stage really keeps in memory
 * beside what it said it would. Each row comes from a process started as the daemon starts a stage.
 *
 * Work is counted as the mathematics has it, whatever we do: a token costs a product 2 FLOP for each
 * parameter forward and 2 for the gradient of its input; LoRA's own parameters 6; causal attention
 * 2 · T · dim a layer forward (QKᵀ and PV, half of each) and twice that backward. */
#include "tests/bench/bench.h"

#include "model/stage.h"
#include "num/rng.h"

enum { TOKENS = 512, MICROBATCHES = 4, RANK = 16, REPEATS = 3, THREADS_MAX = 2 };

struct bed {
    struct num *num;
    struct stage *stage;
    struct stage_spec spec;
    uint32_t ids[TOKENS + 1];
};

static void bed_open(struct bed *b, const char *model, bool training, int threads)
{
    struct err err;
    *b = (struct bed){.spec = {.model_dir = model,
                               .embed = true,
                               .head = true,
                               .training = training,
                               .kv = !training,
                               .slots = 1,
                               .tokens = TOKENS,
                               .seqs = 1,
                               .positions = TOKENS}};
    struct config *c = &b->spec.config;
    bench_must(config_read(c, model, &err), &err);
    b->spec.end_layer = c->layers;
    if (training) {
        b->spec.tune = (struct tune){.kind = TUNE_LORA, .rank = RANK, .alpha = RANK, .end_layer = c->layers};
        bench_must(tune_targets(&b->spec.tune, family_find(c->family), c, "all-linear", &err), &err);
    }
    bench_must(num_new(&b->num, threads, &err), &err);
    bench_must(stage_open(&b->stage, b->num, &b->spec, &err), &err);
    struct rng rng = rng_for(1, "tokens");
    for (size_t i = 0; i <= TOKENS; i++)
        b->ids[i] = (uint32_t)rng_below(&rng, c->vocab);
}

static void bed_close(struct bed *b)
{
    stage_close(b->stage);
    num_free(b->num);
}

/* Parameters of the matrices of all layers. */
static double layer_params(const struct config *c)
{
    const double attention = 2.0 * (double)(c->heads + c->kv_heads) * (double)(c->head * c->dim);
    return (double)c->layers * (attention + 3.0 * (double)c->dim * (double)c->ffn);
}

static double lora_params(const struct config *c)
{
    const size_t q = c->heads * c->head, kv = c->kv_heads * c->head;
    return (double)(c->layers * RANK * (2 * (c->dim + q) + 2 * (c->dim + kv) + 3 * (c->dim + c->ffn)));
}

static double attention_flop(const struct config *c)
{
    return 2.0 * TOKENS * (double)(c->layers * c->heads * c->head);
}

/* --- a step of training ----------------------------------------------------------------------- */

static double train_gflop(const struct config *c)
{
    const double frozen = layer_params(c) + (double)c->vocab * (double)c->dim;
    return 1e-9 * (4 * frozen + 6 * lora_params(c) + 3 * attention_flop(c));
}

static void train_step(struct bed *b, uint64_t step)
{
    static const uint32_t start[2] = {0, TOKENS};
    static const struct adamw opt = {1e-4f, 0.9f, 0.999f, 1e-8f, 0};
    struct err err;
    int32_t labels[TOKENS];
    double sumsq;
    for (size_t t = 0; t < TOKENS; t++)
        labels[t] = (int32_t)b->ids[t + 1];
    for (uint64_t m = 0; m < MICROBATCHES; m++) {
        const struct xent xent = {.labels = labels, .dscale = 1.0f / (TOKENS * MICROBATCHES)};
        bench_must(stage_begin(b->stage, 0, (struct seqs){1, start}, step * MICROBATCHES + m, &err), &err);
        bench_must(stage_input_ids(b->stage, 0, b->ids, &err), &err);
        stage_forward(b->stage, 0, NULL);
        stage_loss(b->stage, 0, &xent);
        stage_backward(b->stage, 0, NULL, NULL);
    }
    bench_must(stage_sumsq(b->stage, 0, &sumsq, &err), &err);
    stage_update(b->stage, 1, &opt, step);
}

static void bench_steps(const char *model, int threads)
{
    struct bed b;
    struct bench_sgemm sgemm;
    struct bench_series s = {.n = REPEATS};
    bed_open(&b, model, true, threads);
    bench_sgemm_init(&sgemm);
    bench_sgemm_run(&sgemm, 0.1);
    train_step(&b, 1);
    for (size_t i = 0; i < REPEATS; i++) {
        const double before = bench_sgemm_run(&sgemm, 0.3), begin = bench_now();
        train_step(&b, 2 + i);
        s.figure[i] = TOKENS * MICROBATCHES / (bench_now() - begin);
        s.limit[i] = (before + bench_sgemm_run(&sgemm, 0.3)) / 2;
    }
    char what[64];
    snprintf(what, sizeof what, "LoRA step, 110M f32, %d thread%s", threads, threads > 1 ? "s" : "");
    bench_print(&(struct bench_row){what, "tokens/s", "sgemm", "GFLOP/s", train_gflop(&b.spec.config), 0.6},
                &s);
    bench_sgemm_done(&sgemm);
    bed_close(&b);
}

/* --- prefill ---------------------------------------------------------------------------------- */

static void bench_prefill(const char *model, const char *type, int threads)
{
    struct bed b;
    struct bench_sgemm sgemm;
    struct bench_series s = {.n = REPEATS};
    struct err err;
    bed_open(&b, model, false, threads);
    bench_sgemm_init(&sgemm);
    bench_must(stage_decode(b.stage, b.ids, NULL, NULL, TOKENS, 0, &err), &err);
    for (size_t i = 0; i < REPEATS; i++) {
        const double before = bench_sgemm_run(&sgemm, 0.3), begin = bench_now();
        bench_must(stage_decode(b.stage, b.ids, NULL, NULL, TOKENS, 0, &err), &err);
        stage_logits(b.stage);
        s.figure[i] = TOKENS / (bench_now() - begin);
        s.limit[i] = (before + bench_sgemm_run(&sgemm, 0.3)) / 2;
    }
    char what[64];
    snprintf(what, sizeof what, "prefill of 512, 110M %s, %d thread%s", type, threads,
             threads > 1 ? "s" : "");
    const double gflop = 1e-9 * (2 * layer_params(&b.spec.config) + attention_flop(&b.spec.config));
    bench_print(&(struct bench_row){what, "tokens/s", "sgemm", "GFLOP/s", gflop, 0}, &s);
    bench_sgemm_done(&sgemm);
    bed_close(&b);
}

/* --- memory ----------------------------------------------------------------------------------- */

static double peak_mib(void)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %lf", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib / 1024;
}

static void bench_memory(const char *model, int threads)
{
    struct bed b;
    struct stage_bytes bytes;
    struct err err;
    struct bench_series s = {.n = 1};
    bed_open(&b, model, true, threads);
    train_step(&b, 1);
    bench_must(stage_measure(&bytes, &b.spec, &err), &err);
    s.figure[0] = peak_mib();
    s.limit[0] = (double)bytes.total / (1 << 20);
    bench_print(&(struct bench_row){"memory of that step, peak", "MiB", "as the plan says", "MiB", 1, 0}, &s);
    bed_close(&b);
}

/* --- processes -------------------------------------------------------------------------------- */

static int child(char **argv)
{
    const int threads = atoi(argv[2]);
    if (!strcmp(argv[1], "steps"))
        bench_steps(argv[3], threads);
    else if (!strcmp(argv[1], "memory"))
        bench_memory(argv[3], threads);
    else
        bench_prefill(argv[3], argv[1], threads);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && atoi(argv[2]))
        return child(argv);
    if (argc != 3) {
        fputs("usage: bench_train F32_MODEL BF16_MODEL\n", stderr);
        return 2;
    }
    static const char *const kinds[] = {"steps", "memory", "f32", "bf16"};
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int failed = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int threads = 1; threads <= (cores < THREADS_MAX ? cores : THREADS_MAX); threads++) {
            char number[12];
            snprintf(number, sizeof number, "%d", threads);
            char *args[] = {argv[0], (char *)(uintptr_t)kinds[k], number, argv[k == 3 ? 2 : 1], NULL};
            if (strcmp(kinds[k], "memory") != 0 || threads == 1)
                failed |= bench_again(threads, args);
        }
    return failed;
}
