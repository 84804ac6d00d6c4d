/* SPDX-License-Identifier: MIT */
#include "daemon/fetch/carry/carry_frame.h"

#include "net/buf.h"
#include "net/wire.h"

static bool has_numbers(enum carry_kind kind)
{
    return kind == CARRY_LIST || kind == CARRY_WANT || kind == CARRY_PIECE || kind == CARRY_HAVE ||
           kind == CARRY_HASH;
}

static bool is_sound(const struct carry_frame *f)
{
    switch (f->kind) {
    case CARRY_OPEN: return f->n == DIGEST;
    case CARRY_LIST:
        return f->a <= MANIFEST_MAX && f->n > 0 && f->n <= CARRY_BYTES && f->b < f->a && f->n <= f->a - f->b;
    case CARRY_WANT: return !f->n && f->b > 0;
    case CARRY_PIECE: return f->n > 0 && f->n <= CARRY_BYTES && f->b < HEAD_MOST && f->n <= HEAD_MOST - f->b;
    case CARRY_GONE: return f->n <= CARRY_SENTENCE;
    case CARRY_BYE: return f->n < WIRE_FRAME_HEAD + 1 + WIRE_TEXT_MAX;
    case CARRY_HAVE:
        return f->n > 0 && f->n <= CARRY_BYTES && !(f->a % 8) && f->a < f->b && f->n <= (f->b - f->a + 7) / 8;
    case CARRY_HASH: return f->n == DIGEST && !f->b;
    case CARRY_WHICH:
    case CARRY_ASK:
    case CARRY_WAIT:
    case CARRY_REKEY: return !f->n;
    default: return false;
    }
}

bool carry_frame_read(struct carry_frame *ret, const uint8_t *record, size_t n)
{
    struct buf_in in;
    buf_in_init(&in, record, n);
    *ret = (struct carry_frame){.kind = (enum carry_kind)buf_in_u8(&in)};
    if (has_numbers(ret->kind)) {
        ret->a = buf_in_u32(&in);
        ret->b = buf_in_u32(&in);
    }
    ret->n = in.left;
    ret->bytes = buf_in_view(&in, in.left);
    return !in.bad && is_sound(ret);
}

size_t carry_frame_write(uint8_t *to, enum carry_kind kind, uint32_t a, uint32_t b)
{
    struct buf_out out;
    buf_out_init(&out, to, CARRY_HEAD);
    buf_out_u8(&out, (uint8_t)kind);
    if (has_numbers(kind)) {
        buf_out_u32(&out, a);
        buf_out_u32(&out, b);
    }
    return out.used;
}
