/* SPDX-License-Identifier: MIT
 *
 * Finds any of a set of strings in a text: the leftmost, and there the longest. */
#ifndef TEXT_TRIE_H
#define TEXT_TRIE_H

#include <stddef.h>
#include <stdint.h>

#define TRIE_NONE UINT32_MAX

struct trie_node {
    uint32_t child, sibling; /* TRIE_NONE: none; children of a node are a list */
    uint32_t value;          /* TRIE_NONE: no string ends here */
    unsigned char byte;
};

struct trie {
    struct trie_node *nodes; /* owned, n of them */
    size_t n, cap;
    uint32_t root[256]; /* by first byte; TRIE_NONE */
};

struct trie_hit {
    size_t start, end;
    uint32_t value;
};

void trie_init(struct trie *t);
void trie_done(struct trie *t);
/* Strings are not empty; a second value for the same string replaces the first. −ENOMEM. */
int trie_add(struct trie *t, const char *s, size_t n, uint32_t value);
/* 1 and the first match that begins at or after `from`, or 0. */
int trie_find(const struct trie *t, const char *s, size_t n, size_t from, struct trie_hit *ret);

#endif
