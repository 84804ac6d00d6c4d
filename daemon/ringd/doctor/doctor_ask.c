/* SPDX-License-Identifier: MIT
 *
 * Owns the rounds of questions under way. Called by api_nodes.c and messages.c. Loop thread. */
#include "daemon/ringd/doctor/doctor_ask.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/common/doctor/doctor.h"
#include "daemon/ringd/doctor/doctor_answer.h"
#include "daemon/ringd/doctor/doctor_setup.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

enum { ROUND_MS = 2000, READING_MS = 30000 /* of silence, while nodes read a model */, MOST_ROUNDS = 4 };

struct doctor_asked {
    uint8_t id[16];
    char name[64];
    int64_t sent_us;
    json_t *facts; /* owned; NULL: no answer yet */
};

struct doctor_round {
    LIST_ENTRY(doctor_round) next;
    struct doctor *d;                          /* borrowed: owner */
    void (*done)(void *owner, json_t *answer); /* called once */
    void *owner;
    struct timer *timer; /* owned */
    json_int_t number;
    size_t n, n_answered;
    struct doctor_asked asked[RING_MAX_NODES];
    json_t *silent; /* owned: who cannot even be asked */
    bool is_deep;
};

struct doctor {
    struct doctor_setup setup;
    struct doctor_answers *answers; /* owned */
    LIST_HEAD(, doctor_round) rounds;
    size_t n;
    json_int_t numbers;
};

/* --- the end of a round ----------------------------------------------------------------------- */

static void round_free(struct doctor_round *r)
{
    LIST_REMOVE(r, next);
    r->d->n--;
    timer_free(r->timer);
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->asked[i].facts);
    json_decref(r->silent);
    free(r);
}

static void add_silent(json_t *list, const char *name, const char *fix, json_t *why)
{
    json_array_append_new(list, json_pack("{s:s s:s s:o}", "name", name, "fix", fix, "why", why));
}

static json_t *ring(const struct members *members)
{
    struct members_ring ring;
    char text[700];
    members_ring(members, NULL, &ring);
    members_describe(members, text, sizeof text);
    return json_pack("{s:s s:s}", "state", ring_shape_name(ring.shape), "text", text);
}

