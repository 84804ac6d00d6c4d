/* SPDX-License-Identifier: MIT */
#include "daemon/cables.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cluster.h"
#include "daemon/enrol.h"
#include "daemon/linkctl.h"
#include "daemon/log.h"
#include "daemon/node.h"
#include "daemon/peers.h"
#include "daemon/xalloc.h"
#include "net/finder.h"
#include "net/subnet.h"

struct cables {
    struct node *node;     /* borrowed: owner */
    struct ports *ports;   /* owned */
    struct finder *finder; /* owned */
    struct event *asking;  /* owned: while this node looks for a member that knows its token */
    struct linkctl *link;  /* owned: sets the cables' subnets through ringd-link */
};

enum { ASK_EVERY_S = 1, ANSWER_SIZE = TOKEN_TAG + 2 };

/* --- a subnet for every point-to-point cable, for people and other tools: our own connections do without ---------------------------------------- */

enum { MOST_SEEN = 256 };

static bool subnet_of(const struct cables *c, const struct neighbour_view *v, struct subnet_cable *ret)
{
    uint8_t cluster[CERT_ID];
    const struct member *self = members_self(c->node->members);
    struct subnet_end mine = {.port_id = v->cable.port_id}, theirs = {.port_id = v->cable.peer_port_id};
    memcpy(mine.node, self->id, 16);
    memcpy(theirs.node, v->cable.node_id, 16);
    cert_cluster_id(cluster, cluster_key(c->node->cluster));
    return v->state == NEIGHBOUR_TWO_WAY && !v->cable.shared && !subnet_cable6(ret, cluster, &mine, &theirs);
}

static void want_subnets(struct cables *c)
{
    struct neighbour_view *seen = xcalloc(MOST_SEEN, sizeof *seen);
    struct linkctl_want *want = xcalloc(MOST_SEEN, sizeof *want);
    size_t n = c->finder && cluster_state(c->node->cluster) == CLUSTER_MEMBER
                   ? finder_neighbours(c->finder, seen, MOST_SEEN)
                   : 0;
    size_t wanted = 0;
    for (size_t i = 0; i < n && i < MOST_SEEN; i++) {
        struct subnet_cable subnet;
        if (subnet_of(c, &seen[i], &subnet))
            want[wanted++] = (struct linkctl_want){RLINK_ADDR_ADD, seen[i].cable.ifindex, 0, subnet.mine};
    }
    linkctl_want(c->link, want, wanted);
    free(want);
    free(seen);
}

static void set_scope(struct cables *c)
{
    uint8_t cluster[CERT_ID];
    struct prefix ula;
    if (cluster_state(c->node->cluster) != CLUSTER_MEMBER)
        return;
    cert_cluster_id(cluster, cluster_key(c->node->cluster));
    subnet_ula(&ula, cluster);
    linkctl_scope(c->link, &ula, NULL);
}

/* --- what the finder tells ---------------------------------------------------------------------------------------------------------------- */

static const char *port_name(const struct cables *c, unsigned ifindex)
{
    const struct port *p = ports_find(c->ports, ifindex);
    return p ? p->name : "a port that is gone";
}

static void on_cable_up(void *owner, const struct cable *cable)
{
    struct cables *c = owner;
    log_info("cable on %s: %s%s", port_name(c, cable->ifindex), cable->name,
             cable->shared ? ", over a shared segment" : "");
    peers_cable_up(c->node->peers, cable);
    want_subnets(c);
}

static void on_cable_changed(void *owner, const struct cable *cable)
{
    struct cables *c = owner;
    peers_cable_up(c->node->peers, cable);
    want_subnets(c);
}

static const char *end_sentence(enum cable_end end)
{
    switch (end) {
    case CABLE_END_SILENT: return "nothing was heard any more";
    case CABLE_END_ONE_WAY: return "the other end does not hear us any more";
    case CABLE_END_LEFT: return "the other end said goodbye";
    case CABLE_END_RESTARTED: return "the other end was restarted";
    case CABLE_END_PORT: return "unplugged, or the port was taken down";
    case CABLE_END_CLONED: return "two machines have the identity of the other end";
    case CABLE_END_VERSION: return "the other end speaks another version";
    }
    return "";
}

