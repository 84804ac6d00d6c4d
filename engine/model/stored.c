/* SPDX-License-Identifier: MIT
 *
 * Finding tensors in files, and saying what is wrong with them. Called while a stage opens; no
 * state. */
#include "model/stored.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "model/stack_names.h"
#include "model/quant/stored_centred.h"

#define WEIGHT ".weight"
#define STACK "switch_mlp."
#define EXPERTS ".experts."
#define GATE_UP "gate_up_proj"
#define DOWN "down_proj"
#define BLOCKS "_blocks"
#define SCALES "_scales"
#define BIAS "_bias"

/* What the scales of an FP8 tensor have behind its name. */
static const char *const scales_ends[] = {"_scale_inv", "_scale"};
enum { SCALES_ENDS = sizeof scales_ends / sizeof *scales_ends };

/* --- names ------------------------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), e = strlen(end);
    return n > e && !strcmp(name + n - e, end);
}

size_t stored_stem(const char *name)
{
    return strlen(name) - (ends_with(name, WEIGHT) ? strlen(WEIGHT) : 0);
}

void stored_side_name(char ret[STORED_NAME], const char *name, const char *side)
{
    snprintf(ret, STORED_NAME, "%.*s.%s", (int)stored_stem(name), name, side);
}

/* "….mlp.experts.7.gate_proj.weight" → its parts. */
struct expert_name {
    int stem;         /* length of "….mlp" */
    size_t expert;    /* 7 */
    const char *tail; /* "gate_proj.weight" */
};

static bool expert_name(struct expert_name *ret, const char *name)
{
    const char *at = strstr(name, EXPERTS);
    int used = 0;
    if (!at || sscanf(at, EXPERTS "%zu.%n", &ret->expert, &used) != 1 || !used)
        return false;
    ret->stem = (int)(at - name);
    ret->tail = at + used;
    return true;
}

/* "….mlp.switch_mlp.gate_proj.weight", or of woven ones "….mlp.experts.gate_proj.weight" */
bool stored_stack_name(char ret[STORED_NAME], size_t *ret_expert, const struct tensor_def *def)
{
    struct expert_name n;
    char tail[TENSOR_NAME];
    if (!expert_name(&n, def->name))
        return false;
    *ret_expert = n.expert;
    stack_tail(tail, sizeof tail, n.tail, strlen(n.tail));
    snprintf(ret, STORED_NAME, "%.*s%s%s", n.stem, def->name, def->weave == WEAVE_TURNS ? EXPERTS : "." STACK,
             tail);
    return true;
}

bool stored_woven_name(char ret[STORED_NAME], struct stored_woven *ret_at, const struct tensor_def *def)
{
    struct expert_name n;
    if (!def->weave || !expert_name(&n, def->name))
        return false;
    const bool down = !strncmp(n.tail, DOWN, strlen(DOWN));
    *ret_at = (struct stored_woven){n.expert, !strncmp(n.tail, "up_", 3), down ? 1 : 2};
    snprintf(ret, STORED_NAME, "%.*s" EXPERTS "%s%s", n.stem, def->name, down ? DOWN : GATE_UP,
             def->cols ? "" : BIAS);
    return true;
}

/* What lies in two parts in GGUF files. */
static void whole_name(char name[STORED_NAME])
{
    static const char *const parts[][2] = {
        {STORED_KEYS, WEIGHT}, {STORED_VALUES, WEIGHT}, {STORED_QKV, STORED_QKVZ}, {STORED_Z, STORED_QKVZ}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (ends_with(name, parts[i][0]))
            strcpy(name + strlen(name) - strlen(parts[i][0]), parts[i][1]);
}

/* The first of the tensors in a stack that is called like a module of its own; `at` is where that
 * begins in `own`. */
static void first_woven(char ret[STORED_NAME], const char *own, const char *at)
{
    static const char *const ends[][2] = {
        {GATE_UP BLOCKS, "gate_proj.weight"}, {GATE_UP SCALES, "gate_proj.weight"},
        {GATE_UP BIAS, "gate_proj.bias"},     {GATE_UP, "gate_proj.weight"},
        {DOWN BLOCKS, "down_proj.weight"},    {DOWN SCALES, "down_proj.weight"},
        {DOWN BIAS, "down_proj.bias"},        {DOWN, "down_proj.weight"}};
    const char *tail = at;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(at, ends[i][0]))
            tail = ends[i][1];
    snprintf(ret, STORED_NAME, "%.*s0.%.80s", (int)(at - own), own, tail);
}

