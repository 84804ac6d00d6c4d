/* SPDX-License-Identifier: MIT
 *
 * Every table of kernels that this CPU can run, not only the one that is chosen: a test of them all
 * says more where a CPU has more. */
#ifndef TESTS_ISAS_H
#define TESTS_ISAS_H

#include "num/integer.h"
#include "num/kernels.h"
#include "num/packed.h"

enum { ISAS_MOST = 5 };

/* Returns how many; plain C's is the first, the chosen one the last. */
size_t isas_kernels(const struct kernels *all[ISAS_MOST]);
size_t isas_integers(const struct int_kernels *all[ISAS_MOST]);
size_t isas_tiles(const struct int_tiles *all[ISAS_MOST]);
/* The chosen one is the last; none where OpenBLAS multiplies. */
size_t isas_packed(const struct packed_kernels *all[ISAS_MOST]);
/* Of bytes; plain C's is the first, the chosen one the last. */
size_t isas_bytes(const struct packed_kernels *all[ISAS_MOST]);

#endif
