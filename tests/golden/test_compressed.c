/* SPDX-License-Identifier: MIT
 *
 * Models as vLLM's llm-compressor quantizes them (compressed-tensors), against a plain f64
 * implementation on the values they stand for: generated with, trained LoRA on, converted, and
 * planned from their config alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>

#include "model/write/convert.h"
#include "model/write/merge.h"
#include "tests/lib/compressed.h"
#include "tests/lib/near.h"
#include "tests/lib/reference.h"
#include "tests/lib/tensor_file.h"
#include "tests/lib/tiny.h"

#define DEEP(family, layers, hidden, ffn)                                                                    \
    "{\"model_type\":\"" family "\",\"num_hidden_layers\":" layers                                           \
    ",\"vocab_size\":41,\"rms_norm_eps\":1e-5,"                                                              \
    "\"rope_theta\":100,\"bos_token_id\":1,\"eos_token_id\":2,\"max_position_embeddings\":64,"               \
    "\"hidden_size\":" hidden ",\"intermediate_size\":" ffn ",\"num_attention_heads\":4,"
#define SIZED(family, hidden, ffn) DEEP(family, "3", hidden, ffn)
#define COMMON(family) SIZED(family, "64", "96")
#define GQA "\"num_key_value_heads\":2,\"head_dim\":16"
#define LATENT                                                                                               \
    "\"kv_lora_rank\":32,\"q_lora_rank\":96,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,\"v_head_dim\":8," \
    "\"n_routed_experts\":8,\"num_experts_per_tok\":3,\"moe_intermediate_size\":32,\"n_shared_experts\":1,"  \
    "\"first_k_dense_replace\":1,\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,"                     \
    "\"num_nextn_predict_layers\":0"

static const char *const families[] = {
    COMMON("qwen2") GQA,
    COMMON("qwen3_moe") GQA ",\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
                            "\"norm_topk_prob\":true",
    COMMON("kimi_k2") LATENT,
    SIZED("qwen2", "192", "320") GQA, /* blocks of FP8 lie beside and below one another */
};
enum { FAMILIES = sizeof families / sizeof *families, BLOCKS_ONE = FAMILIES - 1 };

