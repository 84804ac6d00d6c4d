/* SPDX-License-Identifier: MIT
 *
 * Inside ports: shared by port.c (life, events), port_dump.c (netlink messages) and port_sysfs.c
 * (what only files under /sys tell), and by nobody else. */
#ifndef NET_PORT_IMPL_H
#define NET_PORT_IMPL_H

#include "port.h"

enum port_limits {
    PORT_MAX_LINKS = 4096,     /* interfaces looked at, listed or not */
    PORT_MAX_PREFIXES = 16384, /* a machine with more is a router with a full table */
    PORT_DUMP_TRIES = 3,       /* the kernel asks to start again when something changed meanwhile */
    PORT_ANSWER_S = 2,         /* it answers in microseconds or has lost the question */
};

struct port_globs {
    char **at; /* owned */
    size_t n;
};
struct port_rules {
    struct port_globs allow, deny;
    const char *sysfs; /* borrowed */
};

/* What one look at the kernel found. */
struct port_view {
    struct port *ports; /* owned */
    size_t nports;
    struct ports_prefix *prefixes; /* owned */
    size_t nprefixes;
    bool is_partial;
};
/* −errno; −EINTR when things kept changing while asked. */
int port_view_read(struct port_view *ret, const struct port_rules *rules);
void port_view_done(struct port_view *view);
bool port_view_equals(const struct port_view *a, const struct port_view *b);

/* Fills in kind, speed, driver and Thunderbolt, as far as the files under `sysfs` tell. `ether`:
 * the link layer is Ethernet. */
void port_sysfs_read(struct port *port, const char *sysfs, bool ether);
bool port_sysfs_counters(const struct port *port, const char *sysfs, uint64_t *ret_tx_bytes,
                         uint64_t *ret_rx_bytes);
void port_sysfs_thunderbolt(struct ports_thunderbolt *ret, const char *sysfs);

#endif
