/* SPDX-License-Identifier: MIT
 *
 * Subnets of cables by hashing. Pure; called by the daemon on its loop. */
#include "subnet.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { END = 20, HASH = 16 };

static void hash(uint8_t ret[static HASH], const char *label, const uint8_t *data, size_t n)
{
    crypto_generichash_state state;

    crypto_generichash_init(&state, NULL, 0, HASH);
    crypto_generichash_update(&state, (const uint8_t *)label, strlen(label));
    crypto_generichash_update(&state, data, n);
    crypto_generichash_final(&state, ret, HASH);
}

static void put_end(uint8_t out[static END], const struct subnet_end *end)
{
    memcpy(out, end->node, 16);
    for (size_t i = 0; i < 4; i++)
        out[16 + i] = (uint8_t)(end->port_id >> 8 * i);
}

/* The hash that both ends get; *ret_upper: ours is the larger end. */
static int hash_pair(uint8_t ret[static HASH], bool *ret_upper, const struct subnet_end *mine,
                     const struct subnet_end *theirs)
{
    uint8_t a[END], b[END], pair[2 * END];
    int order;

    put_end(a, mine);
    put_end(b, theirs);
    order = memcmp(a, b, END);
    if (order == 0)
        return -EINVAL;
    memcpy(pair, order < 0 ? a : b, END);
    memcpy(pair + END, order < 0 ? b : a, END);
    hash(ret, "ringd cable", pair, sizeof pair);
    *ret_upper = order > 0;
    return 0;
}

void subnet_ula(struct prefix *ret, const uint8_t cluster[static 16])
{
    uint8_t h[HASH];

    hash(h, "ringd ula", cluster, 16);
    *ret = (struct prefix){.family = AF_INET6, .plen = 48, .at = {0xfd}};
    memcpy(ret->at + 1, h, 5);
}

int subnet_cable6(struct subnet_cable *ret, const uint8_t cluster[static 16], const struct subnet_end *mine,
                  const struct subnet_end *theirs)
{
    uint8_t h[HASH];
    struct prefix net;
    bool upper;
    int r = hash_pair(h, &upper, mine, theirs);

    if (r < 0)
        return r;
    subnet_ula(&net, cluster);
    net.plen = 127;
    net.at[6] = SUBNET_ID >> 8;
    net.at[7] = SUBNET_ID & 0xff;
    memcpy(net.at + 8, h, 8);
    net.at[15] &= 0xfe;
    ret->mine = ret->theirs = net;
    ret->mine.at[15] |= upper;
    ret->theirs.at[15] |= !upper;
    return 0;
}

int subnet_pool_parse(struct prefix *ret, const char *text, char *why, size_t why_size)
{
    struct prefix p;

    if (prefix_parse(&p, text) < 0 || !prefix_is_private_network(&p) || p.plen > 31) {
        snprintf(why, why_size,
                 "ipv4-pool = %.40s is no private IPv4 network: give one within 10.0.0.0/8, 172.16.0.0/12, "
                 "192.168.0.0/16 or 100.64.0.0/10, by its first address and length, like 10.98.0.0/16",
                 text);
        return -EINVAL;
    }
    *ret = p;
    return 0;
}

static uint32_t read_be32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void write_be32(uint8_t *at, uint32_t v)
{
    for (size_t i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> 8 * (3 - i));
}

int subnet_cable4(struct subnet_cable *ret, const struct prefix *pool, const struct subnet_end *mine,
                  const struct subnet_end *theirs, uint8_t attempt)
{
    uint32_t slots = pool->plen <= 31 ? UINT32_C(1) << (31 - pool->plen) : 0, slot;
    struct prefix net = *pool;
    uint8_t h[HASH];
    bool upper;
    int r = hash_pair(h, &upper, mine, theirs);

    if (r < 0)
        return r;
    if (attempt >= slots)
        return -ENOSPC;
    /* an odd stride visits every place of a pool of a power of two before any twice */
    slot = (read_be32(h) + attempt * (read_be32(h + 4) | 1)) % slots;
    write_be32(net.at, read_be32(pool->at) + 2 * slot);
    net.plen = 31;
    ret->mine = ret->theirs = net;
    ret->mine.at[3] |= upper;
    ret->theirs.at[3] |= !upper;
    return 0;
}

static bool is_itself(const struct subnet_taken *taken, const struct ports_prefix *p,
                      const struct prefix *mine)
{
    size_t bits = mine->family == AF_INET ? 32 : 128;

    return p->ifindex == taken->ifindex && p->plen >= mine->plen &&
           (p->is_route || prefix_bits_equal(p->at, mine->at, bits));
}

const struct ports_prefix *subnet_obstacle(const struct subnet_taken *taken, const struct prefix *mine)
{
    for (size_t i = 0; i < taken->n; i++) {
        const struct ports_prefix *p = &taken->at[i];
        size_t bits = p->plen < mine->plen ? p->plen : mine->plen;

        if (p->family == mine->family && !p->is_ours && !p->is_made &&
            prefix_bits_equal(p->at, mine->at, bits) && !is_itself(taken, p, mine))
            return p;
    }
    return NULL;
}

int subnet_choose4(struct subnet_cable *ret, uint8_t *ret_attempt, const struct prefix *pool,
                   const struct subnet_end *mine, const struct subnet_end *theirs, uint8_t at_least,
                   const struct subnet_taken *taken, char *why, size_t why_size)
{
    char pool_text[PREFIX_TEXT], text[PREFIX_TEXT] = "";
    int r = 0;

    for (unsigned attempt = at_least; attempt < SUBNET_ATTEMPTS; attempt++) {
        const struct ports_prefix *obstacle;
        struct subnet_cable c;

        r = subnet_cable4(&c, pool, mine, theirs, (uint8_t)attempt);
        if (r < 0)
            break;
        obstacle = subnet_obstacle(taken, &c.mine);
        if (!obstacle) {
            *ret = c;
            *ret_attempt = (uint8_t)attempt;
            return 0;
        }
        struct prefix p = {.family = (uint8_t)obstacle->family, .plen = obstacle->plen};
        memcpy(p.at, obstacle->at, sizeof p.at);
        prefix_format(&p, text);
    }
    prefix_format(pool, pool_text);
    if (r == -EINVAL)
        snprintf(why, why_size, "both ends of the cable are the same port: is it looped back?");
    else
        snprintf(why, why_size,
                 "no /31 of ipv4-pool = %s is free on both ends of the cable%s%s: give a larger or a "
                 "different pool",
                 pool_text, *text ? ", here last because of " : "", text);
    return r == -EINVAL ? r : -ENOSPC;
}
