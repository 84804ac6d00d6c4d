/* SPDX-License-Identifier: MIT
 *
 * Models quantized into files have the bits of those that a job quantizes; woven experts; and what
 * is refused. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file/st.h"
#include "tests/lib/convert_world.h"
#include "tests/lib/near.h"

/* --- quantized -------------------------------------------------------------------------------- */

/* What a plan counts for the weights is what the files have of matrices. */
static void check_measure(const struct convert_world *w)
{
    struct err err;
    struct st *st;
    struct stage_bytes bytes;
    struct config c;
    size_t matrices = 0;
    must(config_read(&c, w->out, &err), &err);
    const struct stage_spec spec = tiny_whole(w->out, &c, 4);
    must(st_open_dir(&st, w->out, NULL, NULL, &err), &err);
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        const bool is_stack_of_vectors = strstr(t->name, "proj.bias") && !strstr(t->name, ".biases");
        matrices += t->ndim > 1 && !is_stack_of_vectors ? t->bytes : 0;
    }
    st_close(st);
    must(stage_measure(&bytes, &spec, &err), &err);
    assert_int_equal(bytes.mapped, matrices);
}

static void quantized_files_have_the_bits_of_jobs(void **state)
{
    (void)state;
    for (size_t f = 0; f < CONVERT_ALL; f++)
        for (size_t bits = 4; bits <= 8; bits += 4) {
            struct convert_world w;
            struct err err;
            struct config c;
            convert_world_open(&w, convert_families[f]);
            const struct convert_request req = {
                .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = bits, .group = 64};
            const struct rewrite_result done = convert_one(&req);
            assert_true(done.quantized > 7 && done.files == 1 && !done.changed);
            must(config_read(&c, w.out, &err), &err);
            assert_true(c.quant_bits == bits && c.quant_group == 64 && c.dtype == w.c.dtype);
            convert_check_alike(&w, w.plain.path, bits, 0, convert_families[f]);
            check_measure(&w);
            convert_world_close(&w);
        }
}

static json_t *config_of(const char *dir)
{
    size_t n;
    char *text = read_file(dir, "config.json", &n);
    json_t *o = json_loadb(text, n, 0, NULL);
    assert_non_null(o);
    free(text);
    return o;
}

/* Every number of bits is read again, and the more there are the nearer it comes. What has no whole
 * groups is left, and said to be. */
static void other_widths_are_read_again(void **state)
{
    (void)state;
    static const size_t widths[] = {2, 3, 4, 5, 6, 8};
    double last = INFINITY, size = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        struct convert_world w;
        convert_world_open(&w, CONVERT_COMMON("qwen2") CONVERT_GQA("256", "320"));
        const struct convert_request req = {
            .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = widths[i], .group = 128};
        convert_one(&req);
        check_measure(&w);
        json_t *o = config_of(w.out), *q = json_object_get(o, "quantization");
        assert_true(json_is_false(json_object_get(q, "model.layers.2.mlp.down_proj")));
        assert_null(json_object_get(q, "model.layers.2.mlp.up_proj"));
        assert_int_equal(json_object_size(q), 2 + 3);
        assert_true(json_equal(q, json_object_get(o, "quantization_config")));
        json_decref(o);
        float *want = convert_logits(&w, w.plain.path, 0), *got = convert_logits(&w, w.out, 0);
        const double off = near_difference(got, want, TINY_TOKENS * w.c.vocab);
        assert_true(off < last && off > 0);
        last = off;
        size = near_max(want, TINY_TOKENS * w.c.vocab);
        free(want);
        free(got);
        convert_world_close(&w);
    }
    assert_true(last < 0.2 * size); /* random attention is near the edge of a choice */
}

/* mlx-lm's layout: experts in stacks, also those that are not quantized. */
static void experts_lie_in_stacks(void **state)
{
    (void)state;
    struct convert_world w;
    struct err err;
    struct st *st;
    convert_world_open(&w, CONVERT_COMMON("qwen3_moe")
                               CONVERT_GQA("256", "256") ",\"num_experts\":4,\"num_experts_per_tok\":2,"
                                                         "\"moe_intermediate_size\":192");
    const struct convert_request req = {
        .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 4, .group = 128};
    convert_one(&req);
    must(st_open_dir(&st, w.out, NULL, NULL, &err), &err);
    const struct st_tensor *up = st_find(st, "model.layers.1.mlp.switch_mlp.up_proj.weight"),
                           *scales = st_find(st, "model.layers.1.mlp.switch_mlp.up_proj.scales"),
                           *down = st_find(st, "model.layers.1.mlp.switch_mlp.down_proj.weight");
    assert_true(up && scales && down);
    assert_string_equal(up->dtype_name, "U32");
    assert_true(up->ndim == 3 && up->shape[0] == 4 && up->shape[1] == 192 && up->shape[2] == 32);
    assert_true(scales->ndim == 3 && scales->shape[2] == 2 && scales->dtype == DTYPE_BF16);
    assert_true(down->ndim == 3 && down->shape[2] == 192 && down->dtype == DTYPE_F32);
    assert_null(st_find(st, "model.layers.1.mlp.switch_mlp.down_proj.scales"));
    for (size_t i = 0; i < st_count(st); i++)
        assert_null(strstr(st_at(st, i)->name, ".experts."));
    st_close(st);
    check_measure(&w);
    convert_world_close(&w);
}

