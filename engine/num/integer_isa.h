/* SPDX-License-Identifier: MIT
 *
 * What the instruction set of this compilation multiplies bytes with. Included by integer.c,
 * integer_tiles.c and packed_bytes.c only. */
#ifndef NUM_INTEGER_ISA_H
#define NUM_INTEGER_ISA_H

#if defined __AMX_INT8__
#define INTEGER_ISA "amx"
#elif defined __AVX512VNNI__
#define INTEGER_ISA "vnni"
#elif defined __AVXVNNI__
#define INTEGER_ISA "avxvnni"
#elif defined __AVX2__
#define INTEGER_ISA "avx2"
#elif defined __aarch64__
#define INTEGER_ISA "neon"
#else
#define INTEGER_ISA "base"
#endif

#endif
