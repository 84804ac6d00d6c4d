/* SPDX-License-Identifier: MIT
 *
 * Encoders and decoders of protocol 1. Owns nothing; called by link.c's parts on the loop.
 * Everything that is decoded comes from a peer that knows the cluster's secret, and is still
 * checked as if it did not: texts end up on terminals and in JSON. */
#include "wire.h"

#include "buf.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#define IN(which) (1u << (which))

static const struct wire_message messages[] = {
    {WIRE_ACCEPT, "accept", 0, 0, IN(LINK_HELLO)},
    {WIRE_BEAT, "heartbeat", WIRE_BEAT_HEAD, WIRE_BEAT_HEAD + WIRE_BEAT_MAX, IN(LINK_UP)},
    {WIRE_REKEY, "change of keys", 1, WIRE_REKEY_MAX, IN(LINK_UP)},
    {WIRE_BYE, "goodbye", 1, 1 + WIRE_TEXT_MAX, IN(LINK_HELLO) | IN(LINK_UP)},
    {LINK_FRAME_USER, "frame", 0, LINK_FRAME_MAX, IN(LINK_UP)},
};

enum field_form { FIELD_BYTES, FIELD_STRING, FIELD_UINT };
enum { TLV_CRITICAL = 0x8000 }; /* a reader that does not know the type must refuse */

struct hello_field {
    uint16_t type;
    const char *name;
    enum field_form form;
    size_t at, size; /* in struct link_hello */
    uint8_t kinds;   /* mask of 1 << enum link_kind: where it must be */
    bool optional;   /* or may be: it is left out when all zero */
};
#define FIELD(type, member, form, kinds, optional)                                                           \
    {                                                                                                        \
        type, #member, form, offsetof(struct link_hello, member), sizeof((struct link_hello *)0)->member,    \
            kinds, optional                                                                                  \
    }

/* Numbers are never used twice. */
enum { EVERY = IN(LINK_CONTROL) | IN(LINK_DATA) | IN(LINK_JOIN), DATA = IN(LINK_DATA) };
static const struct hello_field fields[] = {
    FIELD(1, node_id, FIELD_BYTES, EVERY, false),
    FIELD(2, name, FIELD_STRING, EVERY, false),
    FIELD(3, version, FIELD_STRING, EVERY, false),
    FIELD(4, proto_min, FIELD_UINT, EVERY, false),
    FIELD(5, proto_max, FIELD_UINT, EVERY, false),
    FIELD(6, seal.suites, FIELD_UINT, EVERY, false),
    FIELD(7, listen_port, FIELD_UINT, EVERY, false),
    FIELD(8, boot, FIELD_UINT, EVERY, false),
    FIELD(9, cert, FIELD_BYTES, EVERY, true),
    FIELD(10, cluster_key, FIELD_BYTES, IN(LINK_JOIN), true),
    FIELD(11, seal.chacha_ps, FIELD_UINT, EVERY, false),
    FIELD(12, seal.aes_ps, FIELD_UINT, EVERY, false),
    FIELD(16, job, FIELD_UINT, DATA, false),
    FIELD(17, head_id, FIELD_BYTES, DATA, false),
    FIELD(18, from_rank, FIELD_UINT, DATA, false),
    FIELD(19, to_rank, FIELD_UINT, DATA, false),
    FIELD(20, fingerprint, FIELD_STRING, DATA, false),
    FIELD(21, dim, FIELD_UINT, DATA, false),
};
enum { FIELDS = sizeof fields / sizeof fields[0] };

const struct wire_message *wire_message_find(uint8_t type)
{
    if (type > LINK_FRAME_USER)
        type = LINK_FRAME_USER;
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++)
        if (messages[i].type == type)
            return &messages[i];
    return NULL;
}

/* Length of the printable UTF-8 character at p (of n bytes), 0 if there is none. */
static size_t character(const uint8_t *p, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
    uint32_t c = len < 2 ? p[0] : p[0] & 0x7fu >> len;

    if (len == 0 || len > n)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if (p[i] >> 6 != 2)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    /* over-long forms, surrogates, past the end; C0, DEL and C1 controls steer terminals */
    if (c < least[len] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff || c < 0x20 || (c >= 0x7f && c < 0xa0))
        return 0;
    return len;
}

bool wire_is_text(const void *text, size_t n)
{
    const uint8_t *p = text;

    while (n > 0) {
        size_t len = character(p, n);

        if (len == 0)
            return false;
        p += len;
        n -= len;
    }
    return true;
}