/* "….weight_scale" without "_scale" */
static void cut_behind_weight(char name[STORED_NAME], const char *end)
{
    const size_t n = strlen(name), e = strlen(end);
    if (!ends_with(name, end))
        return;
    name[n - e] = 0;
    if (!ends_with(name, WEIGHT))
        name[n - e] = *end;
}

void stored_model_name(char ret[STORED_NAME], const char *name)
{
    static const char *const sides[] = {".scales", ".biases", ".input_scale"};
    static const char *const more[] = {"_packed", "_zero_point", "_shape"};
    char own[STORED_NAME];
    snprintf(own, sizeof own, "%s", name);
    for (size_t i = 0; i < SCALES_ENDS; i++)
        cut_behind_weight(own, scales_ends[i]);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        cut_behind_weight(own, more[i]);
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
        if (ends_with(own, sides[i]))
            memcpy(own + strlen(own) - strlen(sides[i]), WEIGHT, sizeof WEIGHT);
    whole_name(own);
    const char *stack = strstr(own, "." STACK), *woven = strstr(own, EXPERTS);
    if (woven && !isdigit((unsigned char)woven[strlen(EXPERTS)]))
        first_woven(ret, own, woven + strlen(EXPERTS));
    else if (stack) {
        char tail[TENSOR_NAME];
        stack_expert_tail(tail, sizeof tail, own, (size_t)(stack - own), stack + strlen("." STACK));
        snprintf(ret, STORED_NAME, "%.*s.experts.0.%.80s", (int)(stack - own), own, tail);
    } else
        memcpy(ret, own, sizeof own);
}

void stored_module_name(char ret[STORED_NAME], const struct tensor_def *def)
{
    size_t expert;
    if (!stored_stack_name(ret, &expert, def))
        snprintf(ret, STORED_NAME, "%s", def->name);
    ret[stored_stem(ret)] = 0;
}

/* --- shapes ----------------------------------------------------------------------------------- */

/* A tensor's shape once the slice of a stack is taken; slices 0: there is no stack. */
struct stored_view {
    const struct st_tensor *t;
    const void *data;
    size_t ndim, shape[2], bytes;
    size_t step, down; /* as of struct stored */
    bool is_fp4;       /* bytes of MXFP4, shape as of words */
};

static bool view_of(struct stored_view *v, const struct st_tensor *t, bool is_stack, size_t slice)
{
    if (!t || (is_stack && (t->ndim < 2 || t->ndim > 3 || slice >= t->shape[0])))
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
    const struct st_tensor *rest; /* as of struct stored */
};

/* One expert's rows, or elements where extent `rows_at` is the last, of those that lie by turns. */
static bool view_woven(struct stored_view *v, const struct st_tensor *t, struct stored_woven at, size_t ndim,
                       size_t rows_at)
{
    if (!t || t->ndim != ndim || at.expert >= t->shape[0] || t->shape[rows_at] % at.ways || !t->elements)
        return false;
    const size_t rows = t->shape[rows_at], bytes = t->bytes / t->shape[0],
                 apart = rows_at + 1 < ndim ? bytes / rows : t->bytes / t->elements;
    *v = (struct stored_view){.t = t,
                              .ndim = 1,
                              .shape = {rows / at.ways, 1},
                              .bytes = bytes / at.ways,
                              .step = at.ways > 1 ? at.ways : 0};
    v->data = t->data ? (const char *)t->data + at.expert * bytes + at.way * apart : NULL;
    return true;
}

/* As transformers has it: matrices turned. */
static bool find_turned(struct found *f, const struct st *st, const char *name, struct stored_woven at)
{
    const struct st_tensor *t = st_find(st, name);
    const bool is_vector = t && t->ndim == 2;
    if (!view_woven(&f->weight, t, at, is_vector ? 2 : 3, is_vector ? 1 : 2))
        return false;
    if (!is_vector) {
        f->weight.ndim = 2;
        f->weight.shape[1] = t->shape[1];
        f->weight.down = t->shape[2];
    }
    return true;
}

