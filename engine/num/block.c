/* SPDX-License-Identifier: MIT
 *
 * Names and sizes of blocks. Any thread, no state. */
#include "num/block.h"

enum { SMALL = 32, LARGE = 256 };

static const struct block_kind {
    const char *name;
    size_t values, bytes;
} kinds[BLOCK_COUNT] = {
    [BLOCK_Q4_0] = {"Q4_0", SMALL, 18},     [BLOCK_Q4_1] = {"Q4_1", SMALL, 20},
    [BLOCK_Q5_0] = {"Q5_0", SMALL, 22},     [BLOCK_Q5_1] = {"Q5_1", SMALL, 24},
    [BLOCK_Q8_0] = {"Q8_0", SMALL, 34},     [BLOCK_Q2_K] = {"Q2_K", LARGE, 84},
    [BLOCK_Q3_K] = {"Q3_K", LARGE, 110},    [BLOCK_Q4_K] = {"Q4_K", LARGE, 144},
    [BLOCK_Q5_K] = {"Q5_K", LARGE, 176},    [BLOCK_Q6_K] = {"Q6_K", LARGE, 210},
    [BLOCK_IQ4_NL] = {"IQ4_NL", SMALL, 18}, [BLOCK_IQ4_XS] = {"IQ4_XS", LARGE, 136},
    [BLOCK_MXFP4] = {"MXFP4", SMALL, 17},
};

const char *block_name(enum block_type type)
{
    return kinds[type].name;
}

size_t block_values(enum block_type type)
{
    return kinds[type].values;
}

size_t block_bytes(enum block_type type)
{
    return kinds[type].bytes;
}
