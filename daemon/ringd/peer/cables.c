/* SPDX-License-Identifier: MIT
 *
 * What happens on the cables of this machine: owns ports, finder and linkctl, and carries what they
 * tell to peers, enrol and the plan. Called by node.c and enrol; callbacks come from the loop. Loop
 * thread. */
#include "daemon/ringd/peer/cables.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/peer/cables_impl.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/measure.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

enum { ASK_EVERY_S = 1, ANSWER_SIZE = TOKEN_TAG + 2 };

/* --- what ports and cables should have, for people and other tools: our own connections do without
 *  --- */

static void collect_facts(const struct cables *c, struct cables_facts *ret,
                          struct neighbour_view seen[static CABLES_SEEN])
{
    bool is_partial;
    size_t n = c->finder ? finder_neighbours(c->finder, seen, CABLES_SEEN) : 0;
    *ret = (struct cables_facts){.ports = ports_at(c->ports, 0),
                                 .nports = ports_count(c->ports),
                                 .seen = seen,
                                 .nseen = n < CABLES_SEEN ? n : CABLES_SEEN,
                                 .is_member = cluster_state(c->s.cluster) == CLUSTER_MEMBER,
                                 .pool = c->pool,
                                 .now = clock_now()};
    if (ret->is_member)
        ret->roster = cluster_roster(c->s.cluster);
    ret->taken = ports_addresses(c->ports, &ret->ntaken, &is_partial);
    memcpy(ret->node, members_self(c->s.members)->id, 16);
    if (ret->is_member)
        cert_cluster_id(ret->cluster, cluster_key(c->s.cluster));
}

/* Beacons go out by port, and a port that is planned for has one cable. */
static void tell_attempts(struct cables *c)
{
    for (size_t i = 0; c->finder && i < ports_count(c->ports); i++) {
        unsigned ifindex = ports_at(c->ports, i)->ifindex;
        uint8_t attempt = 0;
        for (size_t k = 0; k < c->plan.n; k++)
            attempt = c->plan.at[k].ifindex == ifindex ? c->plan.at[k].told : attempt;
        finder_set_attempt(c->finder, ifindex, attempt);
    }
}

static void replan(struct cables *c)
{
    struct neighbour_view *seen = xcalloc(CABLES_SEEN, sizeof *seen);
    struct cables_facts facts;
    collect_facts(c, &facts, seen);
    uint64_t again_us = cables_plan_update(&c->plan, &facts);
    if (again_us)
        timer_set_us(c->settling, again_us);
    tell_attempts(c);
    struct linkctl_want *want = xcalloc(2 * facts.nports + 3 * c->plan.n + 1, sizeof *want);
    linkctl_want(c->link, want, cables_plan_want(&c->plan, &facts, want));
    free(want);
    free(seen);
}

static void on_settled(void *owner)
{
    replan(owner);
}

static void on_link_news(void *owner)
{
    struct cables *c = owner;
    const char *problem = linkctl_problem(c->link);
    if (strcmp(problem ? problem : "", c->problem) == 0)
        return;
    snprintf(c->problem, sizeof c->problem, "%s", problem ? problem : "");
    if (problem)
        log_info("%s", problem);
    else
        log_info("ringd-link is connected: it sets addresses and MTU of cables");
}

static void set_scope(struct cables *c)
{
    uint8_t cluster[CERT_ID];
    struct prefix ula;
    if (cluster_state(c->s.cluster) != CLUSTER_MEMBER)
        return;
    cert_cluster_id(cluster, cluster_key(c->s.cluster));
    subnet_ula(&ula, cluster);
    linkctl_scope(c->link, &ula, c->pool.family ? &c->pool : NULL);
}

/* --- what the finder tells -------------------------------------------------------------------- */

static void on_cable_up(void *owner, const struct cable *cable)
{
    struct cables *c = owner;
    log_info("cable on %s: %s%s", cable->port, cable->name, cable->shared ? ", over a shared segment" : "");
    peers_cable_up(c->s.peers, cable);
    cables_sizes_take(c->sizes, cable);
    measure_cable(c->s.measure, cable);
    replan(c);
}

