/* SPDX-License-Identifier: MIT
 *
 * The doctor's judge, on facts made by hand: two healthy nodes with a cable give no complaint, and
 * each fault gives its finding, on the node where it can be mended, with the command. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/doctor/doctor.h"

/* --- worlds ----------------------------------------------------------------------------------- */

static json_t *node(const char *name, const char *own, const char *subnet, const char *other,
                    const char *address)
{
    json_t *facts =
        json_pack("{s:s s:s s:s s:s s:o s:[{s:s s:s s:b s:b s:b s:b s:i s:i s:s s:s s:[{s:s s:s s:s s:s "
                  "s:s}]}] s:{s:b s:s s:[] s:i s:i s:i s:i "
                  "s:i}}",
                  "name", name, "version", "1.2.0", "kernel", "6.1.0-18-amd64", "firewall", "nftables",
                  "links", json_array(), "ports", "name", "eth1", "kind", "ethernet", "up", 1, "carrier", 1,
                  "usable", 1, "ipv6_disabled", 0, "mtu", 9000, "speed_mbps", 10000, "link_local", own,
                  "manager", "", "heard", "node", other, "state", "two-way", "address", address, "subnet",
                  subnet, "subnet_trouble", "", "cables", "discover", 1, "helper", "", "overlaps", "taken",
                  50, "sent", 50, "foreign", 0, "garbage", 0, "unsent", 0);
    assert_non_null(facts);
    json_t *rest = json_pack(
        "{s:{s:s s:s s:i} s:i s:i s:{s:s s:s} s:{s:I s:I s:I s:I} s:{s:s s:I s:I} s:{s:i s:i} s:{s:i s:b} "
        "s:{s:s s:i s:b s:b}}",
        "cluster", "state", "member", "name", "home", "roster_version", 3, "offset_us", 0, "rtt_us", 400,
        "cpu", "model", "a CPU", "isa", "avx2", "memory", "total", (json_int_t)8 << 30, "available",
        (json_int_t)6 << 30, "swap_total", (json_int_t)0, "swap_free", (json_int_t)0, "disk", "path",
        "/var/lib/ringd", "total", (json_int_t)90 << 30, "free", (json_int_t)50 << 30, "fds", "soft", 4096,
        "hard", 4096, "cell", "landlock", 2, "filters", 1, "keys", "file", "/var/lib/ringd/identity", "mode",
        0600, "running", 1, "filters", 1);
    assert_non_null(rest);
    json_object_update(facts, rest);
    json_decref(rest);
    return facts;
}

/* Nodes a and b, and a cable between them. */
static json_t *healthy(void)
{
    json_t *world =
        json_pack("{s:[o o] s:[] s:{s:s s:s}}", "nodes", node("a", "fe80::a", "fd00::a/127", "b", "fe80::b"),
                  node("b", "fe80::b", "fd00::b/127", "a", "fe80::a"), "silent", "ring", "state", "closed",
                  "text", "a ring of 2: a, b");
    assert_non_null(world);
    return world;
}

static json_t *nth(json_t *world, size_t i)
{
    return json_array_get(json_object_get(world, "nodes"), i);
}
static json_t *port(json_t *world, size_t i)
{
    return json_array_get(json_object_get(nth(world, i), "ports"), 0);
}
static json_t *heard(json_t *world, size_t i)
{
    return json_array_get(json_object_get(port(world, i), "heard"), 0);
}
static json_t *part(json_t *world, size_t i, const char *key)
{
    return json_object_get(nth(world, i), key);
}
static void put(json_t *object, const char *key, json_t *value)
{
    assert_non_null(object);
    assert_int_equal(json_object_set_new(object, key, value), 0);
}

static const char *field(const json_t *f, const char *key)
{
    const char *text = json_string_value(json_object_get(f, key));
    return text ? text : "";
}

/* Judges, and lets go of the world: exactly this complaint, whose sentence and command have these
 * in them. */
