/* SPDX-License-Identifier: MIT
 *
 * Data connections: link.h from the dial until the socket goes to the stage, and relay.h, which
 * leads one over several cables. A connection that stands carries what stages pass on as long as
 * its cables pass; it breaks when an end closes it, or a daemon between them ends. */
#include "tests/sim/cluster/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/peer/relay.h"

enum { FDS = 1 << 20, DIAL_US = 20 * SIM_S };

struct link {
    struct sim_event event; /* what happens next to it */
    struct sim_conn_end *end;
    enum link_state state;
    bool is_refused, is_given_up; /* by the other end; nobody answered */
    const struct link_ops *ops;
    void *owner;
    struct link_hello hello, peer;
    char address[32], why[256];
};

static struct sim_conn_end *far_end(struct sim_conn_end *e)
{
    return &e->conn->end[e == &e->conn->end[0]];
}

static uint64_t delay(void)
{
    return sim_span(100, 20 * SIM_MS);
}

/* --- connections ------------------------------------------------------------------------------ */

bool sim_conn_passes(const struct sim_conn *c)
{
    for (size_t i = 0; i < c->hops; i++)
        if (!sim_passes(&sim->cable[c->route[i]], 0) || !sim_passes(&sim->cable[c->route[i]], 1))
            return false;
    return true;
}

struct sim_conn *sim_conn_at(size_t i)
{
    return i < sim->nconns ? sim->conns[i] : NULL;
}

struct sim_conn_end *sim_conn_of_fd(int fd)
{
    struct sim_conn *c = sim_conn_at((size_t)(fd - FDS) / 2);
    return c ? &c->end[(fd - FDS) % 2] : NULL;
}

static void on_broken(struct sim_event *event)
{
    struct sim_conn_end *e = (struct sim_conn_end *)event;
    if (!e->node->is_on || e->life != e->node->life)
        return;
    if (e->stage) {
        sim_stage_lane_lost(e);
    } else if (e->link && e->link->state != LINK_DOWN) {
        struct link *l = e->link;
        l->state = LINK_DOWN;
        l->ops->down(l->owner, l, LINK_END_LOST, "the connection was reset");
    }
}

static void hear_broken(struct sim_conn_end *e)
{
    e->is_deaf = !sim_conn_passes(e->conn);
    if (!e->is_deaf && (e->stage || e->link))
        sim_at(&e->event, delay());
}

void sim_conn_break(struct sim_conn *c, const struct sim_conn_end *by, const char *why)
{
    if (c->is_broken)
        return;
    c->is_broken = true;
    sim_trace("data connection %zu breaks: %s", c->number, why);
    for (int i = 0; i < 2; i++)
        if (&c->end[i] != by)
            hear_broken(&c->end[i]);
}

void sim_data_changed(void)
{
    for (size_t i = 0; i < sim->nconns; i++)
        for (int e = 0; e < 2; e++)
            if (sim->conns[i]->is_broken && sim->conns[i]->end[e].is_deaf)
                hear_broken(&sim->conns[i]->end[e]);
    sim_stages_pump();
}

void sim_data_stop(struct sim_node *n)
{
    for (size_t i = 0; i < sim->nconns; i++) {
        struct sim_conn *c = sim->conns[i];
        bool is_between = false;
        for (size_t k = 0; k < c->hops; k++)
            for (int e = 0; e < 2; e++)
                is_between = is_between || sim->cable[c->route[k]].at[e] == n->number;
        if (is_between)
            sim_conn_break(c,
                           c->end[0].node == n   ? &c->end[0]
                           : c->end[1].node == n ? &c->end[1]
                                                 : NULL,
                           "a daemon ended");
    }
}

void sim_data_forget(void)
{
    for (size_t i = 0; i < sim->nconns; i++) {
        struct sim_conn_end *end = sim->conns[i]->end;
        if (end[0].link || end[1].link || end[0].stage || end[1].stage)
            sim_wrong("a data connection from %s to %s is left", sim->roster.at[end[0].node->number].name,
                      sim->roster.at[end[1].node->number].name);
        sim_cancel(&end[0].event);
        sim_cancel(&end[1].event);
        free(sim->conns[i]);
    }
    sim->nconns = 0;
}

void sim_data_free(void)
{
    for (size_t i = 0; i < sim->nconns; i++) {
        for (int e = 0; e < 2; e++)
            free(sim->conns[i]->end[e].link);
        free(sim->conns[i]);
    }
    free(sim->conns);
}

/* --- link.h ----------------------------------------------------------------------------------- */

static struct link *link_new(struct sim_conn_end *e, const struct link_hello *hello)
{
    struct link *l = e->link = xcalloc(1, sizeof *l);
    l->end = e;
    l->hello = *hello;
    memcpy(l->hello.node_id, sim->roster.at[e->node->number].id, 16);
    snprintf(l->hello.name, sizeof l->hello.name, "%s", sim->roster.at[e->node->number].name);
    l->event.node = e->node;
    snprintf(l->address, sizeof l->address, "c%zu:1",
             e->conn->route[e == &e->conn->end[0] ? 0 : e->conn->hops - 1]);
    return l;
}

/* The dialler hears what has become of its call. */
static void on_answer(struct sim_event *event)
{
    struct link *l = (struct link *)event;
    char why[256] = "no answer";
    if (l->is_refused || l->end->conn->is_broken || l->is_given_up) {
        l->state = LINK_DOWN;
        l->ops->down(l->owner, l,
                     l->is_refused    ? LINK_END_REFUSED
                     : l->is_given_up ? LINK_END_CONNECT
                                      : LINK_END_LOST,
                     l->is_refused ? l->why : why);
        return;
    }
    l->state = LINK_HELLO;
    if (l->ops->hello(l->owner, l, &l->peer, why, sizeof why)) {
        l->state = LINK_DOWN;
        l->ops->down(l->owner, l, LINK_END_PROTOCOL, why);
        return;
    }
    l->state = LINK_UP;
    l->ops->up(l->owner, l);
}