/* One expert's rows, which are the first or the last ones of its matrix. */
static bool find_half(struct found *f, const struct st *st, const char *name, struct stored_woven at)
{
    const struct st_tensor *t = st_find(st, name);
    if (!view_woven(&f->weight, t, at, 3, 1))
        return false;
    f->weight.ndim = 2;
    f->weight.shape[1] = t->shape[2];
    f->weight.step = 0;
    if (t->data)
        f->weight.data = (const char *)t->data + (at.expert * at.ways + at.way) * f->weight.bytes;
    return true;
}

/* As it is released. */
static bool find_blocks(struct found *f, const struct st *st, const char *name, struct stored_woven at)
{
    enum { BLOCK = 16, WORD = 4 }; /* bytes */
    char blocks[STORED_NAME + sizeof BLOCKS], scales[STORED_NAME + sizeof SCALES];
    snprintf(blocks, sizeof blocks, "%s" BLOCKS, name);
    snprintf(scales, sizeof scales, "%s" SCALES, name);
    const struct st_tensor *b = st_find(st, blocks), *s = st_find(st, scales);
    if (!view_woven(&f->weight, b, at, 4, 1) || !view_woven(&f->scale, s, at, 3, 1) || b->shape[3] != BLOCK ||
        strcmp(b->dtype_name, "U8") != 0)
        return false;
    f->weight.ndim = f->scale.ndim = 2;
    f->weight.shape[1] = b->shape[2] * BLOCK / WORD;
    f->scale.shape[1] = s->shape[2];
    f->weight.is_fp4 = f->has_scale = true;
    return true;
}

static bool find_woven(struct found *f, const struct st *st, const struct tensor_def *def)
{
    char name[STORED_NAME];
    struct stored_woven at;
    if (!stored_woven_name(name, &at, def))
        return false;
    if (def->weave == WEAVE_HALVES)
        return find_half(f, st, name, at);
    return find_blocks(f, st, name, at) || find_turned(f, st, name, at);
}

/* In two parts, which make one matrix. */
static bool find_parts(struct found *f, const struct st *st, const struct tensor_def *def)
{
    char name[STORED_NAME];
    if (!ends_with(def->name, STORED_QKVZ))
        return false;
    const int stem = (int)(strlen(def->name) - strlen(STORED_QKVZ));
    snprintf(name, sizeof name, "%.*s" STORED_QKV, stem, def->name);
    const struct st_tensor *first = st_find(st, name);
    snprintf(name, sizeof name, "%.*s" STORED_Z, stem, def->name);
    f->rest = st_find(st, name);
    if (!first || !f->rest || !first->rest.groups || f->rest->ndim != 2 ||
        f->rest->shape[0] != (size_t)first->rest.groups * first->rest.value ||
        f->rest->shape[1] != first->shape[1] || !view_of(&f->weight, first, false, 0))
        return false;
    f->weight.shape[0] += f->rest->shape[0];
    f->weight.bytes += f->rest->bytes;
    return true;
}

