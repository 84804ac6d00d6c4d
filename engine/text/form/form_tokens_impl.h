/* SPDX-License-Identifier: MIT
 *
 * The tree of a vocabulary: for the files that walk it. */
#ifndef TEXT_FORM_TOKENS_IMPL_H
#define TEXT_FORM_TOKENS_IMPL_H

#include <stdbool.h>

#include "text/form/form_tokens.h"

/* Kinds of bytes, one bit each: forms that let any text through, such as a JSON string, tell few of
 * them apart. Whole characters beyond ASCII are one kind, where they are well-formed. */
enum { KIND_LENGTHS = 48, KIND_WIDE = 62, KIND_BROKEN = 63 };
/* From KIND_LENGTHS on: bit i of a token that has more bytes than lengths[i]. */
enum { FORM_LENGTHS = 12, FORM_LENGTH_MOST = 32 };
extern const uint8_t form_lengths[FORM_LENGTHS];

/* A node is a byte behind those of the nodes above it. Nodes lie in the order of a walk that goes
 * down first. */
struct form_node {
    uint64_t kinds;       /* of this byte and of all below */
    uint32_t after;       /* the first node that is not below this one */
    uint32_t first_token; /* number in `order` of the first that ends here or below */
    uint32_t own_tokens;  /* so many end here */
    uint16_t depth;       /* 1: the first byte of a token */
    uint8_t byte;
    bool is_char_start; /* the bytes above are whole characters */
};

struct form_tokens {
    struct form_node *nodes; /* owned [nnodes + 1]: the last one is the end of the walk */
    uint32_t *order;         /* owned: tokens as the walk meets them */
    uint64_t *kinds;         /* owned [vocab]: of all bytes of a token; ~0 of one without text */
    char *text;              /* owned: all texts */
    size_t *text_at;         /* owned [vocab + 1]: where each begins in it */
    uint32_t *ends;          /* owned [nends] */
    size_t vocab, nnodes, ntokens, nends, longest;
};

/* The kind of a byte below 0x80. */
unsigned form_kind_of(uint8_t byte);
/* A byte of UTF-8 behind others: the state after it, of which 0 is between two characters; −1: it
 * is not well-formed there. */
enum { FORM_UTF8_STATES = 8 };
int form_utf8_step(int state, uint8_t byte);

#endif
