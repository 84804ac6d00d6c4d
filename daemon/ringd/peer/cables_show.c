/* SPDX-License-Identifier: MIT
 *
 * GET /v1/ports: ports, who is heard on each, subnets, and why something is not as it should be.
 * Called by api.c. Loop thread. */
#include "daemon/ringd/peer/cables.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/peer/cables_impl.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/common/xalloc.h"
#include "net/base/reason.h"

/* How far ringd-link is with something. */
static struct linkctl_state state_of(const struct cables *c, enum rlink_verb verb, unsigned ifindex,
                                     const struct prefix *addr)
{
    struct linkctl_state state = {0};
    for (size_t i = 0; i < linkctl_count(c->link); i++) {
        linkctl_at(c->link, i, &state);
        if (state.want.verb == verb && state.want.ifindex == ifindex &&
            (!addr || prefix_equal(&state.want.addr, addr)))
            return state;
    }
    return (struct linkctl_state){0};
}

/* One of the subnets of a cable: both ends' addresses, whether ours is set, and what there is to
 * say. */
static void add_subnet(json_t *to, const struct cables *c, const struct cable_plan *plan, const char *suffix,
                       const struct subnet_cable *subnet, const char *why)
{
    char mine[PREFIX_TEXT] = "", theirs[PREFIX_TEXT] = "", key[32];
    struct linkctl_state state = {0};
    if (plan && subnet->mine.family) {
        prefix_format(&subnet->mine, mine);
        prefix_format(&subnet->theirs, theirs);
        state = state_of(c, RLINK_ADDR_ADD, plan->ifindex, &subnet->mine);
    }
    const char *trouble = state.is_set || *why ? why : state.reason ? state.reason : *mine ? "not yet" : "";
    snprintf(key, sizeof key, "subnet%s", suffix);
    json_object_set_new(to, key, json_string(mine));
    snprintf(key, sizeof key, "peer_subnet%s", suffix);
    json_object_set_new(to, key, json_string(theirs));
    snprintf(key, sizeof key, "subnet%s_set", suffix);
    json_object_set_new(to, key, json_boolean(state.is_set));
    snprintf(key, sizeof key, "subnet%s_trouble", suffix);
    json_object_set_new(to, key, json_string(trouble));
}

static json_t *neighbour_encode(const struct cables *c, const struct port *port,
                                const struct neighbour_view *v)
{
    char address[INET6_ADDRSTRLEN], mtu_trouble[CABLES_TROUBLE] = "", cable[17];
    const struct cable_plan *plan = cables_plan_find(&c->plan, v->cable.id);
    static const struct cable_plan none;
    inet_ntop(AF_INET6, &v->cable.address, address, sizeof address);
    if (v->state == NEIGHBOUR_TWO_WAY)
        cables_trouble(c, v->cable.id, mtu_trouble);
    struct linkctl_state mtu = state_of(c, RLINK_SET_MTU, port->ifindex, NULL);
    json_t *n = json_pack("{s:s s:s s:s s:s s:s s:b s:I s:I s:I s:s s:f}", "node", v->cable.name, "port",
                          v->cable.port_name, "kind", port_kind_name(v->cable.kind), "state",
                          neighbour_state_name(v->state), "address", address, "shared", (int)v->cable.shared,
                          "speed_mbps", (json_int_t)v->cable.speed_mbps, "mtu", (json_int_t)v->cable.mtu,
                          "max_mtu", (json_int_t)v->cable.max_mtu, "mtu_trouble",
                          mtu.reason ? mtu.reason : mtu_trouble, "heard_seconds", (double)v->heard_us / 1e6);
    snprintf(cable, sizeof cable, "%016llx", (unsigned long long)v->cable.id);
    json_object_set_new(n, "cable", json_string(cable));
    json_object_set_new(n, "packet", json_integer(cables_sizes_of(c->sizes, v->cable.id)));
    json_object_set_new(n, "tcp_port", json_integer(v->cable.tcp_port));
    add_subnet(n, c, plan, "", plan ? &plan->six : &none.six, plan ? plan->why6 : "");
    add_subnet(n, c, plan, "4", plan ? &plan->four : &none.four, plan ? plan->why4 : "");
    return n;
}