static void on_cable_down(void *owner, const struct cable *cable, enum cable_end end)
{
    struct cables *c = owner;
    log_warning("cable on %s to %s is out: %s", port_name(c, cable->ifindex), cable->name, end_sentence(end));
    peers_cable_down(c->node->peers, cable->id, end_sentence(end), end == CABLE_END_RESTARTED);
    want_subnets(c);
}

static void on_trouble(void *owner, const struct cable *with, enum neighbour_state state)
{
    struct cables *c = owner;
    static const char *const advice[] = {
        [NEIGHBOUR_ONE_WAY] = "is heard and does not hear us: a firewall there that drops UDP port 17464, or "
                              "a cable with one dead pair",
        [NEIGHBOUR_VERSION] = "runs a ringd whose protocol we do not speak: install the same version",
        [NEIGHBOUR_CLONED] = "is alive twice under one identity: was a disk copied? Remove the file identity "
                             "in one machine's state directory",
    };
    if (state < sizeof advice / sizeof *advice && advice[state])
        log_warning("%s on %s %s", with->name, port_name(c, with->ifindex), advice[state]);
}

/* --- a newcomer with a token asks on every cable; a member that knows the token answers where to call ----------------------------------------- */

static void answer_question(struct cables *c, unsigned ifindex, const uint8_t *body, size_t n)
{
    uint8_t answer[ANSWER_SIZE];
    uint16_t port = peers_port(c->node->peers);
    if (n < TOKEN_TAG || !enrol_answers(c->node->enrol, body, answer))
        return;
    answer[TOKEN_TAG] = (uint8_t)port;
    answer[TOKEN_TAG + 1] = (uint8_t)(port >> 8);
    finder_ask(c->finder, ifindex, BEACON_JOINA, answer, sizeof answer);
}

static void on_ask(void *owner, unsigned ifindex, const struct in6_addr *from, enum beacon_type type,
                   const uint8_t *body, size_t n)
{
    struct cables *c = owner;
    char address[INET6_ADDRSTRLEN], host[INET6_ADDRSTRLEN + 16];
    if (type == BEACON_JOINQ) {
        answer_question(c, ifindex, body, n);
    } else if (n >= ANSWER_SIZE && enrol_is_answer(c->node->enrol, body)) {
        inet_ntop(AF_INET6, from, address, sizeof address);
        snprintf(host, sizeof host, "%s%%%u", address, ifindex);
        enrol_try(c->node->enrol, host, (uint16_t)(body[TOKEN_TAG] | body[TOKEN_TAG + 1] << 8));
    }
}

static void on_asking(evutil_socket_t fd, short what, void *arg)
{
    struct cables *c = arg;
    uint8_t question[TOKEN_TAG];
    struct timeval again = {ASK_EVERY_S, 0};
    (void)fd;
    (void)what;
    if (!enrol_question(c->node->enrol, question))
        return;
    finder_ask(c->finder, 0, BEACON_JOINQ, question, sizeof question);
    event_add(c->asking, &again);
}

void cables_search(struct cables *c)
{
    if (c && c->finder)
        event_active(c->asking, EV_TIMEOUT, 0);
}

static const struct finder_ops finder_ops = {
    .beacons = {on_cable_up, on_cable_changed, on_cable_down, on_trouble},
    .ask = on_ask,
};

static void on_ports_changed(void *owner)
{
    struct cables *c = owner;
    if (c->finder)
        finder_update(c->finder);
    linkctl_recheck(c->link);
}

static const struct ports_ops ports_ops = {on_ports_changed};

/* --- opening ------------------------------------------------------------------------------------------------------------------------------------ */

