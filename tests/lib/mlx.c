/* SPDX-License-Identifier: MIT */
#include "tests/lib/mlx.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file/st.h"
#include "model/family.h"
#include "tests/lib/near.h"
#include "tests/lib/tensor_file.h"

enum { NAME = 128 };

/* What is under way: each matrix goes to both files. */
struct conversion {
    const struct config *c;
    struct mlx_how how;
    struct st *from;
    struct tensor_file plain, mlx;
};

/* --- one matrix ------------------------------------------------------------------------------- */

struct packed {
    unsigned char *words;   /* [bytes] */
    uint16_t *scale, *bias; /* [groups]; */
    uint8_t *power;         /* of MXFP4 these */
    size_t bytes, groups;
};

/* Rounds to what the type of the sides holds; ret_bits is how it is stored. Only ordinary
 * magnitudes come here. */
static float to_side(float x, bool half, uint16_t *ret_bits)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= half ? 0xffffe000u : 0xffff0000u;
    *ret_bits =
        half
            ? (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 255u) - 112u) << 10) | (bits >> 13 & 1023u))
            : (uint16_t)(bits >> 16);
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static void put_level(struct packed *p, size_t i, size_t bits, unsigned q)
{
    for (size_t b = i * bits; b < (i + 1) * bits; b++, q >>= 1)
        p->words[b / 8] |= (unsigned char)((q & 1) << b % 8);
}

/* As below: the nearest of what a group's power of two has. */
static void pack_fp4(struct packed *p, float *w, size_t rows, size_t cols)
{
    static const float levels[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    enum { GROUP = 32 };
    *p = (struct packed){.bytes = rows * cols / 2, .groups = rows * cols / GROUP};
    assert_true(cols % GROUP == 0);
    p->words = calloc(p->bytes, 1);
    p->power = calloc(p->groups, 1);
    assert_true(p->words && p->power);
    for (size_t g = 0; g < p->groups; g++) {
        float most = 0;
        for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++)
            most = fmaxf(most, fabsf(w[i]));
        const int power = ilogbf(most) - 2;
        p->power[g] = (uint8_t)(power + 127);
        for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++) {
            unsigned best = 0;
            for (unsigned q = 1; q < 8; q++)
                if (fabsf(fabsf(w[i]) - ldexpf(levels[q], power)) <
                    fabsf(fabsf(w[i]) - ldexpf(levels[best], power)))
                    best = q;
            put_level(p, i, 4, best | (w[i] < 0 ? 8 : 0));
            w[i] = copysignf(ldexpf(levels[best], power), w[i]);
        }
    }
}

/* w becomes what its levels stand for. */
static void pack(struct packed *p, float *w, size_t rows, size_t cols, size_t bits, size_t group, bool half)
{
    const unsigned most = (1u << bits) - 1;
    *p = (struct packed){.bytes = rows * cols * bits / 8, .groups = rows * cols / group};
    assert_true(cols % group == 0);
    p->words = calloc(p->bytes, 1);
    p->scale = calloc(p->groups, sizeof *p->scale);
    p->bias = calloc(p->groups, sizeof *p->bias);
    assert_true(p->words && p->scale && p->bias);
    for (size_t g = 0; g < p->groups; g++) {
        float low = w[g * group], high = low;
        for (size_t i = g * group; i < (g + 1) * group; i++) {
            low = fminf(low, w[i]);
            high = fmaxf(high, w[i]);
        }
        const float bias = to_side(low, half, &p->bias[g]),
                    scale = to_side((high - low) / (float)most, half, &p->scale[g]);
        for (size_t i = g * group; i < (g + 1) * group; i++) {
            const double level = round(((double)w[i] - (double)bias) / (double)scale);
            const unsigned q = level < 0 ? 0 : level > most ? most : (unsigned)level;
            put_level(p, i, bits, q);
            w[i] = (float)((double)q * (double)scale + (double)bias);
        }
    }
}

static void packed_done(struct packed *p)
{
    free(p->words);
    free(p->scale);
    free(p->bias);
    free(p->power);
}

/* --- names and stacks ------------------------------------------------------------------------- */

static bool is_expert(const char *name, size_t *ret_expert)
{
    const char *at = strstr(name, ".experts.");
    return at && sscanf(at, ".experts.%zu.", ret_expert) == 1;
}

static void mlx_name(char ret[NAME], const char *name, const char *last)
{
    const char *at = strstr(name, ".experts.");
    const size_t stem = strlen(name) - strlen(".weight");
    if (!at) {
        snprintf(ret, NAME, "%.*s.%s", (int)stem, name, last);
        return;
    }
    const char *linear = strchr(at + strlen(".experts."), '.') + 1;
    snprintf(ret, NAME, "%.*s.switch_mlp.%.*s.%s", (int)(at - name), name, (int)(name + stem - linear),
             linear, last);
}

