/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/push_takes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/carry_order.h"
#include "daemon/ringd/hub/pulls.h"
#include "daemon/ringd/hub/shelf.h"
#include "daemon/ringd/timer.h"
#include "net/ring.h"

enum {
    TAKES = 16,                                /* of one that pushes, as many as it remembers (pushes.c), */
    TAKES_MOST = TAKES * (RING_MAX_NODES - 1), /* and of all together */
    AGAIN_MS = 1000                            /* after a process that brought it has ended */
};

enum take_state { TAKE_NEW, TAKE_COMES, TAKE_CUT_OFF, TAKE_IS_NAMED, TAKE_DONE, TAKE_FAILED };

struct push_take {
    TAILQ_ENTRY(push_take) next;
    uint8_t pusher[16];
    json_int_t round; /* the pusher's number of it */
    char model[MODEL_NAME], content[MODEL_CONTENT + 1], list[MODEL_CONTENT + 1];
    struct carry_order order; /* its texts are those above */
    bool added;               /* a user gave the model its name */
    bool has_come;            /* for this push, and was not here before */
    enum take_state state;
    char why[512]; /* TAKE_FAILED: a sentence */
};

struct push_takes {
    struct push_takes_setup setup;
    TAILQ_HEAD(push_take_list, push_take) list; /* oldest first */
    size_t n;
    struct timer *again; /* owned */
};

/* --- what the pusher hears -------------------------------------------------------------------- */

static void tell(const struct push_takes *all, const struct push_take *t)
{
    const struct push_takes_setup *s = &all->setup;
    const struct pull *p = pulls_find(s->pulls, t->model);
    const bool is_done = t->state == TAKE_DONE;
    uint64_t done = 0, total = 0;
    double rate = 0;
    if (p && t->has_come)
        pull_amounts(p, &done, &total, &rate);
    char *place = is_done ? xasprintf("%s/%s", s->dir, t->model) : NULL;
    s->send(s->owner, t->pusher,
            json_pack("{s:s s:I s:s s:b s:I s:I s:I s:s* s:s*}", "kind", "model-pushed", "round", t->round,
                      "model", t->model, "ready", (int)is_done, "done", (json_int_t)done, "total",
                      (json_int_t)total, "rate", (json_int_t)rate, "place", place, "why",
                      t->state == TAKE_FAILED ? t->why : NULL));
    free(place);
}

static void fail(const struct push_takes *all, struct push_take *t, const char *why)
{
    t->state = TAKE_FAILED;
    snprintf(t->why, sizeof t->why, "%s", why);
    tell(all, t);
}

/* --- its name --------------------------------------------------------------------------------- */

static struct push_take *find(const struct push_takes *all, const uint8_t pusher[16], const char *model)
{
    for (struct push_take *t = TAILQ_FIRST(&all->list); t; t = TAILQ_NEXT(t, next))
        if (!memcmp(t->pusher, pusher, 16) && !strcmp(t->model, model))
            return t;
    return NULL;
}

/* What leads back to one that may have gone meanwhile. */
struct name_ask {
    struct push_takes *all;
    uint8_t pusher[16];
    char model[MODEL_NAME];
};

static void on_named(void *owner, const struct shelf_answer *a)
{
    struct name_ask *q = owner;
    struct push_take *t = find(q->all, q->pusher, q->model);
    if (t && t->state == TAKE_IS_NAMED && a->r) {
        fail(q->all, t, a->why);
    } else if (t && t->state == TAKE_IS_NAMED) {
        t->state = TAKE_DONE;
        tell(q->all, t);
    }
    free(q);
}

static void give_name(struct push_takes *all, struct push_take *t)
{
    struct name_ask *q = xcalloc(1, sizeof *q);
    q->all = all;
    memcpy(q->pusher, t->pusher, 16);
    memcpy(q->model, t->model, sizeof q->model);
    t->state = TAKE_IS_NAMED;
    const struct shelf_order order = {
        .what = SHELF_NAME, .dir = all->setup.dir, .model = t->model, .added = t->added};
    if (shelf_ask(all->setup.aside, &order, on_named, q)) {
        free(q);
        fail(all, t, "its disks do not answer: push it again in a moment");
    }
}

/* --- its bytes -------------------------------------------------------------------------------- */

static void begin(struct push_takes *all, struct push_take *t)
{
    const struct push_takes_setup *s = &all->setup;
    const char *here = s->content(s->owner, t->model);
    struct pull *p;
    struct err err;
    if (here && strcmp(here, t->content) != 0) {
        fail(all, t, "it has other files under this name: `ringctl models remove` there lets these come");
        return;
    }
    if (s->is_whole(s->owner, t->model)) {
        give_name(all, t);
        return;
    }
    const int r = pulls_take(s->pulls, &t->order, &p, &err);
    if (r) {
        fail(all, t,
             r == -EBUSY ? "it is pulled from the hub there, or read again: push it when that is over"
                         : err.text);
        return;
    }
    t->state = TAKE_COMES;
    t->has_come = true;
    tell(all, t);
}

static void on_again(void *owner)
{
    struct push_takes *all = owner;
    for (struct push_take *t = TAILQ_FIRST(&all->list); t; t = TAILQ_NEXT(t, next))
        if (t->state == TAKE_CUT_OFF)
            begin(all, t);
}

