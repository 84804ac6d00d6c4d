/* SPDX-License-Identifier: MIT
 *
 * Merging: weights against a computation in f64 from the bytes of the files, read by a few lines
 * that share nothing with the merger; scores of the merged model against those of model and
 * adapter; and nothing left of what failed. */
#include <dirent.h>
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

#include "model/write/merge.h"
#include "tests/lib/chain.h"
#include "tests/lib/fp8.h"
#include "tests/lib/near.h"
#include "tests/lib/place.h"
#include "tests/lib/tiny.h"

enum { LAYERS = PLACE_LAYERS, RANK = 3 };

/* --- files, read plainly ---------------------------------------------------------------------- */

struct plain {
    char *bytes;  /* owned */
    json_t *head; /* owned */
    size_t data;
};

static struct plain plain_open(const char *dir, const char *file)
{
    struct plain p;
    uint64_t head;
    size_t n;
    p.bytes = read_file(dir, file, &n);
    assert_non_null(p.bytes);
    memcpy(&head, p.bytes, sizeof head);
    p.head = json_loadb(p.bytes + 8, head, 0, NULL);
    assert_non_null(p.head);
    p.data = 8 + head;
    json_object_del(p.head, "__metadata__");
    return p;
}

static void plain_close(struct plain *p)
{
    json_decref(p->head);
    free(p->bytes);
}

static size_t number_at(const json_t *t, const char *key, size_t i)
{
    return (size_t)json_integer_value(json_array_get(json_object_get(t, key), i));
}

