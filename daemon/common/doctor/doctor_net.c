/* SPDX-License-Identifier: MIT
 *
 * PURE: the checks of ports, cables and connections, of a node alone and of both ends of a cable.
 * Called by doctor.c. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/doctor/doctor_impl.h"
#include "daemon/common/xalloc.h"

enum { MEASURED_PERCENT = 60, SLOW_ETHERNET_MBPS = 1000, GARBAGE_PERCENT = 10 };

static bool is(const char *a, const char *b)
{
    return !strcmp(a, b);
}

static const json_t *ports_of(const json_t *node)
{
    return json_object_get(node, "ports");
}

static bool always(const struct judge *j)
{
    (void)j;
    return true;
}

static bool has_links(const struct judge *j)
{
    return fact_known(j->me, "links");
}

/* What only a daemon that looks for cables knows. */
static bool discovers(const struct judge *j)
{
    return fact_flag(json_object_get(j->me, "cables"), "discover");
}

/* --- who is at the other end ------------------------------------------------------------------ */

/* The port of another node with that link-local address, and its node. */
static const json_t *port_at(const struct judge *j, const char *address, const json_t **ret_node)
{
    size_t i, k;
    json_t *node, *port;
    json_array_foreach (j->nodes, i, node) {
        if (node == j->me)
            continue;
        json_array_foreach (ports_of(node), k, port) {
            if (*address && is(fact_text(port, "link_local"), address)) {
                *ret_node = node;
                return port;
            }
        }
    }
    return NULL;
}

/* What another node hears of this port; it calls us by our address. */
static const json_t *heard_by(const struct judge *j, const char *address, const json_t **ret_node,
                              const json_t **ret_port)
{
    size_t i, k, m;
    json_t *node, *port, *heard;
    json_array_foreach (j->nodes, i, node) {
        if (node == j->me)
            continue;
        json_array_foreach (ports_of(node), k, port) {
            json_array_foreach (json_object_get(port, "heard"), m, heard) {
                if (*address && is(fact_text(heard, "address"), address)) {
                    *ret_node = node;
                    *ret_port = port;
                    return heard;
                }
            }
        }
    }
    return NULL;
}

/* --- thunderbolt ------------------------------------------------------------------------------ */

static bool has_thunderbolt(const struct judge *j)
{
    return json_is_object(json_object_get(j->me, "thunderbolt"));
}

/* IPv6 TCP over thunderbolt-net lost every large packet before these; what a distribution put into
 * an older kernel cannot be seen. */
static bool drops_large_packets(const char *kernel)
{
    unsigned major = 0, minor = 0, patch = 0;
    if (sscanf(kernel, "%u.%u.%u", &major, &minor, &patch) < 2)
        return false;
    if (major == 5 && minor == 15)
        return patch < 134;
    if (major == 6 && minor == 1)
        return patch < 56 && patch > 0; /* Debian's names end in .0 whatever is in them */
    return major < 5 || (major == 5 && minor < 15) || (major == 5 && minor > 15) || (major == 6 && minor < 5);
}

static bool has_thunderbolt_port(const json_t *node)
{
    size_t i;
    json_t *port;
    json_array_foreach (ports_of(node), i, port) {
        if (is(fact_text(port, "kind"), "thunderbolt"))
            return true;
    }
    return false;
}

/* Whoever is plugged in can read and write this machine's memory, if nothing stands between. */
static void look_iommu(struct judge *j)
{
    size_t i;
    json_t *port;
    json_array_foreach (ports_of(j->me), i, port) {
        const json_t *tb = json_object_get(port, "thunderbolt");
        if (fact_known(tb, "iommu") && !fact_flag(tb, "iommu"))
            doctor_say(j, DOCTOR_NOTE, fact_text(port, "name"), NULL,
                       "no IOMMU protects this machine's memory from plugged-in devices: switch it on in the "
                       "firmware, and with intel_iommu=on or amd_iommu=on on the kernel's command line");
    }
}

