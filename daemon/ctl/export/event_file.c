/* SPDX-License-Identifier: MIT */
#include "daemon/ctl/export/event_file.h"

#include <string.h>

enum { VARINT = 0, BITS_64 = 1, BYTES = 2, BITS_32 = 5 }; /* wire types */

struct message {
    uint8_t bytes[EVENT_SCALARS * (EVENT_TAG + 16) + 64];
    size_t n;
};

/* One bit after the other: a file has a few hundred kilobytes. */
uint32_t event_file_crc(const uint8_t *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ UINT32_C(0x82f63b78) : crc >> 1;
    }
    return ~crc;
}

/* --- Protocol Buffers ------------------------------------------------------------------------- */

static void put_fixed(struct message *m, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        m->bytes[m->n++] = (uint8_t)(value >> 8 * i);
}

static void put_varint(struct message *m, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        m->bytes[m->n++] = (uint8_t)(value | 0x80);
    m->bytes[m->n++] = (uint8_t)value;
}

static void put_key(struct message *m, unsigned field, unsigned type)
{
    put_varint(m, field << 3 | type);
}

static void put_bytes(struct message *m, unsigned field, const void *bytes, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_time(struct message *m, double time)
{
    uint64_t bits;
    memcpy(&bits, &time, sizeof bits);
    put_key(m, 1, BITS_64);
    put_fixed(m, bits, sizeof bits);
}

static void put_value(struct message *summary, const struct event_scalar *s)
{
    struct message value = {.n = 0};
    uint32_t bits;
    memcpy(&bits, &s->value, sizeof bits);
    put_bytes(&value, 1, s->tag, strnlen(s->tag, EVENT_TAG - 1));
    put_key(&value, 2, BITS_32);
    put_fixed(&value, bits, sizeof bits);
    put_bytes(summary, 1, value.bytes, value.n);
}

/* --- records ---------------------------------------------------------------------------------- */

/* The sum of a record that itself holds sums would say nothing: so it is turned and moved. */
static uint32_t masked(const uint8_t *bytes, size_t n)
{
    const uint32_t crc = event_file_crc(bytes, n);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void write_record(FILE *to, const struct message *m)
{
    struct message head = {.n = 0}, tail = {.n = 0};
    put_fixed(&head, m->n, 8);
    put_fixed(&head, masked(head.bytes, 8), 4);
    put_fixed(&tail, masked(m->bytes, m->n), 4);
    fwrite(head.bytes, 1, head.n, to);
    fwrite(m->bytes, 1, m->n, to);
    fwrite(tail.bytes, 1, tail.n, to);
}

void event_file_begin(FILE *to, double time)
{
    static const char version[] = "brain.Event:2";
    struct message m = {.n = 0};
    put_time(&m, time);
    put_bytes(&m, 3, version, sizeof version - 1);
    write_record(to, &m);
}

void event_file_add(FILE *to, double time, uint64_t step, const struct event_scalar *scalars, size_t n)
{
    struct message m = {.n = 0}, summary = {.n = 0};
    put_time(&m, time);
    put_key(&m, 2, VARINT);
    put_varint(&m, step);
    for (size_t i = 0; i < n && i < EVENT_SCALARS; i++)
        put_value(&summary, &scalars[i]);
    put_bytes(&m, 5, summary.bytes, summary.n);
    write_record(to, &m);
}
