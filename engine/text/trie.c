/* SPDX-License-Identifier: MIT
 *
 * A byte trie with sibling lists. Owned by struct added; filled while a tokenizer opens, then
 * searched by any thread. A search takes at most text × longest string steps, and strings are short
 * (added.c limits them). */
#include "text/trie.h"

#include <errno.h>
#include <stdlib.h>

#include "text/textbuf.h"

void trie_init(struct trie *t)
{
    *t = (struct trie){0};
    for (size_t i = 0; i < 256; i++)
        t->root[i] = TRIE_NONE;
}

void trie_done(struct trie *t)
{
    free(t->nodes);
    trie_init(t);
}

static uint32_t find_in(const struct trie *t, uint32_t list, unsigned char byte)
{
    while (list != TRIE_NONE && t->nodes[list].byte != byte)
        list = t->nodes[list].sibling;
    return list;
}

static int add_node(struct trie *t, unsigned char byte, uint32_t sibling)
{
    void *nodes = t->nodes;
    if (array_reserve(&nodes, &t->cap, t->n + 1, sizeof *t->nodes))
        return -ENOMEM;
    t->nodes = nodes;
    t->nodes[t->n++] = (struct trie_node){TRIE_NONE, sibling, TRIE_NONE, byte};
    return 0;
}

int trie_add(struct trie *t, const char *s, size_t n, uint32_t value)
{
    uint32_t node = TRIE_NONE; /* of the prefix so far */
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)s[i];
        uint32_t list = i ? t->nodes[node].child : t->root[byte];
        uint32_t next = find_in(t, list, byte);
        if (next == TRIE_NONE) {
            if (add_node(t, byte, list))
                return -ENOMEM;
            next = (uint32_t)(t->n - 1);
            if (i)
                t->nodes[node].child = next;
            else
                t->root[byte] = next;
        }
        node = next;
    }
    t->nodes[node].value = value;
    return 0;
}

int trie_find(const struct trie *t, const char *s, size_t n, size_t from, struct trie_hit *ret)
{
    if (t->n == 0)
        return 0;
    for (size_t i = from; i < n; i++) {
        size_t end = i;
        uint32_t value = TRIE_NONE;
        uint32_t node = t->root[(unsigned char)s[i]];
        for (size_t j = i + 1; node != TRIE_NONE; j++) {
            if (t->nodes[node].value != TRIE_NONE) {
                value = t->nodes[node].value;
                end = j;
            }
            node = j < n ? find_in(t, t->nodes[node].child, (unsigned char)s[j]) : TRIE_NONE;
        }
        if (value != TRIE_NONE) {
            *ret = (struct trie_hit){i, end, value};
            return 1;
        }
    }
    return 0;
}