static const struct compressed_how forms[] = {
    {.format = "pack-quantized", .bits = 4, .wide = 32, .side = DTYPE_BF16},
    {.format = "pack-quantized", .bits = 4, .wide = 32, .side = DTYPE_F16, .zeros = true},
    {.format = "pack-quantized", .bits = 4, .wide = 64, .side = DTYPE_BF16, .left = "(o|down|q_b|kv_b)_proj"},
    {.format = "pack-quantized", .bits = 8, .wide = 32, .side = DTYPE_F32, .zeros = true},
    {.format = "pack-quantized", .bits = 8, .side = DTYPE_BF16},
    {.format = "int-quantized", .bits = 8, .side = DTYPE_BF16},
    {.format = "int-quantized", .bits = 8, .wide = 32, .side = DTYPE_F32},
    {.format = "float-quantized", .bits = 8, .side = DTYPE_BF16},
    {.format = "float-quantized", .bits = 8, .side = DTYPE_BF16, .tensor = true},
    {.format = "float-quantized", .bits = 8, .side = DTYPE_BF16, .blocks = true},
    {.format = "float-quantized", .bits = 8, .side = DTYPE_F32, .blocks = true},
    {.format = "mxfp4-pack-quantized", .bits = 4, .wide = 32, .side = DTYPE_BF16},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* Where not every family is met with every form. */
static size_t family_for(size_t form)
{
    return forms[form].blocks ? BLOCKS_ONE : form % BLOCKS_ONE;
}

/* One model twice: plain, with the values that the other one stands for. */
struct pair {
    struct temp_dir plain, packed;
    struct config c, q;
};

static struct config write_config(const char *dir, const char *family, const char *more)
{
    struct err err;
    struct config c;
    char *json;
    assert_true(asprintf(&json, "%s%s}", family, more) > 0);
    write_file(dir, "config.json", json);
    free(json);
    must(config_read(&c, dir, &err), &err);
    return c;
}

static struct pair pair_make(size_t family, const struct compressed_how *how)
{
    struct pair p = {.plain = temp_dir_new(), .packed = temp_dir_new()};
    char more[1200];
    p.c = write_config(p.plain.path, families[family], "");
    model_write(p.plain.path, &p.c);
    compressed_convert(p.plain.path, p.packed.path, &p.c, *how);
    compressed_config(more, sizeof more, *how);
    p.q = write_config(p.packed.path, families[family], more);
    return p;
}

static void pair_free(struct pair *p)
{
    temp_dir_free(&p->plain);
    temp_dir_free(&p->packed);
}

static bool is_whole(const struct compressed_how *how)
{
    return strcmp(how->format, "float-quantized") != 0;
}

/* --- computing -------------------------------------------------------------------------------- */

/* Few rows of x are rounded to 16 bits in every product of whole numbers: of 21 of them, one after
 * the other, that leaves some 1e-3, and more where they are wide. */
static double most_off(const struct config *c, const char *format)
{
    const bool is_float = strstr(format, "float") || strstr(format, "fp4");
    return is_float ? 1e-4 : 4e-3 * (double)c->dim / 64;
}

static void check_logits(const struct pair *p, const double *want, const char *format)
{
    struct tune none = {.end_layer = p->q.layers};
    struct tiny_batch b;
    tiny_batch_init(&b, &p->q, 5);
    for (size_t stages = 1; stages <= 2; stages++) {
        struct chain chain;
        struct chain_spec spec =
            tiny_chain(p->packed.path, &p->q, &none, (struct chain_cut){stages, {stages == 2 ? 1 : 3, 3}});
        spec.training = false;
        spec.kv = true;
        chain_open(&chain, &spec);
        for (size_t t = 0, n = 14; t < TINY_TOKENS; t += n, n = t < 16 ? 3 : 1) {
            const float *got = chain_decode(&chain, b.ids + t, n, t);
            for (size_t i = 0; i < p->q.vocab; i++)
                if (!(fabs((double)got[i] - want[(t + n - 1) * p->q.vocab + i]) <= most_off(&p->q, format)))
                    fail_msg("%s %s, position %zu: logit %zu is %.9g, in f64 %.9g", p->q.family, format,
                             t + n - 1, i, (double)got[i], want[(t + n - 1) * p->q.vocab + i]);
        }
        chain_close(&chain);
    }
}

/* What a plan counts without a file is what the file has of matrices; scales of FP8 are copied. */
static void check_measure(const struct pair *p, const struct compressed_how *how)
{
    struct err err;
    struct st *st;
    struct stage_bytes bytes;
    struct temp_dir alone = temp_dir_new();
    char path[512], more[1200];
    size_t matrices = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", p->packed.path);
    must(st_open_file(&st, path, &err), &err);
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        if (t->ndim > 1 && (is_whole(how) || !strstr(t->name, "_scale")))
            matrices += t->bytes;
    }
    st_close(st);
    compressed_config(more, sizeof more, *how);
    char *json = read_file(p->packed.path, "config.json", &(size_t){0});
    write_file(alone.path, "config.json", json);
    free(json);
    const struct stage_spec spec = tiny_whole(alone.path, &p->q, 4);
    must(stage_measure(&bytes, &spec, &err), &err);
    assert_int_equal(bytes.mapped, matrices);
    temp_dir_free(&alone);
}

static void every_form_is_computed_with(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++)
        for (size_t i = 0; i < FORMS; i++) {
            struct pair p = pair_make(f, &forms[i]);
            struct tiny_batch b;
            tiny_batch_init(&b, &p.c, 5);
            double *want = reference_logits(p.plain.path, &p.c, b.ids, TINY_TOKENS);
            check_logits(&p, want, forms[i].format);
            check_measure(&p, &forms[i]);
            free(want);
            pair_free(&p);
        }
}

/* --- training --------------------------------------------------------------------------------- */

