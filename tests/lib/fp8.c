/* SPDX-License-Identifier: MIT */
#include "tests/lib/fp8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file/st.h"
#include "model/family.h"
#include "num/rng.h"
#include "tests/lib/near.h"

enum { SEED = 20251121, BLOCK = 128, LARGEST = 0x70 /* patterns below it: magnitudes up to 240 */ };

struct file {
    FILE *head, *data; /* the header's entries; the tensors */
    char *head_text, *data_text;
    size_t head_n, data_n;
    struct st *st; /* what is converted */
};

static void put(struct file *f, const char *name, const char *dtype, size_t rows, size_t cols,
                const void *data, size_t bytes)
{
    const long at = ftell(f->data);
    fprintf(f->head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu", at ? "," : "{", name, dtype, rows);
    if (cols)
        fprintf(f->head, ",%zu", cols);
    fprintf(f->head, "],\"data_offsets\":[%ld,%zu]}", at, (size_t)at + bytes);
    assert_int_equal(fwrite(data, 1, bytes, f->data), bytes);
}

static void put_fp8(struct file *f, const struct tensor_def *def)
{
    char name[TENSOR_NAME + 16];
    const size_t n = def->rows * def->cols;
    const size_t down = (def->rows + BLOCK - 1) / BLOCK, across = (def->cols + BLOCK - 1) / BLOCK;
    unsigned char *bytes = malloc(n);
    float *scale = malloc(down * across * sizeof *scale);
    assert_non_null(bytes);
    assert_non_null(scale);
    struct rng rng = rng_for(SEED, def->name);
    for (size_t i = 0; i < n; i++) {
        const uint64_t draw = rng_u64(&rng);
        bytes[i] = (unsigned char)(draw % LARGEST | (draw >> 32 & 0x80));
    }
    rng_fill_uniform(&rng, scale, down * across, 0.0005f, 0.003f);
    put(f, def->name, "F8_E4M3", def->rows, def->cols, bytes, n);
    snprintf(name, sizeof name, "%s_scale_inv", def->name);
    put(f, name, "F32", down, across, scale, down * across * sizeof *scale);
    free(bytes);
    free(scale);
}

static int convert_one(void *arg, const struct tensor_def *def)
{
    struct file *f = arg;
    const struct st_tensor *t = st_find(f->st, def->name);
    assert_non_null(t);
    if (def->linear)
        put_fp8(f, def);
    else
        put(f, def->name, t->dtype_name, def->rows, def->cols, t->data, t->bytes);
    return 0;
}

void fp8_convert(const char *dir, const struct config *c)
{
    struct err err;
    struct file f = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    must(st_open_file(&f.st, path, &err), &err);
    f.head = open_memstream(&f.head_text, &f.head_n);
    f.data = open_memstream(&f.data_text, &f.data_n);
    assert_non_null(f.head);
    assert_non_null(f.data);
    for (size_t u = 0; u < c->layers + 2; u++)
        family_tensors(family_find(c->family), c, u, convert_one, &f);
    fputc('}', f.head);
    assert_int_equal(fclose(f.head) | fclose(f.data), 0);
    st_close(f.st);
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    const uint64_t n = f.head_n; /* little-endian, as all machines this runs on */
    assert_int_equal(fwrite(&n, 1, 8, out) + fwrite(f.head_text, 1, n, out) +
                         fwrite(f.data_text, 1, f.data_n, out),
                     8 + n + f.data_n);
    assert_int_equal(fclose(out), 0);
    free(f.head_text);
    free(f.data_text);
}
