/* SPDX-License-Identifier: MIT
 *
 * test_gemm.c once more with OpenBLAS for all products with many rows, as on CPUs that have no
 * tiles of ours: whatever CPU the tests run on, both ways are tested there. The linker puts this
 * choice in place of the CPU's. */
#include "tests/unit/engine/num/test_gemm.c"

#include "num/packed.h"

const struct packed_kernels *__wrap_isa_pick_packed(void);

const struct packed_kernels *__wrap_isa_pick_packed(void)
{
    return NULL;
}
