/* SPDX-License-Identifier: MIT
 *
 * Finds cables: the sockets and timers that feed beacons, one UDP socket per usable port, on a
 * libevent loop. Called by the daemon, who also tells it when ports have changed. Callbacks come
 * from the loop or from finder_update and finder_set_*, never from finder_open or finder_close; of
 * the functions that change something they may call finder_set_attempt and finder_ask.
 *
 * Datagrams go to ff02::7269:6e67 with hop limit 255 and are taken only with hop limit 255 and from
 * fe80::/10: nothing that has passed a router. Needs no privilege. */
#ifndef NET_FINDER_H
#define NET_FINDER_H

#include "beacon.h"

struct finder;

struct finder_ops {
    struct beacons_ops beacons; /* cables; all four set */
    /* A JOINQ or JOINA; may be NULL. Unauthenticated: the body is what anybody on the cable has
     * sent, 100 a second at most. */
    void (*ask)(void *owner, unsigned ifindex, const struct in6_addr *from, enum beacon_type type,
                const uint8_t *body, size_t n);
    /* A beacon that no key of ours opens, said to be sealed with that generation; may be NULL.
     * Unauthenticated, and as many as questions. */
    void (*sealed)(void *owner, unsigned ifindex, unsigned generation);
    /* A probe of packet sizes came back: its number, and the bytes of its packet with all heads of
     * IPv6; may be NULL. Unauthenticated. */
    void (*sized)(void *owner, unsigned ifindex, uint64_t number, uint32_t packet);
};

enum { FINDER_PORT = 17464 };

struct finder_setup {
    struct event_base *base; /* borrowed */
    struct ports *ports;     /* borrowed; closed after the finder */
    struct beacons_self self;
    uint16_t udp_port;            /* 0 = FINDER_PORT; the same on all nodes */
    const struct beacon_key *key; /* as beacons_set_key; copied */
    const struct finder_ops *ops; /* borrowed */
    void *owner;
};
/* −ENOMEM, −EIO. A port that cannot be used is no error here: finder_port_error tells. */
int finder_open(struct finder **ret, const struct finder_setup *setup);
/* Says goodbye on all ports. */
void finder_close(struct finder *finder);

/* To be called from ports' `changed`. */
void finder_update(struct finder *finder);
void finder_set_key(struct finder *finder, const struct beacon_key *key);
int finder_set_attempt(struct finder *finder, unsigned ifindex, uint8_t attempt); /* −ENODEV */
/* A JOINQ or JOINA to everybody on the port, or on all ports (ifindex 0). How many ports it left
 * through, or −EINVAL. */
int finder_ask(struct finder *finder, unsigned ifindex, enum beacon_type type, const void *body, size_t n);

/* A probe of packet sizes to one neighbour, as a packet of so many bytes. Other nodes' probes are
 * sent back by the finder itself, 50 a second and port at most. −ENODEV, −EMSGSIZE,
 * −ENETUNREACH. */
int finder_probe(struct finder *finder, unsigned ifindex, const struct in6_addr *to, uint64_t number,
                 uint32_t packet);

/* Why a usable port is not listened on (−errno of its socket; tried again every second), 0: it is.
 * −ENODEV: not usable. */
int finder_port_error(const struct finder *finder, unsigned ifindex);
void finder_heard(struct finder *finder, uint64_t cable); /* beacons_heard */
void finder_connection_ended(struct finder *finder);      /* beacons_expire */
/* Beacons go out with what the node sends at `beat`, and at once where they are due with it. */
void finder_keep_step(struct finder *finder, struct instant beat);
size_t finder_neighbours(const struct finder *finder, struct neighbour_view *out, size_t cap);

struct finder_stats {
    uint64_t in, out; /* datagrams */
    uint64_t in_bytes, out_bytes;
    uint64_t dropped; /* received, and not from this cable: routed, oversized, other interface */
    uint64_t failed;  /* not sent */
    struct beacons_stats beacons;
};
void finder_stats(const struct finder *finder, struct finder_stats *ret);

#endif
