/* SPDX-License-Identifier: MIT
 *
 * Address prefixes. Pure; called by subnet.c, the daemon and ringd-link. */
#include "prefix.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static size_t width(uint8_t family)
{
    return family == AF_INET ? 4 : family == AF_INET6 ? 16 : 0;
}

bool prefix_is_valid(const struct prefix *p)
{
    size_t bytes = width(p->family);

    for (size_t i = bytes; i < sizeof p->at; i++)
        if (p->at[i] != 0)
            return false;
    return bytes > 0 && p->plen <= bytes * 8;
}

/* Digits only: strtoul would take signs and blanks. */
static int parse_length(const char *text, size_t max, uint8_t *ret)
{
    size_t v = 0;

    if (*text == '\0' || (text[0] == '0' && text[1] != '\0'))
        return -EINVAL;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return -EINVAL;
        v = v * 10 + (size_t)(*text - '0');
        if (v > max)
            return -EINVAL;
    }
    *ret = (uint8_t)v;
    return 0;
}

int prefix_parse(struct prefix *ret, const char *text)
{
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text), bits;
    struct prefix p = {0};
    char address[PREFIX_TEXT];

    if (n >= sizeof address)
        return -EINVAL;
    memcpy(address, text, n);
    address[n] = '\0';
    p.family = strchr(address, ':') ? AF_INET6 : AF_INET;
    bits = width(p.family) * 8;
    p.plen = (uint8_t)bits;
    if (inet_pton(p.family, address, p.at) != 1 || (slash && parse_length(slash + 1, bits, &p.plen) < 0))
        return -EINVAL;
    *ret = p;
    return 0;
}

void prefix_format(const struct prefix *p, char ret[static PREFIX_TEXT])
{
    char address[INET6_ADDRSTRLEN];

    if (!inet_ntop(p->family, p->at, address, sizeof address))
        snprintf(address, sizeof address, "?");
    snprintf(ret, PREFIX_TEXT, "%s/%u", address, p->plen);
}

bool prefix_bits_equal(const uint8_t *a, const uint8_t *b, size_t bits)
{
    size_t bytes = bits / 8, rest = bits % 8;

    return memcmp(a, b, bytes) == 0 && (rest == 0 || (a[bytes] ^ b[bytes]) >> (8 - rest) == 0);
}

bool prefix_is_network(const struct prefix *p)
{
    for (size_t bit = p->plen; bit < width(p->family) * 8; bit++)
        if (p->at[bit / 8] >> (7 - bit % 8) & 1)
            return false;
    return true;
}

bool prefix_contains(const struct prefix *outer, const struct prefix *inner)
{
    return outer->family == inner->family && outer->plen <= inner->plen &&
           prefix_bits_equal(outer->at, inner->at, outer->plen);
}

bool prefix_overlaps(const struct prefix *a, const struct prefix *b)
{
    return prefix_contains(a, b) || prefix_contains(b, a);
}

bool prefix_equal(const struct prefix *a, const struct prefix *b)
{
    return a->family == b->family && a->plen == b->plen && memcmp(a->at, b->at, sizeof a->at) == 0;
}

bool prefix_is_private_network(const struct prefix *p)
{
    static const struct prefix private[] = {
        {AF_INET, 8, {10}},
        {AF_INET, 12, {172, 16}},
        {AF_INET, 16, {192, 168}},
        {AF_INET, 10, {100, 64}},
    };
    bool inside = false;

    for (size_t i = 0; i < sizeof private / sizeof *private; i++)
        inside |= prefix_contains(&private[i], p);
    return inside && prefix_is_valid(p) && prefix_is_network(p);
}
