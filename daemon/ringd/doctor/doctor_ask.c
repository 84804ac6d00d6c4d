/* SPDX-License-Identifier: MIT
 *
 * Owns the rounds of questions under way. Called by api.c and messages.c. Loop thread. */
#include "daemon/ringd/doctor/doctor_ask.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/ringd/http/api.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/common/doctor.h"
#include "daemon/ringd/doctor/doctor_answer.h"
#include "daemon/ringd/http/http.h"
#include "daemon/ringd/node.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/common/xalloc.h"

enum { ROUND_MS = 2000, READING_S = 30 /* of silence, while nodes read a model */, MOST_ROUNDS = 4 };

struct asked {
    uint8_t id[16];
    char name[64];
    int64_t sent_us;
    json_t *facts; /* owned; NULL: no answer yet */
};

struct round {
    LIST_ENTRY(round) next;
    struct doctor *d;       /* borrowed: owner */
    struct http_call *call; /* to be answered once */
    struct event *timer;    /* owned */
    json_int_t number;
    size_t n, n_answered;
    struct asked asked[RING_MAX_NODES];
    json_t *silent; /* owned: who cannot even be asked */
    bool is_deep;
};

struct doctor {
    struct node *node;              /* borrowed: owner */
    struct doctor_answers *answers; /* owned */
    LIST_HEAD(, round) rounds;
    size_t n;
    json_int_t numbers;
};

/* --- the end of a round
 *  --------------------------------------------------------------------------- */

static void round_free(struct round *r)
{
    LIST_REMOVE(r, next);
    r->d->n--;
    event_free(r->timer);
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->asked[i].facts);
    json_decref(r->silent);
    free(r);
}

static void add_silent(json_t *list, const char *name, const char *fix, json_t *why)
{
    json_array_append_new(list, json_pack("{s:s s:s s:o}", "name", name, "fix", fix, "why", why));
}

static json_t *ring(struct node *n)
{
    struct members_ring ring;
    char text[700];
    members_ring(n->members, NULL, &ring);
    members_describe(n->members, text, sizeof text);
    return json_pack("{s:s s:s}", "state", ring_shape_name(ring.shape), "text", text);
}

static void finish(struct round *r)
{
    struct node *n = r->d->node;
    json_t *nodes = json_array();
    for (size_t i = 0; i < r->n; i++) {
        const struct asked *a = &r->asked[i];
        if (a->facts)
            json_array_append(nodes, a->facts);
        else
            add_silent(r->silent, a->name, "systemctl restart ringd",
                       json_string(r->is_deep
                                       ? "it can be reached, and no longer reports how far it has read the "
                                         "model: its daemon or its disk hangs"
                                       : "it can be reached, and did not answer within 2 s: its daemon "
                                         "hangs, or is older than this question"));
    }
    json_t *world = json_pack("{s:o s:O s:o}", "nodes", nodes, "silent", r->silent, "ring", ring(n));
    api_reply(r->call, 200, json_pack("{s:s s:o}", "node", n->name, "findings", doctor_judge(world)));
    json_decref(world);
    round_free(r);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    finish(arg);
}

/* --- asking
 *  --------------------------------------------------------------------------------------- */

static void ask(struct round *r, const struct member *m, const char *model)
{
    struct asked *a = &r->asked[r->n++];
    memcpy(a->id, m->id, sizeof a->id);
    memcpy(a->name, m->name, sizeof a->name);
    json_t *message = json_pack("{s:s s:I s:s* s:b}", "kind", "doctor-ask", "round", r->number, "model",
                                model, "deep", (int)r->is_deep);
    a->sent_us = doctor_wall_us();
    if (message)
        peers_send(r->d->node->peers, a->id, message);
}

static void cannot_ask(struct round *r, const struct member *m)
{
    const struct roster *roster = cluster_roster(r->d->node->cluster);
    const struct roster_entry *entry = roster ? roster_find(roster, m->id) : NULL;
    if (!entry || entry->status != ROSTER_ACTIVE) /* thrown out */
        return;
    const char *words = peers_last_words(r->d->node->peers, m->id);
    add_silent(r->silent, m->name, "systemctl start ringd",
               json_sprintf("it cannot be reached from here%s%s: is it switched on, its cables plugged in, "
                            "its daemon running?",
                            *words ? "; its last connection ended: " : "", words));
}

