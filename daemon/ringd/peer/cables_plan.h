/* SPDX-License-Identifier: MIT
 *
 * PURE: what the ports and cables of this machine should have: a port of ours up, a link-local
 * address at once, a Thunderbolt cable's largest MTU, and for each point-to-point cable its subnets
 * (net/subnet.h), unless somebody else has them. Called by cables.c after every change, which has
 * ringd-link set it and tells our choice in the beacons; by cables_show.c and tests. Loop thread.
 *
 * A cable that is out, because the other end is started anew for instance, keeps its subnets for as
 * long as their lease runs, unless its port is gone, its other end was removed, or something else
 * is on the port.
 *
 * Two cables of one node may hash to the same IPv4 /31. They are served in the order of their ids,
 * which all nodes see alike, so the same one yields everywhere, whichever was plugged in first. */
#ifndef DAEMON_CABLES_PLAN_H
#define DAEMON_CABLES_PLAN_H

#include "daemon/ringd/peer/cable_client.h"
#include "net/beacon.h"
#include "net/roster.h"
#include "net/subnet.h"

enum {
    CABLES_WHY = 240,
    CABLES_SETTLE_US = 1000000, /* a switch looks like a cable until a second node is heard on it */
    CABLES_LEASE_US = 120000000,
};

struct cables_facts { /* all borrowed */
    const struct port *ports;
    size_t nports;
    const struct neighbour_view *seen;
    size_t nseen;
    const struct ports_prefix *taken; /* ports_addresses */
    size_t ntaken;
    bool is_member; /* else there are no subnets */
    uint8_t node[16], cluster[16];
    struct prefix pool;          /* `ipv4-pool`; family 0: none */
    const struct roster *roster; /* who is still a member; NULL: all are */
    struct instant now;
};

struct cable_plan { /* of a two-way cable that nobody shares */
    uint64_t id;
    unsigned ifindex;
    uint8_t peer[16];
    bool is_out; /* it was one: what it has is left to its lease */
    struct instant out;
    struct subnet_cable six, four; /* family 0: none */
    bool is_six_free;              /* to be set; else why6 says who has it */
    char why6[CABLES_WHY];         /* what is in its way; empty: nothing */
    char why4[CABLES_WHY];         /* why there is none; empty: it is not wanted, or there is one */
    uint8_t attempt;               /* the last that suited us */
    uint8_t told;                  /* to be told to the other end */
    uint32_t mtu;                  /* to be set, 0: none */
};
struct cables_plan {
    struct cable_plan *at; /* owned; in the order of ids */
    size_t n;
};

/* What was chosen before stays as long as nothing is in its way. Returns in how many µs to look
 * again, because a cable is too new for subnets or has been out for long; 0: not before something
 * changes. */
uint64_t cables_plan_update(struct cables_plan *plan, const struct cables_facts *facts);
void cables_plan_done(struct cables_plan *plan);
const struct cable_plan *cables_plan_find(const struct cables_plan *plan, uint64_t id);

/* For linkctl_want; how many. `out` has room for twice the ports and three times the cables. */
size_t cables_plan_want(const struct cables_plan *plan, const struct cables_facts *facts,
                        struct linkctl_want *out);

/* A sentence if both ends of a cable differ in their MTU, else an empty one. */
void cables_mtu_trouble(char ret[static CABLES_WHY], const struct port *port, const struct cable *cable);

#endif
