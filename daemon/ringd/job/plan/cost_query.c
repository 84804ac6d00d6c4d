/* SPDX-License-Identifier: MIT
 *
 * Owns the rounds of questions under way. Loop thread. */
#include "daemon/ringd/job/plan/cost_query.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/cluster/unsent.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

enum {
    HEARD_S = 10, /* a node that knows the question says so at once */
    TOLD_S = 90,  /* 30 s of timing, what cannot be left out, and another's question before it */
};

struct asked {
    uint8_t id[16];
    bool heard, told;
    json_t *answer; /* owned */
};

struct round {
    LIST_ENTRY(round) next;
    struct cost_query *cost_query; /* borrowed: owner */
    struct spawn *stage;           /* borrowed: whose question it is */
    struct timer *timer;           /* owned */
    json_int_t number;
    bool is_late; /* the time to be heard of is over */
    size_t n;
    struct asked asked[RING_MAX_NODES]; /* by rank; the first is us */
};

struct cost_query {
    struct cost_query_setup setup;
    LIST_HEAD(, round) rounds;
    json_int_t numbers;
};

/* --- the end of a round ----------------------------------------------------------------------- */

static void round_free(struct round *r)
{
    LIST_REMOVE(r, next);
    timer_free(r->timer);
    for (size_t i = 0; i < r->n; i++)
        json_decref(r->asked[i].answer);
    free(r);
}

static void finish(struct round *r)
{
    json_t *answers = json_array();
    for (size_t i = 0; i < r->n; i++)
        json_array_append(answers, r->asked[i].answer);
    /* A stage that cannot be told would wait for ever. */
    if (spawn_send(r->stage, json_pack("{s:s s:o}", "do", "surveyed", "answers", answers)))
        spawn_kill(r->stage, "does not take messages");
    round_free(r);
}

static bool is_over(const struct round *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (!r->asked[i].told)
            return false;
    return true;
}

static void give_up(struct asked *a, const char *why)
{
    if (!a->told)
        json_object_set_new(a->answer, "why", json_string(why));
    a->told = true;
}

static void wait_for(struct round *r, int seconds)
{
    timer_set_ms(r->timer, (uint64_t)seconds * 1000);
}

static void on_timer(void *owner)
{
    struct round *r = owner;
    for (size_t i = 0; i < r->n; i++)
        if (r->is_late || !r->asked[i].heard)
            give_up(&r->asked[i], r->asked[i].heard ? "its answer took too long"
                                                    : "it does not answer, or its ringd is older than this "
                                                      "question");
    r->is_late = true;
    if (is_over(r))
        finish(r);
    else
        wait_for(r, TOLD_S - HEARD_S);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void ask(struct round *r, struct asked *a, const json_t *question)
{
    const struct cost_query_setup *n = &r->cost_query->setup;
    if (!memcmp(a->id, members_self(n->members)->id, sizeof a->id)) {
        json_object_set_new(a->answer, "ways", peers_ways(n->peers));
        a->heard = a->told = true;
        return;
    }
    const int error =
        peers_send(n->peers, a->id,
                   json_pack("{s:s s:I s:O}", "kind", "cost-ask", "round", r->number, "question", question));
    if (error) {
        char why[120];
        snprintf(why, sizeof why, "it %s", unsent_why(error));
        give_up(a, why);
        a->heard = true;
    }
}

void cost_query_ask(struct cost_query *s, struct spawn *stage, const json_t *event)
{
    const json_t *nodes = json_object_get(event, "nodes");
    struct round *r = xcalloc(1, sizeof *r);
    cost_query_forget(s, stage); /* one question at a time */
    *r = (struct round){.cost_query = s, .stage = stage, .number = ++s->numbers};
    r->timer = timer_new(s->setup.base, on_timer, r);
    LIST_INSERT_HEAD(&s->rounds, r, next);
    for (size_t i = 0; i < json_array_size(nodes) && i < RING_MAX_NODES; i++) {
        struct asked *a = &r->asked[r->n++];
        a->answer = json_object();
        if (id_parse(a->id, json_string_value(json_array_get(nodes, i))))
            give_up(a, "it has no readable name");
        else
            ask(r, a, json_object_get(event, "question"));
    }
    wait_for(r, is_over(r) ? 0 : HEARD_S); /* never from inside */
}

void cost_query_forget(struct cost_query *s, const struct spawn *stage)
{
    struct round *r, *next;
    for (r = LIST_FIRST(&s->rounds); r; r = next) {
        next = LIST_NEXT(r, next);
        if (r->stage == stage)
            round_free(r);
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

static void take(struct cost_query *s, const uint8_t from[16], const json_t *body, bool told)
{
    const json_int_t number = json_integer_value(json_object_get(body, "round"));
    struct round *r;
    LIST_FOREACH (r, &s->rounds, next)
        if (r->number == number)
            break;
    for (size_t i = 0; r && i < r->n; i++) {
        struct asked *a = &r->asked[i];
        if (memcmp(a->id, from, sizeof a->id) || a->told)
            continue;
        a->heard = true;
        a->told = told;
        json_object_update(a->answer, json_object_get(body, "answer"));
        if (is_over(r))
            finish(r);
        return;
    }
}

void cost_query_take_heard(struct cost_query *s, const uint8_t from[16], const json_t *body)
{
    take(s, from, body, false);
}

void cost_query_take_told(struct cost_query *s, const uint8_t from[16], const json_t *body)
{
    take(s, from, body, true);
}

void cost_query_changed(struct cost_query *s)
{
    struct round *r, *next;
    for (r = LIST_FIRST(&s->rounds); r; r = next) {
        next = LIST_NEXT(r, next);
        bool any = false;
        for (size_t i = 0; i < r->n; i++)
            if (!r->asked[i].told && !members_reachable(s->setup.members, r->asked[i].id)) {
                give_up(&r->asked[i], "it is gone");
                any = true;
            }
        if (any && is_over(r))
            wait_for(r, 0);
    }
}

struct cost_query *cost_query_new(const struct cost_query_setup *setup)
{
    struct cost_query *s = xcalloc(1, sizeof *s);
    s->setup = *setup;
    LIST_INIT(&s->rounds);
    return s;
}

void cost_query_free(struct cost_query *s)
{
    if (!s)
        return;
    for (struct round *r; (r = LIST_FIRST(&s->rounds));)
        round_free(r);
    free(s);
}
