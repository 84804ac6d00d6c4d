/* SPDX-License-Identifier: MIT
 *
 * Models rewritten in several files, and tensors that the model does not have or that stay as they
 * are. */
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file/st.h"
#include "tests/lib/compressed.h"
#include "tests/lib/convert_world.h"
#include "tests/lib/near.h"
#include "tests/lib/tensor_file.h"

/* --- several files ---------------------------------------------------------------------------- */

static void large_models_are_several_files(void **state)
{
    (void)state;
    for (size_t bits = 0; bits <= 4; bits += 4) {
        struct convert_world w;
        struct err err;
        struct st *st;
        size_t n, bytes = 0;
        convert_world_open(&w, convert_families[2]);
        const struct convert_request req = {.model = w.plain.path,
                                            .out = w.out,
                                            .dtype = DTYPE_COUNT,
                                            .bits = bits,
                                            .group = 64,
                                            .shard_bytes = bits ? 400000 : 3000000};
        const struct rewrite_result done = convert_one(&req);
        assert_in_range(done.files, 3, 20);
        char *text = read_file(w.out, "model.safetensors.index.json", &n);
        json_t *index = json_loadb(text, n, 0, NULL);
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
            done.bytes);
        json_decref(index);
        free(text);
        must(st_open_dir(&st, w.out, NULL, NULL, &err), &err);
        size_t of[20] = {0};
        for (size_t i = 0; i < st_count(st); i++) {
            const struct st_tensor *t = st_at(st, i);
            of[t->file] += t->bytes;
            bytes += t->bytes;
        }
        st_close(st);
        for (size_t i = 0; i < done.files; i++)
            assert_in_range(of[i], 1, req.shard_bytes);
        assert_int_equal(bytes, done.bytes);
        convert_check_alike(&w, w.plain.path, bits, 0, "several files");
        convert_world_close(&w);
    }
}

/* What the model does not have, as layers behind its last. */
static void other_tensors_come_along(void **state)
{
    (void)state;
    static const float x[15] = {1, -2, 3, 0.5f, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43};
    struct convert_world w;
    struct err err;
    struct st *st;
    struct st_writer *out;
    char path[128], all[128];
    float back[15];
    convert_world_open(&w, convert_families[CONVERT_DENSE]);
    const struct st_out_tensor list[] = {
        {.name = "model.layers.3.eh_proj.weight", .dtype = DTYPE_F32, .ndim = 2, .shape = {3, 5}},
        {.name = "model.layers.3.norm.weight", .dtype = DTYPE_BF16, .ndim = 1, .shape = {15}},
        {.name = "model.layers.3.nothing", .dtype = DTYPE_F32, .ndim = 2, .shape = {4, 0}}};
    snprintf(path, sizeof path, "%s/model.safetensors", w.plain.path);
    snprintf(all, sizeof all, "%s/all.safetensors", w.plain.path);
    must(st_open_dir(&st, w.plain.path, NULL, NULL, &err), &err);
    assert_int_equal(rename(path, all), 0);
    snprintf(path, sizeof path, "%s/more.safetensors", w.plain.path);
    must(st_writer_open(&out, path, list, 3, &err), &err);
    for (size_t i = 0; i < 2; i++)
        must(st_writer_put(out, list[i].name, x, 15, &err), &err);
    must(st_writer_finish(out, &err), &err);
    json_t *map = json_object(), *index = json_pack("{s:{} s:o}", "metadata", "weight_map", map);
    for (size_t i = 0; i < st_count(st); i++)
        json_object_set_new(map, st_at(st, i)->name, json_string("all.safetensors"));
    for (size_t i = 0; i < 3; i++)
        json_object_set_new(map, list[i].name, json_string("more.safetensors"));
    st_close(st);
    char *text = json_dumps(index, 0);
    write_file(w.plain.path, "model.safetensors.index.json", text);
    free(text);
    json_decref(index);
    const struct convert_request req = {
        .model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 8, .group = 64};
    convert_one(&req);
    must(st_open_dir(&st, w.out, NULL, NULL, &err), &err);
    for (size_t i = 0; i < 3; i++) {
        const struct st_tensor *t = st_find(st, list[i].name);
        assert_non_null(t);
        assert_true(t->dtype == list[i].dtype && t->ndim == list[i].ndim &&
                    !memcmp(t->shape, list[i].shape, sizeof t->shape));
        dtype_to_f32(back, t->data, t->dtype, t->elements);
        assert_memory_equal(back, x, t->elements * sizeof *x);
    }
    st_close(st);
    convert_world_close(&w);
}

