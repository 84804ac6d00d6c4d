/* SPDX-License-Identifier: MIT */
#include "tests/lib/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ALIGN = 32, REAL = 6, FLAG = 7, TEXT = 8, ARRAY = 9, WHOLE = 4, SIGNED = 5 };

/* --- the container ---------------------------------------------------------------------------- */

static void put(FILE *f, const void *data, size_t n)
{
    assert_int_equal(fwrite(data, 1, n, f), n);
}

static void put_u32(FILE *f, uint32_t x)
{
    put(f, &x, sizeof x);
}

static void put_u64(FILE *f, uint64_t x)
{
    put(f, &x, sizeof x);
}

static void put_string(FILE *f, const char *text)
{
    put_u64(f, strlen(text));
    put(f, text, strlen(text));
}

void gguf_begin(struct gguf_out *o)
{
    *o = (struct gguf_out){.nkeys = 0};
    o->keys = open_memstream(&o->text[0], &o->n[0]);
    o->infos = open_memstream(&o->text[1], &o->n[1]);
    o->data = open_memstream(&o->text[2], &o->n[2]);
    assert_true(o->keys && o->infos && o->data);
}

static void put_key(struct gguf_out *o, const char *key, uint32_t type)
{
    put_string(o->keys, key);
    put_u32(o->keys, type);
    o->nkeys++;
}

void gguf_put_whole(struct gguf_out *o, const char *key, uint32_t value)
{
    put_key(o, key, WHOLE);
    put_u32(o->keys, value);
}

void gguf_put_real(struct gguf_out *o, const char *key, float value)
{
    put_key(o, key, REAL);
    put(o->keys, &value, sizeof value);
}

void gguf_put_flag(struct gguf_out *o, const char *key, bool value)
{
    put_key(o, key, FLAG);
    fputc(value, o->keys);
}

void gguf_put_text(struct gguf_out *o, const char *key, const char *value)
{
    put_key(o, key, TEXT);
    put_string(o->keys, value);
}

static void put_array(struct gguf_out *o, const char *key, uint32_t type, size_t n)
{
    put_key(o, key, ARRAY);
    put_u32(o->keys, type);
    put_u64(o->keys, n);
}

void gguf_put_texts(struct gguf_out *o, const char *key, const char *const *list, size_t n)
{
    put_array(o, key, TEXT, n);
    for (size_t i = 0; i < n; i++)
        put_string(o->keys, list[i]);
}

void gguf_put_wholes(struct gguf_out *o, const char *key, const int32_t *list, size_t n)
{
    put_array(o, key, SIGNED, n);
    put(o->keys, list, n * sizeof *list);
}

void gguf_put_reals(struct gguf_out *o, const char *key, const float *list, size_t n)
{
    put_array(o, key, REAL, n);
    put(o->keys, list, n * sizeof *list);
}

void gguf_put_flags(struct gguf_out *o, const char *key, const uint8_t *list, size_t n)
{
    put_array(o, key, FLAG, n);
    put(o->keys, list, n);
}

static void pad(FILE *f, size_t from)
{
    for (long at = ftell(f) + (long)from; at % ALIGN; at++)
        fputc(0, f);
}

void gguf_put_tensor(struct gguf_out *o, const char *name, unsigned type, size_t ndim, const size_t *extent,
                     const void *data, size_t bytes)
{
    put_string(o->infos, name);
    put_u32(o->infos, (uint32_t)ndim);
    for (size_t d = 0; d < ndim; d++)
        put_u64(o->infos, extent[d]);
    put_u32(o->infos, type);
    put_u64(o->infos, (uint64_t)ftell(o->data));
    put(o->data, data, bytes);
    pad(o->data, 0);
    o->ninfos++;
}

void gguf_end(struct gguf_out *o, const char *path)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fclose(o->keys) | fclose(o->infos) | fclose(o->data), 0);
    put(f, "GGUF", 4);
    put_u32(f, 3);
    put_u64(f, o->ninfos);
    put_u64(f, o->nkeys);
    put(f, o->text[0], o->n[0]);
    put(f, o->text[1], o->n[1]);
    pad(f, 0);
    put(f, o->text[2], o->n[2]);
    assert_int_equal(fclose(f), 0);
    for (size_t i = 0; i < 3; i++)
        free(o->text[i]);
}

unsigned gguf_number(enum block_type type)
{
    static const unsigned numbers[BLOCK_COUNT] = {
        [BLOCK_Q4_0] = 2,    [BLOCK_Q4_1] = 3,    [BLOCK_Q5_0] = 6,  [BLOCK_Q5_1] = 7,  [BLOCK_Q8_0] = 8,
        [BLOCK_Q2_K] = 10,   [BLOCK_Q3_K] = 11,   [BLOCK_Q4_K] = 12, [BLOCK_Q5_K] = 13, [BLOCK_Q6_K] = 14,
        [BLOCK_IQ4_NL] = 20, [BLOCK_IQ4_XS] = 23, [BLOCK_MXFP4] = 39};
    return numbers[type];
}

