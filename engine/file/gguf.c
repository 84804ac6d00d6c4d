/* SPDX-License-Identifier: MIT
 *
 * Looking at what gguf_head.c found in a file, and letting go of it. Any thread, until it is
 * closed. */
#include "file/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "file/gguf_impl.h"

size_t gguf_type_bytes(enum gguf_type type)
{
    static const size_t bytes[GGUF_TYPES] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
        [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};
    return bytes[type];
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    free(g->tensors);
    free(g->values);
    free(g->bytes);
    free(g);
}

/* --- looking at it ---------------------------------------------------------------------------- */

size_t gguf_tensors(const struct gguf *g)
{
    return g->ntensors;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
    for (size_t i = 0; i < g->ntensors; i++)
        if (!strcmp(g->tensors[i].name, name))
            return &g->tensors[i];
    return NULL;
}

const struct gguf_value *gguf_value(const struct gguf *g, const char *key)
{
    const size_t n = strlen(key);
    for (size_t i = 0; i < g->nvalues; i++)
        if (g->values[i].key.n == n && !memcmp(g->values[i].key.at, key, n))
            return &g->values[i];
    return NULL;
}

const char *gguf_type_name(const struct gguf_value *v)
{
    static const char *const names[][GGUF_TYPES] = {
        {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"},
        {"array of u8", "array of i8", "array of u16", "array of i16", "array of u32", "array of i32",
         "array of f32", "array of bool", "array of string", "array", "array of u64", "array of i64",
         "array of f64"}};
    return names[v->is_array][v->type];
}

bool gguf_whole(const struct gguf_value *v, size_t i, int64_t *ret)
{
    static const bool is_signed[GGUF_TYPES] = {
        [GGUF_I8] = true, [GGUF_I16] = true, [GGUF_I32] = true, [GGUF_I64] = true};
    const size_t size = gguf_type_bytes(v->type);
    uint64_t bits = 0;
    if (i >= v->count || v->type == GGUF_F32 || v->type == GGUF_F64 || v->type == GGUF_BOOL || !size)
        return false;
    memcpy(&bits, v->at + i * size, size);
    if (is_signed[v->type] && size < 8 && bits >> (8 * size - 1))
        bits |= UINT64_MAX << 8 * size;
    if (v->type == GGUF_U64 && bits > INT64_MAX)
        bits = INT64_MAX; /* more than any count that is taken */
    *ret = (int64_t)bits;
    return true;
}

bool gguf_real(const struct gguf_value *v, size_t i, double *ret)
{
    int64_t whole;
    float narrow;
    if (gguf_whole(v, i, &whole)) {
        *ret = (double)whole;
        return true;
    }
    if (i >= v->count || (v->type != GGUF_F32 && v->type != GGUF_F64))
        return false;
    if (v->type == GGUF_F64) {
        memcpy(ret, v->at + i * sizeof *ret, sizeof *ret);
        return true;
    }
    memcpy(&narrow, v->at + i * sizeof narrow, sizeof narrow);
    *ret = (double)narrow;
    return true;
}

bool gguf_bool(const struct gguf_value *v, bool *ret)
{
    if (v->type != GGUF_BOOL || v->is_array)
        return false;
    *ret = *v->at != 0;
    return true;
}

bool gguf_next_text(const struct gguf_value *v, size_t *i, struct gguf_text *at)
{
    uint64_t n;
    if (v->type != GGUF_STRING || *i >= v->count)
        return false;
    const uint8_t *from = at->at ? (const uint8_t *)at->at + at->n : v->at;
    memcpy(&n, from, sizeof n);
    *at = (struct gguf_text){(const char *)from + sizeof n, (size_t)n};
    ++*i;
    return true;
}
