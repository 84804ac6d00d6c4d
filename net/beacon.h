/* SPDX-License-Identifier: MIT
 *
 * Who is heard on which port, and which of those are cables: pairs of ports that hear each other
 * both ways. PURE: takes datagrams, the time and randomness, gives datagrams and events. finder.c
 * feeds it; tests feed it with a fake clock.
 *
 * A neighbour is a port of another node, in one of these states (beacon_judge in beacon_table.c
 * decides which):
 *
 *   HEARD     its beacons open, but none has yet named a recent beacon of ours
 *   ONE_WAY   that has been so for a hold time: it does not hear us
 *   TWO_WAY   a cable: it named a beacon that we sent within the hold time, which no replay can
 *   VERSION   it shares no protocol version with us
 *   CLONED    two machines with this node id are alive at once (a copied identity): neither is used
 *
 * and is gone after its hold time without a beacon, with our port, or with its goodbye, as soon as
 * no connection says otherwise. A cable
 * here is a hint: it becomes a link through the handshake over it.
 *
 * Who calls much later than beacons_due said has stood still (a stopped process, a machine that
 * slept): that time counts for nothing here, and all ports ask again at once. Not thread-safe;
 * callbacks must not call back except to read and to set an attempt. */
#ifndef NET_BEACON_H
#define NET_BEACON_H

#include "beacon_wire.h"
#include "clock.h"
#include "port.h"

enum beacon_limits {
    BEACON_NEIGHBOURS = 64, /* per port */
    BEACON_PORTS = 64,      /* ports of ours */
    BEACON_INTERVAL_US =
        1000000, /* on cables all ports of a node together; else ± 20 %, so that nodes do not fall into step */
    BEACON_EARLY_US = 5000,         /* what is due so soon is sent now, while the loop is awake */
    BEACON_SLOW_US = 5000000,       /* on a settled shared segment */
    BEACON_SETTLED_US = 10000000,   /* without a change */
    BEACON_QUICK_US = 200000,       /* after a change: */
    BEACON_QUICK = 5,               /* so many */
    BEACON_HOLD_US = 3500000,       /* 3.5 intervals: two losses in a row do no harm */
    BEACON_HOLD_SLOW_US = 17500000, /* shared segments */
    BEACON_CLONE_US = 20000000,     /* after the last proof of a second machine */
    BEACON_LATE_US = 500000,        /* who calls so much later than it was asked to has stood still */
    BEACON_STRANGERS_PER_S = 100,   /* datagrams opened per port and second */
    BEACON_ACQUAINTANCE_PER_S =
        20, /* and for each cable's own address: a flood cannot crowd its beacons out */
};

struct cable {
    uint64_t id; /* the same on both ends: cable_id */
    unsigned ifindex;
    uint32_t port_id; /* ours */
    char port[16];    /* its name: a message about the cable outlives the port */
    bool shared;      /* a switch: more than one neighbour port is heard here, or another port of our own */
    /* the other end */
    uint8_t node_id[16];
    uint64_t boot;
    uint32_t peer_port_id;
    char name[BEACON_NAME];  /* of the node */
    struct in6_addr address; /* link-local: use with ifindex */
    uint16_t tcp_port;
    enum port_kind kind;
    uint32_t speed_mbps, mtu, max_mtu; /* 0 = unknown */
    uint8_t attempt;                   /* this and the rest: see struct beacon */
    struct prefix pool;
    char port_name[BEACON_PORT_NAME];
    bool has_default_route;
};
/* From both (node id, port id) in any order. */
uint64_t cable_id(const uint8_t a_node[static 16], uint32_t a_port, const uint8_t b_node[static 16],
                  uint32_t b_port);

enum cable_end {                      /* closed list, as link_end */
                 CABLE_END_SILENT,    /* nothing heard for its hold time */
                 CABLE_END_ONE_WAY,   /* it is heard and no longer hears us */
                 CABLE_END_LEFT,      /* said goodbye */
                 CABLE_END_RESTARTED, /* the node has a new boot */
                 CABLE_END_PORT,      /* our port is gone: unplugged, down, or no longer wanted */
                 CABLE_END_CLONED,
                 CABLE_END_VERSION,
};

enum neighbour_state {
    NEIGHBOUR_HEARD,
    NEIGHBOUR_ONE_WAY,
    NEIGHBOUR_TWO_WAY,
    NEIGHBOUR_VERSION,
    NEIGHBOUR_CLONED
};
const char *neighbour_state_name(enum neighbour_state state);

