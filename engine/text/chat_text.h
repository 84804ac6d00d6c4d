/* SPDX-License-Identifier: MIT
 *
 * What a chat template made of a conversation. */
#ifndef TEXT_CHAT_TEXT_H
#define TEXT_CHAT_TEXT_H

#include <stddef.h>

struct chat_span {
    size_t start, end; /* bytes of the text */
};

struct chat_text {
    char *text; /* owned, NUL-terminated; may hold NUL bytes */
    size_t n;
    struct chat_span
        *spans; /* owned: what stands in {% generation %}, in order; none where the template has none */
    size_t nspans;
};

#endif