static void look_thunderbolt(struct judge *j)
{
    const json_t *tb = json_object_get(j->me, "thunderbolt");
    size_t i;
    json_t *device;
    if (!fact_flag(tb, "module"))
        doctor_say(
            j, DOCTOR_ERROR, "thunderbolt-net",
            xstrdup("modprobe thunderbolt-net && echo thunderbolt-net >/etc/modules-load.d/ringd.conf"),
            "this machine has Thunderbolt, but the module thunderbolt-net is not loaded: without it, neither "
            "end sees the other as a network");
    json_array_foreach (json_object_get(tb, "waiting"), i, device) {
        const char *name = json_string_value(device);
        if (name)
            doctor_say(
                j, DOCTOR_WARNING, name,
                xasprintf("echo 1 >/sys/bus/thunderbolt/devices/%s/authorized", doctor_word(name).text),
                "the Thunderbolt device %s is not authorised (security level %s): `boltctl enroll` "
                "authorises it permanently",
                name, fact_text(tb, "security"));
    }
    look_iommu(j);
    if (has_thunderbolt_port(j->me) && drops_large_packets(fact_text(j->me, "kernel")))
        doctor_say(j, DOCTOR_WARNING, "kernel", xstrdup("apt-get install --only-upgrade linux-image-amd64"),
                   "kernel %s may lose large IPv6 packets over Thunderbolt, so that connections hang: "
                   "5.15.134 and 6.1.56 repair that",
                   fact_text(j->me, "kernel"));
}

/* --- ports ------------------------------------------------------------------------------------ */

static void look_port(struct judge *j, const json_t *port)
{
    const char *name = fact_text(port, "name");
    struct word word = doctor_word(name);
    if (fact_known(port, "up") && !fact_flag(port, "up"))
        doctor_say(j, DOCTOR_NOTE, name, xasprintf("ip link set %s up", word.text),
                   "the port is down, so no node can be found on it");
    else if (!fact_flag(port, "carrier") || fact_flag(port, "enslaved"))
        return; /* empty, or part of a bridge: no fault */
    else if (fact_flag(port, "ipv6_disabled"))
        doctor_say(j, DOCTOR_WARNING, name,
                   xasprintf("echo 0 >/proc/sys/net/ipv6/conf/%s/disable_ipv6", word.text),
                   "IPv6 is off on a port with a cable: ringd finds and reaches neighbours by IPv6 "
                   "link-local addresses");
    else if (fact_known(port, "usable") && !fact_flag(port, "usable") && !*fact_text(port, "link_local"))
        doctor_say(j, DOCTOR_WARNING, name,
                   xasprintf("ip link set %s addrgenmode eui64 && ip link set %s down && ip link set %s up",
                             word.text, word.text, word.text),
                   "the port has no link-local address: %s", fact_text(port, "why"));
    else if (fact_known(port, "usable") && !fact_flag(port, "usable"))
        doctor_say(j, DOCTOR_NOTE, name, NULL, "the port cannot be used: %s", fact_text(port, "why"));
}

static void look_ports(struct judge *j)
{
    size_t i;
    json_t *port;
    json_array_foreach (ports_of(j->me), i, port)
        look_port(j, port);
}

/* --- cables: who hears whom ------------------------------------------------------------------- */

static char *open_port(const json_t *node)
{
    const char *firewall = fact_text(node, "firewall");
    if (is(firewall, "ufw"))
        return xstrdup("ufw allow 17464/udp && ufw allow 17464/tcp");
    if (is(firewall, "firewalld"))
        return xstrdup(
            "firewall-cmd --permanent --add-port=17464/udp --add-port=17464/tcp && firewall-cmd --reload");
    return xstrdup(is(firewall, "nftables") ? "nft insert rule inet filter input udp dport 17464 accept"
                                            : "ip6tables -I INPUT -p udp --dport 17464 -j ACCEPT");
}

/* Another node hears this port, and this port hears nothing. Whether packets arrive tells a
 * firewall from a cable. */
