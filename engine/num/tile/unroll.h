/* SPDX-License-Identifier: MIT
 *
 * Before a loop of at most sixteen rounds, which is to be unrolled. */
#ifndef NUM_UNROLL_H
#define NUM_UNROLL_H

#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
