/* SPDX-License-Identifier: MIT
 *
 * Quantized models: directories as mlx-lm writes them against a plain f64 implementation on the
 * values they stand for, and models that are quantized when a stage opens, with the files that are
 * kept of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/write/merge.h"
#include "tests/lib/mlx.h"
#include "tests/lib/near.h"
#include "tests/lib/reference.h"
#include "tests/lib/tiny.h"

#define COMMON(family)                                                                                       \
    "{\"model_type\":\"" family "\",\"num_hidden_layers\":3,\"vocab_size\":41,\"rms_norm_eps\":1e-5,"        \
    "\"rope_theta\":100,\"bos_token_id\":1,\"eos_token_id\":2,\"max_position_embeddings\":64,"               \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":4,"
#define GQA "\"num_key_value_heads\":2,\"head_dim\":16"

static const char *const families[] = {
    COMMON("qwen3") GQA ",\"tie_word_embeddings\":true",
    COMMON("qwen2") GQA,
    COMMON("qwen3_moe") GQA ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
                            "\"norm_topk_prob\":true",
    COMMON(
        "deepseek_v3") "\"kv_lora_rank\":32,\"q_lora_rank\":96,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"
                       "\"v_head_dim\":8,\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_"
                       "size\":32,"
                       "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"norm_topk_prob\":true,\"n_"
                       "group\":4,"
                       "\"topk_group\":2,\"routed_scaling_factor\":2.5,\"num_nextn_predict_layers\":0",
};
enum { FAMILIES = sizeof families / sizeof *families };

static struct config write_config(const char *dir, const char *family, const char *more)
{
    struct err err;
    struct config c;
    char json[1800];
    snprintf(json, sizeof json, "%s%s}", family, more);
    write_file(dir, "config.json", json);
    must(config_read(&c, dir, &err), &err);
    return c;
}

/* --- MLX -------------------------------------------------------------------------------------- */

/* What a chain makes of the batch, scored and generated, against logits in f64. Few rows of x are
 * rounded to 16 bits in every product: of 21 of them, one after the other, that leaves some
 * 1e-3. */
static void check_logits(const char *dir, const struct config *c, const double *want)
{
    struct tune none = {.end_layer = c->layers};
    struct tiny_batch b;
    tiny_batch_init(&b, c, 5);
    for (size_t stages = 1; stages <= 3; stages++) {
        struct chain chain;
        struct chain_spec spec =
            tiny_chain(dir, c, &none, (struct chain_cut){stages, {1, stages == 2 ? 3 : 2, 3}});
        spec.training = false;
        spec.kv = true;
        chain_open(&chain, &spec);
        for (size_t t = 0, n = 14; t < TINY_TOKENS; t += n, n = t < 16 ? 3 : 1) {
            const float *got = chain_decode(&chain, b.ids + t, n, t);
            for (size_t i = 0; i < c->vocab; i++)
                if (!(fabs((double)got[i] - want[(t + n - 1) * c->vocab + i]) <= 4e-3))
                    fail_msg("%s, position %zu: logit %zu is %.9g, in f64 %.9g", c->family, t + n - 1, i,
                             (double)got[i], want[(t + n - 1) * c->vocab + i]);
        }
        chain_close(&chain);
    }
}

/* What a plan counts for the weights is what the file has of matrices. */
static void check_measure(const char *dir, const struct config *q)
{
    struct err err;
    struct st *st;
    struct stage_bytes bytes;
    char path[512];
    size_t matrices = 0;
    const struct stage_spec spec = tiny_whole(dir, q, 4);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(st_open_file(&st, path, &err), &err);
    for (size_t i = 0; i < st_count(st); i++)
        matrices += st_at(st, i)->ndim > 1 ? st_at(st, i)->bytes : 0;
    st_close(st);
    must(stage_measure(&bytes, &spec, &err), &err);
    assert_int_equal(bytes.mapped, matrices);
}

static void check_mlx(const char *family, struct mlx_how how, const char *overrides)
{
    struct temp_dir plain = temp_dir_new(), mlx = temp_dir_new();
    char quantization[800];
    const struct config c = write_config(plain.path, family, "");
    model_write(plain.path, &c);
    mlx_convert(plain.path, mlx.path, &c, how);
    snprintf(quantization, sizeof quantization, ",\"quantization\":{\"group_size\":%zu,\"bits\":%zu%s%s}",
             how.group, how.bits, how.fp4 ? ",\"mode\":\"mxfp4\"" : "", overrides);
    const struct config q = write_config(mlx.path, family, quantization);
    assert_int_equal(q.quant_bits, how.bits);
    struct tiny_batch b;
    tiny_batch_init(&b, &c, 5);
    double *want = reference_logits(plain.path, &c, b.ids, TINY_TOKENS);
    check_logits(mlx.path, &q, want);
    check_measure(mlx.path, &q);
    free(want);
    temp_dir_free(&plain);
    temp_dir_free(&mlx);
}