static void look_deaf(struct judge *j, const json_t *port)
{
    const json_t *node, *far;
    const char *name = fact_text(port, "name");
    struct word word = doctor_word(name);
    if (!fact_flag(port, "usable") || json_array_size(json_object_get(port, "heard")) ||
        !heard_by(j, fact_text(port, "link_local"), &node, &far))
        return;
    const char *other = fact_text(node, "name"), *other_port = fact_text(far, "name");
    if (!fact_known(port, "arrived"))
        doctor_say(j, DOCTOR_NOTE, name, NULL, "%s hears this port on %s, and is not heard yet", other,
                   other_port);
    else if (fact_number(port, "arrived") > 0)
        doctor_say(j, DOCTOR_ERROR, name, open_port(j->me),
                   "a firewall here drops the beacons of %s: other packets arrive from its port %s; let UDP "
                   "port 17464 in, multicast too",
                   other, other_port);
    else
        doctor_say(j, DOCTOR_ERROR, name,
                   xasprintf("ip link set %s down && ip link set %s up", word.text, word.text),
                   "the cable works one way only: %s hears this node on %s, and nothing at all arrives here; "
                   "if the command does not help, "
                   "try another cable, and look for what blocks sending on %s",
                   other, other_port, other);
}

/* A neighbour that is no cable, seen from the end that hears. The deaf end says it, if it can be
 * asked. */
static void look_heard(struct judge *j, const json_t *port, const json_t *heard)
{
    const char *state = fact_text(heard, "state"), *name = fact_text(port, "name"),
               *who = fact_text(heard, "node");
    const json_t *node = NULL, *far = port_at(j, fact_text(heard, "address"), &node);
    if (is(state, "one-way") && far && !json_array_size(json_object_get(far, "heard")))
        return;
    if (is(state, "one-way"))
        doctor_say(j, DOCTOR_ERROR, name, NULL,
                   "%s does not hear this node: a firewall there drops UDP port 17464, or the cable works "
                   "one way only; `ringctl doctor` on %s shows which",
                   who, who);
    else if (is(state, "version"))
        doctor_say(j, DOCTOR_ERROR, name, NULL,
                   "%s speaks another version of the protocol: install the same ringd on both", who);
    else if (is(state, "cloned"))
        doctor_say(j, DOCTOR_ERROR, name, NULL,
                   "two machines have the identity of %s: remove the file identity in the state directory of "
                   "the copied machine, and let it join again",
                   who);
}

static void look_cables(struct judge *j)
{
    size_t i, k;
    json_t *port, *heard;
    json_array_foreach (ports_of(j->me), i, port) {
        look_deaf(j, port);
        json_array_foreach (json_object_get(port, "heard"), k, heard)
            look_heard(j, port, heard);
    }
}

/* --- firewalls and TCP ------------------------------------------------------------------------ */

static char *open_tcp(const json_t *node, double port)
{
    const char *firewall = fact_text(node, "firewall");
    if (is(firewall, "ufw"))
        return xasprintf("ufw allow %.0f/tcp", port);
    if (is(firewall, "firewalld"))
        return xasprintf("firewall-cmd --permanent --add-port=%.0f/tcp && firewall-cmd --reload", port);
    return xasprintf(is(firewall, "nftables") ? "nft insert rule inet filter input tcp dport %.0f accept"
                                              : "ip6tables -I INPUT -p tcp --dport %.0f -j ACCEPT",
                     port);
}

static bool is_blocked(const json_t *heard)
{
    return is(fact_text(heard, "tcp"), "silent") || is(fact_text(heard, "tcp"), "refused");
}

/* The other end called this port in vain. Not if its call did arrive here: then it is the answer
 * that is dropped, over there. */
static void look_called(struct judge *j, const json_t *port, const json_t *heard)
{
    const json_t *node = NULL, *far = NULL;
    const json_t *called = heard_by(j, fact_text(port, "link_local"), &node, &far);
    if (!called || !is_blocked(called) || fact_flag(heard, "half_open"))
        return;
    const double tcp = fact_number(called, "tcp_port");
    doctor_say(
        j, DOCTOR_ERROR, fact_text(port, "name"), open_tcp(j->me, tcp),
        "a firewall here drops calls of %s: its beacons pass, and TCP port %.0f does not answer it; let "
        "TCP port %.0f in",
        fact_text(node, "name"), tcp, tcp);
}

