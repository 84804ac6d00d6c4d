/* SPDX-License-Identifier: MIT
 *
 * Which of two tables of tiles is the faster one on this CPU, for an instruction may be there and
 * be slow: vdpbf16ps makes 1.9 times the products of f32 on some CPUs, and half of them on others.
 * Any thread. */
#ifndef NUM_FASTER_H
#define NUM_FASTER_H

#include <stdbool.h>

#include "num/packed.h"

/* Times both, in less than a millisecond. room: FASTER_FLOATS, aligned to 64 bytes; overwritten. */
enum { FASTER_FLOATS = 1 << 15 };
bool faster_than(const struct packed_kernels *a, const struct packed_kernels *b, float *room);

#endif
