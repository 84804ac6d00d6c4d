/* SPDX-License-Identifier: MIT
 *
 * Writes a random model for the other benches: `bench_model DIR SHAPE f32|bf16`. 1b4 has the width
 * and vocabulary of 1b, but four layers of its sixteen; the shapes named as a family are of it,
 * about as large as 110m; those of real_* have some layers of a released model, as wide as they are
 * there, with the vocabulary of 110m and fewer experts to choose from. 110m_late is a model whose
 * first layer, 110m_first, alone says nearly the same, as a good draft model does; `long` and
 * `long_latent` are for sequences of 8192 tokens. `bench_model --machine` says what this CPU is to
 * us. */
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

/* Layers of Llama 3.1 8B, Phi-3 mini, Gemma 3 4B, OLMo 3 7B, GLM-4.5 Air, Qwen3-Next 80B, gpt-oss
 * 20B and Kimi-K2-Thinking. */
#define REAL(family, layers, dim, ffn)                                                                       \
    "\"model_type\": \"" family "\", \"num_hidden_layers\": " layers ", \"hidden_size\": " dim               \
    ", \"intermediate_size\": " ffn ", \"vocab_size\": 32000, \"tie_word_embeddings\": false, "
#define HEADS(q, kv, head)                                                                                   \
    "\"num_attention_heads\": " q ", \"num_key_value_heads\": " kv ", \"head_dim\": " head
#define GPT_OSS                                                                                              \
    HEADS("64", "8", "64")                                                                                   \
    ", \"sliding_window\": 128, \"num_local_experts\": 16, \"num_experts_per_tok\": 4, \"attention_bias\": " \
    "true"
static const struct shape real_shapes[] = {
    {"real_llama", REAL("llama", "3", "4096", "14336") HEADS("32", "8", "128")},
    {"real_phi3", REAL("phi3", "4", "3072", "8192") HEADS("32", "32", "96")},
    {"real_gemma3",
     REAL("gemma3_text", "6", "2560", "10240")
         HEADS("8", "4", "256") ", \"sliding_window\": 1024, \"hidden_activation\": \"gelu_pytorch_tanh\""},
    {"real_olmo3", REAL("olmo3", "3", "4096", "11008") HEADS("32", "32", "128") ", \"sliding_window\": 4096"},
    {"real_glm4_moe",
     REAL("glm4_moe", "3", "4096", "10944") HEADS(
         "96", "8",
         "128") ", \"attention_bias\": true, \"n_routed_experts\": 16, \"num_experts_per_tok\": 8, "
                "\"moe_intermediate_size\": 1408, \"n_shared_experts\": 1, \"first_k_dense_replace\": 1, "
                "\"n_group\": 1, \"topk_group\": 1, \"norm_topk_prob\": true, \"num_nextn_predict_layers\": "
                "0"},
    {"real_qwen3_next",
     REAL("qwen3_next", "8", "2048", "5120")
         HEADS("16", "2",
               "256") ", \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, "
                      "\"linear_key_head_dim\": 128, "
                      "\"linear_value_head_dim\": 128, \"num_experts\": 32, \"num_experts_per_tok\": 10, "
                      "\"moe_intermediate_size\": 512, \"shared_expert_intermediate_size\": 512"},
    {"real_gpt_oss",
     REAL("gpt_oss", "4", "2880", "2880") GPT_OSS ", \"quantization_config\": {\"quant_method\": \"mxfp4\"}"},
    {"real_kimi_k2",
     REAL("kimi_k2", "2", "7168", "18432") "\"num_attention_heads\": 64, \"num_key_value_heads\": 64, "
                                           "\"kv_lora_rank\": 512, \"q_lora_rank\": 1536, "
                                           "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, "
                                           "\"v_head_dim\": 128, \"n_routed_experts\": 24, "
                                           "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 2048, "
                                           "\"n_shared_experts\": 1, \"first_k_dense_replace\": 0, "
                                           "\"norm_topk_prob\": true, \"routed_scaling_factor\": 2.827, "
                                           "\"num_nextn_predict_layers\": 0, \"quantization_config\": "
                                           "{\"quant_method\": \"compressed-tensors\", \"format\": "
                                           "\"pack-quantized\", \"config_groups\": {\"group_0\": "
                                           "{\"targets\": [\"re:.*[.]experts[.].*\"], \"weights\": "
                                           "{\"num_bits\": 4, \"type\": \"int\", \"symmetric\": true, "
                                           "\"strategy\": \"group\", \"group_size\": 32}}}}"},
    {"real_gpt_oss_turned", REAL("gpt_oss", "2", "2880", "2880") GPT_OSS},
};

enum {
    SMALL = sizeof shapes / sizeof *shapes,
    SHAPES = SMALL + sizeof real_shapes / sizeof *real_shapes,
};

static const struct shape *shape_at(size_t i)
{
    return i < SMALL ? &shapes[i] : &real_shapes[i - SMALL];
}

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
    const struct config *config;
};

