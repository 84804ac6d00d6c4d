/* SPDX-License-Identifier: MIT
 *
 * PURE: which subnet a point-to-point cable gets, so that people and other tools can use it;
 * ringd's own connections run over link-local addresses and do not depend on it. Both ends compute
 * the same from what their beacons say. Shared segments get none: do not ask for one. Called by the
 * daemon on its loop.
 *
 * IPv6:  fd ‖ 40 bits of BLAKE2b("ringd ula" ‖ cluster id) ‖ 0x7262 ‖ 63 bits of BLAKE2b("ringd
 * cable" ‖ both
 *        (node id ‖ port id), the smaller first) ‖ 0 for the smaller end, 1 for the other: a /127
 *        (RFC 4193,
 *        RFC 6164). 63 bits need no allocator and no second try. IPv4:  a /31 (RFC 3021) of a pool
 *        that the user gives, at a place that the same hash and an `attempt` name.
 *        Pools are small and other networks near, so each end looks at its own addresses and
 *        routes, raises
 *        the attempt until it has none in the way, and tells the other in its beacon; both use the
 *        larger
 *        of the two attempts. */
#ifndef NET_SUBNET_H
#define NET_SUBNET_H

#include "port.h"
#include "prefix.h"

enum {
    SUBNET_ID = 0x7262,
    SUBNET_ATTEMPTS = 255, /* the beacon has a byte for it, */
    SUBNET_NO_ROOM = 255,  /* and says so if none is free */
};

struct subnet_end {
    uint8_t node[16];
    uint32_t port_id;
};
struct subnet_cable {
    struct prefix mine, theirs; /* addresses, with the subnet's length */
};

/* The /48 of a cluster. */
void subnet_ula(struct prefix *ret, const uint8_t cluster[static 16]);
/* −EINVAL: both ends are the same port. */
int subnet_cable6(struct subnet_cable *ret, const uint8_t cluster[static 16], const struct subnet_end *mine,
                  const struct subnet_end *theirs);

/* `ipv4-pool`: −EINVAL with a sentence for what is no private IPv4 network of at least two
 * addresses. */
int subnet_pool_parse(struct prefix *ret, const char *text, char *why, size_t why_size);
/* −EINVAL as above; −ENOSPC: the pool has no place for this attempt. */
int subnet_cable4(struct subnet_cable *ret, const struct prefix *pool, const struct subnet_end *mine,
                  const struct subnet_end *theirs, uint8_t attempt);

/* What must not overlap: everything this machine has, but routes that go with an address (addresses
 * and routes are not listed in one moment, and the address says the same), and but what ringd-link
 * has set, in this run or in one before. Where the kernel does not tell that, the very address in
 * question, with its route, counts as ours on the cable's own port. Of two cables of one node, the
 * one chosen later must see the other's subnet in here. */
struct subnet_taken {
    const struct ports_prefix *at; /* borrowed: ports_addresses */
    size_t n;
    unsigned ifindex; /* of this cable's port */
};
/* What is in the way of a cable's subnet, `mine` being our address with the subnet's length; NULL:
 * nothing. */
const struct ports_prefix *subnet_obstacle(const struct subnet_taken *taken, const struct prefix *mine);

/* The first attempt from `at_least` (the larger of what both ends said) on with nothing in its way.
 * −ENOSPC: none is left, with a sentence. */
int subnet_choose4(struct subnet_cable *ret, uint8_t *ret_attempt, const struct prefix *pool,
                   const struct subnet_end *mine, const struct subnet_end *theirs, uint8_t at_least,
                   const struct subnet_taken *taken, char *why, size_t why_size);

#endif
