/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/openai/char_gate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
enum { REPLACEMENT = sizeof replacement - 1 };

static size_t put_replacement(char *out)
{
    memcpy(out, replacement, REPLACEMENT);
    return REPLACEMENT;
}

/* Bytes of the character that begins so; 0: none does. */
static size_t length_of(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* Overlong forms, surrogates, and what is beyond U+10FFFF show at the second byte (RFC 3629,
 * section 4). */
static bool goes_on(const struct char_gate *g, unsigned char byte)
{
    const unsigned char lead = g->bytes[0];
    unsigned char least = 0x80, most = 0xBF;
    if (g->n == 1 && lead == 0xE0)
        least = 0xA0;
    else if (g->n == 1 && lead == 0xED)
        most = 0x9F;
    else if (g->n == 1 && lead == 0xF0)
        least = 0x90;
    else if (g->n == 1 && lead == 0xF4)
        most = 0x8F;
    return byte >= least && byte <= most;
}

size_t char_gate_push(struct char_gate *g, unsigned char byte, char out[CHAR_GATE_OUT])
{
    size_t ready = 0;
    if (g->n && !goes_on(g, byte)) {
        ready = put_replacement(out);
        g->n = 0;
    }
    if (!g->n)
        g->need = length_of(byte);
    if (!g->need)
        return ready + put_replacement(out + ready);
    g->bytes[g->n++] = byte;
    if (g->n < g->need)
        return ready;
    memcpy(out + ready, g->bytes, g->n);
    ready += g->n;
    g->n = 0;
    return ready;
}

size_t char_gate_end(struct char_gate *g, char out[CHAR_GATE_OUT])
{
    const bool incomplete = g->n > 0;
    g->n = 0;
    return incomplete ? put_replacement(out) : 0;
}

json_t *text_lossy_json(const char *text, size_t n)
{
    struct char_gate gate = {.n = 0};
    /* Each byte becomes a replacement at most, and the end another one. */
    char *clean = xmalloc(n * REPLACEMENT + CHAR_GATE_OUT), *at = clean;
    for (size_t i = 0; i < n; i++)
        at += char_gate_push(&gate, (unsigned char)text[i], at);
    at += char_gate_end(&gate, at);
    json_t *json = json_stringn(clean, (size_t)(at - clean));
    free(clean);
    return json;
}