/* Two steps of LoRA. */
static struct tiny_trained train(const char *dir, const struct config *c, struct chain_cut cut)
{
    struct err err;
    struct tune tune = {.kind = TUNE_LORA, .rank = 3, .alpha = 6, .end_layer = c->layers, .seed = 3};
    must(tune_targets(&tune, family_find(c->family), c, "all-linear", &err), &err);
    const struct chain_spec spec = tiny_chain(dir, c, &tune, cut);
    return tiny_train(&spec, &(struct adamw){0.01f, 0.9f, 0.999f, 1e-8f, 0}, 2, true);
}

/* Many rows of x meet the numbers that the plain model has: to rounding, the losses are alike. */
static void adapters_are_trained_on_every_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        struct pair p = pair_make(family_for(i), &forms[i]);
        const struct chain_cut whole = {1, {3}};
        const struct tiny_trained want = train(p.packed.path, &p.q, whole),
                                  got = train(p.packed.path, &p.q, (struct chain_cut){3, {1, 2, 3}}),
                                  plain = train(p.plain.path, &p.c, whole);
        assert_int_equal(got.n, want.n);
        assert_true(got.loss == want.loss);
        assert_same_bits(got.values, want.values, want.n, forms[i].format);
        if (!(fabs(want.loss - plain.loss) < 1e-3 * fabs(plain.loss)))
            fail_msg("%s: the loss is %.9g, of the plain model %.9g", forms[i].format, want.loss, plain.loss);
        free(want.values);
        free(got.values);
        free(plain.values);
        pair_free(&p);
    }
}

/* --- written otherwise ------------------------------------------------------------------------ */

struct comparing {
    struct st *got, *want;
    bool exact;
};

static int compare_one(void *arg, const struct tensor_def *def)
{
    const struct comparing *c = arg;
    const struct st_tensor *a = st_find(c->got, def->name), *b = st_find(c->want, def->name);
    if (!a || !b || a->dtype != DTYPE_F32 || a->bytes != b->bytes) {
        fail_msg("%s is missing, or misshapen", def->name);
        return 0;
    }
    float *got = malloc(a->bytes), *want = malloc(b->bytes);
    assert_true(got && want);
    memcpy(got, a->data, a->bytes); /* aligned */
    memcpy(want, b->data, b->bytes);
    if (c->exact)
        assert_same_bits(got, want, a->elements, def->name);
    else /* q · scale and zero · scale are rounded each */
        assert_near_max(got, want, a->elements, 2.4e-7, def->name);
    free(got);
    free(want);
    return 0;
}

static void converting_writes_the_numbers_themselves(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        struct pair p = pair_make(family_for(i), &forms[i]);
        struct temp_dir to = temp_dir_new();
        char out[128], path[512];
        struct err err;
        struct rewrite_result result;
        struct comparing both = {.exact = forms[i].side != DTYPE_F32};
        snprintf(out, sizeof out, "%s/out", to.path);
        const struct convert_request req = {.model = p.packed.path, .out = out, .dtype = DTYPE_F32};
        must(convert_run(&req, &result, &err), &err);
        snprintf(path, sizeof path, "%s/model.safetensors", out);
        must(st_open_file(&both.got, path, &err), &err);
        snprintf(path, sizeof path, "%s/model.safetensors", p.plain.path);
        must(st_open_file(&both.want, path, &err), &err);
        for (size_t u = 0; u < p.c.layers + 2; u++)
            family_tensors(family_find(p.c.family), &p.c, u, compare_one, &both);
        st_close(both.got);
        st_close(both.want);
        struct config c;
        must(config_read(&c, out, &err), &err);
        assert_true(!c.compressed && !c.quant_bits && !c.fp8 && c.dtype == DTYPE_F32);
        temp_dir_free(&to);
        pair_free(&p);
    }
}