static void complains(json_t *world, const char *severity, const char *name, const char *check,
                      const char *text, const char *fix)
{
    json_t *findings = doctor_judge(world), *f;
    size_t i, n = 0;
    json_array_foreach (findings, i, f) {
        if (!strcmp(field(f, "severity"), "ok"))
            continue;
        n++;
        if (strcmp(field(f, "severity"), severity) || strcmp(field(f, "node"), name) ||
            strcmp(field(f, "check"), check) || !strstr(field(f, "text"), text) ||
            !strstr(field(f, "fix"), fix) || (!*fix && *field(f, "fix")))
            fail_msg("%s %s %s: %s (fix: %s)", field(f, "severity"), field(f, "node"), field(f, "check"),
                     field(f, "text"), field(f, "fix"));
    }
    assert_int_equal(n, 1);
    assert_int_equal(doctor_is_ill(findings), strcmp(severity, "note") != 0);
    json_decref(findings);
    json_decref(world);
}
static void is_content(json_t *world)
{
    json_t *findings = doctor_judge(world), *f;
    size_t i;
    json_array_foreach (findings, i, f) {
        if (strcmp(field(f, "severity"), "ok"))
            fail_msg("%s %s: %s", field(f, "node"), field(f, "check"), field(f, "text"));
    }
    assert_true(i > 20);
    assert_false(doctor_is_ill(findings));
    json_decref(findings);
    json_decref(world);
}

/* --- the network ------------------------------------------------------------------------------ */

static void two_healthy_nodes(void **state)
{
    (void)state;
    is_content(healthy());
}

static void no_thunderbolt_module(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(nth(w, 1), "thunderbolt", json_pack("{s:b s:s s:[]}", "module", 0, "security", "user", "waiting"));
    complains(w, "error", "b", "thunderbolt", "not loaded", "modprobe thunderbolt-net");
    w = healthy();
    put(nth(w, 0), "thunderbolt",
        json_pack("{s:b s:s s:[s]}", "module", 1, "security", "user", "waiting", "0-1"));
    complains(w, "warning", "a", "thunderbolt", "0-1 is not authorised (security level user)",
              "echo 1 >/sys/bus/thunderbolt/devices/0-1/authorized");
}

static void no_iommu(void **state)
{
    (void)state;
    for (int on = 0; on < 2; on++) {
        json_t *w = healthy();
        put(nth(w, 0), "thunderbolt",
            json_pack("{s:b s:s s:[]}", "module", 1, "security", "none", "waiting"));
        put(port(w, 0), "thunderbolt", json_pack("{s:b}", "iommu", on));
        if (on)
            is_content(w);
        else
            complains(w, "note", "a", "thunderbolt", "IOMMU", "");
    }
}

static void kernels_that_lose_large_packets(void **state)
{
    (void)state;
    static const struct {
        const char *release;
        bool bad;
    } kernels[] = {{"5.15.133-x", true},      {"5.15.134", false}, {"6.1.55", true}, {"6.1.56", false},
                   {"6.1.0-18-amd64", false}, {"5.10.0-2", true},  {"6.4.16", true}, {"6.5.6", false},
                   {"6.12.3", false},         {"nonsense", false}};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        json_t *w = healthy();
        put(port(w, 0), "kind", json_string("thunderbolt"));
        put(nth(w, 0), "thunderbolt",
            json_pack("{s:b s:s s:[]}", "module", 1, "security", "none", "waiting"));
        put(nth(w, 0), "kernel", json_string(kernels[i].release));
        if (kernels[i].bad)
            complains(w, "warning", "a", "thunderbolt", kernels[i].release, "apt-get");
        else
            is_content(w);
    }
}

static void ports_that_cannot_be_used(void **state)
{
    (void)state;
    json_t *w = healthy(), *dead = json_pack("{s:s s:b s:b s:b s:s}", "name", "eth2", "up", 1, "carrier", 1,
                                             "usable", 0, "why", "none yet");
    put(dead, "ipv6_disabled", json_true());
    json_array_append(part(w, 0, "ports"), dead);
    complains(w, "warning", "a", "ports", "IPv6 is off", "echo 0 >/proc/sys/net/ipv6/conf/eth2/disable_ipv6");
    put(dead, "ipv6_disabled", json_false());
    w = healthy();
    json_array_append(part(w, 0, "ports"), dead);
    complains(w, "warning", "a", "ports", "no link-local address", "addrgenmode eui64");
    put(dead, "up", json_false());
    w = healthy();
    json_array_append(part(w, 0, "ports"), dead);
    complains(w, "note", "a", "ports", "is down", "ip link set eth2 up");
    put(dead, "up", json_true());
    put(dead, "carrier", json_false());
    w = healthy();
    json_array_append_new(part(w, 0, "ports"), dead);
    is_content(w);
}