static void begin(struct doctor *d, struct http_call *call, const char *model, bool is_deep)
{
    static const struct timeval wait = {ROUND_MS / 1000, ROUND_MS % 1000 * 1000}, longer = {READING_S, 0};
    const struct members *members = d->node->members;
    if (model && *model != '/') {
        http_fail(call, 400, "bad-request", "model must be an absolute path");
        return;
    }
    if (d->n == MOST_ROUNDS) {
        http_fail(call, 503, "busy", "%d examinations are under way: ask again in two seconds", MOST_ROUNDS);
        return;
    }
    struct round *r = xcalloc(1, sizeof *r);
    *r = (struct round){
        .d = d, .call = call, .number = ++d->numbers, .silent = json_array(), .is_deep = is_deep};
    r->timer = evtimer_new(d->node->base, on_timer, r);
    LIST_INSERT_HEAD(&d->rounds, r, next);
    d->n++;
    evtimer_add(r->timer, is_deep ? &longer : &wait);
    for (size_t i = 0; i < members_count(members) && r->n < RING_MAX_NODES; i++) {
        const struct member *m = members_at(members, i);
        if (!i || members_reachable(members, m->id))
            ask(r, m, model);
        else
            cannot_ask(r, m);
    }
}

void doctor_get(struct doctor *d, struct http_call *call)
{
    begin(d, call, http_query(call, "model"), false);
}

void doctor_post(struct doctor *d, struct http_call *call)
{
    size_t n;
    const char *text = http_body(call, &n);
    json_t *body = json_loadb(text ? text : "", n, 0, NULL);
    const char *model = json_string_value(json_object_get(body, "model"));
    if (model)
        begin(d, call, model, true);
    else
        http_fail(call, 400, "bad-request", "the body names no model: {\"model\":\"/path\"}");
    json_decref(body);
}

/* --- answers
 *  -------------------------------------------------------------------------------------- */

/* Four times of two clocks: how far the other is ahead, and how long question and answer
 * travelled. */
static void add_clock(const struct asked *a, const json_t *body, json_t *facts)
{
    int64_t here = doctor_wall_us(), got = json_integer_value(json_object_get(body, "asked_us"));
    int64_t sent = json_integer_value(json_object_get(body, "answered_us"));
    if (got <= 0 || sent < got || got > INT64_MAX / 4 || sent > INT64_MAX / 4)
        return;
    json_object_set_new(facts, "offset_us", json_integer(((got - a->sent_us) + (sent - here)) / 2));
    json_object_set_new(facts, "rtt_us", json_integer((here - a->sent_us) - (sent - got)));
}

/* A node that reads goes on. */
static void take_reading(struct doctor *d, const json_t *body)
{
    static const struct timeval wait = {READING_S, 0};
    json_int_t number = json_integer_value(json_object_get(body, "round"));
    struct round *r;
    LIST_FOREACH (r, &d->rounds, next) {
        if (r->number == number && r->is_deep)
            evtimer_add(r->timer, &wait);
    }
}

static void take_facts(struct doctor *d, const uint8_t from[16], const json_t *body)
{
    json_int_t number = json_integer_value(json_object_get(body, "round"));
    const json_t *facts = json_object_get(body, "facts");
    struct round *r;
    LIST_FOREACH (r, &d->rounds, next)
        if (r->number == number)
            break;
    for (size_t i = 0; r && json_is_object(facts) && i < r->n; i++) {
        struct asked *a = &r->asked[i];
        if (memcmp(a->id, from, sizeof a->id) || a->facts)
            continue;
        a->facts = json_deep_copy(facts);
        json_object_set_new(a->facts, "name", json_string(a->name));
        add_clock(a, body, a->facts);
        if (++r->n_answered == r->n)
            finish(r);
        return;
    }
}

void doctor_message(struct doctor *d, const uint8_t from[16], const char *kind, const json_t *body)
{
    if (!strcmp(kind, "doctor-ask"))
        doctor_answer(d->answers, from, body);
    else if (!strcmp(kind, "doctor-facts"))
        take_facts(d, from, body);
    else if (!strcmp(kind, "doctor-reading"))
        take_reading(d, body);
}

void doctor_yield(struct doctor *d)
{
    doctor_answers_yield(d->answers);
}

/* --- opening
 *  -------------------------------------------------------------------------------------- */

struct doctor *doctor_new(struct node *node)
{
    struct doctor *d = xcalloc(1, sizeof *d);
    d->node = node;
    d->answers = doctor_answers_new(node);
    LIST_INIT(&d->rounds);
    return d;
}

void doctor_free(struct doctor *d)
{
    if (!d)
        return;
    for (struct round *r; (r = LIST_FIRST(&d->rounds));) {
        http_fail(r->call, 503, "ending", "the daemon ends");
        round_free(r);
    }
    doctor_answers_free(d->answers);
    free(d);
}