/* --- woven experts ---------------------------------------------------------------------------- */

static void case_open(struct convert_world *w, char model[64], const char *name)
{
    struct err err;
    snprintf(model, 64, "tests/data/cases/%s/model", name);
    *w = (struct convert_world){.plain = temp_dir_new(), .dir = temp_dir_new()};
    must(config_read(&w->c, model, &err), &err);
    snprintf(w->out, sizeof w->out, "%s/out", w->dir.path);
}

/* As transformers writes them: the same bytes under the same names. */
static void woven_experts_stay_woven(void **state)
{
    (void)state;
    struct convert_world w;
    struct err err;
    struct st *got, *want;
    char model[64];
    case_open(&w, model, "gpt_oss");
    convert_one(&(struct convert_request){.model = model, .out = w.out, .dtype = DTYPE_COUNT});
    must(st_open_dir(&got, w.out, NULL, NULL, &err), &err);
    must(st_open_dir(&want, model, NULL, NULL, &err), &err);
    assert_int_equal(st_count(got), st_count(want));
    for (size_t i = 0; i < st_count(want); i++) {
        const struct st_tensor *a = st_at(got, i), *b = st_at(want, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->ndim == b->ndim && !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape));
        assert_true(a->bytes == b->bytes && !memcmp(a->data, b->data, a->bytes));
    }
    st_close(got);
    st_close(want);
    convert_world_close(&w);
}

/* Every number of MXFP4 is one of BF16; few rows are multiplied with blocks in whole numbers. */
static void released_experts_become_bf16(void **state)
{
    (void)state;
    struct convert_world w;
    struct err err;
    struct config c;
    char model[64];
    case_open(&w, model, "gpt_oss_mxfp4");
    assert_true(w.c.experts_fp4);
    convert_one(&(struct convert_request){.model = model, .out = w.out, .dtype = DTYPE_COUNT});
    must(config_read(&c, w.out, &err), &err);
    assert_true(!c.experts_fp4 && c.dtype == DTYPE_BF16);
    convert_check_alike(&w, model, 0, 1e-5, "experts of MXFP4 as BF16");
    convert_world_close(&w);
}

/* mlx-lm has gate and up apart, and biases in stacks. */
static void woven_experts_are_quantized_apart(void **state)
{
    (void)state;
    struct convert_world w;
    struct err err;
    struct st *st;
    convert_world_open(&w, convert_families[CONVERT_WOVEN]);
    convert_one(&(struct convert_request){
        .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 4, .group = 64});
    must(st_open_dir(&st, w.out, NULL, NULL, &err), &err);
    const struct st_tensor *up = st_find(st, "model.layers.1.mlp.experts.up_proj.weight"),
                           *bias = st_find(st, "model.layers.1.mlp.experts.up_proj.bias");
    assert_true(up && up->ndim == 3 && up->shape[0] == 4 && up->shape[1] == 256 && up->shape[2] == 32);
    assert_true(bias && bias->ndim == 2 && bias->shape[0] == 4 && bias->shape[1] == 256);
    st_close(st);
    convert_world_close(&w);
}

/* --- refused ---------------------------------------------------------------------------------- */

static void what_cannot_be_made_is_refused(void **state)
{
    (void)state;
    struct convert_world w;
    struct err err;
    struct rewrite_result done;
    char more[160];
    convert_world_open(&w, convert_families[CONVERT_DENSE]);
    struct convert_request req = {
        .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 4, .group = 64};
    convert_one(&req);
    snprintf(more, sizeof more, "%s/more", w.dir.path);
    must_refuse(convert_run(&req, &done, &err), -EEXIST, &err, "not empty");
    req.model = w.out;
    req.out = more;
    must_refuse(convert_run(&req, &done, &err), -ENOTSUP, &err, "is quantized to 4 bits already");
    assert_false(has_file(w.dir.path, "more"));
    convert_world_close(&w);
    req.group = 128;
    convert_world_open(
        &w, "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"vocab_size\":41,\"hidden_size\":32,"
            "\"intermediate_size\":32,\"num_attention_heads\":2,\"rms_norm_eps\":1e-5");
    req.model = w.plain.path;
    req.out = w.out;
    must_refuse(convert_run(&req, &done, &err), -EINVAL, &err,
                "no matrix whose rows are a multiple of 128: choose smaller groups");
    convert_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_files_have_the_bits_of_jobs),
        cmocka_unit_test(other_widths_are_read_again),
        cmocka_unit_test(experts_lie_in_stacks),
        cmocka_unit_test(woven_experts_stay_woven),
        cmocka_unit_test(released_experts_become_bf16),
        cmocka_unit_test(woven_experts_are_quantized_apart),
        cmocka_unit_test(what_cannot_be_made_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