static void a_firewall_and_a_one_way_cable(void **state)
{
    (void)state;
    for (int arrives = 0; arrives < 2; arrives++) {
        json_t *w = healthy();
        put(heard(w, 0), "state", json_string("one-way"));
        json_array_clear(json_object_get(port(w, 1), "heard"));
        put(port(w, 1), "arrived", json_integer(arrives * 3));
        if (arrives)
            complains(w, "error", "b", "cables", "a firewall here drops the beacons of a",
                      "nft insert rule inet filter input udp dport 17464 accept");
        else
            complains(w, "error", "b", "cables", "works one way only: a hears this node on eth1",
                      "ip link set eth1 down");
    }
    json_t *w = healthy(); /* the deaf end cannot be asked */
    put(heard(w, 0), "state", json_string("one-way"));
    json_array_remove(json_object_get(w, "nodes"), 1);
    complains(w, "error", "a", "cables", "b does not hear this node", "");
    w = healthy();
    put(heard(w, 1), "state", json_string("cloned"));
    complains(w, "error", "b", "cables", "two machines have the identity of a", "");
}

/* a is node 0, b node 1. */
static void firewalls_that_drop_tcp(void **state)
{
    (void)state;
    json_t *w = healthy();
    for (size_t i = 0; i < 2; i++)
        put(heard(w, i), "tcp_port", json_integer(17464));
    put(heard(w, 0), "tcp", json_string("silent"));
    put(heard(w, 1), "tcp", json_string("open"));
    json_t *copy = json_deep_copy(w), *apart = json_deep_copy(w);
    complains(w, "error", "b", "tcp", "TCP port 17464 does not answer it",
              "nft insert rule inet filter input tcp dport 17464 accept");
    /* b's own calls arrive at a, and a's answers do not arrive at b: both calls are lost, at one
     * firewall */
    put(heard(copy, 1), "tcp", json_string("silent"));
    put(heard(copy, 0), "half_open", json_true());
    put(nth(copy, 1), "firewall", json_string("ufw"));
    complains(copy, "error", "b", "tcp", "a firewall here drops calls of a", "ufw allow 17464/tcp");
    /* b cannot be asked */
    json_array_remove(json_object_get(apart, "nodes"), 1);
    put(heard(apart, 0), "half_open", json_true());
    json_t *here = json_deep_copy(apart);
    complains(apart, "error", "a", "tcp", "a firewall on b drops TCP", "");
    put(heard(here, 0), "half_open", json_false());
    complains(here, "error", "a", "tcp", "no call of it arrives here", "tcp dport 17464");
}

static void mtus_that_differ(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(port(w, 1), "mtu", json_integer(1500));
    complains(w, "warning", "b", "mtu", "MTU 1500 here and 9000 at the other end, eth1 of a",
              "ip link set eth1 mtu 9000");
    w = healthy();
    put(port(w, 1), "mtu", json_integer(1500));
    put(port(w, 1), "max_mtu", json_integer(4000));
    complains(w, "warning", "b", "mtu", "on a, `ip link set eth1 mtu 4000`", "ip link set eth1 mtu 4000");
    /* a switch between the two takes less than both ends: both have found it, and one says it */
    w = healthy();
    put(heard(w, 0), "packet", json_integer(1492));
    put(heard(w, 1), "packet", json_integer(1492));
    complains(w, "warning", "a", "mtu", "packets above 1492 bytes are lost", "ip link set eth1 mtu 1492");
    w = healthy();
    put(heard(w, 0), "packet", json_integer(9000));
    is_content(w);
}

static void cables_below_their_rate(void **state)
{
    (void)state;
    json_t *w = healthy();
    json_array_append_new(part(w, 0, "links"), json_pack("{s:s s:s s:i s:i}", "peer", "b", "address", "x",
                                                         "measured_mbps", 5900, "negotiated_mbps", 10000));
    complains(w, "warning", "a", "rate", "5900 Mb/s were measured to b (x), of 10000", "");
    w = healthy();
    json_array_append_new(part(w, 0, "links"), json_pack("{s:s s:i s:i}", "peer", "b", "measured_mbps", 6000,
                                                         "negotiated_mbps", 10000));
    is_content(w);
    w = healthy();
    put(port(w, 0), "speed_mbps", json_integer(100));
    complains(w, "warning", "a", "rate", "100 Mb/s", "ethtool -s eth1 autoneg on");
}