/* This node called in vain somebody who could not be asked. */
static void look_caller(struct judge *j, const json_t *port, const json_t *heard)
{
    const json_t *node = NULL;
    const char *who = fact_text(heard, "node"), *name = fact_text(port, "name");
    const double tcp = fact_number(heard, "tcp_port");
    if (!is_blocked(heard) || port_at(j, fact_text(heard, "address"), &node))
        return;
    if (fact_flag(heard, "half_open"))
        doctor_say(
            j, DOCTOR_ERROR, name, NULL,
            "a firewall on %s drops TCP: beacons pass, its calls arrive here, and nothing of ours arrives "
            "there; let TCP port %.0f in on %s, where `ringctl doctor` gives the command",
            who, tcp, who);
    else
        doctor_say(
            j, DOCTOR_ERROR, name, open_tcp(j->me, tcp),
            "a firewall drops TCP between this node and %s, whose beacons pass: %s does not answer on TCP "
            "port %.0f, and no call of it arrives here; let it in here, and on %s",
            who, who, tcp, who);
}

static void look_tcp(struct judge *j)
{
    size_t i, k;
    json_t *port, *heard;
    json_array_foreach (ports_of(j->me), i, port) {
        json_array_foreach (json_object_get(port, "heard"), k, heard) {
            look_called(j, port, heard);
            look_caller(j, port, heard);
        }
    }
}

/* --- MTU -------------------------------------------------------------------------------------- */

/* Both ends find it: said at the one that comes first. */
static void look_packet(struct judge *j, const json_t *port, const json_t *heard, const json_t *far,
                        const json_t *node)
{
    const double packet = fact_number(heard, "packet"), mtu = fact_number(port, "mtu");
    const double theirs = far ? fact_number(far, "mtu") : fact_number(heard, "mtu");
    const char *name = fact_text(port, "name"), *who = fact_text(heard, "node");
    if (packet <= 0 || packet >= mtu || (theirs > 0 && packet >= theirs) ||
        (node && strcmp(fact_text(j->me, "name"), fact_text(node, "name")) > 0))
        return;
    doctor_say(
        j, DOCTOR_WARNING, name, xasprintf("ip link set %s mtu %.0f", doctor_word(name).text, packet),
        "packets above %.0f bytes are lost between here (MTU %.0f) and %s (MTU %.0f): a switch or adapter "
        "between them takes less; connections use smaller packets; let it take larger ones, or give both "
        "ends this MTU",
        packet, mtu, who, theirs);
}

static void look_mtu(struct judge *j)
{
    size_t i, k;
    json_t *port, *heard;
    json_array_foreach (ports_of(j->me), i, port) {
        json_array_foreach (json_object_get(port, "heard"), k, heard) {
            const json_t *node = NULL, *far = port_at(j, fact_text(heard, "address"), &node);
            double mine = fact_number(port, "mtu"), theirs = fact_number(far, "mtu"),
                   most = fact_number(port, "max_mtu");
            look_packet(j, port, heard, far, node);
            if (!far || mine <= 0 || mine >= theirs) /* said once, where it is too small */
                continue;
            const char *name = fact_text(port, "name"), *other = fact_text(far, "name"),
                       *who = fact_text(node, "name");
            if (most > 0 && most < theirs)
                doctor_say(j, DOCTOR_WARNING, name,
                           xasprintf("ip link set %s mtu %.0f", doctor_word(name).text, most),
                           "MTU %.0f here and %.0f at the other end: larger packets from there are lost "
                           "silently, and this port takes %.0f at most: on %s, `ip link set %s mtu %.0f`",
                           mine, theirs, most, who, doctor_word(other).text, most);
            else
                doctor_say(j, DOCTOR_WARNING, name,
                           xasprintf("ip link set %s mtu %.0f", doctor_word(name).text, theirs),
                           "MTU %.0f here and %.0f at the other end, %s of %s: larger packets from there are "
                           "lost silently",
                           mine, theirs, other, who);
        }
    }
}

/* --- rates ------------------------------------------------------------------------------------ */