/* Under its own name, woven, in a stack, or in two parts. */
static bool find(struct found *f, const struct st *st, const struct tensor_def *def)
{
    char in_stack[STORED_NAME], side[STORED_NAME];
    size_t slice = 0;
    const char *at = def->name;
    bool is_stack = false;
    if (!st_find(st, at) && (find_woven(f, st, def) || find_parts(f, st, def)))
        return true;
    if (!st_find(st, at) && stored_stack_name(in_stack, &slice, def)) {
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

/* MLX has the taps of a convolution elsewhere. It would be easy to read, but such files have norms
 * with 1 added where others multiply by 1 more. */
static bool has_shape(const struct stored_view *v, const struct tensor_def *def)
{
    size_t shape[3];
    const size_t dims = tensor_shape(def->rows, def->cols, def->taps, shape);
    return v->ndim == dims && v->shape[0] == shape[0] && (dims == 1 || v->shape[1] == shape[1]) &&
           (!def->taps || v->t->elements == def->rows);
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
    *q = (struct quant){s->data, NULL, DTYPE_COUNT, 4, QUANT_FP4_GROUP, QUANT_MXFP4, {0}};
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
                *q = (struct quant){f->scale.data, f->bias.data, f->scale.t->dtype, bits, group,
                                    QUANT_AFFINE,  {0}};
                return is_side(&f->scale, def->rows, groups) && is_side(&f->bias, def->rows, groups) &&
                       f->scale.t->dtype == f->bias.t->dtype;
            }
    return false;
}

/* The other of two tensors, or NULL. */
static bool is_computed(const struct st_tensor *rest)
{
    return !rest || rest->block || rest->dtype < DTYPE_F8_E4M3;
}

static bool find_centred(struct stored *ret, const struct st *st, const struct tensor_def *def, char *why,
                         size_t size)
{
    struct quant quant;
    const struct st_tensor *t = stored_find_centred(&quant, st, def, why, size);
    if (t)
        *ret = (struct stored){.t = t,
                               .data = t->data,
                               .elements = def->rows * def->cols,
                               .bytes = t->bytes,
                               .is_quantized = true,
                               .quant = quant};
    return t;
}

bool stored_find(struct stored *ret, const struct st *st, const struct tensor_def *def, bool fp8, char *why,
                 size_t size)
{
    const size_t dims = def->cols ? 2 : 1;
    struct found f = {.has_scale = false};
    *why = 0;
    if (find_centred(ret, st, def, why, size))
        return !*why;
    if (!find(&f, st, def)) {
        snprintf(why, size, "%s is missing", def->name);
        return false;
    }
    const struct stored_view *v = &f.weight;
    *ret = (struct stored){.t = v->t,
                           .rest = f.rest,
                           .data = v->data,
                           .elements = def->rows * (def->cols ? def->cols : 1),
                           .bytes = v->bytes,
                           .step = v->step,
                           .down = v->down};
    ret->is_quantized = dims == 2 && (v->is_fp4 || !strcmp(v->t->dtype_name, "U32")) && v->ndim == 2 &&
                        v->shape[0] == def->rows;
    if (ret->is_quantized && !find_quant(&ret->quant, &f, def))
        snprintf(
            why, size,
            "ringd cannot read the quantization of %s: it reads 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 "
            "or 128, with scales and biases, and MXFP4",
            def->name);
    else if (!ret->is_quantized && !has_shape(v, def)) {
        char is[64], wanted[64];
        size_t shape[3];
        const size_t ndim = tensor_shape(def->rows, def->cols, def->taps, shape);
        shape_text(is, v->ndim, v->shape[0], v->shape[1]);
        shape_text(wanted, ndim, shape[0], shape[1]);
        snprintf(why, size, "%s is %s, config.json says %s", def->name, is, wanted);
    } else if (!ret->is_quantized &&
               (!is_computed(f.rest) ||
                (v->t->dtype == DTYPE_COUNT && !(v->t->block && dims == 2 && !v->down)) ||
                (v->t->dtype == DTYPE_F8_E4M3 && (!(fp8 && def->linear) || v->step || v->down))))
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
    w.row_heads = s->t->row_heads;
    w.col_heads = s->t->col_heads;
    w.rest = s->t->rest;
    if (s->rest) {
        w.rest.data = s->rest->data;
        w.rest.dtype = s->rest->block ? DTYPE_F32 : s->rest->dtype;
        w.rest.block = s->rest->block;
    }
    w.step = s->step;
    w.down = s->down;
    if (s->is_quantized) {
        *quant = s->quant;
        w.quant = quant;
    }
    return w;
}

/* --- scales of FP8 ---------------------------------------------------------------------------- */

static size_t blocks(size_t n)
{
    return (n + MAT_BLOCK - 1) / MAT_BLOCK;
}

size_t stored_scale_count(const struct tensor_def *def, bool rows)
{
    return rows ? def->rows : blocks(def->rows) * blocks(def->cols);
}

/* The first that is there, else the last. */
static void scales_name(char ret[STORED_NAME], const struct st *st, const char *name)
{
    size_t i = 0;
    do
        snprintf(ret, STORED_NAME, "%.*s%s", TENSOR_NAME, name, scales_ends[i]);
    while (!st_find(st, ret) && ++i < SCALES_ENDS);
}

static bool row_scales(float *ret, const struct st *st, const struct tensor_def *def, char *why, size_t size)
{
    char name[STORED_NAME];
    scales_name(name, st, def->name);
    const struct st_tensor *t = st_find(st, name);
    if (!t || t->dtype >= DTYPE_F8_E4M3 || (t->elements != def->rows && t->elements != 1)) {
        snprintf(why, size, "%s is missing, or is no scale for each of %zu rows", name, def->rows);
        return false;
    }
    if (!ret)
        return true;
    dtype_to_f32(ret, t->data, t->dtype, t->elements);
    for (size_t r = 1; r < def->rows && t->elements == 1; r++)
        ret[r] = ret[0];
    return true;
}

/* Under its own name, or in a stack. */
static bool find_scales(struct stored_view *ret, const struct st *st, const struct tensor_def *own,
                        const char *name)
{
    struct found f;
    if (view_of(ret, st_find(st, name), false, 0))
        return true;
    if (strlen(name) >= sizeof own->name || !find(&f, st, own))
        return false;
    *ret = f.weight;
    return true;
}

static bool block_scales(float *ret, const struct st *st, const struct tensor_def *def, char *why,
                         size_t size)
{
    struct tensor_def own = {.rows = blocks(def->rows), .cols = blocks(def->cols)};
    struct stored_view v;
    char name[STORED_NAME], is[64];
    scales_name(name, st, def->name);
    snprintf(own.name, sizeof own.name, "%s", name);
    if (!find_scales(&v, st, &own, name)) {
        snprintf(why, size, "%s is missing", name);
    } else if (!has_shape(&v, &own)) {
        shape_text(is, v.ndim, v.shape[0], v.shape[1]);
        snprintf(why, size, "%s is %s, where blocks of %d × %d want [%zu, %zu]", name, is, MAT_BLOCK,
                 MAT_BLOCK, own.rows, own.cols);
    } else if (v.t->dtype >= DTYPE_F8_E4M3) {
        snprintf(why, size, "%s is stored as %s, with which ringd cannot compute", name, v.t->dtype_name);
    } else if (ret) {
        dtype_to_f32(ret, v.data, v.t->dtype, own.rows * own.cols);
    }
    return !*why;
}

bool stored_scales(float *ret, const struct st *st, const struct tensor_def *def, bool rows, char *why,
                   size_t size)
{
    *why = 0;
    return rows ? row_scales(ret, st, def, why, size) : block_scales(ret, st, def, why, size);
}

bool stored_is_scales(const struct st *st, const char *name)
{
    for (size_t i = 0; i < SCALES_ENDS; i++) {
        char of[512];
        if (!ends_with(name, scales_ends[i]))
            continue;
        snprintf(of, sizeof of, "%.*s", (int)(strlen(name) - strlen(scales_ends[i])), name);
        const struct st_tensor *t = st_find(st, of);
        return t && t->dtype == DTYPE_F8_E4M3;
    }
    return false;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Elements that lie `step` apart in each column, or in the only one. */
static void apart_to_f32(const struct stored *s, const struct tensor_def *def, float *ret)
{
    const size_t cols = def->cols ? def->cols : 1, step = s->step ? s->step : 1,
                 size = dtype_size(s->t->dtype);
    for (size_t c = 0; c < cols; c++)
        for (size_t row = 0; row < def->rows; row++)
            dtype_to_f32(ret + row * cols + c, (const char *)s->data + (c * s->down + row * step) * size,
                         s->t->dtype, 1);
}

void stored_to_f32(const struct stored *s, const struct tensor_def *def, float *ret)
{
    const size_t cols = def->cols ? def->cols : 1;
    if (s->step || s->down) {
        apart_to_f32(s, def, ret);
        return;
    }
    struct st_tensor part = *s->t; /* or a slice of it */
    part.data = s->data;
    for (size_t row = 0; row < def->rows; row++) {
        bool is_rest = false;
        const size_t at = s->rest ? mat_part_row(s->t->rest, row, &is_rest) : row;
        st_row(is_rest ? s->rest : &part, at, cols, ret + row * cols);
    }
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