static void mlx_directories_load(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        for (size_t bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1)
            check_mlx(families[f], (struct mlx_how){.bits = bits, .group = 32, .half = (f + bits / 4) % 2},
                      "");
        check_mlx(families[f], (struct mlx_how){.bits = 4, .group = 32, .fp4 = true}, "");
    }
}

static void layers_may_differ(void **state)
{
    (void)state;
#define EIGHT(module) ",\"model.layers." module "\":{\"bits\":8,\"group_size\":32}"
#define OWN(module) EIGHT("0." module) EIGHT("1." module) EIGHT("2." module)
    static const char *const own[] = {[1] = EIGHT("0.mlp.down_proj"), [2] = OWN("mlp.gate")};
    for (size_t f = 1; f <= 2; f++) {
        char overrides[600];
        snprintf(overrides, sizeof overrides, ",\"mode\":\"affine\",\"model.embed_tokens\":false%s%s",
                 OWN("self_attn.o_proj"), own[f]);
        check_mlx(families[f], (struct mlx_how){.bits = 4, .group = 32, .overrides = true}, overrides);
    }
}

static const struct adamw opt = {0.01f, 0.9f, 0.999f, 1e-8f, 0};

/* Two steps of a full fine-tune. */
static struct tiny_trained train_all(const char *dir, const struct config *c)
{
    const struct tune full = {.kind = TUNE_FULL, .end_layer = c->layers};
    const struct chain_spec spec = tiny_chain(dir, c, &full, (struct chain_cut){2, {1, 3}});
    return tiny_train(&spec, &opt, 2, true);
}

/* Experts that share a tensor are trained each by itself. */
static void stacks_are_trained_as_single_experts_are(void **state)
{
    (void)state;
    for (size_t f = 2; f <= 3; f++) {
        struct temp_dir plain = temp_dir_new(), mlx = temp_dir_new();
        const struct config c = write_config(plain.path, families[f], "");
        model_write(plain.path, &c);
        mlx_convert(plain.path, mlx.path, &c, (struct mlx_how){.bits = 0});
        const struct tiny_trained want = train_all(plain.path, &c), got = train_all(mlx.path, &c);
        assert_int_equal(got.n, want.n);
        assert_same_bits(got.values, want.values, want.n, "experts out of a stack");
        free(want.values);
        free(got.values);
        temp_dir_free(&plain);
        temp_dir_free(&mlx);
    }
}

/* That model as mlx-lm writes it, with experts that are not there, does not become a stage. */
static void opens_not(size_t family, struct mlx_how how, size_t more_experts, enum tune_kind tune,
                      const char *text)
{
    struct temp_dir plain = temp_dir_new(), mlx = temp_dir_new();
    struct err err;
    struct num *num;
    struct stage *s;
    struct config c = write_config(plain.path, families[family], "");
    model_write(plain.path, &c);
    mlx_convert(plain.path, mlx.path, &c, how);
    c.moe.experts += more_experts;
    must(num_new(&num, 1, &err), &err);
    const struct stage_spec spec = {.model_dir = mlx.path,
                                    .config = c,
                                    .tune = {.kind = tune},
                                    .end_layer = 3,
                                    .embed = true,
                                    .head = true,
                                    .training = tune != TUNE_NONE,
                                    .slots = 1,
                                    .tokens = 4,
                                    .seqs = 1,
                                    .positions = 4};
    must_refuse(stage_open(&s, num, &spec, &err), -EINVAL, &err, text);
    num_free(num);
    temp_dir_free(&plain);
    temp_dir_free(&mlx);
}

/* What config.json says beyond the end of a stack is not there. */
static void stacks_of_too_few_are_refused(void **state)
{
    (void)state;
    opens_not(2, (struct mlx_how){.bits = 0}, 2, TUNE_NONE,
              "model.layers.0.mlp.experts.4.gate_proj.weight is missing");
}

/* The shapes of its tensors say that it is quantized, and its config.json does not. */
static void what_is_quantized_is_not_trained_unsaid(void **state)
{
    (void)state;
    opens_not(1, (struct mlx_how){.bits = 8, .group = 32}, 0, TUNE_FULL,
              "model.embed_tokens.weight is quantized, and such weights are not trained");
}

