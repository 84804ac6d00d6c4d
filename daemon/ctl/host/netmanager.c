/* SPDX-License-Identifier: MIT
 *
 * Drop-ins for systemd-networkd and NetworkManager. Owns nothing; called by ctl_link.c. */
#include "daemon/ctl/host/netmanager.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char networkd[] = "systemd-networkd", nm[] = "NetworkManager";
/* The first line of what is ours. */
static const char mark[] = "# Written by ringctl link adopt";

/* --- reading ---------------------------------------------------------------------------------- */

static bool read_file(char *ret, size_t size, const char *root, const char *path)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);
    if (fd >= 0)
        close(fd);
    ret[n > 0 ? n : 0] = '\0';
    return n >= 0;
}

/* One line about the interface, below /sys/class/net. */
static bool read_port(char *ret, size_t size, const char *root, const char *port, const char *file)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", port, file);
    bool there = read_file(ret, size, root, path);
    ret[strcspn(ret, "\n")] = '\0';
    return there;
}

static bool has_port(const char *root, const char *port, const char *file)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/sys/class/net/%s/%s", root, port, file);
    return lstat(path, &st) == 0;
}

static bool is_running(const char *root, const char *name)
{
    char pattern[PATH_MAX], comm[32];
    glob_t found = {0};
    bool runs = false;
    snprintf(pattern, sizeof pattern, "%s/proc/[0-9]*/comm", root);
    if (glob(pattern, GLOB_NOSORT, NULL, &found))
        return false;
    for (size_t i = 0; i < found.gl_pathc && !runs; i++) {
        read_file(comm, sizeof comm, "", found.gl_pathv[i]);
        comm[strcspn(comm, "\n")] = '\0';
        runs = *comm && strncmp(comm, name, 15) == 0; /* the kernel keeps 15 characters */
    }
    globfree(&found);
    return runs;
}

/* The value of a line KEY=value; false if there is none. */
static bool read_key(char *ret, size_t size, const char *root, const char *path, const char *key)
{
    char text[4096];
    if (!read_file(text, sizeof text, root, path))
        return false;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        size_t n = strlen(key);
        if (strncmp(line, key, n) || line[n] != '=')
            continue;
        snprintf(ret, size, "%s", line + n + 1);
        return true;
    }
    return false;
}

/* Who manages the port; NULL: nobody. */
static const char *find_manager(const char *root, const char *port)
{
    char index[16], path[64], value[64];
    if (!read_port(index, sizeof index, root, port, "ifindex"))
        return NULL;
    snprintf(path, sizeof path, "/run/systemd/netif/links/%s", index);
    if (is_running(root, networkd) && read_key(value, sizeof value, root, path, "ADMIN_STATE") &&
        strcmp(value, "unmanaged"))
        return networkd;
    snprintf(path, sizeof path, "/run/NetworkManager/devices/%s", index);
    if (is_running(root, nm) &&
        !(read_key(value, sizeof value, root, path, "managed") && !strcmp(value, "false")))
        return nm;
    return NULL;
}

static bool routes_away(const char *line, bool is_six, const char *port)
{
    char dest[40], iface[IF_NAMESIZE];
    unsigned plen, to, mask;
    if (is_six)
        return sscanf(line, "%39s %x %*s %*x %*s %*x %*x %*x %*x %15s", dest, &plen, iface) == 3 &&
               plen == 0 && !strcmp(iface, port);
    return sscanf(line, "%15s %x %*x %*x %*d %*d %*d %x", iface, &to, &mask) == 3 && !to && !mask &&
           !strcmp(iface, port);
}

static bool has_default_route(const char *root, const char *port)
{
    static const char *const tables[] = {"/proc/net/route", "/proc/net/ipv6_route"};
    bool found = false;
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX], line[512];
        snprintf(path, sizeof path, "%s%s", root, tables[i]);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f))
            found |= routes_away(line, i == 1, port);
        if (f)
            fclose(f);
    }
    return found;
}

/* --- the file --------------------------------------------------------------------------------- */

static int check_name(const char *port, struct err *err)
{
    size_t n = strlen(port);
    bool fits = n > 0 && n < IF_NAMESIZE && strcmp(port, ".") && strcmp(port, "..");
    for (size_t i = 0; i < n; i++) /* it becomes part of a file's name and of its text */
        fits = fits && port[i] > ' ' && port[i] < 127 && !strchr("/\"'\\*?[]=;,", port[i]);
    return fits ? 0
                : err_set(err, -EINVAL, "\"%.40s\" is no name of an interface: ringctl ports lists them",
                          port);
}

static int check_port(const char *root, const char *port, struct err *err)
{
    char type[16];
    int rc = check_name(port, err);
    if (rc)
        return rc;
    if (!read_port(type, sizeof type, root, port, "type"))
        return err_set(err, -ENODEV, "there is no interface %s: ringctl ports lists them", port);
    if (strcmp(type, "1"))
        return err_set(err, -EINVAL, "%s is not Ethernet, so it is no cable of a ring", port);
    if (has_default_route(root, port))
        return err_set(
            err, -EBUSY,
            "%s carries the default route: it connects this machine to the world and stays as it is", port);
    if (has_port(root, port, "phy80211"))
        return err_set(err, -EBUSY, "%s is wifi, which needs its manager: it stays as it is", port);
    if (has_port(root, port, "master"))
        return err_set(err, -EBUSY, "%s belongs to a bridge or bond: take it out of there first", port);
    return 0;
}

