/* SPDX-License-Identifier: MIT
 *
 * Finding tensors in files, and saying what is wrong with them. Called while a stage opens; no
 * state. */
#include "model/stored.h"

#include <stdio.h>
#include <string.h>

#define WEIGHT ".weight"
#define FP8_SCALES "_scale_inv"
#define STACK "switch_mlp."

/* --- names ------------------------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), e = strlen(end);
    return n > e && !strcmp(name + n - e, end);
}

void stored_side_name(char ret[STORED_NAME], const char *name, const char *side)
{
    const size_t stem = ends_with(name, WEIGHT) ? strlen(name) - strlen(WEIGHT) : strlen(name);
    snprintf(ret, STORED_NAME, "%.*s.%s", (int)stem, name, side);
}

/* "….mlp.experts.7.gate_proj.weight" → "….mlp.switch_mlp.gate_proj.weight" and 7. */
bool stored_stack_name(char ret[STORED_NAME], size_t *ret_expert, const char *name)
{
    const char *at = strstr(name, ".experts.");
    int used = 0;
    if (!at || sscanf(at, ".experts.%zu.%n", ret_expert, &used) != 1 || !used)
        return false;
    snprintf(ret, STORED_NAME, "%.*s." STACK "%s", (int)(at - name), name, at + used);
    return true;
}

/* The keys' and the values' part of a kv_b_proj, in GGUF files. */
static void whole_name(char name[STORED_NAME])
{
    static const char *const parts[] = {STORED_KEYS, STORED_VALUES};
    for (size_t i = 0; i < 2; i++)
        if (ends_with(name, parts[i]))
            strcpy(name + strlen(name) - strlen(parts[i]), WEIGHT);
}

void stored_model_name(char ret[STORED_NAME], const char *name)
{
    static const char *const sides[] = {".scales", ".biases"};
    char own[STORED_NAME];
    snprintf(own, sizeof own, "%s", name);
    if (ends_with(own, FP8_SCALES))
        own[strlen(own) - strlen(FP8_SCALES)] = 0;
    for (size_t i = 0; i < 2; i++)
        if (ends_with(own, sides[i]))
            memcpy(own + strlen(own) - strlen(sides[i]), WEIGHT, sizeof WEIGHT);
    whole_name(own);
    const char *stack = strstr(own, "." STACK);
    if (stack)
        snprintf(ret, STORED_NAME, "%.*s.experts.0.%.80s", (int)(stack - own), own,
                 stack + strlen("." STACK));
    else
        memcpy(ret, own, sizeof own);
}