static size_t beacon_keys(const struct cables *c, struct beacon_key ret[2])
{
    struct cluster_net_key keys[2];
    size_t n = cluster_net_keys(c->node->cluster, keys, 2);
    for (size_t i = 0; i < n; i++) {
        ret[i].id = keys[i].generation;
        beacon_key_derive(ret[i].key, keys[i].key);
    }
    sodium_memzero(keys, sizeof keys);
    return n;
}

static int open_finder(struct cables *c)
{
    struct beacon_key keys[2];
    const struct member *self = members_self(c->node->members);
    struct finder_setup setup = {.base = c->node->base,
                                 .ports = c->ports,
                                 .keys = keys,
                                 .nkeys = beacon_keys(c, keys),
                                 .ops = &finder_ops,
                                 .owner = c};
    memcpy(setup.self.node_id, self->id, 16);
    setup.self.boot = self->boot;
    snprintf(setup.self.name, sizeof setup.self.name, "%s", c->node->name);
    setup.self.tcp_port = peers_port(c->node->peers);
    setup.self.proto_min = setup.self.proto_max = 1;
    int r = finder_open(&c->finder, &setup);
    sodium_memzero(keys, sizeof keys);
    return r;
}

int cables_open(struct cables **ret, struct node *node, struct err *err)
{
    struct cables *c = xcalloc(1, sizeof *c);
    c->node = node;
    c->asking = event_new(node->base, -1, 0, on_asking, c);
    *ret = c;
    if (!strcmp(opts_str(node->opts, "discover"), "off"))
        return 0;
    struct ports_policy policy = {0};
    policy.nallow = opts_list(node->opts, "ports-allow", &policy.allow);
    policy.ndeny = opts_list(node->opts, "ports-deny", &policy.deny);
    struct linkctl_setup link = {.base = node->base, .path = opts_str(node->opts, "link-socket")};
    int r = linkctl_open(&c->link, &link);
    if (r)
        return err_set(err, r, "--link-socket: %s", strerror(-r));
    set_scope(c);
    r = ports_open(&c->ports, node->base, &policy, &ports_ops, c);
    if (!r)
        r = open_finder(c);
    return r ? err_set(err, r, "the network interfaces cannot be watched: %s; --discover off does without",
                       strerror(-r))
             : 0;
}

void cables_close(struct cables *c)
{
    if (!c)
        return;
    event_free(c->asking);
    finder_close(c->finder);
    ports_close(c->ports);
    linkctl_close(c->link);
    free(c);
}

void cables_keys_changed(struct cables *c)
{
    struct beacon_key keys[2];
    if (!c || !c->finder)
        return;
    size_t n = beacon_keys(c, keys);
    finder_set_keys(c->finder, keys, n);
    sodium_memzero(keys, sizeof keys);
    set_scope(c);
}

/* --- showing ------------------------------------------------------------------------------------------------------------------------------------ */

/* Whether ringd-link has set the address, or why not. */
static const char *subnet_trouble(const struct cables *c, unsigned ifindex)
{
    for (size_t i = 0; i < linkctl_count(c->link); i++) {
        struct linkctl_state state;
        linkctl_at(c->link, i, &state);
        if (state.want.ifindex == ifindex)
            return state.is_set ? "" : state.reason ? state.reason : "not yet";
    }
    return "";
}

static json_t *neighbour_encode(struct cables *c, const struct neighbour_view *v)
{
    char address[INET6_ADDRSTRLEN], mine[PREFIX_TEXT] = "", theirs[PREFIX_TEXT] = "";
    struct subnet_cable subnet;
    inet_ntop(AF_INET6, &v->cable.address, address, sizeof address);
    if (cluster_state(c->node->cluster) == CLUSTER_MEMBER && subnet_of(c, v, &subnet)) {
        prefix_format(&subnet.mine, mine);
        prefix_format(&subnet.theirs, theirs);
    }
    return json_pack("{s:s s:s s:s s:s s:s s:s s:b s:I s:f}", "subnet", mine, "peer_subnet", theirs,
                     "subnet_trouble", *mine ? subnet_trouble(c, v->cable.ifindex) : "", "node",
                     v->cable.name, "state", neighbour_state_name(v->state), "address", address, "shared",
                     (int)v->cable.shared, "speed_mbps", (json_int_t)v->cable.speed_mbps, "heard_seconds",
                     (double)v->heard_us / 1e6);
}