/* An index counts only where there is no model.safetensors. */
static const char *file_of(const struct config *c)
{
    return strcmp(c->family, "gpt_oss") && !c->compressed ? "model.safetensors" : "others.safetensors";
}

/* Of gpt-oss, whose experts lie in one tensor for a layer. */
static bool is_woven(const struct tensor_def *def)
{
    return def->weave == WEAVE_TURNS;
}

/* Of Kimi-K2 as it is released, the experts. */
static bool is_packed(const struct config *c, const struct tensor_def *def)
{
    return c->compressed && def->cold && def->linear;
}

static int list_one(void *arg, const struct tensor_def *def)
{
    struct listing *l = arg;
    struct st_out_tensor *at = &l->at[l->n];
    if (is_woven(def) || is_packed(l->config, def))
        return 0;
    l->defs[l->n] = *def;
    *at = (struct st_out_tensor){.name = l->defs[l->n].name,
                                 .dtype = def->fixed ? DTYPE_F32 : l->config->dtype};
    at->ndim = tensor_shape(def->rows, def->cols, def->taps, at->shape);
    l->n++;
    return 0;
}

static struct listing list_tensors(const struct config *c)
{
    const struct family *f = family_find(c->family);
    struct listing l = {.config = c};
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

/* --- woven experts ---------------------------------------------------------------------------- */

enum { BLOCK = 16, GROUP = 32, SIDES = 4, LOW = 118, PIECE = 1 << 20 }; /* bytes; numbers; bytes */

/* All experts' gates and ups of a layer, or downs; their biases; of MXFP4 also the scales. */
struct stack {
    const char *end, *dtype;
    size_t shape[4], bytes; /* without the experts; of all of them */
};

static size_t list_stacks(struct stack ret[6], const struct config *c)
{
    const size_t e = c->moe.experts, dim = c->dim, ffn = c->moe.ffn;
    const struct stack fp4[] = {
        {"gate_up_proj_blocks", "U8", {2 * ffn, dim / GROUP, BLOCK}, e * ffn * dim},
        {"gate_up_proj_scales", "U8", {2 * ffn, dim / GROUP}, e * 2 * ffn * (dim / GROUP)},
        {"down_proj_blocks", "U8", {dim, ffn / GROUP, BLOCK}, e * ffn * dim / 2},
        {"down_proj_scales", "U8", {dim, ffn / GROUP}, e * dim * (ffn / GROUP)},
    };
    const struct stack turned[] = {
        {"gate_up_proj", "BF16", {dim, 2 * ffn}, e * 4 * ffn * dim},
        {"down_proj", "BF16", {ffn, dim}, e * 2 * ffn * dim},
    };
    const struct stack biases[] = {
        {"gate_up_proj_bias", "BF16", {2 * ffn}, e * 4 * ffn},
        {"down_proj_bias", "BF16", {dim}, e * 2 * dim},
    };
    const size_t n = c->experts_fp4 ? 4 : 2;
    memcpy(ret, c->experts_fp4 ? fp4 : turned, n * sizeof *ret);
    memcpy(ret + n, biases, sizeof biases);
    return n + 2;
}

/* Bytes of numbers some hundredths large: bf16, or scales of MXFP4; its blocks may be any. */
static void write_bytes(FILE *f, const struct stack *s, struct rng *rng)
{
    static uint8_t piece[PIECE];
    const bool is_scale = strstr(s->end, "_scales"), is_bf16 = !strcmp(s->dtype, "BF16");
    for (size_t at = 0, n; at < s->bytes; at += n) {
        n = s->bytes - at < PIECE ? s->bytes - at : PIECE;
        for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
            const uint64_t x = rng_u64(rng);
            memcpy(piece + i, &x, sizeof x);
        }
        for (size_t i = 0; is_scale && i < n; i++)
            piece[i] = (uint8_t)(LOW + piece[i] % SIDES);
        for (size_t i = 1; is_bf16 && i < n; i += 2)
            piece[i] = (piece[i] & 0x80) | 0x3c;
        fwrite(piece, 1, n, f);
    }
}

static void write_head(FILE *f, FILE *index, const struct stack *stacks, size_t n, const struct config *c)
{
    char *head;
    size_t size, at = 0;
    FILE *text = open_memstream(&head, &size);
    for (size_t i = 0; text && i < n * c->layers; i++) {
        const struct stack *s = &stacks[i % n];
        fprintf(text, "%s\"model.layers.%zu.mlp.experts.%s\": {\"dtype\": \"%s\", \"shape\": [%zu",
                i ? ", " : "{", i / n, s->end, s->dtype, c->moe.experts);
        for (size_t k = 0; s->shape[k]; k++)
            fprintf(text, ", %zu", s->shape[k]);
        fprintf(text, "], \"data_offsets\": [%zu, %zu]}", at, at + s->bytes);
        fprintf(index, ", \"model.layers.%zu.mlp.experts.%s\": \"experts.safetensors\"", i / n, s->end);
        at += s->bytes;
    }
    if (!text || fputs("}", text) < 0)
        exit(1);
    while (ftell(text) % 64 != 56) /* so that data begin on a cache line */
        fputc(' ', text);
    fclose(text);
    const uint64_t length = size;
    fwrite(&length, sizeof length, 1, f);
    fwrite(head, 1, size, f);
    free(head);
}

