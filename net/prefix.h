/* SPDX-License-Identifier: MIT
 *
 * PURE: IPv4 and IPv6 addresses with a prefix length: read, written, compared. Used by whoever
 * chooses, asks for or grants addresses. Any thread. */
#ifndef NET_PREFIX_H
#define NET_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PREFIX_TEXT = 64 }; /* room for any as text, NUL included */

struct prefix {
    uint8_t family; /* AF_INET, AF_INET6 */
    uint8_t plen;
    uint8_t at[16]; /* network order; IPv4 in the first four bytes, the rest 0 */
};
/* Family known, length within it, no bytes beyond it. */
bool prefix_is_valid(const struct prefix *p);
/* "10.98.0.0/16"; without a length the whole address is meant. −EINVAL. */
int prefix_parse(struct prefix *ret, const char *text);
void prefix_format(const struct prefix *p, char ret[static PREFIX_TEXT]);

/* The first `bits` of two addresses are the same. */
bool prefix_bits_equal(const uint8_t *a, const uint8_t *b, size_t bits);
/* Nothing but zeros after the length. */
bool prefix_is_network(const struct prefix *p);
bool prefix_contains(const struct prefix *outer, const struct prefix *inner);
bool prefix_overlaps(const struct prefix *a, const struct prefix *b); /* either is within the other */
bool prefix_equal(const struct prefix *a, const struct prefix *b);
/* IPv4, within what RFC 1918 and RFC 6598 leave to everyone. */
bool prefix_is_private_network(const struct prefix *p);

#endif
