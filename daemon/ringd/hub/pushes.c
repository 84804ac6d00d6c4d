/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/pushes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/model/model_name.h"
#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/hub/push_route.h"
#include "daemon/ringd/timer.h"
#include "net/clock.h"

enum {
    PUSHES_MOST = 16, /* that are remembered */
    LOOK_MS = 1000,
    QUIET_S = 5,  /* a node that has said nothing for so long is asked again, */
    SILENT_S = 30 /* and given up */
};

enum target_state { TARGET_WAITS, TARGET_COMES, TARGET_READY, TARGET_FAILED, TARGET_LEFT_OUT };
static const char *const target_states[] = {"waiting", "coming", "ready", "failed", "left-out"};

struct push_target {
    uint8_t id[16];
    char name[64];
    enum target_state state;
    uint8_t from[PUSH_SOURCES][16]; /* as it was last asked to take it */
    size_t nfrom;
    struct instant asked, heard, ended;
    uint64_t done, total;
    double rate;
    char place[1024], why[600];
};

struct push {
    TAILQ_ENTRY(push) next;
    uint64_t number; /* of all that were begun */
    json_int_t round;
    char model[MODEL_NAME], content[MODEL_CONTENT + 1], list[MODEL_CONTENT + 1];
    bool added;
    struct instant began;
    size_t n;
    struct push_target to[RING_MAX_NODES];
};

struct pushes {
    struct pushes_setup setup;
    TAILQ_HEAD(push_list, push) list; /* oldest first */
    size_t n;
    uint64_t begun;
    struct timer *look; /* owned */
};

static bool is_under_way(const struct push_target *t)
{
    return t->state == TARGET_WAITS || t->state == TARGET_COMES;
}

static bool runs(const struct push *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (is_under_way(&p->to[i]))
            return true;
    return false;
}

/* --- what is shown ---------------------------------------------------------------------------- */

static json_t *show_target(const struct push *p, const struct push_target *t)
{
    json_t *row = json_pack("{s:s s:s s:I s:I s:f}", "node", t->name, "state", target_states[t->state],
                            "done", (json_int_t)t->done, "total", (json_int_t)t->total, "rate", t->rate);
    if (*t->why)
        json_object_set_new(row, "error", json_string(t->why));
    if (t->state == TARGET_READY)
        json_object_update_new(row, json_pack("{s:s s:f}", "place", t->place, "seconds",
                                              (double)clock_since_us(t->ended, p->began) / 1e6));
    return row;
}

static json_t *show(const struct push *p)
{
    json_t *nodes = json_array();
    bool has_failed = false;
    for (size_t i = 0; i < p->n; i++) {
        json_array_append_new(nodes, show_target(p, &p->to[i]));
        has_failed |= p->to[i].state == TARGET_FAILED;
    }
    return json_pack("{s:I s:s s:s s:o}", "number", (json_int_t)p->number, "model", p->model, "state",
                     runs(p)      ? "pushing"
                     : has_failed ? "failed"
                                  : "done",
                     "nodes", nodes);
}

static void publish(const struct pushes *all, const struct push *p)
{
    json_t *row = show(p);
    all->setup.changed(all->setup.owner, row);
    json_decref(row);
}

static void fail(struct push_target *t, const char *why)
{
    t->state = TARGET_FAILED;
    t->ended = clock_now();
    t->rate = 0;
    text_clean(t->why, sizeof t->why, why, false);
}

/* --- from whom -------------------------------------------------------------------------------- */

static struct push_target *find_target(struct push *p, const uint8_t id[16])
{
    for (size_t i = 0; i < p->n; i++)
        if (!memcmp(p->to[i].id, id, 16))
            return &p->to[i];
    return NULL;
}

static enum push_part part_of(struct push *p, const uint8_t id[16])
{
    const struct push_target *t = find_target(p, id);
    return !t                         ? PUSH_PASSES
           : t->state == TARGET_READY ? PUSH_HAS
           : is_under_way(t)          ? PUSH_TAKES
                                      : PUSH_PASSES;
}

