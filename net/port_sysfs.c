/* SPDX-License-Identifier: MIT
 *
 * What netlink does not say of an interface: the bus behind it and the negotiated speed. Owns nothing; called
 * by port_dump.c for each listed interface. */
#include "port_impl.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROOT "/sys/class/net/"

/* The number at the start of a file, −1 if there is none. */
static long read_number(const char *name, const char *file)
{
    char path[128], text[32], *end;
    ssize_t n;
    long v;
    int fd;

    snprintf(path, sizeof path, ROOT "%s/%s", name, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, text, sizeof text - 1); /* fails with EINVAL for a speed while there is no carrier */
    close(fd);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    v = strtol(text, &end, 10);
    return end == text ? -1 : v;
}

static bool bus_is(const char *name, const char *bus)
{
    char path[128], target[PATH_MAX];
    const char *last;
    ssize_t n;

    snprintf(path, sizeof path, ROOT "%s/device/subsystem", name);
    n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return false;
    target[n] = '\0';
    last = strrchr(target, '/');
    return last && strcmp(last + 1, bus) == 0;
}

static bool is_wireless(const char *name)
{
    char path[128];

    snprintf(path, sizeof path, ROOT "%s/phy80211", name);
    return access(path, F_OK) == 0;
}

/* The netdev belongs to a service of the other computer, whose directory is one above; thunderbolt-net itself
 * has told speeds only since 2026. */
static long thunderbolt_mbps(const char *name)
{
    long gbps = read_number(name, "device/../rx_speed"), lanes = read_number(name, "device/../rx_lanes");

    return gbps > 0 && gbps < 1000 && lanes > 0 && lanes < 16 ? gbps * 1000 * lanes : -1;
}

void port_sysfs_read(struct port *port, bool ether)
{
    /* /sys may belong to another network namespace than our sockets; then names have to do */
    bool ours = read_number(port->name, "ifindex") == (long)port->ifindex;
    long mbps = -1;

    if (ours ? bus_is(port->name, "thunderbolt") : strncmp(port->name, "thunderbolt", 11) == 0)
        port->kind = PORT_TB;
    else if (ours ? is_wireless(port->name) : strncmp(port->name, "wl", 2) == 0)
        port->kind = PORT_WIFI;
    else if (!ether)
        port->kind = PORT_OTHER;
    else
        port->kind = ours && bus_is(port->name, "usb") ? PORT_USB : PORT_ETH;
    if (!ours || !port->carrier)
        return;
    if (port->kind == PORT_TB)
        mbps = thunderbolt_mbps(port->name);
    if (mbps <= 0)
        mbps = read_number(port->name, "speed");
    if (mbps > 0 && mbps < UINT32_MAX)
        port->speed_mbps = (uint32_t)mbps;
}