static size_t bits_of(const struct conversion *v, const struct tensor_def *def)
{
    if (!def->cols)
        return 0;
    if (!def->linear && strstr(def->name, "mlp.gate."))
        return v->how.overrides ? 8 : 0;
    if (v->how.overrides && strstr(def->name, "embed_tokens"))
        return 0;
    return v->how.overrides && (strstr(def->name, "o_proj") || strstr(def->name, "layers.0.mlp.down_proj"))
               ? 8
               : v->how.bits;
}

/* `n` experts' matrices of one kind as one stack; 1: a matrix. */
static void put_packed(struct conversion *v, const struct tensor_def *def, float *w, size_t n)
{
    char name[NAME], shape[64], lead[24] = "";
    const size_t bits = bits_of(v, def), group = v->how.group;
    const char *side = v->how.half ? "F16" : "BF16";
    struct packed p;
    if (n > 1)
        snprintf(lead, sizeof lead, "%zu,", n);
    if (v->how.fp4)
        pack_fp4(&p, w, n * def->rows, def->cols);
    else
        pack(&p, w, n * def->rows, def->cols, bits, group, v->how.half);
    snprintf(shape, sizeof shape, "%s%zu,%zu", lead, def->rows, def->cols * bits / 32);
    mlx_name(name, def->name, "weight");
    tensor_file_put(&v->mlx, name, "U32", shape, p.words, p.bytes);
    snprintf(shape, sizeof shape, "%s%zu,%zu", lead, def->rows, def->cols / group);
    mlx_name(name, def->name, "scales");
    if (v->how.fp4) {
        tensor_file_put(&v->mlx, name, "U8", shape, p.power, p.groups);
    } else {
        tensor_file_put(&v->mlx, name, side, shape, p.scale, p.groups * 2);
        mlx_name(name, def->name, "biases");
        tensor_file_put(&v->mlx, name, side, shape, p.bias, p.groups * 2);
    }
    packed_done(&p);
}

/* The same as they are. */
static void put_plain(struct conversion *v, const struct tensor_def *def, float *w, size_t n)
{
    char name[NAME], shape[64];
    mlx_name(name, def->name, "weight");
    snprintf(shape, sizeof shape, "%zu,%zu,%zu", n, def->rows, def->cols);
    tensor_file_put(&v->mlx, name, "F32", shape, w, n * def->rows * def->cols * sizeof *w);
}

static const float *values_of(const struct conversion *v, const char *name)
{
    const struct st_tensor *t = st_find(v->from, name);
    assert_non_null(t);
    assert_int_equal(t->dtype, DTYPE_F32);
    return t->data;
}

/* All experts' matrices of the kind that the first one's `def` shows. */
static void convert_stack(struct conversion *v, const struct tensor_def *def)
{
    const size_t n = def->rows * def->cols, experts = v->c->moe.experts;
    const char *at = strstr(def->name, ".experts.0.");
    float *w = calloc(experts * n, sizeof *w);
    assert_non_null(w);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t e = 0; e < experts; e++) {
            char name[NAME], shape[64];
            snprintf(name, sizeof name, "%.*s.experts.%zu.%s", (int)(at - def->name), def->name, e,
                     at + strlen(".experts.0."));
            snprintf(shape, sizeof shape, "%zu,%zu", def->rows, def->cols);
            if (pass == 0)
                memcpy(w + e * n, values_of(v, name), n * sizeof *w);
            else
                tensor_file_put(&v->plain, name, "F32", shape, w + e * n, n * sizeof *w);
        }
        if (pass == 0)
            (bits_of(v, def) ? put_packed : put_plain)(v, def, w, experts);
    }
    free(w);
}

static int convert_one(void *arg, const struct tensor_def *def)
{
    struct conversion *v = arg;
    const size_t n = def->rows * (def->cols ? def->cols : 1);
    char shape[64];
    size_t expert;
    if (is_expert(def->name, &expert)) {
        if (expert == 0)
            convert_stack(v, def);
        return 0;
    }
    float *w = calloc(n, sizeof *w);
    assert_non_null(w);
    memcpy(w, values_of(v, def->name), n * sizeof *w);
    snprintf(shape, sizeof shape, def->cols ? "%zu,%zu" : "%zu", def->rows, def->cols);
    if (bits_of(v, def))
        put_packed(v, def, w, 1);
    else
        tensor_file_put(&v->mlx, def->name, "F32", shape, w, n * sizeof *w);
    tensor_file_put(&v->plain, def->name, "F32", shape, w, n * sizeof *w);
    free(w);
    return 0;
}

void mlx_convert(const char *plain, const char *dir, const struct config *c, struct mlx_how how)
{
    struct err err;
    char path[512];
    struct conversion v = {.c = c, .how = how};
    snprintf(path, sizeof path, "%s/model.safetensors", plain);
    must(st_open_file(&v.from, path, &err), &err);
    tensor_file_begin(&v.plain);
    tensor_file_begin(&v.mlx);
    for (size_t u = 0; u < c->layers + 2; u++)
        family_tensors(family_find(c->family), c, u, convert_one, &v);
    st_close(v.from);
    tensor_file_end(&v.plain, plain);
    tensor_file_end(&v.mlx, dir);
}