static void subnets(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(heard(w, 1), "subnet_trouble", json_string("not permitted"));
    put(port(w, 1), "manager", json_string("networkd"));
    complains(w, "warning", "b", "subnets", "not set: not permitted; the port belongs to networkd",
              "ringctl link adopt eth1");
    w = healthy();
    put(part(w, 0, "cables"), "helper", json_string("ringd-link is not there"));
    complains(w, "note", "a", "subnets", "ringd-link is not there", "systemctl start ringd-link");
    w = healthy();
    json_array_append_new(json_object_get(part(w, 0, "cables"), "overlaps"),
                          json_pack("{s:s s:s s:s s:s s:b}", "port", "eth1", "subnet", "fd00::a/127", "other",
                                    "fd00::b/128", "other_port", "tun0", "is_route", 1));
    complains(w, "warning", "a", "subnets", "the route fd00::b/128 on tun0",
              "ip route del fd00::b/128 dev tun0");
    w = healthy();
    json_t *twin = json_deep_copy(nth(w, 1));
    put(twin, "name", json_string("c"));
    put(json_array_get(json_object_get(twin, "ports"), 0), "link_local", json_string("fe80::c"));
    put(heard(w, 1), "subnet", json_string("fd00::c/127"));
    put(json_array_get(json_object_get(json_array_get(json_object_get(twin, "ports"), 0), "heard"), 0),
        "subnet", json_string("fd00::d/127"));
    json_array_append(json_object_get(w, "nodes"), twin);
    json_t *all = json_deep_copy(w);
    is_content(w);
    put(heard(all, 1), "subnet", json_string("fd00::d/127"));
    json_t *findings = doctor_judge(all), *f;
    size_t i, n = 0;
    json_array_foreach (findings, i, f)
        n += strstr(field(f, "text"), "fd00::d/127 belongs to another cable") != NULL;
    assert_int_equal(n, 2);
    json_decref(findings);
    json_decref(all);
    json_decref(twin);
}

static void a_missing_ipv4_subnet(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(heard(w, 1), "subnet4", json_string("10.0.0.1/31"));
    put(heard(w, 1), "subnet4_trouble", json_string("not yet"));
    complains(w, "warning", "b", "subnets", "10.0.0.1/31 is not set: not yet",
              "systemctl restart ringd-link");
}

static void strange_beacons_and_lost_peers(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(part(w, 0, "cables"), "foreign", json_integer(80));
    complains(w, "note", "a", "beacons", "80 beacons of another cluster", "");
    w = healthy();
    put(part(w, 0, "cables"), "unsent", json_integer(80));
    put(nth(w, 0), "firewall", json_string("ufw"));
    complains(w, "warning", "a", "beacons", "could not be sent", "ufw allow 17464/udp");
    w = healthy();
    json_array_append_new(part(w, 1, "links"),
                          json_pack("{s:s s:s s:s s:s}", "address", "h:1", "direction", "dialing", "state",
                                    "down", "why", "connection refused"));
    complains(w, "warning", "b", "links", "no connection to h:1: connection refused", "");
    w = healthy();
    put(json_object_get(w, "ring"), "state", json_string("chain"));
    complains(w, "warning", "a", "ring", "a ring of 2", "");
    w = healthy();
    json_array_append_new(json_object_get(w, "silent"),
                          json_pack("{s:s s:s s:s}", "name", "c", "why", "no answer", "fix", "do it"));
    complains(w, "error", "c", "answer", "no answer", "do it");
}

/* --- the machine ------------------------------------------------------------------------------ */

static void clusters_and_versions(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(part(w, 0, "cluster"), "state", json_string("none"));
    complains(w, "warning", "a", "cluster", "in no cluster", "ringctl init");
    w = healthy();
    put(part(w, 1, "cluster"), "roster_version", json_integer(2));
    complains(w, "warning", "b", "cluster", "version 2 of the roster and others 3",
              "systemctl restart ringd");
    w = healthy();
    put(nth(w, 0), "version", json_string("1.10.0"));
    complains(w, "warning", "b", "version", "ringd 1.2.0 runs here and 1.10.0 on a", "apt-get");
}

static void clocks(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(nth(w, 1), "offset_us", json_integer(-2500000));
    complains(w, "warning", "b", "clock", "2.5 s behind that of a", "timedatectl");
    w = healthy();
    put(nth(w, 1), "offset_us", json_integer(1400000));
    put(nth(w, 1), "rtt_us", json_integer(1000000)); /* a slow way makes it unsure by half of it */
    is_content(w);
    w = healthy(); /* of three, the one that asks is wrong */
    json_array_append_new(json_object_get(w, "nodes"), node("c", "fe80::c", "", "x", "fe80::f"));
    put(nth(w, 1), "offset_us", json_integer(3000000));
    put(nth(w, 2), "offset_us", json_integer(3000100));
    complains(w, "warning", "a", "clock", "3.0 s behind that of most nodes", "timedatectl");
}