void wire_copy_text(char *to, size_t size, const char *from)
{
    const size_t n = strlen(from);
    size_t at = 0, len;

    for (size_t i = 0; i < n; i += len) {
        const size_t printable = character((const uint8_t *)from + i, n - i);

        len = printable ? printable : 1;
        if (at + len >= size)
            break;
        memcpy(to + at, printable ? from + i : "?", len);
        at += len;
    }
    to[at] = '\0';
}

int wire_opening_encode(const struct wire_opening *o, uint8_t *out, size_t cap)
{
    struct buf_out b;

    buf_out_init(&b, out, cap);
    buf_out_u8(&b, o->kind);
    buf_out_u16(&b, o->proto_min);
    buf_out_u16(&b, o->proto_max);
    return buf_out_size(&b);
}

int wire_opening_decode(const uint8_t *data, size_t n, struct wire_opening *ret)
{
    struct wire_opening o;
    struct buf_in b;

    buf_in_init(&b, data, n);
    o.kind = buf_in_u8(&b);
    o.proto_min = buf_in_u16(&b);
    o.proto_max = buf_in_u16(&b);
    if (!buf_in_is_done(&b) || o.kind < LINK_CONTROL || o.kind > LINK_JOIN || o.proto_min > o.proto_max)
        return -EPROTO;
    *ret = o;
    return 0;
}

static uint64_t load_uint(const void *p, size_t size)
{
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;

    switch (size) {
    case 2: memcpy(&u16, p, sizeof u16); return u16;
    case 4: memcpy(&u32, p, sizeof u32); return u32;
    case 8: memcpy(&u64, p, sizeof u64); return u64;
    }
    return *(const uint8_t *)p;
}

static void store_uint(void *p, size_t size, uint64_t v)
{
    uint8_t u8 = (uint8_t)v;
    uint16_t u16 = (uint16_t)v;
    uint32_t u32 = (uint32_t)v;

    memcpy(p,
           size == 8   ? (void *)&v
           : size == 4 ? (void *)&u32
           : size == 2 ? (void *)&u16
                       : (void *)&u8,
           size);
}

int wire_hello_encode(const struct link_hello *h, enum link_kind kind, uint8_t *out, size_t cap)
{
    struct buf_out b;

    buf_out_init(&b, out, cap);
    for (size_t i = 0; i < FIELDS; i++) {
        const struct hello_field *f = &fields[i];
        const uint8_t *at = (const uint8_t *)h + f->at;
        size_t n = f->form == FIELD_STRING ? strnlen((const char *)at, f->size - 1) : f->size;

        if (!(f->kinds & IN(kind)) || (f->optional && sodium_is_zero(at, n)))
            continue;
        if (f->form == FIELD_STRING && !wire_is_text(at, n))
            return -EINVAL;
        buf_out_u16(&b, f->type);
        buf_out_u16(&b, (uint16_t)n);
        if (f->form == FIELD_UINT)
            buf_out_uint(&b, load_uint(at, n), n);
        else
            buf_out_bytes(&b, at, n);
    }
    return buf_out_size(&b);
}

static int decode_field(const struct hello_field *f, const uint8_t *value, size_t n, struct link_hello *h)
{
    uint8_t *at = (uint8_t *)h + f->at;
    struct buf_in in;

    if (f->form == FIELD_STRING ? n >= f->size || !wire_is_text(value, n) : n != f->size)
        return -EPROTO;
    buf_in_init(&in, value, n);
    if (f->form == FIELD_UINT)
        store_uint(at, n, buf_in_uint(&in, n));
    else
        buf_in_bytes(&in, at, n);
    return 0;
}

static size_t find_field(uint16_t type)
{
    size_t i = 0;

    while (i < FIELDS && fields[i].type != type)
        i++;
    return i;
}

int wire_hello_decode(const uint8_t *data, size_t n, enum link_kind kind, struct link_hello *ret,
                      const char **ret_what)
{
    struct link_hello h = {0};
    uint32_t seen = 0;
    struct buf_in b;

    buf_in_init(&b, data, n);
    while (b.left > 0) {
        uint16_t type = buf_in_u16(&b), len = buf_in_u16(&b);
        const uint8_t *value = buf_in_view(&b, len);
        size_t i = find_field(type);

        *ret_what = b.bad ? "its length" : i < FIELDS ? fields[i].name : "a field this version does not know";
        if (b.bad || (i == FIELDS && type & TLV_CRITICAL))
            return -EPROTO;
        if (i == FIELDS)
            continue;
        if (seen & 1u << i || decode_field(&fields[i], value, len, &h) < 0)
            return -EPROTO;
        seen |= 1u << i;
    }
    for (size_t i = 0; i < FIELDS; i++)
        if (!(seen & 1u << i) && fields[i].kinds & IN(kind) && !fields[i].optional) {
            *ret_what = fields[i].name;
            return -EPROTO;
        }
    if (h.proto_min > h.proto_max) {
        *ret_what = "proto_min above proto_max";
        return -EPROTO;
    }
    *ret = h;
    return 0;
}

