/* SPDX-License-Identifier: MIT
 *
 * Owns the questions that wait and the stage process that answers one. Loop thread. */
#include "daemon/ringd/job/cost_server.h"

#include <event2/event.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/optable.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/worker.h"
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
    struct event *deadline, *reap; /* owned; reap frees the stage outside its own callback */
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
    event_del(g->deadline);
    event_active(g->reap, EV_TIMEOUT, 0);
}

static void on_stage_event(void *owner, const char *kind, json_t *event)
{
    struct cost_server *g = owner;
    if (!g->current)
        return;
    if (!strcmp(kind, "measured")) {
        tell(g, g->current, "cost-told", json_incref(json_object_get(event, "answer")));
        end(g);
    } else if (!strcmp(kind, "failed")) {
        const char *why = json_string_value(json_object_get(event, "error"));
        refuse(g, g->current, why ? why : "its stage process gives no reason");
        end(g);
    }
}

static void on_stage_ended(void *owner, const char *text)
{
    struct cost_server *g = owner;
    (void)text;
    if (!g->current)
        return;
    refuse(g, g->current, "its stage process ended before it was done");
    end(g);
}

static void give_up(struct cost_server *g, const char *why)
{
    refuse(g, g->current, why);
    end(g);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    give_up(arg, "timing took too long");
}

/* --- questions -------------------------------------------------------------------------------- */

static void start_next(struct cost_server *g)
{
    static const struct spawn_ops ops = {on_stage_event, on_stage_ended};
    static const struct timeval within = {WITHIN_S, 0};
    const struct cost_server_setup *n = &g->setup;
    const int threads = *n->threads;
    struct err err;
    if (g->stage || !(g->current = TAILQ_FIRST(&g->waiting)))
        return;
    TAILQ_REMOVE(&g->waiting, g->current, next);
    g->n--;
    g->is_timing = worker_is_idle(n->worker);
    event_add(g->deadline, &within);
    if (spawn_start(&g->stage, n->base, n->opts, threads, &ops, g, &err))
        give_up(g, err.text);
    else if (spawn_send(g->stage,
                        json_pack("{s:s s:O s:i s:b}", "do", "measure", "question", g->current->question,
                                  "threads", threads, "may_time", (int)g->is_timing)))
        give_up(g, "its stage process does not take messages");
}

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
    struct cost_server *g = arg;
    (void)fd;
    (void)what;
    spawn_free(g->stage);
    g->stage = NULL;
    start_next(g);
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
    if (!event_pending(g->reap, EV_TIMEOUT, NULL))
        start_next(g);
}

void cost_server_yield(struct cost_server *g)
{
    if (!g->current || !g->is_timing)
        return;
    spawn_kill(g->stage, SIGKILL);
    give_up(g, "a job has begun there");
}

/* --- opening, closing ------------------------------------------------------------------------- */

struct cost_server *cost_server_new(const struct cost_server_setup *setup)
{
    struct cost_server *g = xcalloc(1, sizeof *g);
    g->setup = *setup;
    TAILQ_INIT(&g->waiting);
    g->deadline = evtimer_new(setup->base, on_deadline, g);
    g->reap = event_new(setup->base, -1, 0, on_reap, g);
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
    event_free(g->deadline);
    event_free(g->reap);
    free(g);
}