/* Every cable_up is followed by exactly one cable_down, unless the beacons are freed first. */
struct beacons_ops {
    void (*cable_up)(void *owner, const struct cable *cable);
    void (*cable_changed)(void *owner,
                          const struct cable *cable); /* same id and boot, something else is new */
    void (*cable_down)(void *owner, const struct cable *cable, enum cable_end end);
    /* A neighbour that will not become a cable until somebody does something: ONE_WAY, VERSION or
     * CLONED. Once per neighbour and state. A cable that turns so is told by cable_down too. */
    void (*trouble)(void *owner, const struct cable *with, enum neighbour_state state);
    /* Reads only, may be NULL: the boot of that node as a connection that is up has proved it, 0 =
     * there is none. While there is one, beacons neither end that life of the node nor begin
     * another: every member has their key, and the connection's only that node. */
    uint64_t (*proved_boot)(void *owner, const uint8_t node_id[static 16]);
};

struct beacons_self {
    uint8_t node_id[16];
    uint64_t boot;
    char name[BEACON_NAME];
    uint16_t tcp_port;
    uint8_t proto_min, proto_max;
    struct prefix pool;  /* `ipv4-pool`; family 0: none */
    struct instant beat; /* beacons of cables are sent whole intervals from then */
};

struct beacons;
/* `seed` only spreads the times of sending. `ops` is borrowed. −ENOMEM, −EIO (no libsodium). */
int beacons_new(struct beacons **ret, const struct beacons_self *self, uint64_t seed,
                const struct beacons_ops *ops, void *owner);
void beacons_free(struct beacons *b);

/* Of the cluster's newest generation, and no other: who was removed has those before. NULL (before
 * enrolment): neither sends nor opens. */
void beacons_set_key(struct beacons *b, const struct beacon_key *key, struct instant now);
/* A usable port, or news about one; changes are announced at once. −ENOMEM, −ENOSPC. */
int beacons_port_add(struct beacons *b, const struct port *port, struct instant now);
void beacons_port_remove(struct beacons *b, unsigned ifindex, struct instant now);
/* Our `attempt` for the cable on a port. −ENODEV. */
int beacons_set_attempt(struct beacons *b, unsigned ifindex, uint8_t attempt, struct instant now);

/* 0: taken. 1: a JOINQ or JOINA within the rate, for the caller to read. Else refused without
 * effect: −EBADMSG, −ENOKEY, −EKEYREJECTED as beacon_decode; −ESTALE: repeated or overtaken;
 * −EBUSY: too many, not looked at; −ENOSPC: too many neighbours; −ENODEV: no such port. */
int beacons_receive(struct beacons *b, unsigned ifindex, const struct in6_addr *from, const void *data,
                    size_t n, struct instant now);

/* A connection over that cable has just brought a sealed word of the other end. While the port is
 * flooded that is as good as a beacon that names one of ours: who crowds out a neighbour's beacons
 * does not end its cable. Only keeps a cable that is there. */
void beacons_heard(struct beacons *b, uint64_t cable, struct instant now);

/* A new self.beat. */
void beacons_keep_step(struct beacons *b, struct instant beat);
/* The beacon that is due on the port: its size, 0 if none is, −ENODEV, −ENOBUFS (out has BEACON_MAX
 * bytes or it might not fit). The nonce is random. */
int beacons_next_send(struct beacons *b, unsigned ifindex, struct instant now,
                      const uint8_t nonce[static BEACON_NONCE], uint8_t *out, size_t cap);
/* A goodbye for the port, at any time. */
int beacons_goodbye(struct beacons *b, unsigned ifindex, struct instant now,
                    const uint8_t nonce[static BEACON_NONCE], uint8_t *out, size_t cap);
/* What has not been heard for its hold time goes, and what said goodbye and has no connection any
 * more: to be called when one has ended. */
void beacons_expire(struct beacons *b, struct instant now);
/* When next to call beacons_next_send for all ports and beacons_expire; UINT64_MAX: not before
 * something happens. */
struct instant beacons_due(struct beacons *b);

struct neighbour_view {
    struct cable cable; /* its id is that of the cable it is or would be */
    enum neighbour_state state;
    uint64_t heard_us; /* since its last beacon */
    uint64_t known_us; /* and since its first */
};
/* All neighbours on all ports, cables or not; up to cap are written, how many there are is
 * returned. */
size_t beacons_neighbours(const struct beacons *b, struct instant now, struct neighbour_view *out,
                          size_t cap);

/* What came is counted since the keys last changed. */
struct beacons_stats {
    uint64_t taken, sent;
    uint64_t garbage; /* not a beacon */
    uint64_t foreign; /* sealed under another key or an older one, or damaged */
    uint64_t stale;   /* repeated */
    uint64_t limited; /* not looked at, or no room */
};
void beacons_stats(const struct beacons *b, struct beacons_stats *ret);

#endif
