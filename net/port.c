/* SPDX-License-Identifier: MIT
 *
 * Watches the kernel's tables. Owns a netlink socket and the last view; called by the daemon on its
 * loop.
 *
 * A notification is only a reason to look again, never taken for the truth itself: IPv4 routes
 * vanish without one when an interface goes down, and notifications get lost when the socket is
 * full (ENOBUFS). Looking again is the one path for all of that. */
#include "port_impl.h"

#include "clock.h"

#include <errno.h>
#include <event2/event.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum {
    GAP_US = 50000,     /* between looks, when things happen fast; the first is at once */
    GAP_COST = 10,      /* and ten times what a look takes, for machines with huge tables */
    RETRY_US = 1000000, /* after a look that failed */
};

struct ports {
    struct mnl_socket *monitor;  /* owned; hears notifications and asks nothing */
    struct event *heard, *timer; /* owned */
    const struct ports_ops *ops; /* borrowed */
    void *owner;                 /* borrowed */
    struct port_rules rules;
    struct port_view view;
    struct instant next; /* not before then do we look again */
};

static const char *const kind_names[] = {[PORT_TB] = "thunderbolt",
                                         [PORT_ETH] = "ethernet",
                                         [PORT_USB] = "usb",
                                         [PORT_WIFI] = "wifi",
                                         [PORT_OTHER] = "other"};

const char *port_kind_name(enum port_kind kind)
{
    return kind >= PORT_TB && kind <= PORT_OTHER ? kind_names[kind] : "unknown";
}

bool port_is_usable(const struct port *port)
{
    return port->up && port->carrier && port->has_link_local && !port->enslaved;
}

static void arm(struct ports *ports, uint64_t us)
{
    struct timeval tv = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};

    event_add(ports->timer, &tv);
}

static int look(struct ports *ports, bool *ret_changed)
{
    struct instant before = clock_now(), after;
    struct port_view view;
    int r = port_view_read(&view, &ports->rules);
    uint64_t gap;

    after = clock_now();
    gap = clock_since_us(after, before) * GAP_COST;
    ports->next.us = after.us + (gap > GAP_US ? gap : GAP_US);
    if (r < 0)
        return r;
    *ret_changed = !port_view_equals(&view, &ports->view);
    port_view_done(&ports->view);
    ports->view = view;
    return 0;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct ports *ports = arg;
    bool changed = false;

    (void)fd, (void)what;
    if (look(ports, &changed) < 0)
        arm(ports, RETRY_US);
    else if (changed)
        ports->ops->changed(ports->owner);
}

static void on_heard(evutil_socket_t fd, short what, void *arg)
{
    struct ports *ports = arg;
    char buf[8192];
    uint64_t now;

    (void)fd, (void)what;
    /* what it says does not matter; the socket is only emptied, in bites so that the loop goes
     * on */
    for (int i = 0; i < 64; i++)
        if (mnl_socket_recvfrom(ports->monitor, buf, sizeof buf) < 0 && errno == EAGAIN)
            break;
    now = clock_now().us;
    if (!event_pending(ports->timer, EV_TIMEOUT, NULL))
        arm(ports, ports->next.us > now ? ports->next.us - now : 0);
}

static int open_monitor(struct ports *ports)
{
    static const int groups[] = {RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE,
                                 RTNLGRP_IPV6_ROUTE};

    ports->monitor = mnl_socket_open2(NETLINK_ROUTE, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (!ports->monitor || mnl_socket_bind(ports->monitor, 0, MNL_SOCKET_AUTOPID) < 0)
        return -errno;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        int group = groups[i];

        if (mnl_socket_setsockopt(ports->monitor, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) < 0)
            return -errno;
    }
    return 0;
}

static int copy_globs(struct port_globs *ret, const char *const *from, size_t n)
{
    ret->at = calloc(n + 1, sizeof *ret->at);
    if (!ret->at)
        return -ENOMEM;
    for (; ret->n < n; ret->n++) {
        ret->at[ret->n] = strdup(from[ret->n]);
        if (!ret->at[ret->n])
            return -ENOMEM;
    }
    return 0;
}

static void free_globs(struct port_globs *globs)
{
    for (size_t i = 0; i < globs->n; i++)
        free(globs->at[i]);
    free(globs->at);
}

int ports_open(struct ports **ret, struct event_base *base, const struct ports_policy *policy,
               const struct ports_ops *ops, void *owner)
{
    struct ports *ports = calloc(1, sizeof *ports);
    bool changed;
    int r = -ENOMEM;

    if (!ports)
        return r;
    ports->ops = ops;
    ports->owner = owner;
    ports->rules.sysfs = policy->sysfs ? policy->sysfs : "/sys";
    r = copy_globs(&ports->rules.allow, policy->allow, policy->nallow);
    if (r == 0)
        r = copy_globs(&ports->rules.deny, policy->deny, policy->ndeny);
    if (r == 0)
        r = open_monitor(ports); /* listening first: what changes after the look is heard of */
    if (r < 0)
        goto out;
    ports->heard = event_new(base, mnl_socket_get_fd(ports->monitor), EV_READ | EV_PERSIST, on_heard, ports);
    ports->timer = event_new(base, -1, 0, on_timer, ports);
    if (!ports->heard || !ports->timer || event_add(ports->heard, NULL) < 0) {
        r = -ENOMEM;
        goto out;
    }
    r = look(ports, &changed);
    if (r == -EINTR) { /* a machine that is just coming up: the view follows */
        arm(ports, GAP_US);
        r = 0;
    }
out:
    if (r < 0)
        ports_close(ports);
    else
        *ret = ports;
    return r;
}

void ports_close(struct ports *ports)
{
    if (!ports)
        return;
    if (ports->heard)
        event_free(ports->heard);
    if (ports->timer)
        event_free(ports->timer);
    if (ports->monitor)
        mnl_socket_close(ports->monitor);
    free_globs(&ports->rules.allow);
    free_globs(&ports->rules.deny);
    port_view_done(&ports->view);
    free(ports);
}

size_t ports_count(const struct ports *ports)
{
    return ports->view.nports;
}

const struct port *ports_at(const struct ports *ports, size_t i)
{
    return i < ports->view.nports ? &ports->view.ports[i] : NULL;
}

const struct port *ports_find(const struct ports *ports, unsigned ifindex)
{
    for (size_t i = 0; i < ports->view.nports; i++)
        if (ports->view.ports[i].ifindex == ifindex)
            return &ports->view.ports[i];
    return NULL;
}

bool ports_counters(const struct ports *ports, const struct port *port, uint64_t *ret_tx_bytes,
                    uint64_t *ret_rx_bytes)
{
    return port_sysfs_counters(port, ports->rules.sysfs, ret_tx_bytes, ret_rx_bytes);
}

void ports_thunderbolt(const struct ports *ports, struct ports_thunderbolt *ret)
{
    port_sysfs_thunderbolt(ret, ports->rules.sysfs);
}

const struct ports_prefix *ports_addresses(const struct ports *ports, size_t *ret_n, bool *ret_is_partial)
{
    *ret_n = ports->view.nprefixes;
    *ret_is_partial = ports->view.is_partial;
    return ports->view.prefixes;
}