static void what_would_be_rounded_twice_is_refused(void **state)
{
    (void)state;
    struct pair p = pair_make(0, &forms[0]);
    struct err err;
    struct rewrite_result result;
    const struct merge_request merge = {
        .model = p.packed.path, .adapter = p.packed.path, .out = p.packed.path, .dtype = DTYPE_COUNT};
    must_refuse(merge_run(&merge, &result, &err), -ENOTSUP, &err, "stored in 4 bits");
    const struct convert_request convert = {
        .model = p.packed.path, .out = p.packed.path, .dtype = DTYPE_COUNT, .bits = 4, .group = 64};
    must_refuse(convert_run(&convert, &result, &err), -ENOTSUP, &err, "quantized to 4 bits already");
    pair_free(&p);
}

/* --- what is misshapen ------------------------------------------------------------------------ */

/* A tensor of a file that is another one than it should be. */
struct misshapen {
    struct compressed_how how;
    size_t family;
    const char *matrix, *end; /* its name */
    const char *type;         /* what it is instead; NULL: it is not there */
    size_t size, rows, cols;  /* bytes of an element; cols 0: a vector */
    const char *part;         /* of the sentence, behind the matrix; NULL: as of whole numbers */
};

static void put_instead(struct tensor_file *f, const char *name, const struct misshapen *m)
{
    const size_t bytes = m->size * m->rows * (m->cols ? m->cols : 1);
    char shape[64], *zeros = calloc(bytes, 1);
    assert_non_null(zeros);
    snprintf(shape, sizeof shape, m->cols ? "%zu,%zu" : "%zu", m->rows, m->cols);
    tensor_file_put(f, name, m->type, shape, zeros, bytes);
    free(zeros);
}

/* The file in `dir` with that tensor. */
static void misshape(const char *dir, const struct misshapen *m)
{
    struct err err;
    struct st *st;
    struct tensor_file f;
    char name[160], path[512];
    snprintf(name, sizeof name, "%s.weight%s", m->matrix, m->end);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(st_open_file(&st, path, &err), &err);
    tensor_file_begin(&f);
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        char shape[64];
        assert_in_range(t->ndim, 1, 2);
        snprintf(shape, sizeof shape, t->ndim == 2 ? "%zu,%zu" : "%zu", t->shape[0], t->shape[1]);
        if (strcmp(t->name, name) != 0)
            tensor_file_put(&f, t->name, t->dtype_name, shape, t->data, t->bytes);
    }
    if (m->type)
        put_instead(&f, name, m);
    st_close(st);
    tensor_file_end(&f, dir);
}

#define GATE "model.layers.1.mlp.gate_proj"
#define DOWN "model.layers.1.mlp.down_proj"
#define KEYS "model.layers.1.self_attn.kv_a_proj_with_mqa"
#define INT4_HOW .format = "pack-quantized", .bits = 4, .wide = 32, .side = DTYPE_BF16
#define INT8_HOW .format = "int-quantized", .bits = 8, .side = DTYPE_BF16
#define FP8_HOW .format = "float-quantized", .bits = 8, .side = DTYPE_BF16
#define FP4_HOW .format = "mxfp4-pack-quantized", .bits = 4, .wide = 32, .side = DTYPE_BF16