static void look_rate(struct judge *j)
{
    size_t i;
    json_t *item;
    json_array_foreach (json_object_get(j->me, "links"), i, item) {
        double measured = fact_number(item, "measured_mbps"),
               negotiated = fact_number(item, "negotiated_mbps");
        if (measured > 0 && negotiated > 0 && measured * 100 < negotiated * MEASURED_PERCENT)
            doctor_say(j, DOCTOR_WARNING, fact_text(item, "peer"), NULL,
                       "%.0f Mb/s were measured to %s (%s), of %.0f negotiated: try another cable or port, "
                       "or give this CPU less work",
                       measured, fact_text(item, "peer"), fact_text(item, "address"), negotiated);
    }
    json_array_foreach (ports_of(j->me), i, item) {
        double speed = fact_number(item, "speed_mbps");
        const char *name = fact_text(item, "name");
        if (is(fact_text(item, "kind"), "ethernet") && fact_flag(item, "carrier") && speed > 0 &&
            speed < SLOW_ETHERNET_MBPS && json_array_size(json_object_get(item, "heard")))
            doctor_say(j, DOCTOR_WARNING, name, xasprintf("ethtool -s %s autoneg on", doctor_word(name).text),
                       "the cable runs at %.0f Mb/s: the cable may have a broken pair, or an old switch is "
                       "in between",
                       speed);
    }
}

/* --- subnets ---------------------------------------------------------------------------------- */

/* Another cable of any node has the same subnet. An end has two addresses of one: what is the same
 * is this end's. */
static bool is_duplicate(const struct judge *j, const json_t *mine, const char *key, const char *subnet)
{
    size_t i, k, m;
    json_t *node, *port, *heard;
    json_array_foreach (j->nodes, i, node) {
        json_array_foreach (ports_of(node), k, port) {
            json_array_foreach (json_object_get(port, "heard"), m, heard) {
                if (heard != mine && is(fact_text(heard, key), subnet))
                    return true;
            }
        }
    }
    return false;
}

/* suffix: "" is IPv6, "4" the address out of ipv4-pool. */
static void look_subnet(struct judge *j, const json_t *port, const json_t *heard, const char *suffix)
{
    char key[16], why[32];
    snprintf(key, sizeof key, "subnet%s", suffix);
    snprintf(why, sizeof why, "subnet%s_trouble", suffix);
    const char *name = fact_text(port, "name"), *subnet = fact_text(heard, key);
    const char *trouble = fact_text(heard, why), *manager = fact_text(port, "manager");
    if (*subnet && is_duplicate(j, heard, key, subnet))
        doctor_say(j, DOCTOR_ERROR, name, NULL,
                   "the address %s belongs to another cable as well: two nodes have one identity, or one MAC "
                   "address; remove the file "
                   "identity of a copied machine",
                   subnet);
    if (*trouble && !*fact_text(json_object_get(j->me, "cables"), "helper"))
        doctor_say(j, DOCTOR_WARNING, name,
                   *manager ? xasprintf("ringctl link adopt %s", doctor_word(name).text)
                            : xstrdup("systemctl restart ringd-link"),
                   "the address %s is not set: %s%s%s", *subnet ? subnet : "of this cable", trouble,
                   *manager ? "; the port belongs to " : "", manager);
}

static void look_overlaps(struct judge *j)
{
    size_t i;
    json_t *o;
    json_array_foreach (json_object_get(json_object_get(j->me, "cables"), "overlaps"), i, o) {
        const char *other = fact_text(o, "other");
        bool is_route = fact_flag(o, "is_route");
        struct word word = doctor_word(other), dev = doctor_word(fact_text(o, "other_port"));
        doctor_say(j, DOCTOR_WARNING, fact_text(o, "port"),
                   is_route ? xasprintf("ip route del %s dev %s", word.text, dev.text)
                            : xasprintf("ip addr del %s dev %s", word.text, dev.text),
                   "the %s %s on %s takes what belongs to this cable's subnet %s",
                   is_route ? "route" : "address", other, fact_text(o, "other_port"), fact_text(o, "subnet"));
    }
}