#define BEHIND "model.layers.3.eh_proj.weight"

/* A name of 86 characters: those of its scales are longer than any of a model. */
#define LONG_PART "model.layers.3.a_part_with_a_name_that_is_longer_than_those_of_any_model_here.t"
#define LONG LONG_PART ".weight"

/* The model in `dir`, and behind its last layer an FP8 matrix of 130 rows of 1, 2 and −0.5, with
 * scales 2, 3, 4 … in a tensor of this shape beside it. */
static void put_behind(const char *dir, const char *of, const char *end, const char *shape, size_t scales)
{
    static const unsigned char numbers[] = {0x38, 0x40, 0xb0};
    unsigned char bytes[390];
    float scale[130];
    struct err err;
    struct st *st;
    struct tensor_file f;
    must(st_open_dir(&st, dir, NULL, NULL, &err), &err);
    tensor_file_begin(&f);
    for (size_t i = 0; i < st_count(st); i++) {
        const struct st_tensor *t = st_at(st, i);
        char own[64];
        snprintf(own, sizeof own, t->ndim == 2 ? "%zu,%zu" : "%zu", t->shape[0], t->shape[1]);
        tensor_file_put(&f, t->name, t->dtype_name, own, t->data, t->bytes);
    }
    st_close(st);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = numbers[i % 3];
    for (size_t i = 0; i < scales; i++)
        scale[i] = (float)(i + 2);
    tensor_file_put(&f, of, "F8_E4M3", "130,3", bytes, sizeof bytes);
    if (scales) {
        char name[160];
        snprintf(name, sizeof name, "%s%s", of, end);
        tensor_file_put(&f, name, "F32", shape, scale, scales * sizeof *scale);
    }
    tensor_file_end(&f, dir);
}

/* A model that compressed-tensors has in FP8, with that matrix. */
static void fp8_open(struct convert_world *w, const char *dir, struct compressed_how how)
{
    char more[1200], *json;
    convert_world_open(w, convert_families[CONVERT_DENSE]);
    compressed_convert(w->plain.path, dir, &w->c, how);
    compressed_config(more, sizeof more, how);
    assert_true(asprintf(&json, "%s%s}", convert_families[CONVERT_DENSE], more) > 0);
    write_file(dir, "config.json", json);
    free(json);
}

