/* SPDX-License-Identifier: MIT
 *
 * See row8.h. Portable C, compiled once: all CPUs store the same bytes. Groups have a fixed length
 * here, because at -O2 compilers make vectors of such loops only. Any thread, no state. */
#include "num/row8.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "num/bits.h"
#include "num/dtype.h"

/* The largest magnitude; what is not finite is larger than all that is. */
static float most_of(const float x[ROW8_GROUP])
{
    uint32_t most = 0;
    for (int i = 0; i < ROW8_GROUP; i++) {
        const uint32_t magnitude = bits_of(x[i]) & 0x7fffffffu;
        most = magnitude > most ? magnitude : most;
    }
    return float_of(most);
}

static void group_from_f32(uint8_t q[ROW8_GROUP], uint16_t *scale, const float x[ROW8_GROUP])
{
    const float most = most_of(x), magic = 0x1.8p23f; /* adding it leaves a whole number in the lowest bits */
    const bool is_usual = most >= 1e-30f && most <= FLT_MAX;
    float step = is_usual ? most / ROW8_TOP : most < 1e-30f ? 0 : NAN;
    dtype_from_f32(scale, &step, DTYPE_BF16, 1);
    if (!is_usual) {
        memset(q, 0, ROW8_GROUP);
        return;
    }
    dtype_to_f32(&step, scale, DTYPE_BF16, 1);
    for (int i = 0; i < ROW8_GROUP; i++)
        q[i] = (uint8_t)bits_of(x[i] / step + magic);
}

void row8_from_f32(void *row, const float *x, size_t n)
{
    uint8_t *q = row, *scales = q + n;
    for (size_t at = 0; at < n; at += ROW8_GROUP, scales += sizeof(uint16_t)) {
        const size_t now = n - at < ROW8_GROUP ? n - at : ROW8_GROUP;
        float in[ROW8_GROUP] = {0};
        uint8_t out[ROW8_GROUP];
        uint16_t scale;
        memcpy(in, x + at, now * sizeof *x);
        group_from_f32(out, &scale, in);
        memcpy(q + at, out, now);
        memcpy(scales, &scale, sizeof scale);
    }
}