static void on_cable_changed(void *owner, const struct cable *cable)
{
    struct cables *c = owner;
    peers_cable_up(c->s.peers, cable);
    cables_sizes_take(c->sizes, cable);
    measure_cable(c->s.measure, cable);
    replan(c);
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
    log_warning("cable on %s to %s is out: %s", cable->port, cable->name, end_sentence(end));
    measure_cable_gone(c->s.measure, cable->id);
    cables_sizes_drop(c->sizes, cable->id);
    peers_cable_down(c->s.peers, cable->id, end_sentence(end), end);
    replan(c);
}

static void on_trouble(void *owner, const struct cable *with, enum neighbour_state state)
{
    (void)owner;
    static const char *const advice[] = {
        [NEIGHBOUR_ONE_WAY] =
            "does not hear this node: a firewall there drops UDP port 17464, or the cable has a dead pair",
        [NEIGHBOUR_VERSION] = "runs a ringd with another protocol: install the same version",
        [NEIGHBOUR_CLONED] = "has its identity on two machines: was a disk copied? Remove the file identity "
                             "in one machine's state directory",
    };
    if (state < sizeof advice / sizeof *advice && advice[state])
        log_warning("%s on %s %s", with->name, with->port, advice[state]);
}

/* --- a newcomer with a token asks on every cable; a member that knows the token answers where to
 *  call ----------------------------------------- */

static void answer_question(struct cables *c, unsigned ifindex, const uint8_t *body, size_t n)
{
    uint8_t answer[ANSWER_SIZE];
    uint16_t port = peers_port(c->s.peers);
    if (n < TOKEN_TAG || !enrol_answers(c->s.enrol, body, answer))
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
    } else if (n >= ANSWER_SIZE && enrol_is_answer(c->s.enrol, body)) {
        inet_ntop(AF_INET6, from, address, sizeof address);
        snprintf(host, sizeof host, "%s%%%u", address, ifindex);
        enrol_try(c->s.enrol, host, (uint16_t)(body[TOKEN_TAG] | body[TOKEN_TAG + 1] << 8));
    }
}

static void on_asking(void *owner)
{
    struct cables *c = owner;
    uint8_t question[TOKEN_TAG];
    if (!enrol_question(c->s.enrol, question))
        return;
    finder_ask(c->finder, 0, BEACON_JOINQ, question, sizeof question);
    timer_set_ms(c->asking, ASK_EVERY_S * UINT64_C(1000));
}

void cables_search(struct cables *c)
{
    if (c && c->finder)
        timer_set_us(c->asking, 0);
}

/* Another cluster's, mostly; or of ours, with a key that was made while we were away. */
static void on_sealed(void *owner, unsigned ifindex, unsigned generation)
{
    struct cables *c = owner;
    uint8_t question[TOKEN_TAG];
    if (enrol_missed(c->s.enrol, generation, question))
        finder_ask(c->finder, ifindex, BEACON_JOINQ, question, sizeof question);
}

static void on_sized(void *owner, unsigned ifindex, uint64_t number, uint32_t packet)
{
    struct cables *c = owner;
    cables_sizes_answered(c->sizes, ifindex, number, packet);
}

static uint64_t proved_boot(void *owner, const uint8_t node_id[static 16])
{
    const struct cables *c = owner;
    return peers_boot_of(c->s.peers, node_id);
}

/* From the loop: the finder may be what ended the connection. */
static void on_connection_ended(void *owner)
{
    const struct cables *c = owner;
    if (c->finder)
        finder_connection_ended(c->finder);
}

void cables_connection_ended(struct cables *c)
{
    if (c)
        timer_set_us(c->ended, 0);
}

static const struct finder_ops finder_ops = {
    .beacons = {on_cable_up, on_cable_changed, on_cable_down, on_trouble, proved_boot},
    .ask = on_ask,
    .sealed = on_sealed,
    .sized = on_sized,
};

static void on_ports_changed(void *owner)
{
    struct cables *c = owner;
    if (c->finder)
        finder_update(c->finder);
    peers_ports_changed(c->s.peers);
    cables_sizes_review(c->sizes);
    measure_ports_changed(c->s.measure);
    replan(c);
    linkctl_recheck(c->link);
}

