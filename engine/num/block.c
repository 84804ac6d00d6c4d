/* SPDX-License-Identifier: MIT
 *
 * Names of blocks. Any thread, no state. */
#include "num/block.h"

static const char *const names[BLOCK_COUNT] = {
    [BLOCK_Q4_0] = "Q4_0",   [BLOCK_Q4_1] = "Q4_1", [BLOCK_Q5_0] = "Q5_0",     [BLOCK_Q5_1] = "Q5_1",
    [BLOCK_Q8_0] = "Q8_0",   [BLOCK_Q2_K] = "Q2_K", [BLOCK_Q3_K] = "Q3_K",     [BLOCK_Q4_K] = "Q4_K",
    [BLOCK_Q5_K] = "Q5_K",   [BLOCK_Q6_K] = "Q6_K", [BLOCK_IQ4_NL] = "IQ4_NL", [BLOCK_IQ4_XS] = "IQ4_XS",
    [BLOCK_MXFP4] = "MXFP4",
};

const char *block_name(enum block_type type)
{
    return names[type];
}
