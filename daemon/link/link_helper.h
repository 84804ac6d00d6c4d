/* SPDX-License-Identifier: MIT
 *
 * Inside of ringd-link, between its three files: main.c (options,
 * privileges), link_helper_serve.c (clients and what they may ask for) and
 * link_helper_kernel.c (netlink). One thread. */
#ifndef DAEMON_LINK_HELPER_H
#define DAEMON_LINK_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/common/link_proto.h"
#include "net/port.h"

struct event_base;

/* --- kernel: rtnetlink, one question at a time, each answered or timed out
 * within a second --- */

struct kernel;
int kernel_open(struct kernel **ret);
void kernel_close(struct kernel *k);

struct kernel_port {
    char name[16], kind[16]; /* kind: "bridge", "veth", ...; empty for hardware */
    bool is_ethernet, is_loopback, is_enslaved;
};
/* −ENODEV; other errors are the kernel's. */
int kernel_port(struct kernel *k, uint32_t ifindex, struct kernel_port *ret);
int kernel_set_up(struct kernel *k, uint32_t ifindex);
int kernel_set_mtu(struct kernel *k, uint32_t ifindex, uint32_t mtu);

struct kernel_addr {
    uint32_t ifindex;
    struct prefix addr;
    bool is_tagged;    /* the kernel says whose it is */
    uint8_t owner;     /* if so */
    uint32_t left_s;   /* UINT32_MAX: for good */
    bool is_tentative; /* the kernel still looks whether another host has it (duplicate address detection) */
};
/* All addresses of a family, until `each` returns false. */
int kernel_addrs(struct kernel *k, uint8_t family, bool (*each)(void *arg, const struct kernel_addr *a),
                 void *arg);
/* `renew`: it is there already and gets a new lease; else it must not be. */
int kernel_addr_add(struct kernel *k, uint32_t ifindex, const struct prefix *addr, uint32_t lease_s,
                    bool renew);
int kernel_addr_del(struct kernel *k, uint32_t ifindex, const struct prefix *addr);
/* A tentative IPv6 address is there at once, for good, without further looking. */
int kernel_addr_settle(struct kernel *k, uint32_t ifindex, const struct prefix *addr);

/* --- serve --- */

struct serve;
struct serve_setup {
    struct event_base *base; /* borrowed */
    struct kernel *kernel;   /* borrowed */
    const char *path;        /* borrowed */
    uid_t uid;               /* who may ask, beside ourselves */
    struct prefix ula, pool; /* family 0: the first client says */
};
/* −EADDRINUSE: another ringd-link answers there. */
int serve_open(struct serve **ret, const struct serve_setup *setup);
void serve_close(struct serve *s); /* removes the socket */

#endif
