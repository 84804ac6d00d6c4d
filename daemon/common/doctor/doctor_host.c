/* SPDX-License-Identifier: MIT
 *
 * Owns nothing. Called by doctor_ask.c on the loop, and by ringctl. Files of /proc and /sys only:
 * none of them makes the caller wait. */
#include "daemon/common/doctor/doctor_host.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "daemon/common/cell_kernel.h"

/* --- small files ------------------------------------------------------------------------------ */

struct line {
    char text[256];
};

/* The first line of a file; "" if there is none. */
static bool read_line(struct line *ret, const char *root, const char *path)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "re");
    ret->text[0] = 0;
    bool got = f && fgets(ret->text, sizeof ret->text, f);
    if (f)
        fclose(f);
    ret->text[strcspn(ret->text, "\n")] = 0;
    return got;
}

static bool exists(const char *root, const char *path)
{
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    return !access(full, F_OK);
}

/* "key<sep>value" in a file, whatever space there is around both. */
static bool find_value(struct line *ret, const char *root, const char *path, const char *key, char sep)
{
    char full[PATH_MAX], line[512];
    bool found = false;
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *at = strchr(line, sep), *end = at;
        if (!at || strncmp(line, key, strlen(key)))
            continue;
        while (end > line && isspace((unsigned char)end[-1]))
            end--;
        if ((size_t)(end - line) != strlen(key))
            continue;
        at += 1 + strspn(at + 1, " \t\"");
        at[strcspn(at, "\"\n")] = 0;
        snprintf(ret->text, sizeof ret->text, "%s", at);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

static void set_text(json_t *object, const char *key, const char *text)
{
    json_object_set_new(object, key, json_string(text)); /* not UTF-8: left out */
}

/* --- the machine ------------------------------------------------------------------------------ */

static const char *firewall(const char *root)
{
    struct line enabled;
    if (find_value(&enabled, root, "/etc/ufw/ufw.conf", "ENABLED", '=') && !strcmp(enabled.text, "yes"))
        return "ufw";
    if (exists(root, "/run/firewalld.pid"))
        return "firewalld";
    return exists(root, "/usr/sbin/nft") ? "nftables" : "iptables";
}

static bool is_waiting(const char *root, const char *device)
{
    char path[PATH_MAX];
    struct line authorized;
    snprintf(path, sizeof path, "/sys/bus/thunderbolt/devices/%s/authorized", device);
    return read_line(&authorized, root, path) && !strcmp(authorized.text, "0");
}

/* NULL: there is no controller. */
static json_t *thunderbolt(const char *root)
{
    char path[PATH_MAX];
    struct line security = {""};
    snprintf(path, sizeof path, "%s/sys/bus/thunderbolt/devices", root);
    DIR *dir = opendir(path);
    if (!dir)
        return NULL;
    json_t *waiting = json_array();
    size_t domains = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (is_waiting(root, e->d_name))
            json_array_append_new(waiting, json_string(e->d_name));
        if (strncmp(e->d_name, "domain", 6))
            continue;
        domains++;
        snprintf(path, sizeof path, "/sys/bus/thunderbolt/devices/%s/security", e->d_name);
        read_line(&security, root, path);
    }
    closedir(dir);
    if (!domains) {
        json_decref(waiting);
        return NULL;
    }
    return json_pack("{s:b s:s s:o}", "module", (int)exists(root, "/sys/module/thunderbolt_net"), "security",
                     security.text, "waiting", waiting);
}

