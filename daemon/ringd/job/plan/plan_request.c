/* SPDX-License-Identifier: MIT
 *
 * Owns the questions under way, each with its stage process. Called by the API; loop thread. */
#include "daemon/ringd/job/plan/plan_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/ringd/job/coord.h"
#include "daemon/ringd/job/loan.h"
#include "daemon/ringd/job/plan/placed_plan.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/common/xalloc.h"
#include "net/clock.h"

enum { PLAN_S = 900, MOST_AT_ONCE = 2 };

struct question {
    LIST_ENTRY(question) next;
    struct plan_requests *plan_request; /* borrowed */
    struct http_call *call;
    enum job_type type;
    struct job_nodes offered; /* what the plan is made of */
    json_t *lines;            /* owned: what the stage said meanwhile */
    json_t *message;          /* owned: what the stage was sent */
    struct loan *loan;        /* held: what it was lent; NULL: nothing */
    bool is_timing;           /* it may time what the model costs */
    struct spawn *stage;      /* owned */
    struct instant due;       /* there has to be a plan by then */
};

struct plan_requests {
    struct plan_request_setup setup;
    LIST_HEAD(, question) questions;
    size_t n;
};

static void end_stage(struct question *q)
{
    const struct plan_request_setup *s = &q->plan_request->setup;
    cost_query_forget(s->cost_query, q->stage);
    if (s->forget_travel)
        s->forget_travel(s->owner, q->stage);
    spawn_free(q->stage);
    q->stage = NULL;
}

static void question_free(struct question *q)
{
    LIST_REMOVE(q, next);
    q->plan_request->n--;
    end_stage(q);
    json_decref(q->lines);
    json_decref(q->message);
    loan_drop(q->loan);
    free(q);
}

static void refuse_call(struct plan_requests *p, struct http_call *call, enum plan_refusal kind,
                        const char *why)
{
    p->setup.refused(p->setup.owner, call, kind, why);
}

static void refuse(struct question *q, const char *why)
{
    refuse_call(q->plan_request, q->call, PLAN_REFUSED, why);
    question_free(q);
}

static void answer(struct question *q, const json_t *event)
{
    struct placed_plan *plan;
    struct err err;
    if (placed_plan_read(&plan, event, q->type, &q->offered, &err)) {
        refuse(q, err.text);
        return;
    }
    const struct plan_request_setup *s = &q->plan_request->setup;
    s->planned(s->owner, q->call,
               json_pack("{s:s s:I s:o s:O}", "type", job_type_name(q->type), "steps",
                         (json_int_t)plan->steps, "plan", placed_plan_show(plan), "lines", q->lines));
    placed_plan_free(plan);
    question_free(q);
}

static void ask_travel(struct question *q, const json_t *event)
{
    const struct plan_request_setup *s = &q->plan_request->setup;
    if (s->travel)
        s->travel(s->owner, q->stage, event);
    else if (spawn_send(q->stage, json_pack("{s:s}", "do", "travel")))
        refuse(q, "the stage process does not take messages");
}

static void on_stage_event(void *owner, const char *kind, json_t *event)
{
    struct question *q = owner;
    json_t *text = json_object_get(event, "text");
    if (!strcmp(kind, "planned")) {
        answer(q, event);
    } else if (!strcmp(kind, "failed")) {
        const char *why = json_string_value(json_object_get(event, "error"));
        refuse(q, why ? why : "the stage process gives no reason");
    } else if (!strcmp(kind, "survey")) {
        cost_query_ask(q->plan_request->setup.cost_query, q->stage, event);
    } else if (!strcmp(kind, "travel")) {
        ask_travel(q, event);
    } else if (!strcmp(kind, "log") && text) {
        json_array_append(q->lines, text);
    }
}

static void on_stage_ended(void *owner, const char *text)
{
    struct question *q = owner;
    char why[600];
    snprintf(why, sizeof why, "the stage process %s", *text ? text : "ended before there was a plan");
    refuse(q, why);
}

static void start(struct question *q)
{
    static const struct spawn_ops ops = {on_stage_event, on_stage_ended};
    const struct plan_request_setup *n = &q->plan_request->setup;
    struct err err;
    q->is_timing = workers_are_idle(n->workers);
    json_object_set_new(q->message, "may_time", json_boolean(q->is_timing));
    const struct instant now = clock_now();
    const uint64_t within_us = q->due.us > now.us ? q->due.us - now.us : 1;
    if (spawn_start(&q->stage, n->spawner, within_us, &ops, q, &err))
        refuse(q, err.text);
    else if (spawn_lend(q->stage, q->loan) || spawn_send(q->stage, json_incref(q->message)))
        refuse(q, "the stage process does not take messages");
}

static json_t *message_of(struct question *q, const struct members_ring *ring, const json_t *spec)
{
    json_t *wanted = json_deep_copy(spec), *nodes;
    job_nodes_of_ring(&q->offered, ring, 0, &nodes);
    json_object_set_new(wanted, "dry_run", json_true());
    return json_pack("{s:s s:s s:o s:o}", "do", "plan", "type", job_type_name(q->type), "spec", wanted,
                     "nodes", nodes);
}

void plan_request_yield(struct plan_requests *p)
{
    for (struct question *q = LIST_FIRST(&p->questions), *next; q; q = next) {
        next = LIST_NEXT(q, next);
        if (!q->is_timing)
            continue;
        end_stage(q);
        json_array_clear(q->lines);
        start(q);
    }
}

void plan_request_ask(struct plan_requests *p, enum job_type type, const json_t *spec, struct loan *loan,
                      struct http_call *call)
{
    struct members_ring ring;
    char why[700], text[800];
    p->setup.begins(p->setup.owner);
    if (!coord_ring(p->setup.coord, &ring, why, sizeof why)) {
        snprintf(text, sizeof text, "no plan can be made now: %s", why);
        refuse_call(p, call, PLAN_REFUSED, text);
        return;
    }
    if (p->n == MOST_AT_ONCE) {
        snprintf(text, sizeof text, "%d plans are being made: ask again in a moment", MOST_AT_ONCE);
        refuse_call(p, call, PLAN_BUSY, text);
        return;
    }
    struct question *q = xcalloc(1, sizeof *q);
    *q = (struct question){.plan_request = p,
                           .call = call,
                           .type = type,
                           .lines = json_array(),
                           .loan = loan_hold(loan),
                           .due = {clock_now().us + PLAN_S * UINT64_C(1000000)}};
    LIST_INSERT_HEAD(&p->questions, q, next);
    p->n++;
    q->message = message_of(q, &ring, spec);
    start(q);
}

struct plan_requests *plan_request_new(const struct plan_request_setup *setup)
{
    struct plan_requests *p = xcalloc(1, sizeof *p);
    p->setup = *setup;
    LIST_INIT(&p->questions);
    return p;
}

void plan_request_free(struct plan_requests *p)
{
    if (!p)
        return;
    for (struct question *q; (q = LIST_FIRST(&p->questions));) {
        refuse_call(p, q->call, PLAN_STOPPING, "ringd is stopping");
        question_free(q);
    }
    free(p);
}
