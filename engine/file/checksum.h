/* SPDX-License-Identifier: MIT
 *
 * A sum over words by which a damaged file is found: no protection against an enemy. Pure, any
 * thread. */
#ifndef FILE_CHECKSUM_H
#define FILE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define CHECKSUM_START 0x9e3779b97f4a7c15u

/* The sum that goes on from `sum` over n words of 32 bits (little-endian, any alignment). Words may
 * come in pieces: only their order counts. A change within one word always changes the sum. */
uint64_t checksum_words(uint64_t sum, const void *data, size_t n);

#endif