static void finish(struct doctor_round *r)
{
    struct members *members = r->d->setup.members;
    json_t *nodes = json_array();
    for (size_t i = 0; i < r->n; i++) {
        const struct doctor_asked *a = &r->asked[i];
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
    json_t *world = json_pack("{s:o s:O s:o}", "nodes", nodes, "silent", r->silent, "ring", ring(members));
    json_t *answer =
        json_pack("{s:s s:o}", "node", members_self(members)->name, "findings", doctor_judge(world));
    json_decref(world);
    r->done(r->owner, answer);
    round_free(r);
}

static void on_timer(void *owner)
{
    finish(owner);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void ask(struct doctor_round *r, const struct member *m, const char *model)
{
    struct doctor_asked *a = &r->asked[r->n++];
    memcpy(a->id, m->id, sizeof a->id);
    memcpy(a->name, m->name, sizeof a->name);
    json_t *message = json_pack("{s:s s:I s:s* s:b}", "kind", "doctor-ask", "round", r->number, "model",
                                model, "deep", (int)r->is_deep);
    a->sent_us = doctor_wall_us();
    if (message)
        peers_send(r->d->setup.peers, a->id, message);
}

static void cannot_ask(struct doctor_round *r, const struct member *m)
{
    const struct roster *roster = cluster_roster(r->d->setup.cluster);
    const struct roster_entry *entry = roster ? roster_find(roster, m->id) : NULL;
    if (!entry || entry->status != ROSTER_ACTIVE) /* thrown out */
        return;
    const char *words = peers_last_words(r->d->setup.peers, m->id);
    add_silent(r->silent, m->name, "systemctl start ringd",
               json_sprintf("it cannot be reached from here%s%s: is it switched on, its cables plugged in, "
                            "its daemon running?",
                            *words ? "; its last connection ended: " : "", words));
}

int doctor_examine(struct doctor *d, const char *model, bool is_deep,
                   void (*done)(void *owner, json_t *answer), void *owner, struct err *err)
{
    const struct members *members = d->setup.members;
    if (model && *model != '/')
        return err_set(err, -EINVAL, "model must be an absolute path");
    if (d->n == MOST_ROUNDS)
        return err_set(err, -EBUSY, "%d examinations are under way: ask again in two seconds", MOST_ROUNDS);
    struct doctor_round *r = xcalloc(1, sizeof *r);
    *r = (struct doctor_round){.d = d,
                               .done = done,
                               .owner = owner,
                               .number = ++d->numbers,
                               .silent = json_array(),
                               .is_deep = is_deep};
    r->timer = timer_new(d->setup.base, on_timer, r);
    LIST_INSERT_HEAD(&d->rounds, r, next);
    d->n++;
    timer_set_ms(r->timer, is_deep ? READING_MS : ROUND_MS);
    for (size_t i = 0; i < members_count(members) && r->n < RING_MAX_NODES; i++) {
        const struct member *m = members_at(members, i);
        if (!i || members_reachable(members, m->id))
            ask(r, m, model);
        else
            cannot_ask(r, m);
    }
    return 0;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* Four times of two clocks: how far the other is ahead, and how long question and answer
 * travelled. */
static void add_clock(const struct doctor_asked *a, const json_t *body, json_t *facts)
{
    int64_t here = doctor_wall_us(), got = json_integer_value(json_object_get(body, "asked_us"));
    int64_t sent = json_integer_value(json_object_get(body, "answered_us"));
    if (got <= 0 || sent < got || got > INT64_MAX / 4 || sent > INT64_MAX / 4)
        return;
    json_object_set_new(facts, "offset_us", json_integer(((got - a->sent_us) + (sent - here)) / 2));
    json_object_set_new(facts, "rtt_us", json_integer((here - a->sent_us) - (sent - got)));
}

/* Who was asked in the round that an answer names, and has not answered yet; NULL: nobody. */
static struct doctor_asked *who_answers(const struct doctor *d, const uint8_t from[16], const json_t *body,
                                        struct doctor_round **ret)
{
    const json_int_t number = json_integer_value(json_object_get(body, "round"));
    struct doctor_round *r;
    LIST_FOREACH (r, &d->rounds, next)
        for (size_t i = 0; r->number == number && i < r->n; i++)
            if (!memcmp(r->asked[i].id, from, sizeof r->asked[i].id) && !r->asked[i].facts) {
                *ret = r;
                return &r->asked[i];
            }
    return NULL;
}

/* A node that reads goes on. */
void doctor_take_reading(struct doctor *d, const uint8_t from[16], const json_t *body)
{
    struct doctor_round *r;
    if (who_answers(d, from, body, &r) && r->is_deep)
        timer_set_ms(r->timer, READING_MS);
}

void doctor_take_facts(struct doctor *d, const uint8_t from[16], const json_t *body)
{
    const json_t *facts = json_object_get(body, "facts");
    struct doctor_round *r;
    struct doctor_asked *a = json_is_object(facts) ? who_answers(d, from, body, &r) : NULL;
    if (!a)
        return;
    a->facts = json_deep_copy(facts);
    json_object_set_new(a->facts, "name", json_string(a->name));
    add_clock(a, body, a->facts);
    if (++r->n_answered == r->n)
        finish(r);
}

void doctor_take_ask(struct doctor *d, const uint8_t from[16], const json_t *body)
{
    doctor_answer(d->answers, from, body);
}

void doctor_yield(struct doctor *d)
{
    doctor_answers_yield(d->answers);
}

/* --- opening ---------------------------------------------------------------------------------- */

struct doctor *doctor_new(const struct doctor_setup *setup)
{
    struct doctor *d = xcalloc(1, sizeof *d);
    d->setup = *setup;
    d->answers = doctor_answers_new(&d->setup);
    LIST_INIT(&d->rounds);
    return d;
}

void doctor_free(struct doctor *d)
{
    if (!d)
        return;
    for (struct doctor_round *r; (r = LIST_FIRST(&d->rounds));) {
        r->done(r->owner, NULL);
        round_free(r);
    }
    doctor_answers_free(d->answers);
    free(d);
}