static json_t *port_encode(struct cables *c, const struct port *p, const struct neighbour_view *seen,
                           size_t n)
{
    json_t *heard = json_array();
    int error = finder_port_error(c->finder, p->ifindex);
    for (size_t i = 0; i < n; i++)
        if (seen[i].cable.ifindex == p->ifindex)
            json_array_append_new(heard, neighbour_encode(c, &seen[i]));
    const char *why = port_is_usable(p) ? (error ? strerror(-error) : "")
                      : !p->up          ? "it is down: ip link set NAME up"
                      : !p->carrier     ? "nothing is plugged in at the other end"
                      : p->enslaved     ? "it belongs to a bridge or bond"
                                        : "it has no link-local address yet";
    return json_pack("{s:s s:s s:b s:b s:I s:I s:s s:o}", "name", p->name, "kind", port_kind_name(p->kind),
                     "carrier", (int)p->carrier, "usable", (int)(port_is_usable(p) && !error), "speed_mbps",
                     (json_int_t)p->speed_mbps, "mtu", (json_int_t)p->mtu, "why", why, "heard", heard);
}

json_t *cables_encode(struct cables *c)
{
    json_t *list = json_array();
    if (!c || !c->finder)
        return list;
    struct neighbour_view *seen = xcalloc(MOST_SEEN, sizeof *seen);
    size_t n = finder_neighbours(c->finder, seen, MOST_SEEN);
    for (size_t i = 0; i < ports_count(c->ports); i++)
        json_array_append_new(list,
                              port_encode(c, ports_at(c->ports, i), seen, n < MOST_SEEN ? n : MOST_SEEN));
    free(seen);
    return list;
}

/* An address or route of this machine within the subnet that does not lead to this cable: it would win. */
static void add_overlaps(struct cables *c, const struct neighbour_view *v, json_t *list)
{
    struct subnet_cable subnet;
    size_t n;
    bool is_partial;
    const struct ports_prefix *at = ports_addresses(c->ports, &n, &is_partial);
    if (cluster_state(c->node->cluster) != CLUSTER_MEMBER || !subnet_of(c, v, &subnet))
        return;
    for (size_t i = 0; i < n; i++) {
        struct prefix other = {.family = (uint8_t)at[i].family, .plen = at[i].plen};
        char mine[PREFIX_TEXT], theirs[PREFIX_TEXT];
        memcpy(other.at, at[i].at, sizeof other.at);
        if (at[i].ifindex == v->cable.ifindex || other.plen < subnet.mine.plen ||
            !prefix_overlaps(&other, &subnet.mine))
            continue;
        prefix_format(&subnet.mine, mine);
        prefix_format(&other, theirs);
        json_array_append_new(list, json_pack("{s:s s:s s:s s:s s:b}", "port", port_name(c, v->cable.ifindex),
                                              "subnet", mine, "other", theirs, "other_port",
                                              at[i].ifindex ? port_name(c, at[i].ifindex) : "nowhere",
                                              "is_route", (int)at[i].is_route));
    }
}

json_t *cables_health(struct cables *c)
{
    struct finder_stats st = {0};
    if (!c || !c->finder)
        return json_pack("{s:b}", "discover", 0);
    struct neighbour_view *seen = xcalloc(MOST_SEEN, sizeof *seen);
    size_t n = finder_neighbours(c->finder, seen, MOST_SEEN);
    json_t *overlaps = json_array();
    for (size_t i = 0; i < n && i < MOST_SEEN; i++)
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