static void send_wish(const struct pushes *all, const struct push *p, struct push_target *t)
{
    json_t *from = json_array();
    char id[33];
    for (size_t i = 0; i < t->nfrom; i++) {
        id_hex(id, t->from[i]);
        json_array_append_new(from, json_string(id));
    }
    t->asked = clock_now();
    all->setup.send(all->setup.owner, t->id,
                    json_pack("{s:s s:I s:s s:s s:s* s:b s:o}", "kind", "model-push", "round", p->round,
                              "model", p->model, "content", p->content, "list", *p->list ? p->list : NULL,
                              "added", (int)p->added, "from", from));
}

/* A node that is to take it from others than before hears so at once. */
static void ask(const struct pushes *all, struct push *p, struct push_target *t, const struct push_step *step)
{
    uint8_t from[PUSH_SOURCES][16] = {{0}};
    for (size_t i = 0; i < step->n; i++)
        memcpy(from[i], members_at(all->setup.members, step->from[i])->id, 16);
    if (t->nfrom == step->n && !memcmp(t->from, from, sizeof from))
        return;
    memcpy(t->from, from, sizeof from);
    t->nfrom = step->n;
    send_wish(all, p, t);
}

static void spread(const struct pushes *all, struct push *p)
{
    const struct members *m = all->setup.members;
    const size_t n = members_count(m) < RING_MAX_NODES ? members_count(m) : RING_MAX_NODES;
    bool *joined = xcalloc(n * n, sizeof *joined);
    enum push_part parts[RING_MAX_NODES];
    struct push_step steps[RING_MAX_NODES];
    for (size_t i = 0; i < n; i++) {
        parts[i] = i ? part_of(p, members_at(m, i)->id) : PUSH_HAS;
        for (size_t k = 0; k < n; k++)
            joined[i * n + k] = members_linked(m, members_at(m, i)->id, members_at(m, k)->id);
    }
    push_route(joined, n, parts, steps);
    for (size_t i = 1; i < n; i++)
        if (parts[i] == PUSH_TAKES)
            ask(all, p, find_target(p, members_at(m, i)->id), &steps[i]);
    free(joined);
}

/* --- how far it is ---------------------------------------------------------------------------- */

/* True: it has been given up. */
static bool watch(const struct pushes *all, const struct push *p, struct push_target *t)
{
    const struct instant now = clock_now();
    if (clock_since_us(now, t->heard) >= SILENT_S * UINT64_C(1000000)) {
        char why[100];
        snprintf(why, sizeof why,
                 members_reachable(all->setup.members, t->id) ? "it has not answered for %d s"
                                                              : "it has been out of reach for %d s",
                 SILENT_S);
        fail(t, why);
        return true;
    }
    if (clock_since_us(now, t->heard) >= QUIET_S * UINT64_C(1000000) &&
        clock_since_us(now, t->asked) >= QUIET_S * UINT64_C(1000000))
        send_wish(all, p, t);
    return false;
}

static void on_look(void *owner)
{
    struct pushes *all = owner;
    bool is_any = false;
    for (struct push *p = TAILQ_FIRST(&all->list); p; p = TAILQ_NEXT(p, next)) {
        bool has_changed = false;
        for (size_t i = 0; i < p->n; i++)
            has_changed |= is_under_way(&p->to[i]) && watch(all, p, &p->to[i]);
        if (has_changed) {
            spread(all, p);
            publish(all, p);
        }
        is_any |= runs(p);
    }
    if (is_any)
        timer_set_ms(all->look, LOOK_MS);
}

static uint64_t number_of(const json_t *body, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(body, key));
}

static void take_state(struct push_target *t, const json_t *body)
{
    const char *why = json_string_value(json_object_get(body, "why")),
               *place = json_string_value(json_object_get(body, "place"));
    t->total = number_of(body, "total");
    t->done = number_of(body, "done") < t->total ? number_of(body, "done") : t->total;
    t->rate = (double)number_of(body, "rate");
    t->state = TARGET_COMES;
    if (why) {
        fail(t, why);
    } else if (json_is_true(json_object_get(body, "ready"))) {
        t->state = TARGET_READY;
        t->ended = clock_now();
        t->rate = 0;
        text_clean(t->place, sizeof t->place, place ? place : "", false);
    }
}

void pushes_take_pushed(struct pushes *all, const uint8_t from[16], const json_t *body)
{
    const json_int_t round = json_integer_value(json_object_get(body, "round"));
    for (struct push *p = TAILQ_FIRST(&all->list); p; p = TAILQ_NEXT(p, next)) {
        struct push_target *t = p->round == round ? find_target(p, from) : NULL;
        if (!t || !is_under_way(t) ||
            strcmp(p->model, json_string_value(json_object_get(body, "model"))) != 0)
            continue;
        t->heard = clock_now();
        take_state(t, body);
        if (!is_under_way(t)) /* it gives to others now, or never will */
            spread(all, p);
        publish(all, p);
    }
}

