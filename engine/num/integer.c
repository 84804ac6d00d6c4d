/* SPDX-License-Identifier: MIT
 *
 * The kernels of integer.h, in GCC's vector extensions: x in whole numbers in integer_x.h, those of
 * few rows in integer_few.h and integer_block.h. Compiled once per instruction set with
 * -DINTEGERS=int_kernels_X and without contraction. Any thread, no state. */
#include "num/integer.h"

#include "num/integer_block.h"
#include "num/integer_few.h"
#include "num/integer_isa.h"
#include "num/integer_simd.h"
#include "num/integer_x.h"

extern const struct int_kernels INTEGERS;
const struct int_kernels INTEGERS = {
    .isa = INTEGER_ISA,
    .fours = FOURS,
    .quantize = quantize,
    .dots = dots,
    .block_quantize = block_quantize,
    .block_dots = block_dots,
};