/* Element i of a tensor. */
static float plain_at(const struct plain *p, const json_t *t, size_t i)
{
    const char *dtype = json_string_value(json_object_get(t, "dtype"));
    const char *at = p->bytes + p->data + number_at(t, "data_offsets", 0);
    uint32_t bits = 0;
    float x;
    if (!strcmp(dtype, "F32")) {
        memcpy(&bits, at + 4 * i, 4);
    } else {
        assert_string_equal(dtype, "BF16");
        memcpy((char *)&bits + 2, at + 2 * i, 2); /* little-endian: the upper half */
    }
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float rounded_to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- weights ---------------------------------------------------------------------------------- */

static void make_adapter(struct place *p, struct tune *tune, enum dtype dtype, bool dora)
{
    struct err err;
    size_t n;
    place_make(p, dtype);
    *tune = place_lora(p, "q_proj,down_proj", 1, 3);
    tune->rslora = true;
    tune->dora = dora;
    float *values = place_random(p, tune, &n);
    struct adapter_out_request req = place_request(p, tune, 1);
    must(place_write(&req, values, &err), &err);
    free(values);
}

static struct merge_request request(const struct place *p, char out[160])
{
    snprintf(out, 160, "%s/merged", p->dir.path);
    return (struct merge_request){.model = p->model, .adapter = p->out, .out = out, .dtype = DTYPE_COUNT};
}

/* W + s·BA of an element. */
static double sum_at(const struct plain *was, const json_t *was_t, const struct plain *adapter,
                     const json_t *const factor[2], size_t i, size_t cols)
{
    double sum = (double)plain_at(was, was_t, i);
    for (size_t k = 0; factor[0] && k < RANK; k++)
        sum += 6 / __builtin_sqrt(3) * (double)plain_at(adapter, factor[1], i / cols * RANK + k) *
               (double)plain_at(adapter, factor[0], k * cols + i % cols);
    return sum;
}

static void check_tensor(const char *name, const json_t *was_t, const struct plain *was,
                         const struct plain *is, const struct plain *adapter, bool bf16)
{
    static const char *const ends[] = {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector"};
    const json_t *is_t = json_object_get(is->head, name), *factor[3];
    const size_t rows = number_at(was_t, "shape", 0), shape = number_at(was_t, "shape", 1),
                 cols = shape ? shape : 1;
    assert_non_null(is_t);
    assert_true(json_equal(json_object_get(is_t, "shape"), json_object_get(was_t, "shape")));
    for (int i = 0; i < 3; i++) {
        char own[160];
        snprintf(own, sizeof own, "base_model.model.%.*s.%s", (int)strlen(name) - 7, name, ends[i]);
        factor[i] = json_object_get(adapter->head, own);
    }
    for (size_t i = 0; i < rows * cols; i++) {
        double want = sum_at(was, was_t, adapter, factor, i, cols), square = 0;
        for (size_t c = 0; factor[2] && c < cols; c++) {
            const double other = sum_at(was, was_t, adapter, factor, i / cols * cols + c, cols);
            square += other * other;
        }
        if (factor[2])
            want *= (double)plain_at(adapter, factor[2], i / cols) / sqrt(square);
        const float rounded = bf16 ? rounded_to_bf16((float)want) : (float)want;
        if (fabs((double)plain_at(is, is_t, i) - (double)rounded) >
            (factor[2] ? 0x1p-23 * fabs(want) : 0) * (bf16 ? 0x1p16 : 1))
            fail_msg("%s[%zu] is %a, not %a", name, i, (double)plain_at(is, is_t, i), (double)rounded);
    }
}

static void weights_are_those_of_an_independent_sum(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool bf16 = i & 1, dora = i & 2;
        struct place p;
        struct tune tune;
        struct err err;
        struct rewrite_result done;
        char out[160];
        make_adapter(&p, &tune, bf16 ? DTYPE_BF16 : DTYPE_F32, dora);
        write_file(p.model, "tokenizer.json", "{\"words\": []}\n");
        write_file(p.model, "LICENSE", "do as you like\n");
        struct merge_request req = request(&p, out);
        must(merge_run(&req, &done, &err), &err);
        assert_int_equal(done.changed, 4);
        assert_int_equal(done.files, 1);
        struct plain was = plain_open(p.model, "model.safetensors"),
                     is = plain_open(out, "model.safetensors"),
                     adapter = plain_open(p.out, "adapter_model.safetensors");
        const char *name;
        json_t *t;
        assert_int_equal(json_object_size(was.head), json_object_size(is.head));
        json_object_foreach (was.head, name, t)
            check_tensor(name, t, &was, &is, &adapter, bf16);
        plain_close(&was);
        plain_close(&is);
        plain_close(&adapter);
        assert_true(has_file(out, "tokenizer.json") && has_file(out, "LICENSE") &&
                    has_file(out, "config.json"));
        assert_false(has_file(out, "adapter_config.json") || has_file(out, "model.safetensors.index.json"));
        place_free(&p);
    }
}

/* --- scores ----------------------------------------------------------------------------------- */

/* Logits [vocab] after a few tokens; `adapter` may be NULL. */
static float *logits(const char *dir, const struct tune *tune, const char *adapter)
{
    static const uint32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
    struct err err;
    struct config config;
    struct chain c;
    must(config_read(&config, dir, &err), &err);
    struct chain_spec spec = {.model_dir = dir,
                              .config = config,
                              .cut = {2, {1, CHAIN_MAX}},
                              .kv = true,
                              .slots = 1,
                              .tokens = 8,
                              .seqs = 1,
                              .positions = 8};
    spec.cut.end[1] = config.layers;
    spec.tune = adapter ? *tune : (struct tune){.end_layer = config.layers};
    chain_open(&c, &spec);
    if (adapter) {
        struct adapter_in *in;
        must(adapter_in_open(&in, adapter, tune, c.family, &config, &err), &err);
        chain_load(&c, in);
        adapter_in_close(in);
    }
    float *copy = calloc(config.vocab, sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, chain_decode(&c, ids, 8, 0), config.vocab * sizeof *copy);
    chain_close(&c);
    return copy;
}

static void check_scores(const struct place *p, const struct tune *tune, const char *out, double tolerance)
{
    float *apart = logits(p->model, tune, p->out), *merged = logits(out, NULL, NULL),
          *bare = logits(p->model, NULL, NULL);
    assert_near_max(merged, apart, p->config.vocab, tolerance, "scores of the merged model");
    assert_true(near_difference(bare, apart, p->config.vocab) >
                10 * tolerance * near_max(apart, p->config.vocab));
    free(apart);
    free(merged);
    free(bare);
}

static void scores_are_those_of_model_and_adapter(void **state)
{
    (void)state;
    static const enum dtype stored[] = {DTYPE_F32, DTYPE_BF16, DTYPE_BF16, DTYPE_F32},
                            asked[] = {DTYPE_COUNT, DTYPE_COUNT, DTYPE_F32, DTYPE_COUNT};
    for (size_t i = 0; i < 4; i++) {
        struct place p;
        struct tune tune;
        struct err err;
        struct rewrite_result done;
        struct config config;
        char out[160];
        make_adapter(&p, &tune, stored[i], i == 3);
        struct merge_request req = request(&p, out);
        req.dtype = asked[i];
        must(merge_run(&req, &done, &err), &err);
        check_scores(&p, &tune, out, i == 1 ? 0.03 : 1e-5);
        must(config_read(&config, out, &err), &err);
        assert_int_equal(config.dtype, i == 1 ? DTYPE_BF16 : DTYPE_F32);
        place_free(&p);
    }
}

/* Factors of experts, in a model whose experts are written woven. */
static void woven_experts_are_merged(void **state)
{
    (void)state;
    struct place p;
    struct err err;
    struct rewrite_result done;
    char out[160];
    size_t n;
    place_make(&p, DTYPE_F32);
    write_file(p.model, "config.json",
               "{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":4,\"hidden_size\":20,\"vocab_size\":41,"
               "\"intermediate_size\":12,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
               "\"head_dim\":6,\"num_local_experts\":3,\"num_experts_per_tok\":2}");
    must(config_read(&p.config, p.model, &err), &err);
    p.family = family_find(p.config.family);
    model_write(p.model, &p.config);
    const struct tune tune = place_lora(&p, "experts.*.up_proj,experts.*.down_proj", 1, 3);
    float *values = place_random(&p, &tune, &n);
    struct adapter_out_request adapter = place_request(&p, &tune, 1);
    must(place_write(&adapter, values, &err), &err);
    struct merge_request req = request(&p, out);
    must(merge_run(&req, &done, &err), &err);
    assert_int_equal(done.changed, 2 * 3 * 2);
    check_scores(&p, &tune, out, 1e-5);
    struct plain is = plain_open(out, "model.safetensors");
    assert_non_null(json_object_get(is.head, "model.layers.2.mlp.experts.gate_up_proj"));
    plain_close(&is);
    free(values);
    place_free(&p);
}

/* FP8 becomes BF16, and config.json no longer speaks of quantization. */
static void fp8_becomes_bf16(void **state)
{
    (void)state;
    struct place p;
    struct tune tune;
    struct err err;
    struct rewrite_result done;
    char out[160];
    size_t n;
    make_adapter(&p, &tune, DTYPE_BF16, false);
    fp8_convert(p.model, &p.config);
    char *text = read_file(p.model, "config.json", &n);
    json_t *config = json_loadb(text, n, 0, NULL);
    json_object_set_new(
        config, "quantization_config",
        json_pack("{s:s s:s s:[ii]}", "quant_method", "fp8", "fmt", "e4m3", "weight_block_size", 128, 128));
    char *quantized = json_dumps(config, 0);
    write_file(p.model, "config.json", quantized);
    struct merge_request req = request(&p, out);
    must(merge_run(&req, &done, &err), &err);
    check_scores(&p, &tune, out, 0.03);
    struct plain is = plain_open(out, "model.safetensors");
    const char *name;
    json_t *t;
    json_object_foreach (is.head, name, t) {
        assert_string_equal(json_string_value(json_object_get(t, "dtype")), "BF16");
        assert_null(strstr(name, "scale_inv"));
    }
    plain_close(&is);
    free(text);
    free(quantized);
    json_decref(config);
    place_free(&p);
}

/* --- several files, and none ------------------------------------------------------------------ */

static void put_half(const struct st *st, const char *path, size_t half, json_t *map, const char *file)
{
    struct err err;
    struct st_writer *w;
    struct st_out_tensor list[128];
    float x[8192];
    size_t n = 0;
    for (size_t i = half; i < st_count(st); i += 2) {
        const struct st_tensor *t = st_at(st, i);
        list[n] = (struct st_out_tensor){.name = t->name, .dtype = t->dtype, .ndim = t->ndim};
        memcpy(list[n++].shape, t->shape, sizeof t->shape);
        json_object_set_new(map, t->name, json_string(file));
    }
    must(st_writer_open(&w, path, list, n, &err), &err);
    for (size_t i = half; i < st_count(st); i += 2) {
        const struct st_tensor *t = st_at(st, i);
        assert_in_range(t->elements, 0, 8192);
        dtype_to_f32(x, t->data, t->dtype, t->elements);
        must(st_writer_put(w, t->name, x, t->elements, &err), &err);
    }
    must(st_writer_finish(w, &err), &err);
}

/* The model in two files with an index. */
static void split_model(const struct place *p)
{
    struct err err;
    struct st *st;
    char path[256];
    json_t *map = json_object();
    must(st_open_dir(&st, p->model, NULL, NULL, &err), &err);
    for (size_t half = 0; half < 2; half++) {
        char file[64];
        snprintf(file, sizeof file, "part-%zu.safetensors", half);
        snprintf(path, sizeof path, "%s/%s", p->model, file);
        put_half(st, path, half, map, file);
    }
    st_close(st);
    snprintf(path, sizeof path, "%s/model.safetensors", p->model);
    assert_int_equal(remove(path), 0);
    json_t *index = json_pack("{s:{} s:o}", "metadata", "weight_map", map);
    char *text = json_dumps(index, 0);
    write_file(p->model, "model.safetensors.index.json", text);
    free(text);
    json_decref(index);
}

static void several_files_become_one(void **state)
{
    (void)state;
    struct place p;
    struct tune tune;
    struct err err;
    struct rewrite_result done;
    char out[160];
    make_adapter(&p, &tune, DTYPE_F32, false);
    split_model(&p);
    struct merge_request req = request(&p, out);
    must(merge_run(&req, &done, &err), &err);
    assert_int_equal(done.files, 1);
    assert_true(has_file(out, "model.safetensors"));
    assert_false(has_file(out, "model.safetensors.index.json"));
    check_scores(&p, &tune, out, 1e-5);
    place_free(&p);
}

static size_t entries(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static bool third_time(void *arg)
{
    return ++*(size_t *)arg == 3;
}

static void what_fails_leaves_nothing(void **state)
{
    (void)state;
    struct place p;
    struct tune tune;
    struct err err;
    struct rewrite_result done;
    char out[160];
    size_t asked = 0;
    make_adapter(&p, &tune, DTYPE_F32, false);
    const size_t before = entries(p.dir.path);
    struct merge_request req = request(&p, out);
    req.stop = third_time;
    req.arg = &asked;
    must_refuse(merge_run(&req, &done, &err), -ECANCELED, &err, "interrupted");
    assert_int_equal(entries(p.dir.path), before);
    req.stop = NULL;
    req.out = p.model;
    must_refuse(merge_run(&req, &done, &err), -EEXIST, &err, "not empty");
    req.out = "/nonexistent/out";
    must_refuse(merge_run(&req, &done, &err), -ENOENT, &err, "cannot be created");
    struct st_out_tensor only = {.name = "model.norm.weight", .dtype = DTYPE_F32, .ndim = 1, .shape = {1}};
    struct st_writer *w;
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", p.model);
    must(st_writer_open(&w, path, &only, 1, &err), &err);
    must(st_writer_put(w, only.name, (float[]){1}, 1, &err), &err);
    must(st_writer_finish(w, &err), &err);
    req.out = out;
    must_refuse(merge_run(&req, &done, &err), -EINVAL, &err, "model.embed_tokens.weight is missing");
    assert_int_equal(entries(p.dir.path), before);
    place_free(&p);
}

/* A value that f16 cannot hold is said, not written as infinity. */
static void what_f16_cannot_hold_is_refused(void **state)
{
    (void)state;
    struct place p;
    struct tune tune;
    struct err err;
    struct rewrite_result done;
    char out[160];
    make_adapter(&p, &tune, DTYPE_F32, false);
    write_file(p.out, "adapter_config.json",
               "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":1000000,\"target_modules\":[\"q_proj\",\"down_"
               "proj\"],"
               "\"layers_to_transform\":[1,2]}");
    struct merge_request req = request(&p, out);
    req.dtype = DTYPE_F16;
    must_refuse(merge_run(&req, &done, &err), -ERANGE, &err, "too large for f16: use --dtype bf16");
    req.dtype = DTYPE_BF16;
    must(merge_run(&req, &done, &err), &err);
    place_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_an_independent_sum),
        cmocka_unit_test(scores_are_those_of_model_and_adapter),
        cmocka_unit_test(woven_experts_are_merged),
        cmocka_unit_test(fp8_becomes_bf16),
        cmocka_unit_test(several_files_become_one),
        cmocka_unit_test(what_fails_leaves_nothing),
        cmocka_unit_test(what_f16_cannot_hold_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
