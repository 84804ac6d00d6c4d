/* SPDX-License-Identifier: MIT
 *
 * The sum of checksum.h: a multiplicative hash, a word at a time. */
#include "file/checksum.h"

#include <string.h>

/* Every step is one-to-one in the sum and in the word, so two runs that differ in one word never
 * meet again. */
uint64_t checksum_words(uint64_t sum, const void *data, size_t n)
{
    const char *at = data;
    for (size_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, at + i * sizeof word, sizeof word);
        sum = (sum ^ word) * 0xff51afd7ed558ccdu;
        sum ^= sum >> 32;
    }
    return sum;
}
