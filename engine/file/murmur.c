/* SPDX-License-Identifier: MIT
 *
 * Owns the 128-bit hash behind config_fingerprint; pure, any thread. */
#include "file/murmur.h"

#include <string.h>

static const uint64_t c1 = 0x87c37b91114253d5u, c2 = 0x4cf5ad432745937fu;

static uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static uint64_t scramble_low(uint64_t k)
{
    return rotate(k * c1, 31) * c2;
}

static uint64_t scramble_high(uint64_t k)
{
    return rotate(k * c2, 33) * c1;
}

static uint64_t avalanche(uint64_t k)
{
    k = (k ^ k >> 33) * 0xff51afd7ed558ccdu;
    k = (k ^ k >> 33) * 0xc4ceb9fe1a85ec53u;
    return k ^ k >> 33;
}

void murmur128(uint64_t ret[2], const void *data, size_t n, uint32_t seed)
{
    const unsigned char *p = data;
    uint64_t low = seed, high = seed, k[2];
    size_t at = 0;
    for (; n - at >= sizeof k; at += sizeof k) {
        memcpy(k, p + at, sizeof k);
        low = (rotate(low ^ scramble_low(k[0]), 27) + high) * 5 + 0x52dce729u;
        high = (rotate(high ^ scramble_high(k[1]), 31) + low) * 5 + 0x38495ab5u;
    }
    if (n > at) {
        /* A tail padded with zeroes: scrambling 0 gives 0, so an absent half changes nothing. */
        memset(k, 0, sizeof k);
        memcpy(k, p + at, n - at);
        low ^= scramble_low(k[0]);
        high ^= scramble_high(k[1]);
    }
    low ^= n;
    high ^= n;
    low += high;
    high += low;
    low = avalanche(low);
    high = avalanche(high);
    ret[0] = low + high;
    ret[1] = high + ret[0];
}
