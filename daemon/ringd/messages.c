/* SPDX-License-Identifier: MIT
 *
 * Owns the table of the kinds of messages. Called by the control connections, for every message to
 * this node. */
#include "daemon/ringd/messages.h"

#include <stdbool.h>
#include <string.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/enrol.h"
#include "daemon/ringd/doctor/doctor_ask.h"
#include "daemon/ringd/http/elsewhere.h"
#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/cost_query.h"
#include "daemon/ringd/job/cost_server.h"
#include "daemon/ringd/job/worker.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/relay.h"

/* --- handlers --------------------------------------------------------------------------------- */

struct message {
    const uint8_t *from;
    const char *kind;
    const json_t *body;
};

static void to_enrol(struct node *n, const struct message *m)
{
    enrol_message(n->enrol, m->from, m->kind, m->body);
}

static void to_elsewhere(struct node *n, const struct message *m)
{
    elsewhere_message(n->elsewhere, m->from, m->kind, m->body);
}

static void to_coord(struct node *n, const struct message *m)
{
    coord_message(n->coord, m->from, m->kind, m->body);
}

static void to_worker(struct node *n, const struct message *m)
{
    worker_message(n->worker, m->from, m->kind, m->body);
}

static void to_cost_query(struct node *n, const struct message *m)
{
    cost_query_message(n->cost_query, m->from, m->kind, m->body);
}

static void to_cost_server(struct node *n, const struct message *m)
{
    cost_server_message(n->cost_server, m->from, m->kind, m->body);
}

static void to_relay(struct node *n, const struct message *m)
{
    relay_message(n->relay, m->from, m->kind, m->body);
}

static void on_doctor_ask(struct node *n, const struct message *m)
{
    doctor_take_ask(n->doctor, m->from, m->body);
}

static void on_doctor_facts(struct node *n, const struct message *m)
{
    doctor_take_facts(n->doctor, m->from, m->body);
}

static void on_doctor_reading(struct node *n, const struct message *m)
{
    doctor_take_reading(n->doctor, m->body);
}

/* --- the table -------------------------------------------------------------------------------- */

/* ANYONE: every node with which there is a control connection, or a way over others. HEAD, RANK:
 * the head of the job that the message names, or a node that works on it; the handler, which knows
 * the job, compares. */
enum sender { ANYONE, MEMBER, AUTHORITY, HEAD, RANK };

static const struct message_kind {
    const char *kind;
    enum sender sender;
    void (*handle)(struct node *n, const struct message *m);
} kinds[] = {
    {"tokens", AUTHORITY, to_enrol},
    {"join-ask", MEMBER, to_enrol},
    {"join-answer", AUTHORITY, to_enrol},
    {"token-failed", MEMBER, to_enrol},

    {"doctor-ask", ANYONE, on_doctor_ask},
    {"doctor-facts", ANYONE, on_doctor_facts},
    {"doctor-reading", ANYONE, on_doctor_reading},

    {"jobs-ask", ANYONE, to_elsewhere},
    {"jobs-told", ANYONE, to_elsewhere},
    {"api-ask", ANYONE, to_elsewhere},
    {"api-more", ANYONE, to_elsewhere},
    {"api-told", ANYONE, to_elsewhere},

    {"job-wanted", ANYONE, to_coord},
    {"job-planned", RANK, to_coord},
    {"job-ready", RANK, to_coord},
    {"job-connected", RANK, to_coord},
    {"job-event", RANK, to_coord},
    {"job-relayed", RANK, to_coord},
    {"job-failed", RANK, to_coord},
    {"job-done", RANK, to_coord},
    {"job-stopped", RANK, to_coord},

    {"job-open", ANYONE, to_worker},
    {"job-connect", HEAD, to_worker},
    {"job-run", HEAD, to_worker},
    {"job-turn", HEAD, to_worker},
    {"job-stop", HEAD, to_worker},
    {"lane-turn", ANYONE, to_worker},

    {"cost-heard", ANYONE, to_cost_query},
    {"cost-told", ANYONE, to_cost_query},
    {"cost-ask", ANYONE, to_cost_server},

    {"relay-open", ANYONE, to_relay},
    {"relay-ready", ANYONE, to_relay},
    {"relay-refused", ANYONE, to_relay},
};

static bool may_send(const struct node *n, enum sender sender, const uint8_t from[16])
{
    if (sender != MEMBER && sender != AUTHORITY)
        return true;
    const struct roster *roster = cluster_roster(n->cluster);
    const struct roster_entry *entry = roster ? roster_find(roster, from) : NULL;
    return entry && entry->status == ROSTER_ACTIVE && (sender == MEMBER || entry->authority);
}

void messages_receive(struct node *n, const uint8_t from[16], const json_t *body)
{
    const struct message m = {from, json_string_value(json_object_get(body, "kind")), body};
    for (size_t i = 0; m.kind && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(m.kind, kinds[i].kind))
            continue;
        if (may_send(n, kinds[i].sender, from))
            kinds[i].handle(n, &m);
        return;
    }
}

const char *messages_kind(size_t i)
{
    return i < sizeof kinds / sizeof *kinds ? kinds[i].kind : NULL;
}