void stored_module_name(char ret[STORED_NAME], const char *name)
{
    size_t expert;
    if (!stored_stack_name(ret, &expert, name))
        snprintf(ret, STORED_NAME, "%s", name);
    if (ends_with(ret, WEIGHT))
        ret[strlen(ret) - strlen(WEIGHT)] = 0;
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* A tensor's shape once the slice of a stack is taken; slices 0: there is no stack. */
struct stored_view {
    const struct st_tensor *t;
    const void *data;
    size_t ndim, shape[2], bytes;
};

static bool view_of(struct stored_view *v, const struct st_tensor *t, bool is_stack, size_t slice)
{
    if (!t || (is_stack && (t->ndim != 3 || slice >= t->shape[0])))
        return false;
    const size_t skip = is_stack ? 1 : 0;
    *v = (struct stored_view){
        .t = t, .ndim = t->ndim - skip, .bytes = is_stack ? t->bytes / t->shape[0] : t->bytes};
    for (size_t i = 0; i < 2 && i < v->ndim; i++)
        v->shape[i] = t->shape[i + skip];
    v->data = t->data ? (const char *)t->data + slice * v->bytes : NULL; /* heads alone have no data */
    return true;
}

struct found {
    struct stored_view weight, scale, bias;
    bool has_scale, has_bias;
};

/* Under its own name, or in a stack. */
static bool find(struct found *f, const struct st *st, const char *name)
{
    char in_stack[STORED_NAME], side[STORED_NAME];
    size_t slice = 0;
    const char *at = name;
    bool is_stack = false;
    if (!st_find(st, name) && stored_stack_name(in_stack, &slice, name)) {
        at = in_stack;
        is_stack = true;
    }
    if (!view_of(&f->weight, st_find(st, at), is_stack, slice))
        return false;
    stored_side_name(side, at, "scales");
    f->has_scale = view_of(&f->scale, st_find(st, side), is_stack, slice);
    stored_side_name(side, at, "biases");
    f->has_bias = view_of(&f->bias, st_find(st, side), is_stack, slice);
    return true;
}

/* "[12]" or "[12, 20]", as the writers of such files print shapes. */
static void shape_text(char ret[64], size_t ndim, size_t rows, size_t cols)
{
    if (ndim < 2)
        snprintf(ret, 64, "[%zu]", rows);
    else
        snprintf(ret, 64, "[%zu, %zu%s]", rows, cols, ndim > 2 ? ", …" : "");
}

static bool is_side(const struct stored_view *v, size_t rows, size_t groups)
{
    return v->ndim == 2 && v->shape[0] == rows && v->shape[1] == groups && v->t->dtype < DTYPE_F8_E4M3;
}

/* Scales that are bytes, and no biases. */
static bool find_fp4(struct quant *q, const struct found *f, const struct tensor_def *def)
{
    const struct stored_view *s = &f->scale;
    const size_t groups = quant_groups(QUANT_FP4_GROUP, def->cols);
    *q = (struct quant){s->data, NULL, DTYPE_COUNT, 4, QUANT_FP4_GROUP, QUANT_MXFP4};
    return !strcmp(s->t->dtype_name, "U8") && s->ndim == 2 && s->shape[0] == def->rows &&
           s->shape[1] == groups && def->cols % QUANT_FP4_GROUP == 0 &&
           quant_words(4, def->cols) == f->weight.shape[1];
}

/* Which bits and groups the words and scales of a row make; false: none that is read here. */
static bool find_quant(struct quant *q, const struct found *f, const struct tensor_def *def)
{
    if (!f->has_scale || !f->has_bias)
        return f->has_scale && find_fp4(q, f, def);
    const size_t groups = f->scale.ndim == 2 ? f->scale.shape[1] : 0;
    for (size_t bits = 2; bits <= QUANT_MOST; bits++)
        for (size_t group = 32; group <= 128; group *= 2)
            if (quant_is_possible(bits, group, def->cols) && quant_groups(group, def->cols) == groups &&
                quant_words(bits, def->cols) == f->weight.shape[1]) {
                *q =
                    (struct quant){f->scale.data, f->bias.data, f->scale.t->dtype, bits, group, QUANT_AFFINE};
                return is_side(&f->scale, def->rows, groups) && is_side(&f->bias, def->rows, groups) &&
                       f->scale.t->dtype == f->bias.t->dtype;
            }
    return false;
}

bool stored_find(struct stored *ret, const struct st *st, const struct tensor_def *def, bool fp8, char *why,
                 size_t size)
{
    const size_t dims = def->cols ? 2 : 1;
    struct found f = {.has_scale = false};
    *why = 0;
    if (!find(&f, st, def->name)) {
        snprintf(why, size, "%s is missing", def->name);
        return false;
    }
    const struct stored_view *v = &f.weight;
    *ret = (struct stored){
        .t = v->t, .data = v->data, .elements = def->rows * (def->cols ? def->cols : 1), .bytes = v->bytes};
    ret->is_quantized =
        dims == 2 && !strcmp(v->t->dtype_name, "U32") && v->ndim == 2 && v->shape[0] == def->rows;
    if (ret->is_quantized && !find_quant(&ret->quant, &f, def))
        snprintf(
            why, size,
            "ringd cannot read the quantization of %s: it reads 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 "
            "or 128, with scales and biases, and MXFP4",
            def->name);
    else if (!ret->is_quantized &&
             (v->ndim != dims || v->shape[0] != def->rows || (dims == 2 && v->shape[1] != def->cols))) {
        char is[64], wanted[64];
        shape_text(is, v->ndim, v->shape[0], v->shape[1]);
        shape_text(wanted, dims, def->rows, def->cols);
        snprintf(why, size, "%s is %s, config.json says %s", def->name, is, wanted);
    } else if (!ret->is_quantized && ((v->t->dtype == DTYPE_COUNT && !(v->t->block && dims == 2)) ||
                                      (v->t->dtype == DTYPE_F8_E4M3 && !(fp8 && def->linear))))
        snprintf(why, size, "%s is stored as %s, with which ringd cannot compute", def->name,
                 v->t->dtype_name);
    return !*why;
}

struct mat stored_mat(const struct stored *s, const struct tensor_def *def, struct quant *quant,
                      const float *scale)
{
    struct mat w = {
        .data = s->data, .dtype = s->t->dtype, .rows = def->rows, .cols = def->cols, .scale = scale};
    if (s->t->block)
        w.dtype = DTYPE_F32;
    w.block = s->t->block;
    w.turn = s->t->turn;
    if (s->is_quantized) {
        *quant = s->quant;
        w.quant = quant;
    }
    return w;
}

void stored_to_f32(const struct stored *s, const struct tensor_def *def, float *ret)
{
    const size_t cols = def->cols ? def->cols : 1;
    struct st_tensor part = *s->t; /* or a slice of it */
    part.data = s->data;
    for (size_t row = 0; row < def->rows; row++)
        st_row(&part, row, cols, ret + row * cols);
}

/* --- quantizing ------------------------------------------------------------------------------- */

bool stored_is_quantizable(const struct tensor_def *def)
{
    return (def->linear || (def->cols && def->part == LAYER_NORMS)) &&
           quant_is_possible(4, QUANT_GROUP, def->cols);
}

size_t stored_quantized_bytes(const struct tensor_def *def, size_t bits, size_t group, enum quant_kind kind)
{
    const size_t side = kind == QUANT_MXFP4 ? 1 : 2 * dtype_size(DTYPE_BF16);
    return def->rows *
           (quant_words(bits, def->cols) * sizeof(uint32_t) + side * quant_groups(group, def->cols));
}
