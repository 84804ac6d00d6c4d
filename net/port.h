/* SPDX-License-Identifier: MIT
 *
 * The network interfaces a cable can be plugged into, listed and watched by rtnetlink on a libevent
 * loop, without polling; and every address and route of the machine, for whoever has to choose one
 * that is still free.
 *
 * Which interfaces count, the first rule that matches its name: listed in `allow`: yes; listed in
 * `deny`: no; else real Ethernet-like hardware, bonds and veth pairs yes; loopback, bridges,
 * tunnels, wireguard, tun and what container engines and hypervisors make (docker*, br-*, virbr*,
 * ...) no. So deny = *, allow = eth1 leaves eth1 alone. A member of a bridge or bond is listed with
 * `enslaved` set: it cannot carry addresses.
 */
#ifndef NET_PORT_H
#define NET_PORT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct ports;

enum port_kind { /* the numbers are on the wire */
                 PORT_TB = 1,
                 PORT_ETH,
                 PORT_USB,
                 PORT_WIFI,
                 PORT_OTHER,
};
const char *port_kind_name(enum port_kind kind); /* "thunderbolt", "ethernet", "usb", "wifi", "other" */

/* What only /sys tells of a Thunderbolt port; empty or 0 where it does not. A lane's speed, times
 * the lanes, is the cable's. */
struct port_thunderbolt {
    char peer_name[32]; /* the computer at the other end, as it calls itself: not to be believed */
    char peer_id[40];   /* of its Thunderbolt domain, a UUID */
    char security
        [16]; /* of our own domain: "none", "user", "secure", ...: about devices, not about networks */
    uint16_t rx_gbps, tx_gbps;
    uint8_t rx_lanes, tx_lanes;
    bool has_iommu; /* a device on the cable cannot read our memory */
};

struct port {
    unsigned ifindex;
    char name[16];
    uint8_t mac[6]; /* the one in the hardware where the kernel tells it, else the one in use */
    enum port_kind kind;
    bool up;               /* administratively */
    bool carrier;          /* something is plugged in at the other end */
    bool enslaved;         /* member of a bridge or bond */
    bool named;            /* listed in `allow`, so it is ours to set up */
    unsigned mtu, max_mtu; /* max: what its driver takes, 0 = it does not say */
    uint32_t speed_mbps;   /* negotiated; 0 = the driver does not say */
    struct in6_addr link_local;
    bool has_link_local; /* one that has passed duplicate address detection */
    bool has_default_route;
    uint32_t port_id;           /* from the MAC: the same after replug and reboot; unique on this node */
    char driver[24];            /* of the hardware; empty if /sys does not tell */
    struct port_thunderbolt tb; /* of kind PORT_TB */
};
/* Beacons and links can run over it now. */
bool port_is_usable(const struct port *port);

enum { PORTS_OWNER = 0x72 }; /* IFA_PROTO of what ringd-link sets: 'r' */

struct ports_prefix {
    sa_family_t family;
    uint8_t plen;
    bool is_route;    /* else an address of this machine, `at` being that address itself */
    bool is_ours;     /* an address that ringd-link has set; told by Linux 5.18 and later */
    bool is_made;     /* an IPv4 route that the kernel made for an address, and takes away with it */
    uint8_t at[16];   /* network order; IPv4 in the first four bytes */
    unsigned ifindex; /* 0 = a route that leads nowhere (blackhole, unreachable) or through several ports */
};

struct ports_policy { /* globs as in fnmatch(3); copied */
    const char *const *allow;
    size_t nallow;
    const char *const *deny;
    size_t ndeny;
    const char *sysfs; /* NULL = /sys; borrowed until ports_close */
};

/* Called from the loop after anything that ports_at or ports_addresses show has changed. */
struct ports_ops {
    void (*changed)(void *owner);
};

/* Lists everything before it returns; −errno of the netlink socket otherwise. `base` and `ops` are
 * borrowed.
 */
int ports_open(struct ports **ret, struct event_base *base, const struct ports_policy *policy,
               const struct ports_ops *ops, void *owner);
void ports_close(struct ports *ports);

/* In order of ifindex. Pointers are good until the next `changed`. */
size_t ports_count(const struct ports *ports);
const struct port *ports_at(const struct ports *ports, size_t i);
const struct port *ports_find(const struct ports *ports, unsigned ifindex); /* NULL: none such */

/* What has passed through a port since it is there, whoever sent it. Reads files; for showing.
 * False: they do not tell. */
bool ports_counters(const struct ports *ports, const struct port *port, uint64_t *ret_tx_bytes,
                    uint64_t *ret_rx_bytes);

/* Thunderbolt on this machine, whether or not there is a port. Reads files; for showing. */
struct ports_thunderbolt {
    unsigned domains; /* controllers */
    unsigned peers;   /* computers plugged in */
    bool has_driver;  /* thunderbolt-net, which makes the ports */
};
void ports_thunderbolt(const struct ports *ports, struct ports_thunderbolt *ret);

/* All addresses and routes, IPv4 and IPv6, on all interfaces, listed or not; without default routes
 * and the kernel's `local` table, which overlap with everything or say the same again.
 * `ret_is_partial`: there were more than 16384. */
const struct ports_prefix *ports_addresses(const struct ports *ports, size_t *ret_n, bool *ret_is_partial);

#endif
