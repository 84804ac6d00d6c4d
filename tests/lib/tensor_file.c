/* SPDX-License-Identifier: MIT */
#include "tests/lib/tensor_file.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

void tensor_file_begin(struct tensor_file *f)
{
    f->head = open_memstream(&f->head_text, &f->head_n);
    f->data = open_memstream(&f->data_text, &f->data_n);
    assert_non_null(f->head);
    assert_non_null(f->data);
}

void tensor_file_end(struct tensor_file *f, const char *dir)
{
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    fputc('}', f->head);
    assert_int_equal(fclose(f->head) | fclose(f->data), 0);
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    const uint64_t n = f->head_n;
    fwrite(&n, 1, 8, out);
    fwrite(f->head_text, 1, n, out);
    fwrite(f->data_text, 1, f->data_n, out);
    assert_int_equal(fclose(out), 0);
    free(f->head_text);
    free(f->data_text);
}

static void announce(struct tensor_file *f, const char *name, const char *dtype, const char *shape,
                     size_t bytes)
{
    const long at = ftell(f->data);
    fprintf(f->head, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%ld,%zu]}", at ? "," : "{",
            name, dtype, shape, at, (size_t)at + bytes);
}

void tensor_file_put(struct tensor_file *f, const char *name, const char *dtype, const char *shape,
                     const void *data, size_t bytes)
{
    announce(f, name, dtype, shape, bytes);
    assert_int_equal(fwrite(data, 1, bytes, f->data), bytes);
}
