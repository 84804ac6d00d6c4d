/* SPDX-License-Identifier: MIT
 *
 * The hex examples of docs/PROTOCOL.md, for the tests that hold the document against the code:
 * blocks that begin with a line "```hex NAME". Tests run in the repository's root. */
#ifndef TESTS_UNIT_PROTOCOL_DOC_H
#define TESTS_UNIT_PROTOCOL_DOC_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static inline int protocol_doc_digit(int c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes of example `name`, or −1. */
static inline int protocol_doc_example(const char *name, uint8_t *out, size_t cap)
{
    FILE *f = fopen("docs/PROTOCOL.md", "r");
    char line[512], wanted[64];
    int inside = 0, high = -1;
    size_t n = 0;

    snprintf(wanted, sizeof wanted, "```hex %s\n", name);
    while (f && fgets(line, sizeof line, f)) {
        if (!inside) {
            inside = strcmp(line, wanted) == 0;
            continue;
        }
        if (strncmp(line, "```", 3) == 0) {
            fclose(f);
            return (int)n;
        }
        for (const char *p = line; *p && *p != '#'; p++) { /* the rest of a line after # explains it */
            int d = protocol_doc_digit(*p);

            if (d < 0)
                continue;
            if (high < 0) {
                high = d;
            } else if (n < cap) {
                out[n++] = (uint8_t)(high << 4 | d);
                high = -1;
            }
        }
    }
    if (f)
        fclose(f);
    return -1;
}

/* 1 if the example is exactly these bytes; otherwise prints what it should be. */
static inline int protocol_doc_shows(const char *name, const void *data, size_t n)
{
    uint8_t have[8192] = {0};
    int r = protocol_doc_example(name, have, sizeof have);

    if (n <= sizeof have && r == (int)n && memcmp(have, data, n) == 0)
        return 1;
    fprintf(stderr, "docs/PROTOCOL.md: example \"%s\" %s; the code says\n", name,
            r < 0 ? "is missing" : "differs");
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, "%02x%s", ((const uint8_t *)data)[i],
                i % 32 == 31 || i + 1 == n ? "\n"
                : i % 8 == 7               ? " "
                                           : "");
    return 0;
}

#endif
