/* SPDX-License-Identifier: MIT
 *
 * MurmurHash3 x64 128 (Appleby, github.com/aappleby/smhasher): tells layouts apart, no protection
 * against an enemy. */
#ifndef FILE_MURMUR_H
#define FILE_MURMUR_H

#include <stddef.h>
#include <stdint.h>

void murmur128(uint64_t ret[2], const void *data, size_t n, uint32_t seed);

#endif
