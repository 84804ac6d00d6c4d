/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/bring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/nearest.h"
#include "daemon/ringd/hub/pulls.h"
#include "daemon/ringd/timer.h"

enum {
    ORDERS_MOST = 64,
    WHY = 1000,
    AGAIN_MS = 1000 /* after a process that brought it has ended */
};

struct bring_order {
    TAILQ_ENTRY(bring_order) next;
    char model[MODEL_NAME], content[MODEL_CONTENT + 1];
    json_t *blocks; /* owned */
    uint8_t from[CARRY_FROM][16];
    size_t nfrom;
    bool hub;      /* no node is known that has all of it */
    bool is_begun; /* it is a part of the pull that is under way */
};

struct bring {
    struct bring_setup setup;
    TAILQ_HEAD(bring_orders, bring_order) orders;
    size_t n;
    struct timer *again; /* owned */
};

static void order_over(struct bring *b, struct bring_order *o, const char *why)
{
    TAILQ_REMOVE(&b->orders, o, next);
    b->n--;
    b->setup.brought(b->setup.owner, o->model, why);
    json_decref(o->blocks);
    free(o);
}

/* A model that is pulled from the hub or read again right now is waited for. */
static void begin(struct bring *b, struct bring_order *o)
{
    struct carry_order order = {
        .model = o->model, .content = o->content, .blocks = o->blocks, .nfrom = o->nfrom, .hub = o->hub};
    struct pull *p;
    struct err err;
    memcpy(order.from, o->from, sizeof order.from);
    const int r = pulls_take(b->setup.pulls, &order, &p, &err);
    o->is_begun = !r;
    if (r && r != -EBUSY)
        order_over(b, o, err.text);
}

void bring_want(struct bring *b, const char *model, const char *content, const json_t *blocks,
                const json_t *holders, bool parts)
{
    if (b->n == ORDERS_MOST) {
        b->setup.brought(b->setup.owner, model, "this node takes parts of as many models as it can");
        return;
    }
    struct bring_order *o = xcalloc(1, sizeof *o);
    snprintf(o->model, sizeof o->model, "%s", model);
    snprintf(o->content, sizeof o->content, "%s", content);
    o->blocks = json_deep_copy(blocks);
    o->nfrom = nearest(b->setup.members, holders, parts, o->from, CARRY_FROM);
    o->hub = parts || !o->nfrom;
    TAILQ_INSERT_TAIL(&b->orders, o, next);
    b->n++;
    begin(b, o);
}

static void on_again(void *owner)
{
    struct bring *b = owner;
    struct bring_order *next;
    for (struct bring_order *o = TAILQ_FIRST(&b->orders); o; o = next) {
        next = TAILQ_NEXT(o, next);
        if (!o->is_begun)
            begin(b, o);
    }
}

static void wait_a_moment(struct bring *b, struct bring_order *o)
{
    o->is_begun = false;
    timer_set_ms(b->again, AGAIN_MS);
}

static void say_coming(const struct bring *b, const struct bring_order *o, const struct pull *p)
{
    const struct member *m = members_find(b->setup.members, o->from[0]);
    char from[500];
    if (*pull_waits(p))
        snprintf(from, sizeof from, "the hub, which is tried again (%s),", pull_waits(p));
    else if (pull_is_of_nodes(p))
        snprintf(from, sizeof from, "node %s", m ? m->name : "?");
    else
        snprintf(from, sizeof from, "the hub");
    struct bring_coming c = {.model = o->model, .from = from};
    pull_amounts(p, &c.done, &c.total, &c.rate);
    b->setup.coming(b->setup.owner, &c);
}

void bring_changed(struct bring *b, const struct pull *p)
{
    const enum pull_state state = pull_state(p);
    const bool is_over = state != PULL_WAITS && state != PULL_RUNS, is_cut_off = pull_was_cut_off(p);
    char model[MODEL_NAME], why[WHY] = "somebody on that node stopped it";
    struct bring_order *next;
    snprintf(model, sizeof model, "%s", pull_model(p));
    if (state == PULL_FAILED)
        snprintf(why, sizeof why, "%s", pull_why(p));
    for (struct bring_order *o = TAILQ_FIRST(&b->orders); o; o = next) {
        next = TAILQ_NEXT(o, next);
        if (strcmp(o->model, model) != 0)
            continue;
        if (!is_over)
            say_coming(b, o, p);
        else if (!o->is_begun)
            begin(b, o);
        else if (is_cut_off)
            wait_a_moment(b, o);
        else
            order_over(b, o, state == PULL_DONE ? NULL : why);
    }
}

struct bring *bring_new(const struct bring_setup *setup)
{
    struct bring *b = xcalloc(1, sizeof *b);
    b->setup = *setup;
    TAILQ_INIT(&b->orders);
    b->again = timer_new(setup->base, on_again, b);
    return b;
}

void bring_free(struct bring *b)
{
    if (!b)
        return;
    for (struct bring_order *o; (o = TAILQ_FIRST(&b->orders));) {
        TAILQ_REMOVE(&b->orders, o, next);
        json_decref(o->blocks);
        free(o);
    }
    timer_free(b->again);
    free(b);
}
