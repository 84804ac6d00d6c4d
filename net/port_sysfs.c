/* SPDX-License-Identifier: MIT
 *
 * What netlink does not say of an interface: the bus behind it, its driver, the negotiated speed,
 * and who is at the other end of a Thunderbolt cable. Owns nothing; called by port_dump.c for each
 * listed interface.
 *
 * A Thunderbolt port belongs to a service of the other computer, which is a device of its own:
 *     …/domain0/0-0/0-1/0-1.0/net/thunderbolt0      domain, our router, the other computer, its
 *     service, the port
 */
#include "port_impl.h"

#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file of one line, as far as it fits and without its end; false if there is none. What another
 * computer says of itself is among it, and is shown on terminals. */
static bool read_text(char *ret, size_t size, const char *folder, const char *file)
{
    char path[PATH_MAX];
    ssize_t n;
    int fd;

    if (snprintf(path, sizeof path, "%s/%s", folder, file) >= (int)sizeof path)
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, ret, size - 1); /* fails with EINVAL for a speed while there is no carrier */
    close(fd);
    if (n <= 0)
        return false;
    memset(ret + n, 0, size - (size_t)n); /* views are compared byte by byte */
    for (char *c = ret; *c; c++) {
        if (*c == '\n')
            memset(c, 0, (size_t)(ret + size - c));
        else if (*c < ' ' || *c > '~')
            *c = '?';
    }
    return *ret != '\0';
}

/* The number at the start of a file, −1 if there is none. */
static long read_number(const char *folder, const char *file)
{
    char text[32], *end;
    long v;

    if (!read_text(text, sizeof text, folder, file))
        return -1;
    v = strtol(text, &end, 10);
    return end == text ? -1 : v;
}

/* A number that a small field can hold; else 0. */
static uint8_t read_small(const char *folder, const char *file)
{
    long v = read_number(folder, file);

    return v > 0 && v <= UINT8_MAX ? (uint8_t)v : 0;
}

/* The last part of where a link points. */
static bool read_link(char *ret, size_t size, const char *folder, const char *link)
{
    char path[PATH_MAX], target[PATH_MAX];
    const char *last;
    ssize_t n;

    if (snprintf(path, sizeof path, "%s/%s", folder, link) >= (int)sizeof path)
        return false;
    n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return false;
    target[n] = '\0';
    last = strrchr(target, '/');
    last = last ? last + 1 : target;
    snprintf(ret, size, "%s", last);
    return strlen(last) < size;
}

static bool bus_is(const char *folder, const char *bus)
{
    char name[32];

    return read_link(name, sizeof name, folder, "device/subsystem") && strcmp(name, bus) == 0;
}

static bool has_file(const char *folder, const char *file)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/%s", folder, file) < (int)sizeof path && access(path, F_OK) == 0;
}

/* The path is cut to the domain that the device hangs on, however many routers are between. */
static bool find_domain(char path[static PATH_MAX])
{
    for (char *slash; (slash = strrchr(path, '/')) && slash != path; *slash = '\0')
        if (strncmp(slash + 1, "domain", 6) == 0)
            return true;
    return false;
}

static void read_thunderbolt(struct port_thunderbolt *tb, const char *folder)
{
    char path[PATH_MAX], at[PATH_MAX];

    snprintf(path, sizeof path, "%s/device/..", folder);
    if (!realpath(path, at))
        return;
    read_text(tb->peer_name, sizeof tb->peer_name, at, "device_name");
    read_text(tb->peer_id, sizeof tb->peer_id, at, "unique_id");
    tb->rx_gbps = read_small(at, "rx_speed");
    tb->tx_gbps = read_small(at, "tx_speed");
    tb->rx_lanes = read_small(at, "rx_lanes");
    tb->tx_lanes = read_small(at, "tx_lanes");
    if (!find_domain(at))
        return;
    read_text(tb->security, sizeof tb->security, at, "security");
    tb->has_iommu = read_number(at, "iommu_dma_protection") == 1;
}

static enum port_kind kind_of(const struct port *port, const char *folder, bool ours, bool ether)
{
    if (ours ? bus_is(folder, "thunderbolt") : strncmp(port->name, "thunderbolt", 11) == 0)
        return PORT_TB;
    if (ours ? has_file(folder, "phy80211") : strncmp(port->name, "wl", 2) == 0)
        return PORT_WIFI;
    if (!ether)
        return PORT_OTHER;
    return ours && bus_is(folder, "usb") ? PORT_USB : PORT_ETH;
}

void port_sysfs_read(struct port *port, const char *sysfs, bool ether)
{
    char folder[PATH_MAX];
    long mbps = 0;
    bool ours;

    snprintf(folder, sizeof folder, "%s/class/net/%s", sysfs, port->name);
    /* /sys may belong to another network namespace than our sockets; then names have to do */
    ours = read_number(folder, "ifindex") == (long)port->ifindex;
    port->kind = kind_of(port, folder, ours, ether);
    if (!ours)
        return;
    read_link(port->driver, sizeof port->driver, folder, "device/driver");
    if (port->kind == PORT_TB)
        read_thunderbolt(&port->tb, folder);
    if (!port->carrier)
        return;
    /* thunderbolt-net itself has told speeds only since 2026 */
    mbps = port->tb.rx_gbps * 1000L * port->tb.rx_lanes;
    if (mbps <= 0)
        mbps = read_number(folder, "speed");
    if (mbps > 0 && mbps < UINT32_MAX)
        port->speed_mbps = (uint32_t)mbps;
}

bool port_sysfs_counters(const struct port *port, const char *sysfs, uint64_t *ret_tx_bytes,
                         uint64_t *ret_rx_bytes)
{
    char folder[PATH_MAX];
    long tx, rx;

    snprintf(folder, sizeof folder, "%s/class/net/%s", sysfs, port->name);
    if (read_number(folder, "ifindex") != (long)port->ifindex)
        return false;
    tx = read_number(folder, "statistics/tx_bytes");
    rx = read_number(folder, "statistics/rx_bytes");
    if (tx < 0 || rx < 0)
        return false;
    *ret_tx_bytes = (uint64_t)tx;
    *ret_rx_bytes = (uint64_t)rx;
    return true;
}

void port_sysfs_thunderbolt(struct ports_thunderbolt *ret, const char *sysfs)
{
    char path[PATH_MAX], type[64];
    glob_t list = {0};

    *ret = (struct ports_thunderbolt){0};
    snprintf(path, sizeof path, "%s/bus/thunderbolt", sysfs);
    ret->has_driver = has_file(path, "drivers/thunderbolt-net");
    snprintf(path, sizeof path, "%s/bus/thunderbolt/devices/*", sysfs);
    if (glob(path, GLOB_NOSORT, NULL, &list) != 0)
        list.gl_pathc = 0;
    for (size_t i = 0; i < list.gl_pathc; i++) {
        if (strncmp(strrchr(list.gl_pathv[i], '/') + 1, "domain", 6) == 0)
            ret->domains++;
        else if (read_text(type, sizeof type, list.gl_pathv[i], "uevent") &&
                 strcmp(type, "DEVTYPE=thunderbolt_xdomain") == 0)
            ret->peers++;
    }
    globfree(&list);
}