/* The call arrives. */
static void on_call(struct sim_event *event)
{
    struct sim_conn_end *e = (struct sim_conn_end *)event, *from = far_end(e);
    struct link *dialler = from->link;
    struct sim_node *n = e->node;
    if (!dialler || e->conn->is_broken)
        return;
    dialler->event.run = on_answer;
    if (!sim_conn_passes(e->conn)) {
        dialler->is_given_up = true;
        sim_at(&dialler->event, DIAL_US);
        return;
    }
    sim_at(&dialler->event, delay());
    dialler->is_given_up = !n->is_on;
    if (!n->is_on)
        return;
    e->life = n->life;
    dialler->is_refused =
        workers_data_hello(n->node.workers, &dialler->hello, dialler->why, sizeof dialler->why);
    if (dialler->is_refused)
        return;
    struct link *l = link_new(e, &dialler->hello);
    l->state = LINK_UP;
    l->peer = dialler->hello;
    dialler->peer = l->hello;
    event->run = on_broken;
    workers_data_up(n->node.workers, l, l->peer.from_rank);
}

/* The host is a list of cables: "c3", or "r3.0.1" over other nodes. */
int link_dial(struct link **ret, const struct link_setup *setup, const char *host, uint16_t port)
{
    struct sim_node *n = (struct sim_node *)setup->base, *at = n;
    (void)port;
    struct sim_conn *c = xcalloc(1, sizeof *c);
    if (sim->nconns == sim->cap_conns) {
        sim->cap_conns = sim->cap_conns ? 2 * sim->cap_conns : 16;
        sim->conns = xreallocarray(sim->conns, sim->cap_conns, sizeof *sim->conns);
    }
    c->number = sim->nconns;
    sim->conns[sim->nconns++] = c;
    for (char *p = (char *)host; *p;) {
        const size_t k = strtoul(p + 1, &p, 10);
        c->route[c->hops++] = k;
        at = &sim->at[sim->cable[k].at[&sim->at[sim->cable[k].at[0]] == at]];
    }
    for (int i = 0; i < 2; i++)
        c->end[i] = (struct sim_conn_end){.event = {.node = i ? at : n, .run = i ? on_call : on_broken},
                                          .conn = c,
                                          .node = i ? at : n,
                                          .life = n->life};
    struct link *l = link_new(&c->end[0], &setup->hello);
    l->ops = setup->ops;
    l->owner = setup->owner;
    l->state = LINK_DIALING;
    sim_at(&c->end[1].event, delay());
    *ret = l;
    return 0;
}

void link_free(struct link *l)
{
    if (!l)
        return;
    struct sim_conn_end *e = l->end;
    sim_cancel(&l->event);
    e->link = NULL;
    free(l);
    if (!e->stage)
        sim_conn_break(e->conn, e, "an end has closed it");
}

int link_detach(struct link *l, int *ret_fd, struct seal *ret_tx, struct seal *ret_rx)
{
    struct sim_conn_end *e = l->end;
    *ret_fd = FDS + (int)(2 * e->conn->number) + (e == &e->conn->end[1]);
    memset(ret_tx, 0, sizeof *ret_tx);
    memset(ret_rx, 0, sizeof *ret_rx);
    sim_cancel(&l->event);
    e->link = NULL;
    free(l);
    return 0;
}

enum link_state link_state(const struct link *l)
{
    return l->state;
}

const struct link_hello *link_peer(const struct link *l)
{
    return &l->peer;
}

const char *link_address(const struct link *l)
{
    return l->address;
}

/* --- relay.h ---------------------------------------------------------------------------------- */

struct relay_ask {
    struct sim_event event;
    uint8_t to[16];
    const struct relay_ask_ops *ops;
    void *owner;
};

static void on_asked(struct sim_event *event)
{
    struct relay_ask *ask = (struct relay_ask *)event;
    struct sim_node *n = event->node;
    struct relay_way way = {.relayed = true, .through = "others"};
    size_t route[SIM_CABLES], hops, at = 0;
    if (!sim_route(n, ask->to, route, &hops)) {
        ask->ops->refused(ask->owner, "no way leads there");
        return;
    }
    for (size_t i = hops; i-- > 0;)
        at +=
            (size_t)snprintf(way.hop.host + at, sizeof way.hop.host - at, "%c%zu", at ? '.' : 'r', route[i]);
    const struct sim_session *s = sim->cable[route[hops - 1]].session;
    way.hop.path = s->end[s->end[1].node == n].number;
    ask->ops->ready(ask->owner, &way);
}

struct relay_ask *relay_ask(struct relay *r, const struct relay_want *want, const struct relay_ask_ops *ops,
                            void *owner)
{
    struct relay_ask *ask = xcalloc(1, sizeof *ask);
    *ask = (struct relay_ask){
        .event = {.node = (struct sim_node *)r, .run = on_asked}, .ops = ops, .owner = owner};
    memcpy(ask->to, want->to, 16);
    sim_at(&ask->event, delay());
    return ask;
}

void relay_ask_free(struct relay_ask *ask)
{
    if (!ask)
        return;
    sim_cancel(&ask->event);
    free(ask);
}
