/* SPDX-License-Identifier: MIT
 *
 * GGUF files, mlx-lm's directories and FP8 become Hugging Face's, with the numbers they stood
 * for. */
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
#include "tests/lib/fp8.h"
#include "tests/lib/gguf.h"
#include "tests/lib/mlx.h"
#include "tests/lib/near.h"

/* --- from GGUF files -------------------------------------------------------------------------- */

static void check_gguf(size_t family, struct gguf_how how)
{
    struct convert_world w;
    struct err err;
    struct config c;
    convert_world_open(&w, convert_families[family]);
    if (how.split)
        snprintf(w.path, sizeof w.path, "%s/model", w.dir.path);
    gguf_convert(w.plain.path, w.path, &w.c, how);
    if (how.split)
        strcat(w.path, "-00001-of-00002.gguf");
    const struct convert_request req = {.model = w.path, .out = w.out, .dtype = DTYPE_F32};
    convert_one(&req);
    must(config_read(&c, w.out, &err), &err);
    assert_true(!c.mixed && !c.mla.kv_b_parts && c.dtype == DTYPE_F32);
    /* A row at a time is multiplied with blocks in whole numbers. */
    convert_check_alike(&w, w.path, 0, 1e-5, convert_families[family]);
    convert_world_close(&w);
}

static void gguf_files_become_folders(void **state)
{
    (void)state;
    for (size_t f = 0; f < CONVERT_FAMILIES; f++)
        check_gguf(f, (struct gguf_how){.block = BLOCK_Q4_K});
    check_gguf(CONVERT_DENSE, (struct gguf_how){.block = BLOCK_MXFP4, .split = true});
    check_gguf(CONVERT_LATENT, (struct gguf_how){.block = BLOCK_Q8_0, .kv_b_parts = true});
}

static void gguf_files_are_quantized_again(void **state)
{
    (void)state;
    static const size_t family[] = {0, CONVERT_LATENT};
    for (size_t i = 0; i < 2; i++) {
        struct convert_world w;
        convert_world_open(&w, convert_families[family[i]]);
        gguf_convert(w.plain.path, w.path, &w.c,
                     (struct gguf_how){.block = BLOCK_Q6_K, .kv_b_parts = family[i] == CONVERT_LATENT});
        const struct convert_request req = {
            .model = w.path, .out = w.out, .dtype = DTYPE_COUNT, .bits = 8, .group = 64};
        convert_one(&req);
        convert_check_alike(&w, w.path, 8, 0, "quantized again");
        convert_world_close(&w);
    }
}

/* --- from others ------------------------------------------------------------------------------ */

/* All tensors under the names of `plain`, with its numbers to a part `tolerance` of the largest. */
static void check_numbers(const struct convert_world *w, double tolerance)
{
    struct err err;
    struct st *got, *want;
    must(st_open_dir(&got, w->out, NULL, NULL, &err), &err);
    must(st_open_dir(&want, w->plain.path, NULL, NULL, &err), &err);
    assert_int_equal(st_count(got), st_count(want));
    for (size_t i = 0; i < st_count(want); i++) {
        const struct st_tensor *a = st_at(got, i), *b = st_at(want, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->ndim == b->ndim && !memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape));
        assert_int_equal(a->dtype, DTYPE_F32);
        float *x = malloc(a->bytes), *y = malloc(b->bytes);
        memcpy(x, a->data, a->bytes); /* aligned */
        memcpy(y, b->data, b->bytes);
        assert_near_max(x, y, a->elements, tolerance, a->name);
        free(x);
        free(y);
    }
    st_close(got);
    st_close(want);
}

static void mlx_directories_become_plain(void **state)
{
    (void)state;
    for (size_t bits = 2; bits <= 9; bits++) {
        const size_t f = bits % CONVERT_FAMILIES;
        const struct mlx_how how = {.bits = bits == 9   ? 4
                                            : bits == 7 ? 0
                                                        : bits,
                                    .group = 32,
                                    .fp4 = bits == 9,
                                    .half = bits % 2};
        struct convert_world w;
        struct err err;
        struct config c;
        char mlx[160], json[1900];
        convert_world_open(&w, convert_families[f]);
        struct temp_dir dir = temp_dir_new();
        mlx_convert(w.plain.path, dir.path, &w.c, how);
        snprintf(mlx, sizeof mlx, ",\"quantization\":{\"group_size\":32,\"bits\":%zu%s}}", how.bits,
                 how.fp4 ? ",\"mode\":\"mxfp4\"" : "");
        snprintf(json, sizeof json, "%s%s", convert_families[f], how.bits ? mlx : "}");
        write_file(dir.path, "config.json", json);
        const struct convert_request req = {.model = dir.path, .out = w.out, .dtype = DTYPE_F32};
        convert_one(&req);
        must(config_read(&c, w.out, &err), &err);
        assert_int_equal(c.quant_bits, 0);
        check_numbers(&w, 1e-6);
        temp_dir_free(&dir);
        convert_world_close(&w);
    }
}

/* As FP8 is released; and to bf16 where nothing was asked for. */
static void fp8_becomes_other_types(void **state)
{
    (void)state;
    struct convert_world w;
    struct err err;
    struct config c;
    convert_world_open(&w, convert_families[CONVERT_LATENT]);
    fp8_convert(w.plain.path, &w.c);
    char json[1900];
    snprintf(json, sizeof json,
             "%s,\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
             "\"weight_block_size\":[128,128]}}",
             convert_families[CONVERT_LATENT]);
    write_file(w.plain.path, "config.json", json);
    struct convert_request req = {.model = w.plain.path, .out = w.out, .dtype = DTYPE_F32};
    convert_one(&req);
    must(config_read(&c, w.out, &err), &err);
    assert_true(!c.fp8 && c.dtype == DTYPE_F32);
    float *want = convert_logits(&w, w.plain.path, 0), *got = convert_logits(&w, w.out, 0);
    assert_near_max(got, want, TINY_TOKENS * w.c.vocab, 1e-5, "f32 of FP8");
    free(want);
    free(got);
    snprintf(w.out, sizeof w.out, "%s/eight", w.dir.path);
    req.dtype = DTYPE_COUNT;
    req.bits = 8;
    req.group = 64;
    convert_one(&req);
    convert_check_alike(&w, w.plain.path, 8, 0, "8 bits of FP8");
    convert_world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_files_become_folders),
        cmocka_unit_test(gguf_files_are_quantized_again),
        cmocka_unit_test(mlx_directories_become_plain),
        cmocka_unit_test(fp8_becomes_other_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
