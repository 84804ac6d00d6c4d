/* SPDX-License-Identifier: MIT
 *
 * Owns the questions that wait and the stage process that answers one. Loop thread. */
#include "daemon/ringd/job/plan/cost_server.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/ringd/timer.h"
#include "daemon/common/xalloc.h"

enum { MOST_WAITING = 8, WITHIN_S = 85 /* the one who asks waits little longer */ };

struct request {
    TAILQ_ENTRY(request) next;
    uint8_t from[16];
    json_int_t round;
    json_t *question; /* owned */
};

struct cost_server {
    struct cost_server_setup setup;
    TAILQ_HEAD(requests, request) waiting;
    size_t n;
    struct request *current; /* owned: the stage works on it, or NULL */
    struct spawn *stage;     /* owned */
    bool is_timing;
    struct timer *next; /* owned: starts the next outside of the callbacks of this one */
};

/* --- answers ---------------------------------------------------------------------------------- */

static void tell(struct cost_server *g, const struct request *q, const char *kind, json_t *answer)
{
    peers_send(g->setup.peers, q->from,
               json_pack("{s:s s:I s:o}", "kind", kind, "round", q->round, "answer", answer));
}

static void refuse(struct cost_server *g, const struct request *q, const char *why)
{
    tell(g, q, "cost-told", json_pack("{s:s}", "why", why));
}

static void request_free(struct request *q)
{
    if (!q)
        return;
    json_decref(q->question);
    free(q);
}

/* The current one has been answered. */
static void end(struct cost_server *g)
{
    request_free(g->current);
    g->current = NULL;
    spawn_free(g->stage);
    g->stage = NULL;
    timer_set_us(g->next, 0);
}

static void give_up(struct cost_server *g, const char *why)
{
    refuse(g, g->current, why);
    end(g);
}

static void on_stage_event(void *owner, const char *kind, json_t *event)
{
    struct cost_server *g = owner;
    if (!strcmp(kind, "measured")) {
        tell(g, g->current, "cost-told", json_incref(json_object_get(event, "answer")));
        end(g);
    } else if (!strcmp(kind, "failed")) {
        const char *why = json_string_value(json_object_get(event, "error"));
        give_up(g, why ? why : "its stage process gives no reason");
    }
}

static void on_stage_ended(void *owner, const char *text)
{
    char why[600];
    snprintf(why, sizeof why, "its stage process %s", *text ? text : "ended before it was done");
    give_up(owner, why);
}

/* --- questions -------------------------------------------------------------------------------- */

static void start_next(void *owner)
{
    static const struct spawn_ops ops = {on_stage_event, on_stage_ended};
    struct cost_server *g = owner;
    const struct cost_server_setup *n = &g->setup;
    const int threads = *n->threads;
    struct err err;
    if (g->current || !(g->current = TAILQ_FIRST(&g->waiting)))
        return;
    TAILQ_REMOVE(&g->waiting, g->current, next);
    g->n--;
    g->is_timing = workers_are_idle(n->workers);
    if (spawn_start(&g->stage, n->spawner, WITHIN_S * UINT64_C(1000000), &ops, g, &err))
        give_up(g, err.text);
    else if (spawn_send(g->stage,
                        json_pack("{s:s s:O s:i s:b}", "do", "measure", "question", g->current->question,
                                  "threads", threads, "may_time", (int)g->is_timing)))
        give_up(g, "its stage process does not take messages");
}

void cost_server_take_ask(struct cost_server *g, const uint8_t from[16], const json_t *body)
{
    struct request *q = xcalloc(1, sizeof *q);
    memcpy(q->from, from, sizeof q->from);
    q->round = json_integer_value(json_object_get(body, "round"));
    q->question = json_deep_copy(json_object_get(body, "question"));
    tell(g, q, "cost-heard", json_pack("{s:o}", "ways", peers_ways(g->setup.peers)));
    if (g->n == MOST_WAITING) {
        refuse(g, q, "too many ask it");
        request_free(q);
        return;
    }
    TAILQ_INSERT_TAIL(&g->waiting, q, next);
    g->n++;
    timer_set_us(g->next, 0);
}

void cost_server_yield(struct cost_server *g)
{
    if (!g->current || !g->is_timing)
        return;
    give_up(g, "a job has begun there");
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct cost_server *cost_server_new(const struct cost_server_setup *setup)
{
    struct cost_server *g = xcalloc(1, sizeof *g);
    g->setup = *setup;
    TAILQ_INIT(&g->waiting);
    g->next = timer_new(setup->base, start_next, g);
    return g;
}

void cost_server_free(struct cost_server *g)
{
    if (!g)
        return;
    for (struct request *q; (q = TAILQ_FIRST(&g->waiting));) {
        TAILQ_REMOVE(&g->waiting, q, next);
        request_free(q);
    }
    request_free(g->current);
    spawn_free(g->stage);
    timer_free(g->next);
    free(g);
}
