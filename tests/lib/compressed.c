/* SPDX-License-Identifier: MIT */
#include "tests/lib/compressed.h"

#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file/st.h"
#include "model/family.h"
#include "tests/lib/near.h"
#include "tests/lib/tensor_file.h"

/* What is under way: each matrix goes to both files. */
struct conversion {
    struct compressed_how how;
    struct st *from;
    struct tensor_file plain, packed;
    regex_t left; /* where how.left is given */
};

/* One matrix. */
struct matrix {
    const char *name;
    float *w; /* [rows, cols] */
    size_t rows, cols, wide, scales;
};

/* --- numbers ---------------------------------------------------------------------------------- */

/* x as the type holds it, cut off, and its bytes. What is too small for an ordinary number of F16
 * becomes 0. */
static float to_side(float x, enum dtype type, void *bytes)
{
    uint32_t bits;
    if (type == DTYPE_F16 && fabsf(x) < 0x1p-14f) {
        memset(bytes, 0, sizeof(uint16_t));
        return 0;
    }
    memcpy(&bits, &x, sizeof bits);
    bits &= type == DTYPE_F32 ? 0xffffffffu : type == DTYPE_F16 ? 0xffffe000u : 0xffff0000u;
    const uint16_t half =
        type == DTYPE_F16
            ? (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 255u) - 112u) << 10) | (bits >> 13 & 1023u))
            : (uint16_t)(bits >> 16);
    if (type == DTYPE_F32)
        memcpy(bytes, &bits, sizeof bits);
    else
        memcpy(bytes, &half, sizeof half);
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static double fp8_value(unsigned byte)
{
    const int exponent = byte >> 3 & 15, fraction = byte & 7;
    const double x = exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    return byte & 128 ? -x : x;
}

/* Numbers without their sign ascend with their bytes. */
static unsigned nearest_fp8(double x)
{
    unsigned low = 0, high = 126;
    while (high - low > 1)
        *(fp8_value((low + high) / 2) <= fabs(x) ? &low : &high) = (low + high) / 2;
    const double below = fabs(x) - fp8_value(low), above = fp8_value(high) - fabs(x);
    return (above < below ? high : low) | (x < 0 ? 128 : 0);
}

static float largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* --- one matrix ------------------------------------------------------------------------------- */

static void put_side(struct conversion *v, const struct matrix *m, const char *end, const char *dtype,
                     size_t rows, size_t cols, const void *data, size_t bytes)
{
    char name[160], shape[64];
    snprintf(name, sizeof name, "%s%s", m->name, end);
    snprintf(shape, sizeof shape, "%zu,%zu", rows, cols);
    tensor_file_put(&v->packed, name, dtype, shape, data, bytes);
}

static void put_bits(uint32_t *words, size_t at, size_t bits, uint32_t q)
{
    words[at * bits / 32] |= q << at * bits % 32;
}

/* What the group at `from` becomes: numbers without sign around a zero. */
static void round_group(struct conversion *v, float *from, size_t n, uint32_t *q, uint32_t *zero, char *side)
{
    const struct compressed_how *how = &v->how;
    const int middle = 1 << (how->bits - 1), most = 2 * middle - 1;
    float low = 0, high = 0;
    for (size_t i = 0; i < n; i++) {
        low = fminf(low, from[i]);
        high = fmaxf(high, from[i]);
    }
    const float wanted = how->zeros ? (high - low) / (float)most : largest(from, n) / (float)(middle - 1);
    const float scale = to_side(fmaxf(wanted, 1e-6f), how->side, side);
    *zero = how->zeros ? (uint32_t)fminf(roundf(-low / scale), (float)most) : (uint32_t)middle;
    for (size_t i = 0; i < n; i++) {
        const double level = round((double)from[i] / (double)scale) + *zero;
        q[i] = (uint32_t)(level < 0 ? 0 : level > most ? most : level);
        from[i] = (float)(((double)q[i] - *zero) * (double)scale);
    }
}