void wire_frame_encode(const struct wire_frame *f, uint8_t out[static WIRE_FRAME_HEAD])
{
    struct buf_out b;

    buf_out_init(&b, out, WIRE_FRAME_HEAD);
    buf_out_u8(&b, f->type);
    buf_out_u8(&b, f->last);
    buf_out_u16(&b, 0);
    buf_out_u32(&b, f->length);
}

int wire_frame_decode(const uint8_t *data, size_t n, struct wire_frame *ret)
{
    struct wire_frame f;
    struct buf_in b;
    uint8_t flags;
    uint16_t reserved;

    buf_in_init(&b, data, n);
    f.type = buf_in_u8(&b);
    flags = buf_in_u8(&b);
    reserved = buf_in_u16(&b);
    f.length = buf_in_u32(&b);
    if (!buf_in_is_done(&b) || flags > 1 || reserved != 0 || f.length > LINK_FRAME_MAX)
        return -EPROTO;
    f.last = flags;
    *ret = f;
    return 0;
}

int wire_beat_encode(const struct wire_beat *beat, uint8_t *out, size_t cap)
{
    struct buf_out b;

    if (beat->n > WIRE_BEAT_MAX)
        return -EMSGSIZE;
    buf_out_init(&b, out, cap);
    buf_out_u64(&b, beat->sent_us);
    buf_out_u64(&b, beat->echo_us);
    buf_out_u64(&b, beat->hold_us);
    buf_out_bytes(&b, beat->body, beat->n);
    return buf_out_size(&b);
}

int wire_beat_decode(const uint8_t *data, size_t n, struct wire_beat *ret)
{
    struct wire_beat beat;
    struct buf_in b;

    buf_in_init(&b, data, n);
    beat.sent_us = buf_in_u64(&b);
    beat.echo_us = buf_in_u64(&b);
    beat.hold_us = buf_in_u64(&b);
    beat.n = b.left;
    beat.body = buf_in_view(&b, b.left);
    if (!buf_in_is_done(&b) || beat.n > WIRE_BEAT_MAX)
        return -EPROTO;
    *ret = beat;
    return 0;
}

int wire_rekey_encode(const struct wire_rekey *r, uint8_t out[static WIRE_REKEY_MAX])
{
    struct buf_out b;

    buf_out_init(&b, out, WIRE_REKEY_MAX);
    buf_out_u8(&b, r->step);
    if (r->step != WIRE_REKEY_DONE)
        buf_out_bytes(&b, r->key, sizeof r->key);
    return buf_out_size(&b);
}

int wire_rekey_decode(const uint8_t *data, size_t n, struct wire_rekey *ret)
{
    struct wire_rekey r = {.step = 0};
    struct buf_in b;

    buf_in_init(&b, data, n);
    r.step = buf_in_u8(&b);
    if (r.step != WIRE_REKEY_DONE)
        buf_in_bytes(&b, r.key, sizeof r.key);
    if (!buf_in_is_done(&b) || r.step < WIRE_REKEY_ASK || r.step > WIRE_REKEY_DONE)
        return -EPROTO;
    *ret = r;
    return 0;
}

int wire_bye_encode(uint8_t code, const char *text, uint8_t *out, size_t cap)
{
    size_t n = strnlen(text, WIRE_TEXT_MAX + 1);
    struct buf_out b;

    if (n > WIRE_TEXT_MAX)
        for (n = WIRE_TEXT_MAX; n > 0 && ((uint8_t)text[n] & 0xc0) == 0x80; n--) /* not inside a character */
            ;
    buf_out_init(&b, out, cap);
    buf_out_u8(&b, code);
    buf_out_bytes(&b, text, n);
    return buf_out_size(&b);
}

int wire_bye_decode(const uint8_t *data, size_t n, struct wire_bye *ret)
{
    struct buf_in b;
    uint8_t code;
    size_t len;

    buf_in_init(&b, data, n);
    code = buf_in_u8(&b);
    len = b.left;
    if (b.bad || len > WIRE_TEXT_MAX)
        return -EPROTO;
    ret->code = code;
    buf_in_bytes(&b, ret->text, len);
    ret->text[len] = '\0';
    for (size_t i = 0; i < len;) {
        size_t c = character((const uint8_t *)ret->text + i, len - i);

        if (c == 0)
            ret->text[i] = '?';
        i += c == 0 ? 1 : c;
    }
    return 0;
}
