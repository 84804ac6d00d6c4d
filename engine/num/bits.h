/* SPDX-License-Identifier: MIT
 *
 * The bits of a float and back. */
#ifndef NUM_BITS_H
#define NUM_BITS_H

#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Half of an E8M0, 2^(e − 128): right at both ends of what f32 has, as all of it is not. Times the
 * doubled numbers of MXFP4, which are whole. */
static inline float half_e8m0(uint8_t e)
{
    return float_of(e < 2 ? UINT32_C(0x200000) << e : (uint32_t)(e - 1) << 23);
}

#endif
