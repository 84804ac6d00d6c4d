/* SPDX-License-Identifier: MIT
 *
 * Bounded little-endian cursors over memory owned by the caller. The first step out of bounds makes
 * a cursor bad for good: read or write ten fields, check once. A bad reader returns zeros. */
#ifndef NET_BUF_H
#define NET_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf_in {
    const uint8_t *at; /* borrowed */
    size_t left;
    bool bad;
};
void buf_in_init(struct buf_in *in, const void *data, size_t n);
uint64_t buf_in_uint(struct buf_in *in, size_t bytes); /* 1, 2, 4 or 8 */
uint8_t buf_in_u8(struct buf_in *in);
uint16_t buf_in_u16(struct buf_in *in);
uint32_t buf_in_u32(struct buf_in *in);
uint64_t buf_in_u64(struct buf_in *in);
/* A view of the next n bytes, NULL when there are fewer. */
const uint8_t *buf_in_view(struct buf_in *in, size_t n);
void buf_in_bytes(struct buf_in *in, void *ret, size_t n);
/* Everything was there and nothing is left over. */
bool buf_in_is_done(const struct buf_in *in);

struct buf_out {
    uint8_t *start; /* borrowed */
    size_t used, cap;
    bool bad;
};
void buf_out_init(struct buf_out *out, void *data, size_t cap);
void buf_out_uint(struct buf_out *out, uint64_t v, size_t bytes); /* 1, 2, 4 or 8 */
void buf_out_u8(struct buf_out *out, uint8_t v);
void buf_out_u16(struct buf_out *out, uint16_t v);
void buf_out_u32(struct buf_out *out, uint32_t v);
void buf_out_u64(struct buf_out *out, uint64_t v);
void buf_out_bytes(struct buf_out *out, const void *data, size_t n);
/* Bytes written, or −ENOBUFS if they did not fit. */
int buf_out_size(const struct buf_out *out);

#endif