static void what_is_not_read_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } bad[] = {
        {",\"quantization\":{\"group_size\":64,\"bits\":7}", "7 bits in groups of 64 are not read here"},
        {",\"quantization\":{\"group_size\":16,\"bits\":4}", "4 bits in groups of 16"},
        {",\"quantization\":{\"group_size\":16,\"bits\":4,\"mode\":\"nvfp4\"}", "mode \"nvfp4\""},
        {",\"quantization\":{\"group_size\":64,\"bits\":4,\"mode\":\"mxfp4\"}",
         "4 bits in groups of 32, not"},
        {",\"quantization\":{\"group_size\":32,\"bits\":4,\"lm_head\":{\"bits\":9}}", "of lm_head: 9 bits"},
        {",\"quantization\":{\"bits\":4}", "group_size is missing"},
    };
    struct err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct config c;
        char json[1400];
        snprintf(json, sizeof json, "%s%s}", families[0], bad[i].text);
        must_refuse(config_parse(&c, json, strlen(json), &err), -ENOTSUP, &err, bad[i].part);
    }
}

/* --- quantized here --------------------------------------------------------------------------- */

struct place {
    struct temp_dir model, cache;
    char kept[128];
    struct config c;
};

static void place_make(struct place *p, size_t family)
{
    p->model = temp_dir_new();
    p->cache = temp_dir_new();
    snprintf(p->kept, sizeof p->kept, "%s/new/weights", p->cache.path);
    p->c = write_config(p->model.path, families[family], "");
    model_write(p->model.path, &p->c);
}

static void place_free(struct place *p)
{
    temp_dir_free(&p->model);
    temp_dir_free(&p->cache);
}

static struct chain_spec quantized_chain(const struct place *p, const struct tune *tune, struct chain_cut cut,
                                         size_t bits)
{
    struct chain_spec spec = tiny_chain(p->model.path, &p->c, tune, cut);
    spec.weight_bits = bits;
    spec.cache_dir = p->kept;
    return spec;
}

static struct tune lora_on_all(const struct config *c)
{
    struct err err;
    struct tune t = {
        .kind = TUNE_LORA, .rank = 3, .alpha = 6, .dropout = 0.1f, .end_layer = c->layers, .seed = 3};
    must(tune_targets(&t, family_find(c->family), c, "all-linear", &err), &err);
    return t;
}

/* Three steps of LoRA. */
static struct tiny_trained train(const struct place *p, struct chain_cut cut, size_t bits)
{
    const struct tune tune = lora_on_all(&p->c);
    const struct chain_spec spec = quantized_chain(p, &tune, cut, bits);
    return tiny_train(&spec, &opt, 3, true);
}

static void training_is_the_same_bits_on_any_ring(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++)
        for (size_t bits = 4; bits <= 8; bits += 4) {
            struct place p;
            place_make(&p, f);
            const struct tiny_trained want = train(&p, (struct chain_cut){1, {3}}, bits);
            static const struct chain_cut cuts[] = {{2, {1, 3}}, {3, {1, 2, 3}}, {3, {0, 3, 3}}};
            for (size_t i = 0; i < 3; i++) {
                const struct tiny_trained got = train(&p, cuts[i], bits);
                assert_int_equal(got.n, want.n);
                assert_true(got.loss == want.loss);
                assert_same_bits(got.values, want.values, want.n, "LoRA on quantized weights");
                free(got.values);
            }
            free(want.values);
            place_free(&p);
        }
}

/* Logits after the whole batch; the caller frees. */
static float *logits_of(const struct place *p, size_t bits)
{
    const struct tune none = {.end_layer = p->c.layers};
    struct chain_spec spec = quantized_chain(p, &none, (struct chain_cut){2, {1, 3}}, bits);
    struct chain chain;
    struct tiny_batch b;
    float *copy = calloc(p->c.vocab, sizeof *copy);
    assert_non_null(copy);
    tiny_batch_init(&b, &p->c, 5);
    spec.training = false;
    spec.kv = true;
    chain_open(&chain, &spec);
    memcpy(copy, chain_decode(&chain, b.ids, TINY_TOKENS, 0), p->c.vocab * sizeof *copy);
    chain_close(&chain);
    return copy;
}

/* Of models without a choice of experts, which makes the smallest difference a large one. */
static void it_is_still_the_same_model(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        struct place p;
        place_make(&p, f);
        float *stored = logits_of(&p, 0), *eight = logits_of(&p, 8), *four = logits_of(&p, 4);
        assert_near_max(eight, stored, p.c.vocab, 0.05, "logits with 8 bits");
        assert_near_max(four, stored, p.c.vocab, 0.6, "logits with 4 bits");
        assert_true(near_difference(eight, stored, p.c.vocab) > 0);
        assert_true(near_difference(four, stored, p.c.vocab) > 2 * near_difference(eight, stored, p.c.vocab));
        free(stored), free(eight), free(four);
        place_free(&p);
    }
}