static void write_woven(const char *path, FILE *index, const struct config *c)
{
    struct stack stacks[6];
    const size_t n = list_stacks(stacks, c);
    struct rng rng = rng_for(SEED, "experts");
    FILE *f = fopen(path, "we");
    if (!f)
        exit(1);
    write_head(f, index, stacks, n, c);
    for (size_t i = 0; i < n * c->layers; i++)
        write_bytes(f, &stacks[i % n], &rng);
    if (fclose(f))
        exit(1);
}

/* --- packed experts --------------------------------------------------------------------------- */

/* Each expert's matrix: words of any bits, and scales some hundredths large. */
struct packing {
    const struct config *config;
    FILE *head, *data, *index;
    struct rng rng;
    size_t at;
};

static void put_side(struct packing *p, const struct tensor_def *def, const struct stack *s)
{
    fprintf(p->head, "%s\"%s%s\": {\"dtype\": \"%s\", \"shape\": [%zu, %zu], \"data_offsets\": [%zu, %zu]}",
            p->at ? ", " : "{", def->name, s->end, s->dtype, s->shape[0], s->shape[1], p->at,
            p->at + s->bytes);
    fprintf(p->index, ", \"%s%s\": \"experts.safetensors\"", def->name, s->end);
    write_bytes(p->data, s, &p->rng);
    p->at += s->bytes;
}

static int pack_one(void *arg, const struct tensor_def *def)
{
    struct packing *p = arg;
    const size_t n = def->rows * def->cols;
    if (!is_packed(p->config, def))
        return 0;
    put_side(p, def, &(struct stack){"_packed", "I32", {def->rows, def->cols / 8}, n / 2});
    put_side(p, def, &(struct stack){"_scale", "BF16", {def->rows, def->cols / GROUP}, n / GROUP * 2});
    return 0;
}

static void write_packed(struct packing *p, const char *path)
{
    char *head, *data;
    size_t size, bytes;
    p->head = open_memstream(&head, &size);
    p->data = open_memstream(&data, &bytes);
    for (size_t u = 1; u <= p->config->layers; u++)
        family_tensors(family_find(p->config->family), p->config, u, pack_one, p);
    fputc('}', p->head);
    while (ftell(p->head) % 64 != 56) /* so that data begin on a cache line */
        fputc(' ', p->head);
    FILE *f = fopen(path, "we");
    if (fclose(p->head) | fclose(p->data) || !f)
        exit(1);
    const uint64_t length = size;
    fwrite(&length, sizeof length, 1, f);
    fwrite(head, 1, size, f);
    fwrite(data, 1, bytes, f);
    if (fclose(f))
        exit(1);
    free(head);
    free(data);
}

/* experts.safetensors, and an index that names both files. */
static void write_experts(const char *dir, const struct listing *l)
{
    const struct config *c = l->config;
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    FILE *index = fopen(path, "we");
    if (!index) {
        fprintf(stderr, "bench_model: %s cannot be written: %s\n", path, strerror(errno));
        exit(1);
    }
    fputs("{\"metadata\": {}, \"weight_map\": {", index);
    for (size_t i = 0; i < l->n; i++)
        fprintf(index, "%s\"%s\": \"%s\"", i ? ", " : "", l->at[i].name, file_of(c));
    snprintf(path, sizeof path, "%s/experts.safetensors", dir);
    if (c->compressed)
        write_packed(&(struct packing){.config = c, .index = index, .rng = rng_for(SEED, "experts")}, path);
    else
        write_woven(path, index, c);
    fputs("}}\n", index);
    if (fclose(index))
        exit(1);
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
    for (size_t i = 0; argc == 4 && i < SHAPES; i++)
        s = !strcmp(argv[2], shape_at(i)->name) ? shape_at(i) : s;
    if (!s) {
        fputs("usage: bench_model DIR SHAPE f32|bf16 | --machine\nshapes:", stderr);
        for (size_t i = 0; i < SHAPES; i++)
            fprintf(stderr, " %s", shape_at(i)->name);
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
    snprintf(path, sizeof path, "%s/%s", argv[1], file_of(&c));
    bench_must(st_writer_open(&w, path, list.at, list.n, &err), &err);
    for (size_t i = 0; i < list.n; i++)
        write_tensor(w, &list.defs[i], !strcmp(s->name, "110m_late") ? 0.02f : 1);
    bench_must(st_writer_finish(w, &err), &err);
    if (strcmp(file_of(&c), "model.safetensors") != 0)
        write_experts(argv[1], &list);
    free(list.at);
    free(list.defs);
    return 0;
}