static void put_whole(struct conversion *v, struct matrix *m)
{
    const struct compressed_how *how = &v->how;
    const bool packed = !strcmp(how->format, "pack-quantized");
    const size_t n = m->rows * m->cols, per = 32 / how->bits, size = dtype_size(how->side),
                 zero_rows = (m->rows + per - 1) / per;
    uint32_t *q = calloc(n, sizeof *q), *words = calloc(n / per + 1, sizeof *words),
             *zeros = calloc(zero_rows * m->scales, sizeof *zeros);
    char *sides = calloc(m->rows * m->scales, size);
    assert_true(q && words && zeros && sides);
    for (size_t g = 0; g < m->rows * m->scales; g++) {
        uint32_t zero;
        round_group(v, m->w + g * m->wide, m->wide, q + g * m->wide, &zero, sides + g * size);
        const size_t row = g / m->scales, at = row / per * m->scales + g % m->scales;
        zeros[at] |= zero << row % per * how->bits;
    }
    for (size_t i = 0; i < n; i++)
        if (packed)
            put_bits(words, i, how->bits, q[i]);
        else
            ((int8_t *)words)[i] = (int8_t)((int)q[i] - 128);
    if (packed) {
        const int64_t shape[2] = {(int64_t)m->rows, (int64_t)m->cols};
        char name[160];
        put_side(v, m, "_packed", "I32", m->rows, m->cols / per, words, n / per * sizeof *words);
        snprintf(name, sizeof name, "%s_shape", m->name);
        tensor_file_put(&v->packed, name, "I64", "2", shape, sizeof shape);
    } else {
        put_side(v, m, "", "I8", m->rows, m->cols, words, n);
    }
    put_side(v, m, "_scale", dtype_name(how->side), m->rows, m->scales, sides, m->rows * m->scales * size);
    if (how->zeros)
        put_side(v, m, "_zero_point", "I32", zero_rows, m->scales, zeros,
                 zero_rows * m->scales * sizeof *zeros);
    free(q), free(words), free(zeros), free(sides);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What shares a scale: `rows` rows from `row` on, of columns likewise. */
struct part {
    size_t row, col, rows, cols;
};

static void round_fp8(const struct matrix *m, struct part p, unsigned char *bytes, enum dtype type,
                      char *side)
{
    float most = 0;
    for (size_t r = p.row; r < p.row + p.rows; r++)
        most = fmaxf(most, largest(m->w + r * m->cols + p.col, p.cols));
    const float scale = to_side(most / 448, type, side);
    for (size_t r = p.row; r < p.row + p.rows; r++)
        for (size_t k = r * m->cols + p.col; k < r * m->cols + p.col + p.cols; k++) {
            bytes[k] = (unsigned char)nearest_fp8((double)m->w[k] / (double)scale);
            m->w[k] = (float)(fp8_value(bytes[k]) * (double)scale);
        }
}

static void put_fp8(struct conversion *v, struct matrix *m)
{
    enum { BLOCK = 128 };
    const struct compressed_how *how = &v->how;
    const size_t n = m->rows * m->cols, size = dtype_size(how->side),
                 high = how->tensor   ? m->rows
                        : how->blocks ? BLOCK
                                      : 1,
                 wide = how->blocks ? BLOCK : m->cols, down = (m->rows + high - 1) / high,
                 across = (m->cols + wide - 1) / wide;
    unsigned char *bytes = calloc(n, 1);
    char *sides = calloc(down * across, size), *side = sides;
    assert_true(bytes && sides);
    for (size_t r = 0; r < m->rows; r += high)
        for (size_t c = 0; c < m->cols; c += wide, side += size)
            round_fp8(m, (struct part){r, c, least(high, m->rows - r), least(wide, m->cols - c)}, bytes,
                      how->side, side);
    put_side(v, m, "", "F8_E4M3", m->rows, m->cols, bytes, n);
    if (how->tensor) {
        char name[160];
        snprintf(name, sizeof name, "%s_scale", m->name);
        tensor_file_put(&v->packed, name, dtype_name(how->side), "1", sides, size);
    } else {
        put_side(v, m, "_scale", dtype_name(how->side), down, across, sides, down * across * size);
    }
    free(bytes), free(sides);
}

static void put_fp4(struct conversion *v, struct matrix *m)
{
    static const float levels[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    enum { GROUP = 32 };
    const size_t n = m->rows * m->cols;
    unsigned char *bytes = calloc(n / 2, 1), *powers = calloc(n / GROUP, 1);
    assert_true(bytes && powers);
    for (size_t i = 0; i < n; i++) {
        if (i % GROUP == 0)
            powers[i / GROUP] = (unsigned char)(ilogbf(largest(m->w + i, GROUP)) - 2 + 127);
        const float unit = ldexpf(1, powers[i / GROUP] - 127), x = fabsf(m->w[i]) / unit;
        unsigned best = 0;
        for (unsigned q = 1; q < 8; q++)
            if (fabsf(x - levels[q]) < fabsf(x - levels[best]))
                best = q;
        bytes[i / 2] |= (unsigned char)((best | (m->w[i] < 0 ? 8 : 0)) << i % 2 * 4);
        m->w[i] = copysignf(levels[best] * unit, m->w[i]);
    }
    put_side(v, m, "_packed", "U8", m->rows, m->cols / 2, bytes, n / 2);
    put_side(v, m, "_scale", "U8", m->rows, m->cols / GROUP, powers, n / GROUP);
    free(bytes), free(powers);
}

/* --- all of them ------------------------------------------------------------------------------ */

static bool is_quantized(const struct conversion *v, const struct tensor_def *def)
{
    return def->linear && !strstr(def->name, "lm_head") && !strstr(def->name, "mlp.gate.") &&
           !(v->how.left && !regexec(&v->left, def->name, 0, NULL, 0));
}

static void put_others(struct conversion *v, const struct tensor_def *def, const char *shape, float *w,
                       size_t n)
{
    const enum dtype type = def->fixed && !def->cols ? DTYPE_F32 : v->how.side; /* as released models do */
    const size_t size = dtype_size(type);
    char *bytes = calloc(n, size);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        w[i] = to_side(w[i], type, bytes + i * size);
    tensor_file_put(&v->packed, def->name, dtype_name(type), shape, bytes, n * size);
    free(bytes);
}

static int convert_one(void *arg, const struct tensor_def *def)
{
    struct conversion *v = arg;
    const struct st_tensor *t = st_find(v->from, def->name);
    const size_t n = def->rows * (def->cols ? def->cols : 1), wide = v->how.wide ? v->how.wide : def->cols;
    char shape[64];
    float *w = calloc(n, sizeof *w);
    assert_true(t && t->dtype == DTYPE_F32 && w);
    memcpy(w, t->data, n * sizeof *w);
    snprintf(shape, sizeof shape, def->cols ? "%zu,%zu" : "%zu", def->rows, def->cols);
    if (is_quantized(v, def)) {
        struct matrix m = {def->name, w, def->rows, def->cols, wide, def->cols / wide};
        assert_int_equal(def->cols % wide, 0);
        (!strcmp(v->how.format, "float-quantized")        ? put_fp8
         : !strcmp(v->how.format, "mxfp4-pack-quantized") ? put_fp4
                                                          : put_whole)(v, &m);
    } else {
        put_others(v, def, shape, w, n);
    }
    tensor_file_put(&v->plain, def->name, "F32", shape, w, n * sizeof *w);
    free(w);
    return 0;
}

void compressed_convert(const char *plain, const char *dir, const struct config *c, struct compressed_how how)
{
    struct err err;
    char path[512];
    struct conversion v = {.how = how};
    snprintf(path, sizeof path, "%s/model.safetensors", plain);
    assert_true(!how.left || !regcomp(&v.left, how.left, REG_EXTENDED | REG_NOSUB));
    must(st_open_file(&v.from, path, &err), &err);
    tensor_file_begin(&v.plain);
    tensor_file_begin(&v.packed);
    for (size_t u = 0; u < c->layers + 2; u++)
        family_tensors(family_find(c->family), c, u, convert_one, &v);
    st_close(v.from);
    if (how.left)
        regfree(&v.left);
    tensor_file_end(&v.plain, plain);
    tensor_file_end(&v.packed, dir);
}

void compressed_config(char *ret, size_t size, struct compressed_how how)
{
    const bool is_float = strstr(how.format, "float") || strstr(how.format, "fp4");
    char group[64] = "", left[64] = "";
    if (how.wide)
        snprintf(group, sizeof group, ",\"group_size\":%zu", how.wide);
    if (how.blocks)
        snprintf(group, sizeof group, ",\"block_structure\":[128,128]");
    if (how.left)
        snprintf(left, sizeof left, ",\"re:.*\\\\.%s$\"", how.left);
    snprintf(ret, size,
             ",\"torch_dtype\":\"%s\",\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
             "\"format\":\"%s\",\"quantization_status\":\"compressed\",\"config_groups\":{\"group_0\":{"
             "\"targets\":[\"Linear\"],\"input_activations\":null,\"weights\":{\"num_bits\":%zu,"
             "\"type\":\"%s\",\"symmetric\":%s,\"strategy\":\"%s\"%s,\"actorder\":null}}},"
             "\"ignore\":[\"lm_head\",\"re:.*mlp\\\\.gate$\"%s]}",
             how.side == DTYPE_F16   ? "float16"
             : how.side == DTYPE_F32 ? "float32"
                                     : "bfloat16",
             how.format, how.bits, is_float ? "float" : "int", how.zeros ? "false" : "true",
             how.tensor   ? "tensor"
             : how.blocks ? "block"
             : how.wide   ? "group"
                          : "channel",
             group, left);
}