/* Bytes made and found when all of the model is opened on one stage. */
static void open_all(const struct place *p, size_t bits, size_t *ret_made, size_t *ret_found)
{
    const struct tune none = {.end_layer = p->c.layers};
    struct chain_spec spec = quantized_chain(p, &none, (struct chain_cut){1, {3}}, bits);
    struct chain chain;
    spec.training = false;
    chain_open(&chain, &spec);
    struct requant_told told;
    stage_requanted(chain.stage[0], &told);
    *ret_made = told.made;
    *ret_found = told.found;
    chain_close(&chain);
}

static size_t each_file(const char *dir, int (*visit)(const char *path))
{
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));) {
        char path[512];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        n++;
        assert_true(!visit || !visit(path));
    }
    closedir(d);
    return n;
}

static int cut_short(const char *path)
{
    struct stat st;
    return stat(path, &st) || truncate(path, st.st_size - 1);
}

static void what_was_quantized_is_found_again(void **state)
{
    (void)state;
    struct place p;
    size_t all, made, found;
    char weights[128];
    place_make(&p, 0);
    open_all(&p, 4, &all, &found);
    assert_true(all && !found);
    assert_int_equal(each_file(p.kept, NULL), 4); /* the embedding and three layers; the head is tied */
    open_all(&p, 4, &made, &found);
    assert_true(!made && found == all);
    open_all(&p, 8, &made, &found);
    assert_true(made > all && !found);
    each_file(p.kept, cut_short);
    open_all(&p, 4, &made, &found);
    assert_true(made == all && !found);
    open_all(&p, 4, &made, &found);
    assert_true(!made && found == all);
    snprintf(weights, sizeof weights, "%s/model.safetensors", p.model.path);
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, weights, times, 0), 0); /* as if somebody had written to it */
    open_all(&p, 4, &made, &found);
    assert_true(made == all && !found);
    place_free(&p);
}

static void what_cannot_be_quantized_is_refused(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    struct num *num;
    struct stage *s;
    place_make(&p, 0);
    must(num_new(&num, 1, &err), &err);
    struct stage_spec spec = {.model_dir = p.model.path,
                              .config = p.c,
                              .end_layer = 3,
                              .embed = true,
                              .head = true,
                              .slots = 1,
                              .tokens = 4,
                              .seqs = 1,
                              .positions = 4,
                              .weight_bits = 4,
                              .cache_dir = p.kept};
    spec.tune.kind = TUNE_FULL;
    must_refuse(stage_open(&s, num, &spec, &err), -ENOTSUP, &err, "quantized weights are not trained");
    spec.tune.kind = TUNE_NONE;
    spec.config.quant_bits = 4;
    must_refuse(stage_open(&s, num, &spec, &err), -EINVAL, &err, "stored in 4 bits already");
    spec.config.quant_bits = 0;
    write_file(p.cache.path, "new", "");
    must_refuse(stage_open(&s, num, &spec, &err), -ENOTDIR, &err, "cannot be made");
    num_free(num);
    place_free(&p);
}

static void a_quantized_model_is_not_merged_into(void **state)
{
    (void)state;
    struct temp_dir dir = temp_dir_new();
    struct err err;
    struct rewrite_result result;
    write_config(dir.path, families[0], ",\"quantization\":{\"group_size\":32,\"bits\":4}");
    const struct merge_request req = {
        .model = dir.path, .adapter = dir.path, .out = dir.path, .dtype = DTYPE_COUNT};
    must_refuse(merge_run(&req, &result, &err), -ENOTSUP, &err, "stored in 4 bits");
    temp_dir_free(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlx_directories_load),
        cmocka_unit_test(layers_may_differ),
        cmocka_unit_test(stacks_are_trained_as_single_experts_are),
        cmocka_unit_test(stacks_of_too_few_are_refused),
        cmocka_unit_test(what_is_quantized_is_not_trained_unsaid),
        cmocka_unit_test(what_is_not_read_is_refused),
        cmocka_unit_test(training_is_the_same_bits_on_any_ring),
        cmocka_unit_test(it_is_still_the_same_model),
        cmocka_unit_test(what_was_quantized_is_found_again),
        cmocka_unit_test(what_cannot_be_quantized_is_refused),
        cmocka_unit_test(a_quantized_model_is_not_merged_into),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
