/* SPDX-License-Identifier: MIT
 *
 * Finding such a matrix, and what is wrong with it. Called while a stage opens; no state. */
#include "model/quant/stored_centred.h"

#include <stdio.h>
#include <string.h>

#include "num/sizes.h"

static const struct st_tensor *find_beside(const struct st *st, const struct tensor_def *def, const char *end)
{
    char name[TENSOR_NAME + 32];
    snprintf(name, sizeof name, "%s%s", def->name, end);
    return st_find(st, name);
}

static bool is_matrix(const struct st_tensor *t, size_t rows, size_t cols)
{
    return t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

/* Of 8 bits four are in a word, of 4 bits eight; 0: neither. */
static size_t bits_of(const struct st_tensor *t, const struct tensor_def *def)
{
    if (!strcmp(t->dtype_name, "I8"))
        return is_matrix(t, def->rows, def->cols) && quant_is_possible(8, QUANT_GROUP, def->cols) ? 8 : 0;
    for (size_t bits = 4; bits <= QUANT_MOST; bits += 4)
        if (quant_is_possible(bits, QUANT_GROUP, def->cols) &&
            is_matrix(t, def->rows, quant_words(bits, def->cols)) && !strcmp(t->dtype_name, "I32"))
            return bits;
    return 0;
}

/* Columns that share a scale; 0: none that are read here. */
static size_t wide_of(const struct st_tensor *scale, const struct tensor_def *def)
{
    const size_t scales = scale->ndim == 2 && scale->shape[0] == def->rows ? scale->shape[1] : 0;
    if (scales == 1)
        return def->cols;
    return scales && def->cols % scales == 0 && quant_centred_group(def->cols / scales) ? def->cols / scales
                                                                                        : 0;
}

static bool has_zeros(const struct quant *q, const struct st_tensor *zero, const struct tensor_def *def)
{
    const size_t per_word = QUANT_WORD / q->bits;
    return !zero || (!q->centre.is_signed && !strcmp(zero->dtype_name, "I32") &&
                     is_matrix(zero, (def->rows + per_word - 1) / per_word, quant_scales(q, def->cols)));
}

static bool read_fp4(struct quant *q, const struct st_tensor *packed, const struct st_tensor *scale,
                     const struct tensor_def *def)
{
    *q = (struct quant){scale ? scale->data : NULL, NULL, DTYPE_COUNT, 4, QUANT_FP4_GROUP, QUANT_MXFP4, {0}};
    return def->cols % QUANT_FP4_GROUP == 0 && is_matrix(packed, def->rows, def->cols / 2) && scale &&
           !strcmp(scale->dtype_name, "U8") && is_matrix(scale, def->rows, def->cols / QUANT_FP4_GROUP);
}

/* A row with one scale has groups as a product takes them, the last one shorter. */
static bool read_quant(struct quant *q, const struct st_tensor *scale, const struct st_tensor *zero,
                       const struct tensor_def *def)
{
    const size_t wide = scale ? wide_of(scale, def) : 0;
    q->kind = QUANT_CENTRED;
    if (!q->bits || !wide || scale->dtype >= DTYPE_F8_E4M3)
        return false;
    q->group = wide == def->cols ? quant_row_group(wide) : quant_centred_group(wide);
    q->centre.wide = round_up(wide, q->group);
    q->side = scale->dtype;
    q->scale = scale->data;
    q->centre.zero = zero ? zero->data : NULL;
    return has_zeros(q, zero, def);
}

const struct st_tensor *stored_find_centred(struct quant *ret, const struct st *st,
                                            const struct tensor_def *def, char *why, size_t size)
{
    const struct st_tensor *packed = find_beside(st, def, "_packed"), *plain = find_beside(st, def, "");
    const bool is_signed = !packed && plain && !strcmp(plain->dtype_name, "I8");
    if (!def->cols || (!packed && !is_signed))
        return NULL;
    const struct st_tensor *t = packed ? packed : plain, *scale = find_beside(st, def, "_scale"),
                           *zero = find_beside(st, def, "_zero_point");
    const bool is_fp4 = packed && !strcmp(packed->dtype_name, "U8");
    *ret = (struct quant){.bits = bits_of(t, def), .centre.is_signed = is_signed};
    if (find_beside(st, def, "_g_idx"))
        snprintf(why, size,
                 "the columns of %s are in another order (weight_g_idx), which ringd does not read",
                 def->name);
    else if (is_fp4 ? !read_fp4(ret, packed, scale, def) : !read_quant(ret, scale, zero, def))
        snprintf(
            why, size,
            "ringd cannot read the quantization of %s: of compressed-tensors it reads 4 or 8 bits with a "
            "scale for each row or for 32, 64 or a multiple of 128 columns, MXFP4 and FP8",
            def->name);
    return t;
}
