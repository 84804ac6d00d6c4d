/* SPDX-License-Identifier: MIT */
#include "tests/lib/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/near.h"

struct data_path data_path(const char *fmt, ...)
{
    static const char root[] = "tests/data/";
    struct data_path path;
    memcpy(path.text, root, sizeof root);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(path.text + strlen(root), sizeof path.text - strlen(root), fmt, ap);
    va_end(ap);
    if (access(path.text, R_OK))
        fail_msg("%s cannot be read: run the test in the root of the repository", path.text);
    return path;
}

void golden_open(struct golden *g, const char *name)
{
    struct err err;
    *g = (struct golden){.name = name, .model_dir = data_path("cases/%s/model", name)};
    must(config_read(&g->config, g->model_dir.text, &err), &err);
    json_error_t je;
    g->expected = json_load_file(data_path("cases/%s/expected.json", name).text, 0, &je);
    if (!g->expected)
        fail_msg("%s: expected.json: %s", name, je.text);
    must(st_open_file(&g->tensors, data_path("cases/%s/expected.safetensors", name).text, &err), &err);
}

void golden_close(struct golden *g)
{
    st_close(g->tensors);
    json_decref(g->expected);
    *g = (struct golden){0};
}

const float *golden_floats(const struct golden *g, size_t elements, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const struct st_tensor *t = st_find(g->tensors, name);
    if (!t || t->dtype != DTYPE_F32 || t->elements != elements)
        fail_msg("%s: %s is not a tensor of %zu f32 elements in expected.safetensors", g->name, name,
                 elements);
    assert_int_equal((uintptr_t)t->data % sizeof(float), 0);
    return t->data;
}

void golden_longs(const struct golden *g, int64_t *ret, size_t elements, const char *fmt, ...)
{
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const struct st_tensor *t = st_find(g->tensors, name);
    if (!t || t->elements != elements || (t->bytes != 4 * elements && t->bytes != 8 * elements))
        fail_msg("%s: %s is not a tensor of %zu whole numbers in expected.safetensors", g->name, name,
                 elements);
    for (size_t i = 0; i < elements; i++) {
        int32_t narrow;
        if (t->bytes == 8 * elements) {
            memcpy(&ret[i], (const char *)t->data + 8 * i, 8);
        } else {
            memcpy(&narrow, (const char *)t->data + 4 * i, 4);
            ret[i] = narrow;
        }
    }
}

const json_t *golden_json(const struct golden *g, const char *key, ...)
{
    const json_t *at = g->expected;
    va_list ap;
    va_start(ap, key);
    for (; key && at; key = va_arg(ap, const char *))
        at = json_object_get(at, key);
    va_end(ap);
    if (!at)
        fail_msg("%s: a key is missing in expected.json", g->name);
    return at;
}

size_t golden_ids(const json_t *list, uint32_t *ids, size_t cap)
{
    size_t n = json_array_size(list);
    assert_in_range(n, 1, cap);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return n;
}