static json_t *cpu(const char *root)
{
    struct line line;
    json_t *facts = json_object();
    if (find_value(&line, root, "/proc/cpuinfo", "model name", ':'))
        set_text(facts, "model", line.text);
    if (read_line(&line, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
        set_text(facts, "governor", line.text);
    if (read_line(&line, root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver"))
        set_text(facts, "driver", line.text);
    return facts;
}

static json_t *memory(const char *root)
{
    static const struct {
        const char *field, *key;
    } names[] = {{"MemTotal", "total"},
                 {"MemAvailable", "available"},
                 {"SwapTotal", "swap_total"},
                 {"SwapFree", "swap_free"}};
    struct line line;
    json_t *facts = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (find_value(&line, root, "/proc/meminfo", names[i].field, ':'))
            json_object_set_new(facts, names[i].key, json_integer(strtoll(line.text, NULL, 10) * 1024));
    return facts;
}

json_t *doctor_host_facts(const char *root, const char *state_dir)
{
    struct utsname name;
    struct statvfs fs;
    struct rlimit fds;
    json_t *facts =
        json_pack("{s:s s:o s:o}", "firewall", firewall(root), "cpu", cpu(root), "memory", memory(root));
    json_t *tb = thunderbolt(root);
    if (tb)
        json_object_set_new(facts, "thunderbolt", tb);
    if (!uname(&name))
        set_text(facts, "kernel", name.release);
    if (state_dir && !statvfs(state_dir, &fs))
        json_object_set_new(facts, "disk",
                            json_pack("{s:s s:I s:I}", "path", state_dir, "total",
                                      (json_int_t)fs.f_blocks * (json_int_t)fs.f_frsize, "free",
                                      (json_int_t)fs.f_bavail * (json_int_t)fs.f_frsize));
    json_object_set_new(facts, "cell",
                        json_pack("{s:i s:b}", "landlock", (int)cell_kernel_landlock(), "filters",
                                  (int)cell_kernel_filters()));
    if (!getrlimit(RLIMIT_NOFILE, &fds))
        json_object_set_new(facts, "fds",
                            json_pack("{s:I s:I}", "soft", (json_int_t)(fds.rlim_cur & INT_MAX), "hard",
                                      (json_int_t)(fds.rlim_max & INT_MAX)));
    return facts;
}

json_t *doctor_host_keys(const char *root, const char *state_dir, int64_t pid)
{
    enum { FILTERED = 2 }; /* of /proc/PID/status, SECCOMP_MODE_FILTER */
    char path[PATH_MAX];
    struct line line;
    struct stat st;
    json_t *keys = json_object();
    snprintf(path, sizeof path, "%s/identity", state_dir);
    set_text(keys, "file", path);
    if (!stat(path, &st))
        json_object_set_new(keys, "mode", json_integer(st.st_mode & 07777));
    /* A process that lets nobody look into it can be asked nothing else. */
    json_object_set_new(keys, "running", json_boolean(pid > 0 && (!kill((pid_t)pid, 0) || errno != ESRCH)));
    snprintf(path, sizeof path, "/proc/%lld/status", (long long)pid);
    if (pid > 0 && find_value(&line, root, path, "Seccomp", ':'))
        json_object_set_new(keys, "filters", json_boolean(strtol(line.text, NULL, 10) == FILTERED));
    return keys;
}

/* "ringd (enforce)", or the names of two profiles where one was put on top of the other. */
json_t *doctor_host_apparmor(const char *root)
{
    struct line line;
    if (!read_line(&line, root, "/sys/module/apparmor/parameters/enabled") || line.text[0] != 'Y')
        return json_string("");
    if (!read_line(&line, root, "/proc/self/attr/apparmor/current") &&
        !read_line(&line, root, "/proc/self/attr/current"))
        return json_string("");
    const char *mode = strrchr(line.text, '(');
    if (mode && !strcmp(mode, "(enforce)"))
        return json_string("enforce");
    return json_string(mode && !strcmp(mode, "(complain)") ? "complain" : "unconfined");
}

/* --- ports ------------------------------------------------------------------------------------ */

static void add_address(json_t *port, const char *digits)
{
    struct in6_addr address;
    char text[INET6_ADDRSTRLEN];
    for (size_t i = 0; i < sizeof address.s6_addr; i++) {
        unsigned byte;
        if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
            return;
        address.s6_addr[i] = (uint8_t)byte;
    }
    if (inet_ntop(AF_INET6, &address, text, sizeof text))
        set_text(port, "link_local", text);
}

/* "fe80::1" of the port, from /proc/net/if_inet6: 32 digits, index, length, scope, flags, name. */
static void add_link_local(const char *root, const char *name, json_t *port)
{
    char path[PATH_MAX], line[256], digits[33], who[64];
    unsigned scope, flags;
    snprintf(path, sizeof path, "%s/proc/net/if_inet6", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%32s %*x %*x %x %x %63s", digits, &scope, &flags, who) == 4 && scope == 0x20 &&
            !strcmp(who, name)) {
            add_address(port, digits);
            break;
        }
    if (f)
        fclose(f);
}

static const char *manager(const char *root, const char *name)
{
    char path[PATH_MAX];
    struct line line, index;
    snprintf(path, sizeof path, "/sys/class/net/%s/ifindex", name);
    if (!read_line(&index, root, path))
        return "";
    snprintf(path, sizeof path, "/run/systemd/netif/links/%.16s", index.text);
    if (find_value(&line, root, path, "NETWORK_FILE", '='))
        return "networkd";
    snprintf(path, sizeof path, "/run/NetworkManager/devices/%.16s", index.text);
    if (find_value(&line, root, path, "managed", '=') && !strcmp(line.text, "full"))
        return "NetworkManager";
    return "";
}

double doctor_host_received(const char *root, const char *name)
{
    char path[PATH_MAX];
    struct line line;
    snprintf(path, sizeof path, "/sys/class/net/%s/statistics/rx_packets", name);
    return read_line(&line, root, path) ? strtod(line.text, NULL) : -1;
}

void doctor_host_port(const char *root, const char *name, json_t *port)
{
    char path[PATH_MAX];
    struct line line;
    snprintf(path, sizeof path, "/sys/class/net/%s/flags", name);
    if (read_line(&line, root, path))
        json_object_set_new(port, "up", json_boolean(strtoul(line.text, NULL, 16) & 1));
    snprintf(path, sizeof path, "/proc/sys/net/ipv6/conf/%s/disable_ipv6", name);
    if (read_line(&line, root, path))
        json_object_set_new(port, "ipv6_disabled", json_boolean(!strcmp(line.text, "1")));
    snprintf(path, sizeof path, "/sys/class/net/%s/master", name);
    json_object_set_new(port, "enslaved", json_boolean(exists(root, path)));
    set_text(port, "manager", manager(root, name));
    add_link_local(root, name, port);
}

static double read_number(const char *root, const char *name, const char *file)
{
    char path[PATH_MAX];
    struct line line;
    snprintf(path, sizeof path, "/sys/class/net/%s/%s", name, file);
    return read_line(&line, root, path) ? strtod(line.text, NULL) : 0;
}

json_t *doctor_host_ports(const char *root)
{
    char path[PATH_MAX];
    json_t *list = json_array();
    snprintf(path, sizeof path, "%s/sys/class/net", root);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "/sys/class/net/%s/device", e->d_name);
        if (*e->d_name == '.' || !exists(root, path))
            continue;
        double speed = read_number(root, e->d_name, "speed"); /* −1: unknown */
        json_t *port = json_pack("{s:s s:b s:I s:I}", "name", e->d_name, "carrier",
                                 (int)(read_number(root, e->d_name, "carrier") > 0), "speed_mbps",
                                 (json_int_t)(speed > 0 ? speed : 0), "mtu",
                                 (json_int_t)read_number(root, e->d_name, "mtu"));
        if (!port)
            continue;
        doctor_host_port(root, e->d_name, port);
        json_array_append_new(list, port);
    }
    if (dir)
        closedir(dir);
    return list;
}