static void what_is_misshapen_is_refused_by_its_name(void **state)
{
    (void)state;
    static const struct misshapen list[] = {
        {{INT4_HOW}, 0, GATE, "_scale", "BF16", 2, 95, 2, NULL},
        {{INT4_HOW}, 0, DOWN, "_scale", "BF16", 2, 64, 2, NULL}, /* of 48 columns */
        {{INT4_HOW}, 0, GATE, "_scale", "I32", 4, 96, 2, NULL},
        {{INT4_HOW}, 0, GATE, "_scale", NULL, 0, 0, 0, NULL},
        {{INT4_HOW}, 0, GATE, "_packed", "I32", 4, 96, 7, NULL},
        {{INT4_HOW, .zeros = true}, 2, KEYS, "_zero_point", "I32", 4, 4, 2, NULL}, /* of 36 rows */
        {{INT4_HOW, .zeros = true}, 0, GATE, "_zero_point", "BF16", 2, 12, 2, NULL},
        {{INT8_HOW}, 0, GATE, "_zero_point", "I32", 4, 24, 1, NULL},
        {{FP4_HOW}, 0, GATE, "_scale", NULL, 0, 0, 0, NULL},
        {{FP4_HOW}, 0, GATE, "_scale", "U8", 1, 96, 1, NULL},
        {{INT4_HOW}, 0, GATE, "_g_idx", "I32", 4, 64, 0, ".weight are in another order (weight_g_idx)"},
        {{FP8_HOW}, 0, GATE, "_scale", "BF16", 2, 95, 1, ".weight_scale is missing, or is no scale"},
        {{FP8_HOW}, 0, GATE, "_scale", NULL, 0, 0, 0, ".weight_scale is missing"},
        {{FP8_HOW, .blocks = true}, 0, GATE, "_scale", "BF16", 2, 2, 1, ".weight_scale is [2, 1]"},
    };
    struct num *num;
    struct err err;
    must(num_new(&num, 1, &err), &err);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const struct misshapen *m = &list[i];
        struct pair p = pair_make(m->family, &m->how);
        struct stage *stage;
        char part[256];
        misshape(p.packed.path, m);
        snprintf(part, sizeof part, "%s%s%s", m->part ? "" : "cannot read the quantization of ", m->matrix,
                 m->part ? m->part : ".weight: of compressed-tensors it reads");
        const struct stage_spec spec = tiny_whole(p.packed.path, &p.q, 4);
        must_refuse(stage_open(&stage, num, &spec, &err), -EINVAL, &err, part);
        pair_free(&p);
    }
    num_free(num);
}

/* --- what config.json says -------------------------------------------------------------------- */

#define GROUP(more) "\"config_groups\":{\"a\":{\"weights\":{" more "}}}"
#define INT4 "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\""
#define FP8 "\"num_bits\":8,\"type\":\"float\""
#define PACKED "\"format\":\"pack-quantized\","

static void what_is_not_read_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } bad[] = {
        {PACKED "\"config_groups\":{}", "\"config_groups\" are missing"},
        {PACKED GROUP(INT4 ",\"group_size\":16"), "\"group_size\" is 32, 64 or a multiple of 128"},
        {PACKED GROUP(INT4), "\"group_size\" is 32"},
        {PACKED GROUP(INT4 ",\"group_size\":32,\"actorder\":\"group\""), "\"actorder\""},
        {PACKED GROUP(INT4 ",\"group_size\":32,\"dynamic\":true"), "not \"dynamic\""},
        {PACKED GROUP("\"num_bits\":3,\"type\":\"int\",\"strategy\":\"channel\""), "8 bits are read here"},
        {PACKED GROUP("\"num_bits\":8,\"type\":\"int\",\"strategy\":\"tensor\""),
         "\"strategy\" of \"group\""},
        {"\"format\":\"int-quantized\"," GROUP(INT4 ",\"group_size\":32"), "and packed ones of 4"},
        {"\"format\":\"int-quantized\"," GROUP(
             "\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\",\"symmetric\":false"),
         "zeros"},
        {"\"format\":\"nvfp4-pack-quantized\"," GROUP("\"num_bits\":4,\"type\":\"float\""),
         "the formats pack-quantized, int-quantized, float-quantized and mxfp4-pack-quantized are read"},
        {"\"format\":\"marlin-24\"," GROUP(INT4), "the formats pack-quantized"},
        {"\"format\":\"float-quantized\"," GROUP(FP8 ",\"strategy\":\"block\",\"block_structure\":[64,128]"),
         "blocks are of 128 × 128"},
        {"\"format\":\"float-quantized\"," GROUP(FP8 ",\"strategy\":\"block\",\"block_structure\":[128,64]"),
         "blocks are of 128 × 128"},
        {"\"format\":\"float-quantized\",\"config_groups\":{\"a\":{\"weights\":{" FP8
         ",\"strategy\":\"block\",\"block_structure\":[128,128]}},\"b\":{\"weights\":{" FP8
         ",\"strategy\":\"channel\"}}}",
         "FP8 has scales of one kind here"},
        {PACKED "\"quantization_status\":\"frozen\"," GROUP(INT4 ",\"group_size\":32"), "is \"compressed\""},
        {PACKED "\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}," GROUP(INT4 ",\"group_size\":32"),
         "sparse weights"},
        {PACKED "\"transform_config\":{\"config_groups\":{\"u\":{}}}," GROUP(INT4 ",\"group_size\":32"),
         "rotated weights"},
    };
    struct err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct config c;
        char json[1800];
        snprintf(json, sizeof json,
                 "%s,\"quantization_config\":{\"quant_method\":\"compressed-tensors\",%s}}", families[0],
                 bad[i].text);
        must_refuse(config_parse(&c, json, strlen(json), &err), -ENOTSUP, &err, bad[i].part);
    }
}

