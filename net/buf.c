/* SPDX-License-Identifier: MIT
 *
 * Bounded cursors. Owns nothing; called by wire.c and whoever else lays out bytes; any thread. */
#include "buf.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

void buf_in_init(struct buf_in *in, const void *data, size_t n)
{
    *in = (struct buf_in){.at = data, .left = n};
}

const uint8_t *buf_in_view(struct buf_in *in, size_t n)
{
    const uint8_t *at = in->at;

    if (in->bad || n > in->left) {
        in->bad = true;
        return NULL;
    }
    if (n > 0) /* an empty input may be NULL, and NULL + 0 is undefined */
        in->at += n;
    in->left -= n;
    return at;
}

void buf_in_bytes(struct buf_in *in, void *ret, size_t n)
{
    const uint8_t *at = buf_in_view(in, n);

    if (in->bad)
        memset(ret, 0, n);
    else if (n > 0)
        memcpy(ret, at, n);
}

uint64_t buf_in_uint(struct buf_in *in, size_t bytes)
{
    const uint8_t *at = buf_in_view(in, bytes);
    uint64_t v = 0;

    if (in->bad)
        return 0;
    for (size_t i = bytes; i-- > 0;)
        v = v << 8 | at[i];
    return v;
}

uint8_t buf_in_u8(struct buf_in *in)
{
    return (uint8_t)buf_in_uint(in, 1);
}

uint16_t buf_in_u16(struct buf_in *in)
{
    return (uint16_t)buf_in_uint(in, 2);
}

uint32_t buf_in_u32(struct buf_in *in)
{
    return (uint32_t)buf_in_uint(in, 4);
}

uint64_t buf_in_u64(struct buf_in *in)
{
    return buf_in_uint(in, 8);
}

bool buf_in_is_done(const struct buf_in *in)
{
    return !in->bad && in->left == 0;
}

void buf_out_init(struct buf_out *out, void *data, size_t cap)
{
    *out = (struct buf_out){.start = data, .cap = cap};
}

void buf_out_bytes(struct buf_out *out, const void *data, size_t n)
{
    if (out->bad || n > out->cap - out->used) {
        out->bad = true;
        return;
    }
    if (n > 0)
        memcpy(out->start + out->used, data, n);
    out->used += n;
}

void buf_out_uint(struct buf_out *out, uint64_t v, size_t bytes)
{
    uint8_t le[8];

    for (size_t i = 0; i < sizeof le; i++)
        le[i] = (uint8_t)(v >> 8 * i);
    buf_out_bytes(out, le, bytes);
}

void buf_out_u8(struct buf_out *out, uint8_t v)
{
    buf_out_uint(out, v, 1);
}

void buf_out_u16(struct buf_out *out, uint16_t v)
{
    buf_out_uint(out, v, 2);
}

void buf_out_u32(struct buf_out *out, uint32_t v)
{
    buf_out_uint(out, v, 4);
}

void buf_out_u64(struct buf_out *out, uint64_t v)
{
    buf_out_uint(out, v, 8);
}

int buf_out_size(const struct buf_out *out)
{
    return out->bad || out->used > INT_MAX ? -ENOBUFS : (int)out->used;
}