static void processors(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(part(w, 1, "cpu"), "governor", json_string("powersave"));
    put(part(w, 1, "cpu"), "driver", json_string("acpi-cpufreq"));
    complains(w, "note", "b", "cpu", "governor powersave", "scaling_governor");
    w = healthy();
    put(part(w, 1, "cpu"), "governor", json_string("powersave"));
    put(part(w, 1, "cpu"), "driver", json_string("intel_pstate"));
    is_content(w);
    w = healthy();
    put(part(w, 1, "cpu"), "isa", json_string("avx512"));
    complains(w, "note", "b", "cpu", "avx512 and a with avx2", "");
}

static void memory_and_disk(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(part(w, 0, "memory"), "available", json_integer(100 << 20));
    complains(w, "warning", "a", "memory", "only 100 MiB of 8.0 GiB", "ps ");
    w = healthy();
    put(part(w, 0, "memory"), "swap_total", json_integer((json_int_t)4 << 30));
    complains(w, "note", "a", "memory", "4.0 GiB are swapped out", "swapoff");
    w = healthy();
    put(part(w, 1, "disk"), "free", json_integer(500 << 20));
    complains(w, "warning", "b", "disk", "only 500 MiB are free", "du -xhd1 /var/lib/ringd");
    w = healthy();
    put(part(w, 1, "disk"), "free", json_integer(5 << 20));
    put(part(w, 1, "disk"), "path", json_string("/x; reboot"));
    complains(w, "error", "b", "disk", "only 5 MiB are free", "du -xhd1 '/x; reboot' |");
    w = healthy();
    put(part(w, 1, "fds"), "soft", json_integer(256));
    complains(w, "warning", "b", "disk", "256 file descriptors are allowed", "prlimit");
    w = healthy();
    put(nth(w, 1), "history_trouble", json_string("the disk is full"));
    complains(w, "error", "b", "disk", "not being written: the disk is full", "");
    w = healthy();
    put(nth(w, 1), "stage_trouble",
        json_string("ringd-stage cannot be started from /x: No such file or directory"));
    complains(w, "error", "b", "programs", "ringd-stage cannot be started from /x", "");
}

static void kernels_without_cells(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(part(w, 0, "cell"), "landlock", json_integer(0));
    complains(w, "warning", "a", "cell", "no Landlock: a hostile model or node", "lsm");
    w = healthy();
    put(part(w, 1, "cell"), "filters", json_false());
    complains(w, "warning", "b", "cell", "does not filter system calls", "");
}

static void keepers_that_do_not_keep(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(part(w, 0, "keys"), "running", json_false());
    complains(w, "error", "a", "keys", "ringd-keys, which has the keys of this node, does not run",
              "restart");
    w = healthy();
    put(part(w, 1, "keys"), "filters", json_false());
    complains(w, "warning", "b", "keys", "ringd-keys is not in its cell", "restart");
    w = healthy();
    put(part(w, 1, "keys"), "mode", json_integer(0640));
    complains(w, "error", "b", "keys", "identity, which holds the keys of this node, can be read",
              "chmod 600 /var");
    w = healthy();
    json_object_del(part(w, 1, "keys"), "mode");
    complains(w, "error", "b", "keys", "/var/lib/ringd/identity is gone", "");
}

static void profiles_not_enforced(void **state)
{
    (void)state;
    json_t *w = healthy();
    put(nth(w, 0), "apparmor", json_string("complain"));
    complains(w, "warning", "a", "apparmor", "and allows it", "aa-enforce");
    w = healthy();
    put(nth(w, 1), "apparmor", json_string("unconfined"));
    complains(w, "warning", "b", "apparmor", "it does not confine ringd", "apparmor_parser -r");
}