static void look_subnets(struct judge *j)
{
    size_t i, k;
    json_t *port, *heard;
    const char *helper = fact_text(json_object_get(j->me, "cables"), "helper");
    bool wanted = false;
    json_array_foreach (ports_of(j->me), i, port) {
        json_array_foreach (json_object_get(port, "heard"), k, heard) {
            wanted |= *fact_text(heard, "subnet") != 0;
            look_subnet(j, port, heard, "");
            look_subnet(j, port, heard, "4");
        }
    }
    if (*helper && wanted)
        doctor_say(j, DOCTOR_NOTE, "ringd-link", xstrdup("systemctl start ringd-link"), "%s; jobs do without",
                   helper);
    look_overlaps(j);
}

/* --- beacons ---------------------------------------------------------------------------------- */

static void look_beacons(struct judge *j)
{
    const json_t *c = json_object_get(j->me, "cables");
    double taken = fact_number(c, "taken"), foreign = fact_number(c, "foreign"),
           garbage = fact_number(c, "garbage");
    double limited = fact_number(c, "limited"), unsent = fact_number(c, "unsent"),
           sent = fact_number(c, "sent");
    if (foreign > 0 && foreign > taken)
        doctor_say(j, DOCTOR_NOTE, "beacons", NULL,
                   "this node heard %.0f beacons of another cluster or under another key: if the sender is "
                   "your node, let it join again (`ringctl join`)",
                   foreign);
    if (garbage * 100 > (taken + garbage) * GARBAGE_PERCENT || limited > taken)
        doctor_say(j, DOCTOR_NOTE, "beacons", NULL,
                   "%.0f datagrams on UDP port 17464 were no beacons, and %.0f more were dropped unread: "
                   "another program uses this port",
                   garbage, limited);
    if (unsent * 2 > sent && unsent > 10)
        doctor_say(j, DOCTOR_WARNING, "beacons", open_port(j->me),
                   "%.0f of %.0f beacons could not be sent: a firewall here blocks them", unsent,
                   sent + unsent);
}

/* --- connections and the ring ----------------------------------------------------------------- */

static void look_links(struct judge *j)
{
    size_t i;
    json_t *l;
    json_array_foreach (json_object_get(j->me, "links"), i, l) {
        if (is(fact_text(l, "state"), "down") && is(fact_text(l, "direction"), "dialing"))
            doctor_say(j, DOCTOR_WARNING, fact_text(l, "address"), NULL, "no connection to %s: %s",
                       fact_text(l, "address"), fact_text(l, "why"));
        else if (fact_flag(l, "suspect"))
            doctor_say(j, DOCTOR_WARNING, fact_text(l, "peer"), NULL,
                       "nothing was heard of %s (%s) for some seconds", fact_text(l, "peer"),
                       fact_text(l, "address"));
    }
}

/* Of the cluster as a whole: said of the node that asked. */
static bool asks(const struct judge *j)
{
    return j->me == json_array_get(j->nodes, 0) && json_is_object(json_object_get(j->world, "ring"));
}

static void look_ring(struct judge *j)
{
    const json_t *ring = json_object_get(j->world, "ring");
    const char *state = fact_text(ring, "state");
    if (is(state, "chain") || is(state, "broken"))
        doctor_say(j, DOCTOR_WARNING, "ring", NULL, "%s", fact_text(ring, "text"));
}

const struct check doctor_net_checks[] = {
    {"ring", "the ring is closed", asks, look_ring},
    {"thunderbolt", "module loaded, all devices authorised", has_thunderbolt, look_thunderbolt},
    {"ports", "every port with something plugged in can be used", always, look_ports},
    {"cables", "the nodes that this node hears also hear it", discovers, look_cables},
    {"tcp", "the nodes that this node hears accept its connections", discovers, look_tcp},
    {"mtu", "both ends of every cable take packets of one size, and they pass", discovers, look_mtu},
    {"rate", "no cable is slower than it should be", has_links, look_rate},
    {"subnets", "every cable has a subnet of its own", discovers, look_subnets},
    {"beacons", "beacons come and go", discovers, look_beacons},
    {"links", "every peer asked for is connected", has_links, look_links},
    {.name = NULL},
};