/* Whose scales are named and laid out as those of the model's own matrices. */
static void other_tensors_in_fp8_come_along(void **state)
{
    (void)state;
    static const struct {
        bool tensor, blocks;
        const char *of, *end, *shape;
        size_t scales, high;
    } list[] = {
        {false, false, BEHIND, "_scale", "130,1", 130, 1},  {false, false, BEHIND, "_scale", "130", 130, 1},
        {true, false, BEHIND, "_scale", "1", 1, 130},       {false, true, BEHIND, "_scale", "2,1", 2, 128},
        {false, true, BEHIND, "_scale_inv", "2,1", 2, 128}, {false, true, LONG, "_scale_inv", "2,1", 2, 128},
        {false, false, LONG, "_scale", "130,1", 130, 1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        static const float numbers[] = {1, 2, -0.5f};
        const struct compressed_how how = {.format = "float-quantized",
                                           .bits = 8,
                                           .side = DTYPE_BF16,
                                           .tensor = list[i].tensor,
                                           .blocks = list[i].blocks};
        struct temp_dir dir = temp_dir_new();
        struct convert_world w;
        struct err err;
        struct st *was, *is;
        float got[390];
        fp8_open(&w, dir.path, how);
        put_behind(dir.path, list[i].of, list[i].end, list[i].shape, list[i].scales);
        convert_one(&(struct convert_request){.model = dir.path, .out = w.out, .dtype = DTYPE_F32});
        must(st_open_dir(&was, w.plain.path, NULL, NULL, &err), &err);
        must(st_open_dir(&is, w.out, NULL, NULL, &err), &err);
        assert_int_equal(st_count(is), st_count(was) + 1);
        const struct st_tensor *t = st_find(is, list[i].of);
        assert_true(t && t->dtype == DTYPE_F32 && t->bytes == sizeof got);
        memcpy(got, t->data, sizeof got); /* aligned */
        for (size_t k = 0; k < 390; k++)
            assert_true(got[k] == numbers[k % 3] * (float)(k / 3 / list[i].high + 2));
        st_close(was);
        st_close(is);
        convert_world_close(&w);
        temp_dir_free(&dir);
    }
}

static void other_tensors_in_fp8_without_scales_are_refused(void **state)
{
    (void)state;
    static const struct {
        bool blocks;
        const char *shape, *part;
        size_t scales;
        const char *of; /* or BEHIND */
    } list[] = {{false, "129", BEHIND "_scale is missing, or is no scale for each of 130 rows", 129, NULL},
                {false, NULL, BEHIND "_scale is missing, or is no scale for each of 130 rows", 0, NULL},
                {true, "1,1", BEHIND "_scale is [1, 1], where blocks of 128 × 128 want [2, 1]", 1, NULL},
                {true, NULL, BEHIND "_scale is missing", 0, NULL},
                {true, NULL, LONG "_scale is missing", 0, LONG},
                {false, NULL, "a?[31mb.weight_scale is missing", 0, "a\\u001b[31mb.weight"},
                {true, NULL, "a?[31mb.weight_scale is missing", 0, "a\\u001b[31mb.weight"},
                {true, "1,1", "a?[31mb.weight_scale is [1, 1]", 1, "a\\u001b[31mb.weight"},
                {true, "2,1", "has more than 95 characters", 2, LONG_PART "en_more_of_it.weight"},
                {false, "130", "has more than 95 characters", 130, LONG_PART "en_more_of_it.weight"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const struct compressed_how how = {
            .format = "float-quantized", .bits = 8, .side = DTYPE_BF16, .blocks = list[i].blocks};
        struct temp_dir dir = temp_dir_new();
        struct convert_world w;
        struct rewrite_result done;
        struct err err;
        fp8_open(&w, dir.path, how);
        put_behind(dir.path, list[i].of ? list[i].of : BEHIND, "_scale", list[i].shape, list[i].scales);
        const struct convert_request req = {.model = dir.path, .out = w.out, .dtype = DTYPE_F32};
        must_refuse(convert_run(&req, &done, &err), -EINVAL, &err, list[i].part);
        convert_world_close(&w);
        temp_dir_free(&dir);
    }
}

/* Norms that multiply by 1 more, and a convolution's extents, are as they were. */
static void what_is_left_alone_is_as_it_was(void **state)
{
    (void)state;
    struct convert_world w;
    struct err err;
    struct st *was, *is;
    convert_world_open(&w, CONVERT_COMMON("qwen3_next")
                               CONVERT_GQA("40", "28") ",\"num_experts\":3,\"linear_num_key_heads\":2,"
                                                       "\"linear_num_value_heads\":4,"
                                                       "\"linear_key_head_dim\":6,"
                                                       "\"linear_value_head_dim\":5,"
                                                       "\"full_attention_interval\":2," CONVERT_EXPERTS);
    convert_one(&(struct convert_request){.model = w.plain.path, .out = w.out, .dtype = DTYPE_COUNT});
    must(st_open_dir(&was, w.plain.path, NULL, NULL, &err), &err);
    must(st_open_dir(&is, w.out, NULL, NULL, &err), &err);
    assert_int_equal(st_count(is), st_count(was));
    for (size_t i = 0; i < st_count(was); i++) {
        const struct st_tensor *a = st_at(was, i), *b = st_find(is, a->name);
        assert_non_null(b);
        assert_int_equal(a->ndim, b->ndim);
        assert_memory_equal(a->shape, b->shape, sizeof a->shape);
        assert_int_equal(a->bytes, b->bytes);
        if (memcmp(a->data, b->data, a->bytes) != 0)
            fail_msg("%s is not as it was", a->name);
    }
    st_close(was);
    st_close(is);
    convert_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_models_are_several_files),
        cmocka_unit_test(other_tensors_come_along),
        cmocka_unit_test(other_tensors_in_fp8_come_along),
        cmocka_unit_test(other_tensors_in_fp8_without_scales_are_refused),
        cmocka_unit_test(what_is_left_alone_is_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
