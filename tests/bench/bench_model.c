/* SPDX-License-Identifier: MIT
 *
 * Writes a random Llama for the other benches: `bench_model DIR 110m|1b4 f32|bf16`. 1b4 has the width and
 * vocabulary of a model of a billion parameters, but four layers of its sixteen. `bench_model --machine` says
 * what this CPU is to us. */
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

#include "file/safetensors.h"
#include "model/family.h"
#include "num/num.h"
#include "num/rng.h"
#include "tests/bench/bench.h"

enum { SEED = 20251121 };

struct shape {
    const char *name;
    size_t layers, dim, ffn, heads, kv_heads, vocab;
};

static const struct shape shapes[] = {
    {"110m", 12, 768, 2048, 12, 12, 32000},
    {"1b4", 4, 2048, 8192, 32, 8, 128256},
};

static void write_config(const char *dir, const struct shape *s, bool bf16)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "we");
    const bool ok =
        f &&
        fprintf(f,
                "{\"model_type\": \"llama\", \"hidden_size\": %zu, \"intermediate_size\": %zu, "
                "\"num_hidden_layers\": %zu, \"num_attention_heads\": %zu, \"num_key_value_heads\": %zu, "
                "\"vocab_size\": %zu, \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5, "
                "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true, "
                "\"torch_dtype\": \"%s\", \"bos_token_id\": 1, \"eos_token_id\": 2}\n",
                s->dim, s->ffn, s->layers, s->heads, s->kv_heads, s->vocab,
                bf16 ? "bfloat16" : "float32") > 0;
    if (!ok || fclose(f)) {
        fprintf(stderr, "bench_model: %s cannot be written: %s\n", path, strerror(errno));
        exit(1);
    }
}

struct listing {
    struct st_out_tensor *at;
    struct tensor_def *defs; /* at[].name points into it */
    size_t n;
    enum dtype dtype;
};

static int list_one(void *arg, const struct tensor_def *def)
{
    struct listing *l = arg;
    l->defs[l->n] = *def;
    l->at[l->n] = (struct st_out_tensor){.name = l->defs[l->n].name,
                                         .dtype = l->dtype,
                                         .ndim = def->cols ? 2 : 1,
                                         .shape = {def->rows, def->cols}};
    l->n++;
    return 0;
}

static struct listing list_tensors(const struct config *c)
{
    const struct family *f = family_find(c->family);
    struct listing l = {.dtype = c->dtype};
    size_t n = 0;
    for (size_t u = 0; u < c->layers + 2; u++)
        n += family_tensor_count(f, c, u);
    l.at = bench_alloc(n * sizeof *l.at);
    l.defs = bench_alloc(n * sizeof *l.defs);
    for (size_t u = 0; u < c->layers + 2; u++)
        family_tensors(f, c, u, list_one, &l);
    return l;
}

/* Uniform, with the variance that keeps activations at one. */
static void write_tensor(struct st_writer *w, const struct tensor_def *def)
{
    struct err err;
    const size_t n = def->rows * (def->cols ? def->cols : 1);
    float *x = bench_alloc(n * sizeof *x);
    struct rng rng = rng_for(SEED, def->name);
    const float width = def->cols ? sqrtf(3.0f / (float)def->cols) : 0;
    rng_fill_uniform(&rng, x, n, def->cols ? -width : 1, def->cols ? width : 1);
    bench_must(st_writer_put(w, def->name, x, n, &err), &err);
    free(x);
}

static int describe_machine(void)
{
    struct err err;
    struct num *num;
    const char *core = num_openblas_coretype(), *own = getenv("OPENBLAS_CORETYPE");
    bench_must(num_new(&num, 1, &err), &err);
    printf("kernels  %s, OPENBLAS_CORETYPE %s%s\n", num_isa(num),
           own    ? own
           : core ? core
                  : "its own guess",
           own ? " (yours)" : "");
    num_free(num);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--machine"))
        return describe_machine();
    const struct shape *s = NULL;
    for (size_t i = 0; argc == 4 && i < sizeof shapes / sizeof *shapes; i++)
        s = !strcmp(argv[2], shapes[i].name) ? &shapes[i] : s;
    if (!s) {
        fputs("usage: bench_model DIR 110m|1b4 f32|bf16 | --machine\n", stderr);
        return 2;
    }
    struct err err;
    struct config c;
    char path[512];
    struct st_writer *w;
    mkdir(argv[1], 0755);
    write_config(argv[1], s, !strcmp(argv[3], "bf16"));
    bench_must(config_read(&c, argv[1], &err), &err);
    const struct listing list = list_tensors(&c);
    snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    bench_must(st_writer_open(&w, path, list.at, list.n, &err), &err);
    for (size_t i = 0; i < list.n; i++)
        write_tensor(w, &list.defs[i]);
    bench_must(st_writer_finish(w, &err), &err);
    free(list.at);
    free(list.defs);
    return 0;
}
