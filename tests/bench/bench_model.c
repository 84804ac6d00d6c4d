/* SPDX-License-Identifier: MIT
 *
 * Writes a random model for the other benches: `bench_model DIR SHAPE f32|bf16`. 1b4 has the width
 * and vocabulary of 1b, but four layers of its sixteen; the shapes named as a family are of it,
 * about as large as 110m; 110m_late is a model whose first layer, 110m_first, alone says nearly
 * the same, as a good draft model does; `long` and `long_latent` are for sequences of 8192 tokens.
 * `bench_model --machine` says what this CPU is to us. */
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

#include "file/st.h"
#include "model/family.h"
#include "num/num.h"
#include "num/rng.h"
#include "tests/bench/bench.h"

enum { SEED = 20251121 };

/* The members of config.json that make the shape; write_config adds what all have in common. */
struct shape {
    const char *name, *config;
};

static const struct shape shapes[] = {
    {"110m", "\"model_type\": \"llama\", \"hidden_size\": 768, \"intermediate_size\": 2048, "
             "\"num_hidden_layers\": 12, "
             "\"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"vocab_size\": 32000, "
             "\"tie_word_embeddings\": true"},
    {"110m_late",
     "\"model_type\": \"llama\", \"hidden_size\": 768, \"intermediate_size\": 2048, \"num_hidden_layers\": "
     "12, "
     "\"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"vocab_size\": 32000, "
     "\"tie_word_embeddings\": true"},
    {"110m_first", "\"model_type\": \"llama\", \"hidden_size\": 768, \"intermediate_size\": 2048, "
                   "\"num_hidden_layers\": 1, "
                   "\"num_attention_heads\": 12, \"num_key_value_heads\": 12, \"vocab_size\": 32000, "
                   "\"tie_word_embeddings\": true"},
    {"1b4", "\"model_type\": \"llama\", \"hidden_size\": 2048, \"intermediate_size\": 8192, "
            "\"num_hidden_layers\": 4, "
            "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 128256, "
            "\"tie_word_embeddings\": true"},
    {"1b", "\"model_type\": \"llama\", \"hidden_size\": 2048, \"intermediate_size\": 8192, "
           "\"num_hidden_layers\": 16, "
           "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 128256, "
           "\"tie_word_embeddings\": true"},
    {"qwen3",
     "\"model_type\": \"qwen3\", \"hidden_size\": 768, \"intermediate_size\": 2304, \"num_hidden_layers\": "
     "12, "
     "\"num_attention_heads\": 12, \"num_key_value_heads\": 4, \"head_dim\": 128, \"vocab_size\": 32000, "
     "\"tie_word_embeddings\": true"},
    {"qwen3_moe",
     "\"model_type\": \"qwen3_moe\", \"hidden_size\": 512, \"intermediate_size\": 1024, "
     "\"num_hidden_layers\": 9, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 64, "
     "\"num_experts\": 16, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 384, "
     "\"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], "
     "\"vocab_size\": 32000, \"tie_word_embeddings\": false"},
    {"deepseek_v2",
     "\"model_type\": \"deepseek_v2\", \"hidden_size\": 512, \"intermediate_size\": 1536, "
     "\"num_hidden_layers\": 9, \"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
     "\"q_lora_rank\": null, \"kv_lora_rank\": 128, \"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 32, "
     "\"v_head_dim\": 64, \"n_routed_experts\": 16, \"n_shared_experts\": 2, \"num_experts_per_tok\": 4, "
     "\"moe_intermediate_size\": 384, \"moe_layer_freq\": 1, \"first_k_dense_replace\": 1, "
     "\"topk_method\": \"greedy\", \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": false, "
     "\"scoring_func\": \"softmax\", \"routed_scaling_factor\": 1.0, \"vocab_size\": 32000, "
     "\"tie_word_embeddings\": false"},
    {"deepseek_v3",
     "\"model_type\": \"deepseek_v3\", \"hidden_size\": 512, \"intermediate_size\": 1536, "
     "\"num_hidden_layers\": 9, \"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
     "\"q_lora_rank\": 256, \"kv_lora_rank\": 128, \"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 32, "
     "\"v_head_dim\": 64, \"n_routed_experts\": 16, \"n_shared_experts\": 1, \"num_experts_per_tok\": 4, "
     "\"moe_intermediate_size\": 384, \"moe_layer_freq\": 1, \"first_k_dense_replace\": 1, "
     "\"topk_method\": \"noaux_tc\", \"n_group\": 4, \"topk_group\": 2, \"norm_topk_prob\": true, "
     "\"scoring_func\": \"sigmoid\", \"routed_scaling_factor\": 2.5, \"vocab_size\": 32000, "
     "\"tie_word_embeddings\": false"},
    {"long", "\"model_type\": \"llama\", \"hidden_size\": 256, \"intermediate_size\": 768, "
             "\"num_hidden_layers\": 2, "
             "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 32000, "
             "\"tie_word_embeddings\": true"},
    {"long_latent",
     "\"model_type\": \"deepseek_v2\", \"hidden_size\": 256, \"intermediate_size\": 768, "
     "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
     "\"q_lora_rank\": null, \"kv_lora_rank\": 128, \"qk_nope_head_dim\": 64, \"qk_rope_head_dim\": 32, "
     "\"v_head_dim\": 64, \"n_routed_experts\": 16, \"n_shared_experts\": 1, \"num_experts_per_tok\": 4, "
     "\"moe_intermediate_size\": 192, \"moe_layer_freq\": 1, \"first_k_dense_replace\": 1, "
     "\"topk_method\": \"greedy\", \"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": false, "
     "\"scoring_func\": \"softmax\", \"routed_scaling_factor\": 1.0, \"vocab_size\": 32000, "
     "\"tie_word_embeddings\": true"},
};

