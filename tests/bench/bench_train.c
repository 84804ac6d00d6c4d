/* SPDX-License-Identifier: MIT
 *
 * `bench_train F32_MODEL BF16_MODEL LARGE_BF16_MODEL LARGE_F32_MODEL`: steps of training and
 * prefill through the stage's own functions, without daemons, as fractions of sgemm's peak measured
 * in between; and what a training stage really keeps in memory beside what it said it would. Each
 * row comes from a process started as the daemon starts a stage: `bench_train KIND THREADS NAME
 * MODEL` makes one alone, and with the kinds torch, torch-batch, torch-own and torch-bf16 the LoRA
 * step beside PyTorch's.
 *
 * Work is counted as the mathematics has it, whatever we do: a token costs a product 2 FLOP for
 * each parameter forward, 2 for the gradient of its input and 2 for that of the parameter where it
 * is trained; LoRA's own parameters 6; causal attention 2 · T · dim a layer forward (QKᵀ and PV,
 * half of each) and twice that backward. */
#include "tests/bench/bench.h"

#include <fcntl.h>

#include "model/stage.h"
#include "num/rng.h"
#include "tests/bench/bench_work.h"

#define PYTHON "/usr/bin/python3" /* Debian's, whose python3-torch it is */
#define AGAIN "RINGD_BENCH_AGAIN" /* set: this process has a stage's environment */

enum { PROMPT = 512, SEQS_MAX = 4, TOKENS_MAX = SEQS_MAX * PROMPT, RANK = 16, REPEATS = 5, THREADS_MAX = 2 };

/* Of a step: microbatches of so many sequences of so many tokens. */
struct load {
    size_t tokens, seqs, microbatches;
};

/* The large model is given less to do, for each of its tokens costs ten of the small one's.
 * `at_once`: the batch is one microbatch. */
static struct load load_of(const struct config *c, bool at_once)
{
    return c->dim >= 1024 ? (struct load){256, 1, 1}
           : at_once      ? (struct load){PROMPT, SEQS_MAX, 1}
                          : (struct load){PROMPT, 1, SEQS_MAX};
}

struct bed {
    struct num *num;
    struct stage *stage;
    struct stage_spec spec;
    struct load load;
    uint32_t ids[TOKENS_MAX + 1];
};

/* TUNE_NONE: for generation. NUM_INT8, NUM_BYTES: with weights in 8 bits, kept in a folder beside
 * the model. */