/* --- a new one -------------------------------------------------------------------------------- */

/* Of all nodes those out of reach are left out; one that was named has failed. */
static void add_target(const struct pushes *all, struct push *p, const struct member *m, bool is_named)
{
    if (find_target(p, m->id) || p->n == RING_MAX_NODES)
        return;
    struct push_target *t = &p->to[p->n++];
    *t = (struct push_target){.heard = p->began};
    memcpy(t->id, m->id, 16);
    snprintf(t->name, sizeof t->name, "%s", m->name);
    if (members_reachable(all->setup.members, m->id))
        return;
    fail(t, "it is out of reach");
    t->state = is_named ? TARGET_FAILED : TARGET_LEFT_OUT;
}

static int add_named(const struct pushes *all, struct push *p, const json_t *nodes, struct err *err)
{
    const struct member *self = members_at(all->setup.members, 0);
    size_t i;
    json_t *name;
    json_array_foreach (nodes, i, name) {
        const char *text = json_string_value(name);
        const struct member *m = text ? members_named(all->setup.members, text) : NULL;
        if (!m)
            return err_set(err, -EINVAL, "no node is called \"%.64s\": `ringctl nodes` lists them",
                           text ? text : "");
        if (m == self)
            return err_set(err, -EINVAL, "node %s is this one, and has it: name others", m->name);
        add_target(all, p, m, true);
    }
    return 0;
}

static int add_targets(const struct pushes *all, struct push *p, const json_t *nodes, struct err *err)
{
    const struct members *m = all->setup.members;
    if (json_array_size(nodes))
        return add_named(all, p, nodes, err);
    for (size_t i = 1; i < members_count(m); i++)
        add_target(all, p, members_at(m, i), false);
    return runs(p) ? 0 : err_set(err, -EINVAL, "no other node of the cluster can be reached");
}

static void drop(struct pushes *all, struct push *p)
{
    TAILQ_REMOVE(&all->list, p, next);
    all->n--;
    free(p);
}

/* Room for one more among those that are remembered. */
static bool make_place(struct pushes *all)
{
    struct push *p = TAILQ_FIRST(&all->list);
    if (all->n < PUSHES_MOST)
        return true;
    while (p && runs(p))
        p = TAILQ_NEXT(p, next);
    if (p)
        drop(all, p);
    return p;
}

int pushes_begin(struct pushes *all, const struct push_model *model, const json_t *nodes, json_t **ret,
                 struct err *err)
{
    if (!make_place(all))
        return err_set(err, -EAGAIN, "%d models are being pushed already: push it when one of them is done",
                       PUSHES_MOST);
    struct push *p = xcalloc(1, sizeof *p);
    p->began = clock_now();
    p->added = model->added;
    snprintf(p->model, sizeof p->model, "%s", model->model);
    snprintf(p->content, sizeof p->content, "%s", model->content);
    snprintf(p->list, sizeof p->list, "%s", model->list ? model->list : "");
    const int r = add_targets(all, p, nodes, err);
    if (r) {
        free(p);
        return r;
    }
    p->number = ++all->begun;
    p->round = (json_int_t)(p->began.us + p->number); /* no earlier one has it, also not of a former life */
    TAILQ_INSERT_TAIL(&all->list, p, next);
    all->n++;
    spread(all, p);
    if (!timer_is_pending(all->look))
        timer_set_ms(all->look, LOOK_MS);
    *ret = show(p);
    return 0;
}

/* --- start and end ---------------------------------------------------------------------------- */

struct pushes *pushes_new(const struct pushes_setup *setup)
{
    struct pushes *all = xcalloc(1, sizeof *all);
    all->setup = *setup;
    TAILQ_INIT(&all->list);
    all->look = timer_new(setup->base, on_look, all);
    return all;
}

void pushes_free(struct pushes *all)
{
    if (!all)
        return;
    while (TAILQ_FIRST(&all->list))
        drop(all, TAILQ_FIRST(&all->list));
    timer_free(all->look);
    free(all);
}