static void models(void **state)
{
    (void)state;
    static const char same[] = "00112233445566778899aabbccddeeff",
                      other[] = "00112233445566778899aabbccddeefe";
    for (int fault = 0; fault < 8; fault++) {
        json_t *w = healthy();
        for (size_t i = 0; i < 2; i++)
            put(nth(w, i), "model",
                json_pack("{s:s s:s s:I}", "dir", "/m", "fingerprint", "11223344aa", "bytes",
                          (json_int_t)(fault == 3 ? 13 : 2) << 30));
        if (fault == 1)
            put(part(w, 1, "model"), "fingerprint", json_string("99223344aa"));
        if (fault == 2)
            put(nth(w, 0), "model", json_pack("{s:s s:s}", "dir", "/m", "error", "/m is missing"));
        for (size_t i = 0; fault >= 4 && i < 2; i++)
            put(part(w, i, "model"), "weights",
                json_sprintf("%s,%s,%s;AAABAAAC%s", same, i && fault < 6 ? other : same,
                             i && fault == 6 ? "-" : same, i && fault < 6 ? "AAAX" : "AAAD"));
        if (fault == 5)
            put(part(w, 0, "model"), "names", json_string("one\t/m/1\ntwo\t/m/1\nthree\t/m/2\n"));
        if (fault == 7)
            put(part(w, 1, "model"), "missing", json_string("model-2.safetensors"));
        if (fault == 0)
            is_content(w);
        else if (fault == 4)
            complains(
                w, "error", "b", "model",
                "1 of the 3 units (embedding, layers, head) of the model in /m have other values than on a",
                "rsync -a --checksum a:/m/ /m/");
        else if (fault == 5)
            complains(w, "error", "b", "model", "tensor three in /m/2 has other values than on a",
                      "rsync -a --checksum a:/m/ /m/");
        else if (fault == 6)
            complains(w, "note", "b", "model",
                      "2 of the 3 units (embedding, layers, head) of the model in /m could be compared with "
                      "those on a",
                      "");
        else if (fault == 7)
            complains(w, "note", "b", "model", "lacks model-2.safetensors on this node", "");
        else if (fault == 1)
            complains(w, "error", "b", "model",
                      "differs from that on a (fingerprint 99223344, there 11223344)",
                      "rsync -a --checksum a:/m/ /m/");
        else if (fault == 2)
            complains(w, "error", "a", "model", "/m is missing", "rsync -a --checksum b:/m/ /m/");
        else
            complains(w, "error", "a", "model", "13.0 GiB of weights, and all nodes together 12.0 GiB", "");
    }
}

/* Facts come from others: whatever they are, there is an answer, and nothing in it steers a
 * terminal or a shell. */
static void nonsense_is_taken(void **state)
{
    (void)state;
    static const char *const worlds[] = {
        "{}", "{\"nodes\":[]}", "{\"nodes\":[{}]}", "{\"nodes\":[[1],{\"name\":7}]}",
        "{\"nodes\":[{\"ports\":[1,{\"heard\":5},{\"heard\":[null]}],\"cables\":[],\"links\":{},"
        "\"cluster\":{},\"memory\":\"x\",\"model\":{},\"disk\":{}}],\"silent\":[4]}"};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        json_t *world = json_loads(worlds[i], 0, NULL);
        assert_non_null(world);
        json_t *findings = doctor_judge(world);
        assert_true(json_is_array(findings));
        json_decref(findings);
        json_decref(world);
    }
    json_t *w = healthy();
    put(port(w, 0), "name", json_string("x'\033[2J;reboot"));
    put(port(w, 0), "mtu", json_integer(1500));
    complains(w, "warning", "a", "mtu", "eth1 of b", "ip link set 'x'\\''?[2J;reboot' mtu 9000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_healthy_nodes),
        cmocka_unit_test(no_thunderbolt_module),
        cmocka_unit_test(no_iommu),
        cmocka_unit_test(kernels_that_lose_large_packets),
        cmocka_unit_test(ports_that_cannot_be_used),
        cmocka_unit_test(a_firewall_and_a_one_way_cable),
        cmocka_unit_test(firewalls_that_drop_tcp),
        cmocka_unit_test(mtus_that_differ),
        cmocka_unit_test(cables_below_their_rate),
        cmocka_unit_test(subnets),
        cmocka_unit_test(a_missing_ipv4_subnet),
        cmocka_unit_test(strange_beacons_and_lost_peers),
        cmocka_unit_test(clusters_and_versions),
        cmocka_unit_test(clocks),
        cmocka_unit_test(processors),
        cmocka_unit_test(memory_and_disk),
        cmocka_unit_test(kernels_without_cells),
        cmocka_unit_test(keepers_that_do_not_keep),
        cmocka_unit_test(profiles_not_enforced),
        cmocka_unit_test(models),
        cmocka_unit_test(nonsense_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
