/* SPDX-License-Identifier: MIT */
#include "num/zero_blocks.h"

#include <stdint.h>
#include <string.h>

static size_t blocks_of(size_t n)
{
    return (n + ZERO_BLOCK - 1) / ZERO_BLOCK;
}

static size_t bits_bytes(size_t n)
{
    return blocks_of(n) / 8 + 1;
}

static size_t values_in(size_t n, size_t block)
{
    const size_t left = n - block * ZERO_BLOCK;
    return left < ZERO_BLOCK ? left : ZERO_BLOCK;
}

static bool is_set(const uint8_t *bits, size_t block)
{
    return bits[block / 8] >> block % 8 & 1;
}

size_t zero_blocks_bytes(size_t n)
{
    return n * sizeof(float) + bits_bytes(n);
}

/* The first value says it of nearly every block that stays. */
static bool is_zero(const float *values, size_t n)
{
    uint32_t any, one;
    memcpy(&any, values, sizeof any);
    for (size_t i = 1; i < n && !any; i++) {
        memcpy(&one, values + i, sizeof one);
        any |= one;
    }
    return !any;
}

/* The bits are made behind the values, where nothing that stays can reach them. */
size_t zero_blocks_pack(float *values, size_t n)
{
    uint8_t *bits = (uint8_t *)(values + n);
    size_t kept = 0;
    memset(bits, 0, bits_bytes(n));
    for (size_t b = 0; b < blocks_of(n); b++) {
        const size_t many = values_in(n, b);
        const float *from = values + b * ZERO_BLOCK;
        if (is_zero(from, many))
            continue;
        if (values + kept != from)
            memmove(values + kept, from, many * sizeof *values);
        bits[b / 8] |= (uint8_t)(1u << b % 8);
        kept += many;
    }
    memmove(values + kept, bits, bits_bytes(n));
    return kept * sizeof *values + bits_bytes(n);
}

/* From the last block on: none is written over before it has moved. */
bool zero_blocks_unpack(float *message, size_t n, size_t bytes)
{
    uint8_t *bits = (uint8_t *)(message + n);
    size_t kept = 0;
    if (bytes < bits_bytes(n) || bytes > zero_blocks_bytes(n))
        return false;
    memmove(bits, (const uint8_t *)message + bytes - bits_bytes(n), bits_bytes(n));
    for (size_t b = 0; b < blocks_of(n); b++)
        kept += is_set(bits, b) ? values_in(n, b) : 0;
    if (kept * sizeof *message + bits_bytes(n) != bytes)
        return false;
    for (size_t b = blocks_of(n); b-- > 0 && kept < n;) {
        const size_t many = values_in(n, b);
        float *to = message + b * ZERO_BLOCK;
        if (is_set(bits, b))
            kept -= many;
        if (!is_set(bits, b))
            memset(to, 0, many * sizeof *to);
        else if (message + kept != to)
            memmove(to, message + kept, many * sizeof *to);
    }
    return true;
}