/* --- what blocks stand for -------------------------------------------------------------------- */

static float half(const uint8_t *b, size_t at)
{
    const unsigned bits = b[at] | (unsigned)b[at + 1] << 8, exponent = bits >> 10 & 31, part = bits & 1023;
    const double size = exponent ? ldexp(1 + part / 1024.0, (int)exponent - 15) : ldexp(part / 1024.0, -14);
    return (float)(bits >> 15 ? -size : size);
}

static int bits_at(unsigned byte, size_t shift, unsigned mask)
{
    return (int)(byte >> shift & mask);
}

static int nibble(const uint8_t *q, size_t i)
{
    return bits_at(q[i % 16], i < 16 ? 0 : 4, 15);
}

static int fifth(const uint8_t *h, size_t i)
{
    return bits_at(h[i / 8], i % 8, 1) << 4;
}

static float uneven(int level)
{
    static const float k[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return k[level];
}

static float fp4(int level)
{
    static const float k[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    return level < 8 ? k[level] : -k[level - 8];
}

static int two(const uint8_t *q, size_t i)
{
    return bits_at(q[32 * (i / 128) + i % 32], 2 * (i % 128 / 32), 3);
}

static float k_scaled(const uint8_t *b, const uint8_t *s, size_t i, int level)
{
    const size_t n = i / 32;
    const int sc = n < 4 ? s[n] & 63 : (s[n + 4] & 15) | s[n - 4] >> 6 << 4,
              mn = n < 4 ? s[n + 4] & 63 : s[n + 4] >> 4 | s[n] >> 6 << 4;
    return half(b, 0) * (float)(sc * level) - half(b, 2) * (float)mn;
}

static float q3(const uint8_t *b, size_t i)
{
    const uint8_t *s = b + 96;
    const size_t t = i / 16;
    const int sc = ((t < 8 ? s[t] & 15 : s[t - 8] >> 4) | bits_at(s[8 + t % 4], 2 * (t / 4), 3) << 4) - 32;
    return half(b, 108) * (float)(sc * (two(b + 32, i) - (b[i % 32] >> (i / 32) & 1 ? 0 : 4)));
}

static float q6(const uint8_t *b, size_t i)
{
    const size_t n = i / 128, t = i % 128 / 32, l = i % 32;
    const int v =
        bits_at(b[64 * n + 32 * (t & 1) + l], 4 * (t >> 1), 15) | bits_at(b[128 + 32 * n + l], 2 * t, 3) << 4;
    return half(b, 208) * (float)((int8_t)b[192 + i / 16] * (v - 32));
}

static float iq4_xs(const uint8_t *b, size_t i)
{
    const size_t s = i / 32;
    const int high = bits_at(b[2] | (unsigned)b[3] << 8, 2 * s, 3),
              scale = (bits_at(b[4 + s / 2], 4 * (s & 1), 15) | high << 4) - 32;
    return half(b, 0) * (float)scale * uneven(nibble(b + 8 + 16 * s, i % 32));
}

float gguf_block_value(enum block_type type, const uint8_t *b, size_t i)
{
    switch (type) {
    case BLOCK_Q4_0: return half(b, 0) * (float)(nibble(b + 2, i) - 8);
    case BLOCK_Q4_1: return half(b, 0) * (float)nibble(b + 4, i) + half(b, 2);
    case BLOCK_Q5_0: return half(b, 0) * (float)((nibble(b + 6, i) | fifth(b + 2, i)) - 16);
    case BLOCK_Q5_1: return half(b, 0) * (float)(nibble(b + 8, i) | fifth(b + 4, i)) + half(b, 2);
    case BLOCK_Q8_0: return half(b, 0) * (float)(int8_t)b[2 + i];
    case BLOCK_Q2_K:
        return half(b, 80) * (float)((b[i / 16] & 15) * two(b + 16, i)) -
               half(b, 82) * (float)(b[i / 16] >> 4);
    case BLOCK_Q3_K: return q3(b, i);
    case BLOCK_Q4_K:
        return k_scaled(b, b + 4, i, bits_at(b[16 + 32 * (i / 64) + i % 32], 4 * (i / 32 % 2), 15));
    case BLOCK_Q5_K:
        return k_scaled(b, b + 4, i,
                        bits_at(b[48 + 32 * (i / 64) + i % 32], 4 * (i / 32 % 2), 15) |
                            bits_at(b[16 + i % 32], i / 32, 1) << 4);
    case BLOCK_Q6_K: return q6(b, i);
    case BLOCK_IQ4_NL: return half(b, 0) * uneven(nibble(b + 2, i));
    case BLOCK_IQ4_XS: return iq4_xs(b, i);
    case BLOCK_MXFP4: return (float)ldexp((double)fp4(nibble(b + 1, i)), b[0] - 127);
    case BLOCK_NONE:
    case BLOCK_COUNT: break;
    }
    return 0;
}