static const struct ports_ops ports_ops = {on_ports_changed};

/* --- opening ---------------------------------------------------------------------------------- */

/* Of the newest generation; NULL without a cluster. */
static const struct beacon_key *beacon_key(const struct cables *c, struct beacon_key *room)
{
    struct cluster_net_key key;
    if (!cluster_net_keys(c->s.cluster, &key, 1))
        return NULL;
    room->id = key.generation;
    memcpy(room->key, key.beacon, sizeof room->key);
    sodium_memzero(&key, sizeof key);
    return room;
}

static int open_finder(struct cables *c)
{
    struct beacon_key key;
    const struct member *self = members_self(c->s.members);
    struct finder_setup setup = {
        .base = c->s.base, .ports = c->ports, .key = beacon_key(c, &key), .ops = &finder_ops, .owner = c};
    memcpy(setup.self.node_id, self->id, 16);
    setup.self.boot = self->boot;
    snprintf(setup.self.name, sizeof setup.self.name, "%s", c->s.name);
    setup.self.tcp_port = peers_port(c->s.peers);
    setup.self.pool = c->pool;
    setup.self.beat = peers_beat(c->s.peers);
    setup.self.proto_min = setup.self.proto_max = 1;
    int r = finder_open(&c->finder, &setup);
    sodium_memzero(&key, sizeof key);
    return r;
}

int cables_open(struct cables **ret, const struct cables_setup *setup, struct err *err)
{
    struct cables *c = xcalloc(1, sizeof *c);
    c->s = *setup;
    c->asking = timer_new(setup->base, on_asking, c);
    c->settling = timer_new(setup->base, on_settled, c);
    c->ended = timer_new(setup->base, on_connection_ended, c);
    c->sizes = cables_sizes_new(c);
    *ret = c;
    const char *pool = opts_str(setup->opts, "ipv4-pool");
    char why[256];
    if (pool && subnet_pool_parse(&c->pool, pool, why, sizeof why))
        return err_set(err, -EINVAL, "%s", why);
    if (!strcmp(opts_str(setup->opts, "discover"), "off"))
        return 0;
    struct ports_policy policy = {0};
    policy.nallow = opts_list(setup->opts, "ports-allow", &policy.allow);
    policy.ndeny = opts_list(setup->opts, "ports-deny", &policy.deny);
    struct linkctl_setup link = {.base = setup->base,
                                 .path = opts_str(setup->opts, "link-socket"),
                                 .changed = on_link_news,
                                 .owner = c};
    int r = linkctl_open(&c->link, &link);
    if (r)
        return err_set(err, r, "--link-socket: %s", strerror(-r));
    set_scope(c);
    r = ports_open(&c->ports, setup->base, &policy, &ports_ops, c);
    if (!r)
        r = open_finder(c);
    if (!r)
        replan(c);
    return r ? err_set(err, r,
                       "ringd cannot watch the network interfaces: %s; with --discover off it needs not",
                       strerror(-r))
             : 0;
}

const struct port *cables_port(const struct cables *c, unsigned ifindex)
{
    return c && c->ports ? ports_find(c->ports, ifindex) : NULL;
}

void cables_close(struct cables *c)
{
    if (!c)
        return;
    timer_free(c->asking);
    timer_free(c->settling);
    timer_free(c->ended);
    finder_close(c->finder);
    cables_sizes_free(c->sizes);
    ports_close(c->ports);
    linkctl_close(c->link);
    cables_plan_done(&c->plan);
    free(c);
}

void cables_heard(struct cables *c, uint64_t cable)
{
    if (c && c->finder)
        finder_heard(c->finder, cable);
}

void cables_keep_step(struct cables *c, struct instant beat)
{
    if (c && c->finder)
        finder_keep_step(c->finder, beat);
}

void cables_keys_changed(struct cables *c)
{
    struct beacon_key key;
    if (!c || !c->finder)
        return;
    finder_set_key(c->finder, beacon_key(c, &key));
    sodium_memzero(&key, sizeof key);
    set_scope(c);
    replan(c);
}