/* A sentence of its own, or in `room`. */
static const char *why_unusable(const struct cables *c, const struct port *p, struct reason *room)
{
    int error = finder_port_error(c->finder, p->ifindex);
    struct linkctl_state up = state_of(c, RLINK_SET_UP, p->ifindex, NULL);
    if (port_is_usable(p))
        return error ? (*room = reason_of(error)).text : "";
    if (!p->up)
        return up.reason ? up.reason : "it is down: ip link set NAME up, or name it in ports-allow";
    return !p->carrier   ? "nothing is plugged in at the other end"
           : p->enslaved ? "it belongs to a bridge or bond"
                         : "it has no link-local address yet";
}

static json_t *thunderbolt_encode(const struct port_thunderbolt *tb)
{
    return json_pack("{s:s s:s s:i s:i s:i s:i s:s s:b}", "peer", tb->peer_name, "peer_domain", tb->peer_id,
                     "rx_gbps", (int)tb->rx_gbps, "rx_lanes", (int)tb->rx_lanes, "tx_gbps", (int)tb->tx_gbps,
                     "tx_lanes", (int)tb->tx_lanes, "security", tb->security, "iommu", (int)tb->has_iommu);
}

static json_t *port_encode(const struct cables *c, const struct port *p, const struct neighbour_view *seen,
                           size_t n)
{
    struct reason reason;
    json_t *heard = json_array();
    for (size_t i = 0; i < n; i++)
        if (seen[i].cable.ifindex == p->ifindex)
            json_array_append_new(heard, neighbour_encode(c, p, &seen[i]));
    json_t *port = json_pack(
        "{s:s s:s s:s s:b s:b s:b s:I s:I s:I s:b s:s s:o}", "name", p->name, "kind", port_kind_name(p->kind),
        "driver", p->driver, "up", (int)p->up, "carrier", (int)p->carrier, "usable",
        (int)(port_is_usable(p) && !finder_port_error(c->finder, p->ifindex)), "speed_mbps",
        (json_int_t)p->speed_mbps, "mtu", (json_int_t)p->mtu, "max_mtu", (json_int_t)p->max_mtu,
        "default_route", (int)p->has_default_route, "why", why_unusable(c, p, &reason), "heard", heard);
    uint64_t tx, rx;
    if (ports_counters(c->ports, p, &tx, &rx)) {
        json_object_set_new(port, "tx_bytes", json_integer((json_int_t)tx));
        json_object_set_new(port, "rx_bytes", json_integer((json_int_t)rx));
    }
    if (p->kind == PORT_TB)
        json_object_set_new(port, "thunderbolt", thunderbolt_encode(&p->tb));
    return port;
}

json_t *cables_encode(struct cables *c)
{
    json_t *list = json_array();
    if (!c || !c->finder)
        return list;
    struct neighbour_view *seen = xcalloc(CABLES_SEEN, sizeof *seen);
    size_t n = finder_neighbours(c->finder, seen, CABLES_SEEN);
    for (size_t i = 0; i < ports_count(c->ports); i++)
        json_array_append_new(list,
                              port_encode(c, ports_at(c->ports, i), seen, n < CABLES_SEEN ? n : CABLES_SEEN));
    free(seen);
    return list;
}

void cables_describe(const struct cables *c, struct member *self)
{
    self->ncables = 0;
    for (size_t i = 0; c && i < c->plan.n && self->ncables < MEMBER_CABLES; i++) {
        const struct cable_plan *plan = &c->plan.at[i];
        struct member_cable *cable = &self->cables[self->ncables];
        const struct port *port = ports_find(c->ports, plan->ifindex);
        if (!port || (!plan->is_six_free && !plan->four.mine.family))
            continue;
        *cable = (struct member_cable){.four = plan->four.mine};
        if (plan->is_six_free)
            cable->six = plan->six.mine;
        snprintf(cable->port, sizeof cable->port, "%s", port->name);
        self->ncables++;
    }
}