static void bed_open(struct bed *b, const char *model, enum tune_kind tune, bool at_once, int threads,
                     enum num_compute compute)
{
    struct err err;
    char kept[512];
    snprintf(kept, sizeof kept, "%s.quantized", model);
    *b = (struct bed){.spec = {.model_dir = model,
                               .embed = true,
                               .head = true,
                               .training = tune != TUNE_NONE,
                               .kv = tune == TUNE_NONE,
                               .slots = 1}};
    struct config *c = &b->spec.config;
    bench_must(config_read(c, model, &err), &err);
    b->load = tune == TUNE_NONE ? (struct load){PROMPT, 1, 1} : load_of(c, at_once);
    b->spec.seqs = b->load.seqs;
    b->spec.positions = b->load.tokens;
    b->spec.tokens = b->load.seqs * b->load.tokens;
    b->spec.end_layer = c->layers;
    b->spec.tune = (struct tune){.kind = tune, .rank = RANK, .alpha = RANK, .end_layer = c->layers};
    if (tune == TUNE_LORA)
        bench_must(tune_targets(&b->spec.tune, family_find(c->family), c, "all-linear", &err), &err);
    b->spec.weight_bits = compute == NUM_INT8 || compute == NUM_BYTES ? 8 : 0;
    b->spec.cache_dir = kept;
    bench_must(num_new(&b->num, threads, &err), &err);
    num_set_compute(b->num, compute);
    bench_must(stage_open(&b->stage, b->num, &b->spec, &err), &err);
    struct rng rng = rng_for(1, "tokens");
    for (size_t i = 0; i <= TOKENS_MAX; i++)
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

static double attention_flop(const struct config *c, size_t tokens)
{
    return 2.0 * (double)tokens * (double)(c->layers * c->heads * c->head);
}

/* --- a step of training ----------------------------------------------------------------------- */

static double train_gflop(const struct bed *b)
{
    const struct config *c = &b->spec.config;
    const double params = layer_params(c) + (double)c->vocab * (double)c->dim;
    const double products = b->spec.tune.kind == TUNE_FULL ? 6 * params : 4 * params + 6 * lora_params(c);
    return 1e-9 * (products + 3 * attention_flop(c, b->load.tokens));
}

static void train_step(struct bed *b, uint64_t step)
{
    const size_t tokens = b->load.seqs * b->load.tokens;
    uint32_t start[SEQS_MAX + 1] = {0};
    static const struct adamw opt = {1e-4f, 0.9f, 0.999f, 1e-8f, 0};
    struct err err;
    int32_t labels[TOKENS_MAX];
    size_t unit;
    for (size_t i = 1; i <= b->load.seqs; i++)
        start[i] = start[i - 1] + (uint32_t)b->load.tokens;
    for (size_t t = 0; t < tokens; t++)
        labels[t] = (int32_t)b->ids[t + 1];
    for (uint64_t m = 0; m < b->load.microbatches; m++) {
        const struct xent xent = {.labels = labels, .dscale = 1.0f / (float)(tokens * b->load.microbatches)};
        bench_must(stage_begin(b->stage, 0, (struct seqs){b->load.seqs, start},
                               step * b->load.microbatches + m, &err),
                   &err);
        bench_must(stage_input_ids(b->stage, 0, b->ids, &err), &err);
        stage_forward(b->stage, 0, NULL);
        stage_loss(b->stage, 0, &xent);
        stage_backward(b->stage, 0, NULL, NULL);
    }
    if (stage_tied_grad(b->stage))
        stage_add_tied_grad(b->stage, stage_tied_grad(b->stage));
    stage_sumsq(b->stage, 0, &unit);
    stage_update(b->stage, 1, &opt, step);
}

/* Seconds of it. */
static double timed_step(struct bed *b, uint64_t step)
{
    const double begin = bench_now();
    train_step(b, step);
    return bench_now() - begin;
}

static double step_tokens(const struct bed *b)
{
    return (double)(b->load.seqs * b->load.tokens * b->load.microbatches);
}

static void label(char what[64], const char *kind, const char *name, int threads)
{
    snprintf(what, 64, "%s, %s, %d thread%s", kind, name, threads, threads > 1 ? "s" : "");
}

static void bench_steps(enum tune_kind tune, bool at_once, const char *name, const char *model, int threads)
{
    struct bed b;
    struct bench_sgemm sgemm;
    struct bench_series s = {.n = REPEATS};
    bed_open(&b, model, tune, at_once, threads, NUM_F32);
    bench_sgemm_init(&sgemm, threads);
    bench_sgemm_run(&sgemm, 0.1);
    train_step(&b, 1);
    for (size_t i = 0; i < REPEATS; i++) {
        const double before = bench_sgemm_run(&sgemm, 0.3);
        s.figure[i] = step_tokens(&b) / timed_step(&b, 2 + i);
        s.limit[i] = (before + bench_sgemm_run(&sgemm, 0.3)) / 2;
    }
    char what[64];
    label(what, tune == TUNE_FULL ? "full step" : at_once ? "LoRA batch" : "LoRA step", name, threads);
    bench_print(&(struct bench_row){what, "tokens/s", "sgemm", "GFLOP/s", train_gflop(&b),
                                    tune == TUNE_FULL ? 0.8 : 0.85},
                &s);
    bench_sgemm_done(&sgemm);
    bed_close(&b);
}

/* The same steps with products of fewer bits and in f32, by turns: how many times as fast. An
 * instruction for bf16 may be missing or slow. */
static void bench_compute(const char *name, const char *model, int threads, enum num_compute compute)
{
    struct bed b;
    struct bench_series s = {.n = REPEATS};
    char what[64], kind[32];
    bed_open(&b, model, TUNE_LORA, false, threads, compute);
    train_step(&b, 1);
    for (size_t i = 0; i < REPEATS; i++) {
        num_set_compute(b.num, NUM_F32);
        s.limit[i] = step_tokens(&b) / timed_step(&b, 2 + 2 * i);
        num_set_compute(b.num, compute);
        s.figure[i] = step_tokens(&b) / timed_step(&b, 3 + 2 * i);
    }
    snprintf(kind, sizeof kind, "LoRA step in %s", num_compute_name(compute));
    label(what, kind, name, threads);
    const double goal = compute == NUM_BYTES ? 1.8 : num_is_bf16_fast(b.num) ? 1.6 : 0;
    bench_print(&(struct bench_row){what, "tokens/s", "the step in f32", "tokens/s", 1, goal}, &s);
    bed_close(&b);
}

/* --- prefill ---------------------------------------------------------------------------------- */

/* Of sgemm's peak; none where it depends on whether the CPU has an instruction for it. */
static const double prefill_goal[NUM_COMPUTES] = {[NUM_F32] = 0.85, [NUM_INT8] = 1.35};

static void bench_prefill(const char *name, const char *model, int threads, enum num_compute compute)
{
    struct bed b;
    struct bench_sgemm sgemm;
    struct bench_series s = {.n = REPEATS};
    struct err err;
    bed_open(&b, model, TUNE_NONE, false, threads, compute);
    bench_sgemm_init(&sgemm, threads);
    bench_must(stage_decode(b.stage, b.ids, NULL, NULL, PROMPT, 0, &err), &err);
    for (size_t i = 0; i < REPEATS; i++) {
        const double before = bench_sgemm_run(&sgemm, 0.3), begin = bench_now();
        bench_must(stage_decode(b.stage, b.ids, NULL, NULL, PROMPT, 0, &err), &err);
        stage_logits(b.stage);
        s.figure[i] = PROMPT / (bench_now() - begin);
        s.limit[i] = (before + bench_sgemm_run(&sgemm, 0.3)) / 2;
    }
    char what[64];
    label(what, "prefill of 512", name, threads);
    const double gflop = bench_prompt_gflop(&b.spec.config, PROMPT);
    bench_print(&(struct bench_row){what, "tokens/s", "sgemm", "GFLOP/s", gflop, prefill_goal[compute]}, &s);
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
    bed_open(&b, model, TUNE_LORA, false, threads, NUM_F32);
    train_step(&b, 1);
    bench_must(stage_measure(&bytes, &b.spec, &err), &err);
    s.figure[0] = peak_mib();
    s.limit[0] = (double)bytes.total / (1 << 20);
    bench_print(&(struct bench_row){"memory of that step, peak", "MiB", "as the plan says", "MiB", 1, 0}, &s);
    bed_close(&b);
}

/* --- PyTorch ---------------------------------------------------------------------------------- */

/* Another process that makes the same step whenever it is asked to. */
struct peer {
    pid_t pid;
    FILE *to, *from;
    char kernel[32]; /* that its OpenBLAS took */
};

static bool peer_start(struct peer *p, char **argv)
{
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        return false;
    if ((p->pid = fork()) == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        execv(argv[0], argv);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    p->to = fdopen(to[1], "w");
    p->from = fdopen(from[0], "r");
    return fscanf(p->from, "%31s", p->kernel) == 1;
}

static double peer_step(struct peer *p)
{
    double seconds;
    fputs("step\n", p->to);
    if (fflush(p->to) || fscanf(p->from, "%lf", &seconds) != 1) {
        fputs("bench: PyTorch ended in the middle of a step\n", stderr);
        exit(1);
    }
    return seconds;
}

static void peer_stop(struct peer *p)
{
    fclose(p->to);
    fclose(p->from);
    waitpid(p->pid, NULL, 0);
}

/* The goals were set where PyTorch reached 51 % of the peak on one core and 27 % on two, and where
 * OpenBLAS left to itself took a kernel of 2004. */
static double peer_goal(bool own_choice, enum num_compute compute, const char *kernel, int threads)
{
    return compute == NUM_BF16               ? 1.5
           : !own_choice                     ? threads > 1 ? 3.0 : 1.6
           : strcmp(kernel, "Prescott") == 0 ? 6.0
                                             : 0;
}

/* Ours and theirs by turns. `own_choice`: their OpenBLAS is not told which kernel to take.
 * `at_once`: both have the batch in one microbatch. NUM_BF16: both compute in it. */
static void bench_peer(bool own_choice, bool at_once, enum num_compute compute, const char *name,
                       const char *model, int threads)
{
    struct bed b;
    struct peer p;
    struct bench_series s = {.n = REPEATS / 2 + 1};
    char number[5][12];
    bed_open(&b, model, TUNE_LORA, at_once, threads, compute);
    const size_t values[] = {(size_t)threads, b.load.tokens, b.load.seqs, b.load.microbatches, RANK};
    for (size_t i = 0; i < 5; i++)
        snprintf(number[i], sizeof number[i], "%zu", values[i]);
    char *args[] = {PYTHON,
                    "tests/bench/torch_train.py",
                    (char *)(uintptr_t)model,
                    number[0],
                    number[1],
                    number[2],
                    number[3],
                    number[4],
                    (char *)(uintptr_t)num_compute_name(compute),
                    NULL};
    if (own_choice)
        unsetenv("OPENBLAS_CORETYPE");
    if (!peer_start(&p, args)) {
        fputs("bench: tests/bench/torch_train.py does not run: start it by hand to see why\n", stderr);
        exit(1);
    }
    train_step(&b, 1);
    for (size_t i = 0; i < s.n; i++) {
        s.limit[i] = step_tokens(&b) / peer_step(&p);
        s.figure[i] = step_tokens(&b) / timed_step(&b, 2 + i);
    }
    char what[64], whom[64];
    label(what,
          at_once               ? "LoRA batch"
          : compute == NUM_BF16 ? "LoRA step in bf16"
                                : "LoRA step",
          name, threads);
    snprintf(whom, sizeof whom, "PyTorch, %s%s", p.kernel, own_choice ? " (own)" : "");
    bench_print(&(struct bench_row){what, "tokens/s", whom, "tokens/s", 1,
                                    peer_goal(own_choice, compute, p.kernel, threads)},
                &s);
    peer_stop(&p);
    bed_close(&b);
}

/* --- processes -------------------------------------------------------------------------------- */

static int child(const char *kind, int threads, const char *name, const char *model)
{
    if (!strcmp(kind, "lora"))
        bench_steps(TUNE_LORA, false, name, model, threads);
    else if (!strcmp(kind, "lora-batch"))
        bench_steps(TUNE_LORA, true, name, model, threads);
    else if (!strcmp(kind, "full"))
        bench_steps(TUNE_FULL, false, name, model, threads);
    else if (!strcmp(kind, "lora-bf16"))
        bench_compute(name, model, threads, NUM_BF16);
    else if (!strcmp(kind, "lora-int8"))
        bench_compute(name, model, threads, NUM_BYTES);
    else if (!strcmp(kind, "prefill"))
        bench_prefill(name, model, threads, NUM_F32);
    else if (!strcmp(kind, "prefill-int8"))
        bench_prefill(name, model, threads, NUM_INT8);
    else if (!strcmp(kind, "prefill-bf16"))
        bench_prefill(name, model, threads, NUM_BF16);
    else if (!strcmp(kind, "memory"))
        bench_memory(model, threads);
    else if (!strncmp(kind, "torch", 5))
        bench_peer(!strcmp(kind, "torch-own"), !strcmp(kind, "torch-batch"),
                   !strcmp(kind, "torch-bf16") ? NUM_BF16 : NUM_F32, name, model, threads);
    else
        return 2;
    return 0;
}

enum { SMALL_F32 = 1, SMALL_BF16, LARGE_BF16, LARGE_F32, MODELS };

static const struct row {
    const char *kind, *name;
    int model;
} rows[] = {
    {"lora", "110M f32", SMALL_F32}, /* a sequence at a time */
    {"lora-batch", "110M f32", SMALL_F32},
    {"full", "110M f32", SMALL_F32},
    {"lora", "1B bf16", LARGE_BF16},
    {"lora-bf16", "110M bf16", SMALL_BF16},
    {"lora-int8", "110M int8", SMALL_BF16},
    {"lora-bf16", "1B bf16", LARGE_BF16},
    {"lora-int8", "1B int8", LARGE_BF16},
    {"prefill", "110M f32", SMALL_F32},
    {"prefill", "110M bf16", SMALL_BF16},
    {"prefill", "1B bf16", LARGE_BF16},
    {"prefill-int8", "1B int8", LARGE_BF16},
    {"prefill", "1B f32, short", LARGE_F32},
    {"prefill-bf16", "1B in bf16", LARGE_BF16},
    {"memory", "110M f32", SMALL_F32},
};

static int usage(void)
{
    fputs("usage: bench_train F32_MODEL BF16_MODEL LARGE_BF16_MODEL LARGE_F32_MODEL\n"
          "       bench_train "
          "lora|lora-batch|lora-bf16|lora-int8|full|prefill|prefill-int8|prefill-bf16|memory|torch|"
          "torch-batch|torch-own|torch-bf16 "
          "THREADS NAME MODEL\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    if (argc != MODELS)
        return usage();
    if (argc == 5 && atoi(argv[2])) {
        if (!getenv(AGAIN)) {
            setenv(AGAIN, "1", 1);
            return bench_again(atoi(argv[2]), argv);
        }
        return child(argv[1], atoi(argv[2]), argv[3], argv[4]) ? usage() : 0;
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int failed = 0;
    setenv(AGAIN, "1", 1);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int threads = 1; threads <= (cores < THREADS_MAX ? cores : THREADS_MAX); threads++) {
            const struct row *r = &rows[k];
            char number[12];
            snprintf(number, sizeof number, "%d", threads);
            char *args[] = {argv[0],        (char *)(uintptr_t)r->kind,
                            number,         (char *)(uintptr_t)r->name,
                            argv[r->model], NULL};
            if (strcmp(r->kind, "memory") != 0 || threads == 1)
                failed |= bench_again(threads, args);
        }
    return failed;
}