void push_takes_changed(struct push_takes *all, const struct pull *p)
{
    const enum pull_state state = pull_state(p);
    for (struct push_take *t = TAILQ_FIRST(&all->list); t; t = TAILQ_NEXT(t, next)) {
        if (t->state != TAKE_COMES || strcmp(t->model, pull_model(p)) != 0)
            continue;
        if (pull_was_cut_off(p)) {
            t->state = TAKE_CUT_OFF;
            timer_set_ms(all->again, AGAIN_MS);
        } else if (state == PULL_FAILED) {
            fail(all, t, pull_why(p));
        } else if (state == PULL_STOPPED) {
            fail(all, t, "somebody on that node stopped it");
        } else {
            tell(all, t);
        }
    }
}

/* What has come counts once it has been looked at. */
void push_takes_looked(struct push_takes *all)
{
    const struct push_takes_setup *s = &all->setup;
    for (struct push_take *t = TAILQ_FIRST(&all->list); t; t = TAILQ_NEXT(t, next)) {
        const struct pull *p = t->state == TAKE_COMES ? pulls_find(s->pulls, t->model) : NULL;
        if (!p || pull_state(p) != PULL_DONE)
            continue;
        if (s->is_whole(s->owner, t->model))
            give_name(all, t);
        else
            fail(all, t, "its files were changed or removed there while they came");
    }
}

/* --- messages --------------------------------------------------------------------------------- */

static void drop(struct push_takes *all, struct push_take *t)
{
    TAILQ_REMOVE(&all->list, t, next);
    all->n--;
    free(t);
}

/* Its own oldest one goes: no node pushes out what others push. Those of nodes that have left the
 * cluster go at last. */
static void make_place(struct push_takes *all, const uint8_t pusher[16])
{
    struct push_take *oldest = NULL;
    size_t own = 0;
    for (struct push_take *t = TAILQ_FIRST(&all->list); t; t = TAILQ_NEXT(t, next)) {
        if (memcmp(t->pusher, pusher, 16) != 0)
            continue;
        oldest = oldest ? oldest : t;
        own++;
    }
    if (own == TAKES)
        drop(all, oldest);
    else if (all->n == TAKES_MOST)
        drop(all, TAILQ_FIRST(&all->list));
}

static struct push_take *find_or_add(struct push_takes *all, const uint8_t pusher[16], const char *model)
{
    struct push_take *t = find(all, pusher, model);
    if (t)
        return t;
    make_place(all, pusher);
    t = xcalloc(1, sizeof *t);
    memcpy(t->pusher, pusher, 16);
    snprintf(t->model, sizeof t->model, "%s", model);
    TAILQ_INSERT_TAIL(&all->list, t, next);
    all->n++;
    return t;
}

static void set_order(struct push_take *t, const struct carry_order *order)
{
    snprintf(t->content, sizeof t->content, "%s", order->content);
    snprintf(t->list, sizeof t->list, "%s", order->list ? order->list : "");
    t->order = *order;
    t->order.model = t->model;
    t->order.content = t->content;
    t->order.list = t->list;
    t->order.whole = t->order.nodes = true;
}

static bool has_same_sources(const struct push_take *t, const struct carry_order *order)
{
    return t->order.nfrom == order->nfrom && !memcmp(t->order.from, order->from, 16 * order->nfrom);
}

/* One that has come, and is still looked at on the disk, needs no source: begun again it would find
 * nothing to bring, and count as one that was here before. */
static bool is_coming(const struct push_takes *all, const struct push_take *t)
{
    const struct pull *p = pulls_find(all->setup.pulls, t->model);
    return t->state == TAKE_COMES && p && (pull_state(p) == PULL_WAITS || pull_state(p) == PULL_RUNS);
}

void push_takes_take(struct push_takes *all, const uint8_t from[16], const json_t *body)
{
    const json_int_t round = json_integer_value(json_object_get(body, "round"));
    struct carry_order order;
    if (carry_order_read(&order, all->setup.members, body) || !*order.content || !order.nfrom)
        return;
    struct push_take *t = find_or_add(all, from, order.model);
    const bool is_new = t->round != round || t->state == TAKE_NEW,
               has_others = is_coming(all, t) && !has_same_sources(t, &order);
    if (is_new || has_others) {
        t->has_come = t->has_come && t->round == round;
        t->round = round;
        t->added = json_is_true(json_object_get(body, "added"));
        set_order(t, &order);
        begin(all, t);
    } else {
        tell(all, t);
    }
}

/* --- start and end ---------------------------------------------------------------------------- */

struct push_takes *push_takes_new(const struct push_takes_setup *setup)
{
    struct push_takes *all = xcalloc(1, sizeof *all);
    all->setup = *setup;
    TAILQ_INIT(&all->list);
    all->again = timer_new(setup->base, on_again, all);
    return all;
}

void push_takes_free(struct push_takes *all)
{
    if (!all)
        return;
    while (TAILQ_FIRST(&all->list))
        drop(all, TAILQ_FIRST(&all->list));
    timer_free(all->again);
    free(all);
}