/* Plans a model of this family with these groups and this list. */
static int plan_of(struct stage_bytes *ret, const char *family, const char *groups, const char *ignore,
                   struct err *err)
{
    struct temp_dir dir = temp_dir_new();
    char *more;
    assert_true(asprintf(&more,
                         ",\"torch_dtype\":\"bfloat16\",\"quantization_config\":{\"quant_method\":"
                         "\"compressed-tensors\",\"format\":\"pack-quantized\",\"config_groups\":{%s},"
                         "\"ignore\":[%s]}",
                         groups, ignore) > 0);
    const struct config c = write_config(dir.path, family, more);
    free(more);
    const struct stage_spec spec = tiny_whole(dir.path, &c, 4);
    const int r = stage_measure(ret, &spec, err);
    size_t units[64];
    assert_int_equal(stage_measure_units(units, &spec, err), r);
    temp_dir_free(&dir);
    return r;
}

static int plan(struct stage_bytes *ret, const char *groups, const char *ignore, struct err *err)
{
    return plan_of(ret, families[0], groups, ignore, err);
}

static size_t planned(const char *groups, const char *ignore)
{
    struct err err;
    struct stage_bytes bytes;
    must(plan(&bytes, groups, ignore, &err), &err);
    return bytes.mapped;
}

#define NAMED(name, targets, bits)                                                                           \
    "\"" name "\":{\"targets\":[" targets "],\"weights\":{\"num_bits\":" #bits                               \
    ",\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32}}"

/* 4 bits of a weight and 16 of each 32; all else has 16 bits. */
static size_t saved(size_t weights, size_t bits)
{
    return weights * 16 / 8 - weights * bits / 8 - weights / 32 * 2;
}

static void targets_are_found_by_name_expression_and_class(void **state)
{
    (void)state;
    enum { UP = 96 * 64, ATTN = 2 * 64 * 64 + 2 * 32 * 64, ALL = 3 * (3 * UP + ATTN), HEAD = 41 * 64 };
    const size_t none = planned(NAMED("a", "\"Linear\"", 4), "\"Linear\""),
                 all = planned(NAMED("a", "\"Linear\"", 4), "\"lm_head\"");
    assert_int_equal(none - all, saved(ALL, 4));
    assert_int_equal(none - planned(NAMED("a", "\"Linear\"", 4), ""), saved(ALL + HEAD, 4));
    assert_int_equal(none - planned(NAMED("a", "\"Linear\"", 4),
                                    "\"lm_head\",\"re:.*self_attn.*\",\"model.layers.1.mlp.up_proj\""),
                     saved(9 * UP - UP, 4));
    /* As a text part's module too, in either way. */
    assert_int_equal(none - planned(NAMED("a", "\"Linear\"", 4),
                                    "\"lm_head\",\"model.language_model.layers.1.mlp.up_proj\","
                                    "\"language_model.model.layers.2.mlp.up_proj\","
                                    "\"re:model[.]language_model[.]layers[.]0[.]mlp[.]up_proj\","
                                    "\"re:language_model[.]model[.]layers[.]0[.]mlp[.]gate_proj\""),
                     saved(ALL - 4 * UP, 4));
    assert_int_equal(none - planned(NAMED("a", "\"Linear\"", 4), "\"language_model.lm_head\""),
                     saved(ALL, 4));
    /* An expression matches from the beginning of a name on. */
    assert_int_equal(none - planned(NAMED("a", "\"Linear\"", 4), "\"lm_head\",\"re:self_attn.*\""),
                     saved(ALL, 4));
    /* A name counts before an expression, which counts before a class. */
    assert_int_equal(none - planned(NAMED("a", "\"re:.*mlp.*\"", 8) "," NAMED("b", "\"Linear\"", 4) "," NAMED(
                                        "c", "\"model.layers.2.mlp.up_proj\"", 4),
                                    "\"lm_head\""),
                     saved(3 * ATTN + UP, 4) + saved(8 * UP, 8));
}

