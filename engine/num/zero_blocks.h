/* SPDX-License-Identifier: MIT
 *
 * Values as they travel without their zeros: blocks whose bits are all zero are left out, and one
 * bit for each block says so. Of the gradient of an embedding most rows are zero, and so is all
 * that an expert gets that no token chose. −0 is no such zero, so every bit comes back. A message
 * is the blocks that stay, one after the other, and behind them the bits: of block i bit i % 8 of
 * byte i / 8, a set bit for a block that stays. Works in place, in the caller's memory. PURE. */
#ifndef NUM_ZERO_BLOCKS_H
#define NUM_ZERO_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

enum { ZERO_BLOCK = 64 }; /* values of a block; the last one may have fewer */

/* Bytes of memory for n values and their bits: also the longest message, which is never empty. */
size_t zero_blocks_bytes(size_t n);
/* values: [n], in memory of zero_blocks_bytes(n). Makes the message of them; returns its bytes. */
size_t zero_blocks_pack(float *values, size_t n);
/* message: `bytes` of it, in memory of zero_blocks_bytes(n). Makes the n values again. false: so
 * many bytes are no message of n values. */
bool zero_blocks_unpack(float *message, size_t n, size_t bytes);

#endif
