/* SPDX-License-Identifier: MIT
 *
 * Wires the rooms of the cluster and of the peers: fills their setups, and hands on what they call
 * back with to the modules above them. Called by node.c; loop thread. */
#include <stdio.h>
#include <string.h>

#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/cluster/keys.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/api/elsewhere.h"
#include "daemon/ringd/hub/supply.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/messages.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/node_impl.h"
#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/peer/measure.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/peer/relay.h"
#include "daemon/ringd/peer/routes.h"

/* --- messages --------------------------------------------------------------------------------- */

static int send_message(void *owner, const uint8_t to[16], json_t *message)
{
    struct node *n = owner;
    return peers_send(n->peers, to, message);
}

static void broadcast_message(void *owner, json_t *message)
{
    struct node *n = owner;
    peers_broadcast(n->peers, message);
}

/* --- enrol ------------------------------------------------------------------------------------ */

static void enrol_changed(void *owner)
{
    node_membership_changed(owner);
}

void node_open_enrol(struct node *n)
{
    cluster_set_kept(n->cluster, enrol_changed, n);
    n->enrol = enrol_new(&(struct enrol_setup){.base = n->base,
                                               .id = keys_identity(n->keys),
                                               .cluster = n->cluster,
                                               .version = RINGD_VERSION,
                                               .send = send_message,
                                               .broadcast = broadcast_message,
                                               .changed = enrol_changed,
                                               .owner = n});
}

/* --- measure ---------------------------------------------------------------------------------- */

static int send_measure(void *owner, uint64_t path, const uint8_t *body, size_t n)
{
    const struct node *node = owner;
    return peers_send_measure(node->peers, path, body, n);
}

static void refresh_self(void *owner)
{
    node_refresh_self(owner);
}

static const struct port *port_at(void *owner, unsigned ifindex)
{
    const struct node *n = owner;
    return cables_port(n->cables, ifindex);
}

static void on_measured(void *owner)
{
    const struct node *n = owner;
    peers_links_changed(n->peers);
}

void node_open_measure(struct node *n)
{
    n->measure = measure_new(&(struct measure_setup){.base = n->base,
                                                     .members = n->members,
                                                     .send = send_measure,
                                                     .refresh_self = refresh_self,
                                                     .port = port_at,
                                                     .changed = on_measured,
                                                     .owner = n});
}

/* --- relay ------------------------------------------------------------------------------------ */

static int next_hop(void *owner, const uint8_t to[16], struct relay_hop *ret)
{
    const struct node *n = owner;
    return paths_next_hop(n->members, n->peers, to, ret);
}

static bool has_path(void *owner, uint64_t path)
{
    const struct node *n = owner;
    return paths_has(n->members, n->peers, path);
}

static uint64_t path_at(void *owner, const char *address)
{
    const struct node *n = owner;
    return paths_at(n->members, n->peers, address);
}

/* A model is carried for no job. */
static bool works(void *owner, const uint8_t id[16], const uint8_t head[16], uint64_t job)
{
    const struct node *n = owner;
    const struct member *m = members_find(n->members, id);
    return m && (!job || member_stage_of(m, head, job)) && members_reachable(n->members, id);
}

static const char *name(void *owner, const uint8_t *id)
{
    const struct node *n = owner;
    const struct member *m = id ? members_find(n->members, id) : NULL;
    return !id ? n->name : m ? m->name : "a node that is gone";
}

static void relay_log(void *owner, const char *text)
{
    (void)owner;
    log_info("%s", text);
}

void node_open_relay(struct node *n)
{
    n->relay = relay_new(&(struct relay_setup){.base = n->base,
                                               .owner = n,
                                               .send = send_message,
                                               .next = next_hop,
                                               .has_path = has_path,
                                               .path_at = path_at,
                                               .works = works,
                                               .name = name,
                                               .log = relay_log});
}

/* --- peers ------------------------------------------------------------------------------------ */

static void refresh_doings(void *owner)
{
    node_refresh_doings(owner);
}

static void on_changed(void *owner)
{
    node_changed(owner);
}

static void on_changed_soon(void *owner)
{
    node_changed_soon(owner);
}

static void on_roster(void *owner)
{
    node_membership_changed(owner);
}

static void on_record(void *owner, const uint8_t id[16])
{
    const struct node *n = owner;
    elsewhere_heard(n->elsewhere, id);
}

static void on_message(void *owner, const uint8_t from[16], const json_t *body)
{
    messages_receive(owner, from, body);
}

static int on_data_hello(void *owner, const struct link_hello *peer, char *why, size_t size)
{
    const struct node *n = owner;
    return peer->job ? workers_data_hello(n->workers, peer, why, size)
                     : supply_lane_hello(n->supply, peer, why, size);
}

static void on_data_up(void *owner, struct link *link)
{
    const struct node *n = owner;
    if (link_peer(link)->job)
        workers_data_up(n->workers, link, link_peer(link)->from_rank);
    else
        supply_lane_up(n->supply, link);
}

static void on_cable_heard(void *owner, uint64_t cable)
{
    const struct node *n = owner;
    cables_heard(n->cables, cable);
}

static void on_connection_ended(void *owner)
{
    const struct node *n = owner;
    cables_connection_ended(n->cables);
}

static void on_beat_changed(void *owner, struct instant beat)
{
    const struct node *n = owner;
    cables_keep_step(n->cables, beat);
}

static void cable_trouble(void *owner, uint64_t cable, char *ret, size_t size)
{
    const struct node *n = owner;
    char text[CABLES_TROUBLE];
    cables_trouble(n->cables, cable, text);
    snprintf(ret, size, "%s", text);
}

static const struct peers_ops peers_ops = {.refresh_self = refresh_self,
                                           .refresh_doings = refresh_doings,
                                           .changed = on_changed,
                                           .changed_soon = on_changed_soon,
                                           .membership_changed = on_roster,
                                           .record = on_record,
                                           .message = on_message,
                                           .data_hello = on_data_hello,
                                           .data_up = on_data_up,
                                           .cable_heard = on_cable_heard,
                                           .connection_ended = on_connection_ended,
                                           .beat_changed = on_beat_changed,
                                           .port = port_at,
                                           .cable_trouble = cable_trouble};

int node_open_peers(struct node *n, struct err *err)
{
    return peers_open(&n->peers,
                      &(struct peers_setup){.base = n->base,
                                            .opts = n->opts,
                                            .id = keys_identity(n->keys),
                                            .name = n->name,
                                            .state_dir = n->state_dir,
                                            .cluster = n->cluster,
                                            .enrol = n->enrol,
                                            .members = n->members,
                                            .records = n->records,
                                            .mailbox = n->mailbox,
                                            .measure = n->measure,
                                            .relay = n->relay,
                                            .ops = &peers_ops,
                                            .owner = n},
                      err);
}

/* --- cables ----------------------------------------------------------------------------------- */

int node_open_cables(struct node *n, struct err *err)
{
    return cables_open(&n->cables,
                       &(struct cables_setup){.base = n->base,
                                              .opts = n->opts,
                                              .name = n->name,
                                              .cluster = n->cluster,
                                              .members = n->members,
                                              .enrol = n->enrol,
                                              .measure = n->measure,
                                              .peers = n->peers},
                       err);
}
