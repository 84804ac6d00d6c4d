/* SPDX-License-Identifier: MIT
 *
 * Element types as they are stored in model files, and their conversion to the f32 everything is
 * computed in.
 */
#ifndef NUM_DTYPE_H
#define NUM_DTYPE_H

#include <stddef.h>

/* F8_E4M3 (Micikevicius et al. 2022: no infinities) is only read, and in matrices goes with scales:
 * see struct mat. */
enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_COUNT };

size_t dtype_size(enum dtype type);      /* bytes of one element */
const char *dtype_name(enum dtype type); /* safetensors' spelling: "F32", "F16", "BF16", "F8_E4M3" */
int dtype_from_name(const char *name,
                    enum dtype *ret); /* accepts "BF16" and torch's "bfloat16"; −ENOTSUP if unknown */

/* n elements; neither buffer need be aligned beyond its element. from_f32 rounds to nearest even,
 * and is not for F8_E4M3. */
void dtype_to_f32(float *dst, const void *src, enum dtype type, size_t n);
void dtype_from_f32(void *dst, const float *src, enum dtype type, size_t n);

#endif