static void add_elsewhere(json_t *list, const struct member *who)
{
    for (size_t i = 0; i < who->ncables; i++) {
        char six[PREFIX_TEXT] = "", four[PREFIX_TEXT] = "";
        const struct member_cable *c = &who->cables[i];
        if (c->six.family)
            prefix_format(&c->six, six);
        if (c->four.family)
            prefix_format(&c->four, four);
        json_array_append_new(list, json_pack("{s:s s:s s:s s:s}", "node", who->name, "port", c->port,
                                              "subnet", six, "subnet4", four));
    }
}

json_t *cables_elsewhere_encode(const struct members *members)
{
    json_t *list = json_array();
    for (size_t i = 1; i < members_count(members); i++)
        if (members_reachable(members, members_at(members, i)->id))
            add_elsewhere(list, members_at(members, i));
    return list;
}

json_t *cables_thunderbolt_encode(struct cables *c)
{
    struct ports_thunderbolt tb = {0};
    const char *trouble = "";
    if (c && c->ports)
        ports_thunderbolt(c->ports, &tb);
    if (tb.peers && !tb.has_driver)
        trouble = "a computer is plugged in, but thunderbolt-net is not loaded: modprobe thunderbolt-net, "
                  "here and there";
    return json_pack("{s:i s:i s:b s:s}", "controllers", (int)tb.domains, "peers", (int)tb.peers, "driver",
                     (int)tb.has_driver, "trouble", trouble);
}

/* Any interface of this machine, also one that no cable may be plugged into. */
static void interface_name(char ret[32], unsigned ifindex)
{
    if (!ifindex)
        snprintf(ret, 32, "nowhere");
    else if (!if_indextoname(ifindex, ret))
        snprintf(ret, 32, "interface %u", ifindex);
}

/* An address or route of this machine within the subnet that does not lead to this cable: it would
 * win. */
static void add_overlaps(struct cables *c, const struct neighbour_view *v, json_t *list)
{
    const struct cable_plan *plan = cables_plan_find(&c->plan, v->cable.id);
    size_t n;
    bool is_partial;
    const struct ports_prefix *at = ports_addresses(c->ports, &n, &is_partial);
    if (!plan || !plan->six.mine.family)
        return;
    for (size_t i = 0; i < n; i++) {
        struct prefix other = {.family = (uint8_t)at[i].family, .plen = at[i].plen};
        char mine[PREFIX_TEXT], theirs[PREFIX_TEXT], leads_to[32];
        memcpy(other.at, at[i].at, sizeof other.at);
        if (at[i].is_ours || at[i].ifindex == v->cable.ifindex || other.plen < plan->six.mine.plen ||
            !prefix_overlaps(&other, &plan->six.mine))
            continue;
        prefix_format(&plan->six.mine, mine);
        prefix_format(&other, theirs);
        interface_name(leads_to, at[i].ifindex);
        json_array_append_new(list, json_pack("{s:s s:s s:s s:s s:b}", "port", v->cable.port, "subnet", mine,
                                              "other", theirs, "other_port", leads_to, "is_route",
                                              (int)at[i].is_route));
    }
}

json_t *cables_health(struct cables *c)
{
    struct finder_stats st = {0};
    if (!c || !c->finder)
        return json_pack("{s:b}", "discover", 0);
    struct neighbour_view *seen = xcalloc(CABLES_SEEN, sizeof *seen);
    size_t n = finder_neighbours(c->finder, seen, CABLES_SEEN);
    json_t *overlaps = json_array();
    for (size_t i = 0; i < n && i < CABLES_SEEN; i++)
        add_overlaps(c, &seen[i], overlaps);
    free(seen);
    finder_stats(c->finder, &st);
    const char *problem = linkctl_problem(c->link);
    return json_pack("{s:b s:s s:o s:I s:I s:I s:I s:I s:I s:I}", "discover", 1, "helper",
                     problem ? problem : "", "overlaps", overlaps, "sent", (json_int_t)st.beacons.sent,
                     "taken", (json_int_t)st.beacons.taken, "garbage", (json_int_t)st.beacons.garbage,
                     "foreign", (json_int_t)st.beacons.foreign, "limited", (json_int_t)st.beacons.limited,
                     "routed", (json_int_t)st.dropped, "unsent", (json_int_t)st.failed);
}