static void write_config(const char *dir, const struct shape *s, bool bf16)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "we");
    const bool ok = f && fprintf(f,
                                 "{%s, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, "
                                 "\"rope_theta\": 10000.0, \"hidden_act\": \"silu\", "
                                 "\"torch_dtype\": \"%s\", \"bos_token_id\": 1, \"eos_token_id\": 2}\n",
                                 s->config, bf16 ? "bfloat16" : "float32") > 0;
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
/* late: what layers behind the first add, as a share of what it adds. */
static void write_tensor(struct st_writer *w, const struct tensor_def *def, float late)
{
    const bool adds = strstr(def->name, ".o_proj.") || strstr(def->name, ".down_proj."),
               is_late = adds && !strstr(def->name, ".layers.0.");
    struct err err;
    const size_t n = def->rows * (def->cols ? def->cols : 1);
    float *x = bench_alloc(n * sizeof *x);
    struct rng rng = rng_for(SEED, def->name);
    const float width = def->cols ? sqrtf(3.0f / (float)def->cols) * (is_late ? late : 1) : 0;
    rng_fill_uniform(&rng, x, n, def->cols ? -width : 1, def->cols ? width : 1);
    bench_must(st_writer_put(w, def->name, x, n, &err), &err);
    free(x);
}

static int describe_machine(void)
{
    struct err err;
    struct num *num;
    const char *core = bench_core_type();
    bench_must(num_new(&num, 1, &err), &err);
    printf("kernels  %s, OpenBLAS's %s\n", num_isa(num), core ? core : "its own guess");
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
        fputs("usage: bench_model DIR SHAPE f32|bf16 | --machine\nshapes:", stderr);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            fprintf(stderr, " %s", shapes[i].name);
        fputs("\n", stderr);
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
        write_tensor(w, &list.defs[i], !strcmp(s->name, "110m_late") ? 0.02f : 1);
    bench_must(st_writer_finish(w, &err), &err);
    free(list.at);
    free(list.defs);
    return 0;
}