/* The text so many times, as a list. */
static char *repeated(const char *text, size_t times)
{
    char *list;
    size_t n;
    FILE *f = open_memstream(&list, &n);
    assert_non_null(f);
    for (size_t i = 0; i < times; i++)
        fprintf(f, "%s%s", i ? "," : "", text);
    assert_int_equal(fclose(f), 0);
    return list;
}

/* Each name would take hours. */
static void what_takes_too_long_to_find_is_refused(void **state)
{
    (void)state;
    struct err err;
    struct stage_bytes bytes;
    must_refuse(plan(&bytes, NAMED("a", "\"Linear\"", 4), "\"re:(?:.|..|...)+(?=!)\"", &err), -E2BIG, &err,
                "the expression 're:(?:.|..|...)+(?=!)' takes too long on names such as model.");
    must_refuse(plan(&bytes, NAMED("a", "\"re:(?:\\\\w|\\\\.|[a-z.])+(?=!)\"", 4), "", &err), -E2BIG, &err,
                "takes too long on names such as ");
    static const struct {
        const char *text;
        size_t most;
    } lists[] = {{"\"lm_head\"", (1 << 14) - 1}, {"\"re:.*gate$\"", 256}};
    for (size_t i = 0; i < 2; i++) {
        char *list = repeated(lists[i].text, lists[i].most),
             *more = repeated(lists[i].text, lists[i].most + 1);
        planned(NAMED("a", "\"Linear\"", 4), list);
        must_refuse(plan(&bytes, NAMED("a", "\"Linear\"", 4), more, &err), -E2BIG, &err,
                    "more than 16384 names, or 256 expressions, together");
        free(list);
        free(more);
    }
}

/* As large as any: what such models have in their config.json takes little of what is allowed. */
static void all_searches_together_have_a_limit(void **state)
{
    (void)state;
    static const char family[] =
        DEEP("qwen3_moe", "61", "64", "96") GQA ",\"num_experts\":384,\"num_experts_per_tok\":2,"
                                                "\"moe_intermediate_size\":32,\"norm_topk_prob\":true";
    static const char usual[] = "\"lm_head\",\"re:.*self_attn.*\",\"re:.*shared_experts.*\","
                                "\"re:.*mlp\\\\.(gate|up|gate_up|down)_proj.*\",\"re:vision_tower.*\"";
    struct err err;
    struct stage_bytes bytes;
    char *many = repeated("\"re:.*gate$\"", 255);
    must(plan_of(&bytes, family, NAMED("a", "\"Linear\"", 4), usual, &err), &err);
    must_refuse(plan_of(&bytes, family, NAMED("a", "\"re:.*nothing\"", 4), many, &err), -E2BIG, &err,
                "take too long on so many names, 're:.*nothing' most of all");
    must_refuse(plan_of(&bytes, family, NAMED("a", "\"Linear\"", 4), "\"re:.*.*e.*(?=!)\"", &err), -E2BIG,
                &err, "on so many names, 're:.*.*e.*(?=!)' most of all");
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_computed_with),
        cmocka_unit_test(adapters_are_trained_on_every_form),
        cmocka_unit_test(converting_writes_the_numbers_themselves),
        cmocka_unit_test(what_would_be_rounded_twice_is_refused),
        cmocka_unit_test(what_is_misshapen_is_refused_by_its_name),
        cmocka_unit_test(what_is_not_read_is_refused),
        cmocka_unit_test(targets_are_found_by_name_expression_and_class),
        cmocka_unit_test(what_takes_too_long_to_find_is_refused),
        cmocka_unit_test(all_searches_together_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
