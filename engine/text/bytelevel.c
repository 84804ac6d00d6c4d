/* SPDX-License-Identifier: MIT
 *
 * The byte alphabet, computed: printable Latin-1 stands for itself, the other 68 bytes follow from
 * U+0100 in order. Stateless; called by pretok and decoder on any thread. */
#include "text/bytelevel.h"

#include <stdbool.h>

#include "text/textbuf.h"
#include "text/utf8.h"

/* The gaps of printable Latin-1: [0, 0x21), [0x7F, 0xA1), 0xAD. */
uint32_t bytelevel_char(unsigned char byte)
{
    if (byte < 0x21)
        return 0x100u + byte;
    if (byte >= 0x7F && byte < 0xA1)
        return 0x100u + 0x21 + (byte - 0x7Fu);
    if (byte == 0xAD)
        return 0x100u + 0x21 + 0x22;
    return byte;
}

int bytelevel_byte(uint32_t cp)
{
    if (cp >= 0x100 && cp < 0x121)
        return (int)(cp - 0x100);
    if (cp >= 0x121 && cp < 0x143)
        return (int)(cp - 0x121 + 0x7F);
    if (cp == 0x143)
        return 0xAD;
    return cp < 0x100 && bytelevel_char((unsigned char)cp) == cp ? (int)cp : -1;
}

void bytelevel_encode(struct textbuf *out, const char *s, size_t n)
{
    char chunk[512];
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        used += utf8_encode(bytelevel_char((unsigned char)s[i]), chunk + used);
        if (used > sizeof chunk - 4 || i + 1 == n) {
            textbuf_append(out, chunk, used);
            used = 0;
        }
    }
}

void bytelevel_decode(struct textbuf *out, const char *token, size_t n)
{
    size_t start = out->len;
    for (size_t i = 0; i < n;) {
        struct utf8_char c = utf8_next(token + i, n - i);
        int byte = bytelevel_byte(c.cp);
        if (byte < 0) {
            out->len = start;
            textbuf_append(out, token, n);
            return;
        }
        textbuf_append(out, &(char){(char)byte}, 1);
        i += c.len;
    }
}