/* What stays the same when the name does not. A MAC drawn at random (type 1) is another after the
 * next boot. */
static bool has_lasting_mac(const char *root, const char *port, char mac[static 32])
{
    char type[16];
    return read_port(type, sizeof type, root, port, "addr_assign_type") && strcmp(type, "1") &&
           read_port(mac, 32, root, port, "address") && strlen(mac) == 17;
}

static void name_file(struct adopt_file *f, const char *port)
{
    snprintf(f->path, sizeof f->path,
             f->manager == networkd ? "/etc/systemd/network/10-ringd-%s.network"
                                    : "/etc/NetworkManager/conf.d/10-ringd-%s.conf",
             port);
    f->apply = f->manager == networkd ? "networkctl reload" : "nmcli general reload conf";
}

static void write_text(struct adopt_file *f, const char *root, const char *port)
{
    char mac[32];
    bool by_mac = has_lasting_mac(root, port, mac);
    if (f->manager == networkd)
        snprintf(f->text, sizeof f->text,
                 "%s; ringctl link release %s removes it.\n"
                 "# This port is a cable between two computers: it is up, and what ringd sets there stays.\n"
                 "[Match]\n%s=%s\nKind=!vlan !bridge !bond\n\n[Link]\nRequiredForOnline=no\n\n"
                 "[Network]\nDHCP=no\nIPv6AcceptRA=no\nLinkLocalAddressing=ipv6\nKeepConfiguration=yes\n",
                 mark, port, by_mac ? "MACAddress" : "Name", by_mac ? mac : port);
    else
        snprintf(f->text, sizeof f->text,
                 "%s; ringctl link release %s removes it.\n"
                 "# This port is a cable between two computers: ringd sets it up.\n"
                 "[keyfile]\nunmanaged-devices+=%s:%s\n",
                 mark, port, by_mac ? "mac" : "interface-name", by_mac ? mac : port);
}

int adopt_plan(struct adopt_file *ret, const char *root, const char *port, struct err *err)
{
    struct adopt_file f = {0};
    int rc = check_port(root, port, err);
    if (rc)
        return rc;
    f.manager = find_manager(root, port);
    if (f.manager) {
        name_file(&f, port);
        write_text(&f, root, port);
    }
    *ret = f;
    return 0;
}

/* --- writing and removing --------------------------------------------------------------------- */

/* 1: ours, 0: not there, −EEXIST: somebody else's. */
static int whose(const char *root, const struct adopt_file *f, struct err *err)
{
    char head[sizeof mark];
    if (!read_file(head, sizeof head, root, f->path))
        return 0;
    return !strcmp(head, mark)
               ? 1
               : err_set(err, -EEXIST,
                         "%s is there and was not written by ringctl link adopt: it stays as it is", f->path);
}

static int make_folder(const char *root, const char *path)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(whole, 0755) && errno != EEXIST)
            return -errno;
        *slash = '/';
    }
    return 0;
}

static int put(int fd, const char *text)
{
    size_t n = strlen(text);
    if (write(fd, text, n) != (ssize_t)n)
        return -EIO;
    return fchmod(fd, 0644) || fsync(fd) ? -errno : 0;
}

int adopt_write(const char *root, const struct adopt_file *f, struct err *err)
{
    char whole[PATH_MAX], fresh[PATH_MAX + 8];
    int rc = whose(root, f, err);
    if (rc < 0)
        return rc;
    snprintf(whole, sizeof whole, "%s%s", root, f->path);
    snprintf(fresh, sizeof fresh, "%s.new", whole);
    rc = make_folder(root, f->path);
    if (!rc) {
        int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        rc = fd < 0 ? -errno : put(fd, f->text);
        if (fd >= 0)
            close(fd);
        if (!rc && rename(fresh, whole))
            rc = -errno;
        if (rc && fd >= 0)
            unlink(fresh);
    }
    return rc ? err_set(err, rc, "%s cannot be written: %s%s", f->path, strerror(-rc),
                        rc == -EACCES ? "; try it with sudo" : "")
              : 0;
}

int adopt_release(struct adopt_file *ret, const char *root, const char *port, struct err *err)
{
    const char *const managers[] = {networkd, nm};
    int rc = check_name(port, err);
    for (size_t i = 0; !rc && i < 2; i++) {
        char whole[PATH_MAX];
        *ret = (struct adopt_file){.manager = managers[i]};
        name_file(ret, port);
        rc = whose(root, ret, err);
        if (rc != 1)
            continue;
        snprintf(whole, sizeof whole, "%s%s", root, ret->path);
        if (unlink(whole) == 0)
            return 0;
        return err_set(err, -errno, "%s cannot be removed: %s%s", ret->path, strerror(errno),
                       errno == EACCES ? "; try it with sudo" : "");
    }
    return rc < 0 ? rc
                  : err_set(err, -ENOENT,
                            "ringctl link adopt has written nothing for %s, so there is nothing to remove",
                            port);
}
