/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/supply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/conf.h"
#include "daemon/common/model/model_name.h"
#include "daemon/common/text_clean.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/identity.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/event_log.h"
#include "daemon/ringd/hub/hub_fetch.h"
#include "daemon/ringd/hub/pulls.h"
#include "daemon/ringd/hub/shelf.h"
#include "daemon/ringd/timer.h"

enum {
    AGAIN_MS = 3000,  /* a node that has not said that it has a model is asked again */
    SOON_MS = 0,      /* once the present callback is over */
    ASKERS = 16,      /* nodes that hear of a model's progress here */
    TOLD_MOST = 256,  /* models of other nodes that are remembered */
    RESOLVES = 16,    /* at once */
    WANTED_MOST = 64, /* models that other nodes may have this one pull */
};

/* What another node has said of a model. */
struct supply_told {
    TAILQ_ENTRY(supply_told) next;
    uint8_t id[16];
    char model[MODEL_NAME];
    bool is_ready, has_said;
    uint64_t boot; /* of that node's life: another may have lost it */
    uint64_t done, total;
    double rate;
    char why[400]; /* "": it is on its way */
    struct instant asked;
};

/* A node that waits for a model of this one. */
struct supply_asker {
    LIST_ENTRY(supply_asker) next;
    uint8_t id[16];
    char model[MODEL_NAME];
};

struct supply_resolve {
    LIST_ENTRY(supply_resolve) next;
    struct supply *s;
    struct hub_fetch *fetch;
    char model[MODEL_NAME];
    supply_answer *done;
    void *owner;
};

/* An answer of the shelf on its way to who asked. */
struct supply_call {
    LIST_ENTRY(supply_call) next;
    struct supply *s;
    char what[16], model[MODEL_NAME];
    supply_answer *done; /* NULL: nobody waits for it */
    void *owner;
};

struct supply {
    struct supply_setup setup;
    uint64_t quota;
    struct pulls *pulls; /* owned */
    json_t *whole;       /* owned: the exact names of the models that are here */
    TAILQ_HEAD(told_list, supply_told) told;
    size_t ntold;
    LIST_HEAD(, supply_asker) askers;
    size_t naskers;
    LIST_HEAD(, supply_resolve) resolves;
    size_t nresolves;
    LIST_HEAD(, supply_call) calls;
    struct timer *again, *soon; /* owned */
};

static const char *dir_of(const struct supply *s)
{
    return opts_str(s->setup.opts, "models-dir");
}

static bool is_whole(const struct supply *s, const char *model)
{
    return json_is_true(json_object_get(s->whole, model));
}

/* --- what is told ----------------------------------------------------------------------------- */

static json_t *told_message(const struct supply *s, const char *model)
{
    struct pull *p = pulls_find(s->pulls, model);
    uint64_t done = 0, total = 0;
    double rate = 0;
    const bool here = is_whole(s, model), failed = !here && p && pull_state(p) == PULL_FAILED;
    if (p)
        pull_amounts(p, &done, &total, &rate);
    return json_pack("{s:s s:s s:b s:I s:I s:I s:s*}", "kind", "model-told", "model", model, "ready",
                     (int)here, "done", (json_int_t)done, "total", (json_int_t)total, "rate",
                     (json_int_t)rate, "why", failed ? pull_why(p) : NULL);
}

static void asker_free(struct supply *s, struct supply_asker *a)
{
    LIST_REMOVE(a, next);
    s->naskers--;
    free(a);
}

static void tell_askers(struct supply *s, const char *model)
{
    for (struct supply_asker *a = LIST_FIRST(&s->askers), *next; a; a = next) {
        next = LIST_NEXT(a, next);
        if (strcmp(a->model, model) != 0)
            continue;
        s->setup.send(s->setup.owner, a->id, told_message(s, model));
        if (is_whole(s, model))
            asker_free(s, a);
    }
}

static void on_pull_changed(void *owner, const struct pull *p)
{
    struct supply *s = owner;
    json_t *row = pull_row(p);
    char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (pull_state(p) == PULL_DONE)
        json_object_set_new(s->whole, pull_model(p), json_true());
    if (text)
        event_log_publish(s->setup.events, 0, "pull", text);
    free(text);
    json_decref(row);
    tell_askers(s, pull_model(p));
    if (!timer_is_pending(s->soon))
        timer_set_ms(s->soon, SOON_MS);
}

static void on_soon(void *owner)
{
    const struct supply *s = owner;
    s->setup.changed(s->setup.owner);
}

/* --- pulls ------------------------------------------------------------------------------------ */

/* Of what is here already there is nothing to pull. */
static json_t *ready_row(const char *model)
{
    return json_pack("{s:s s:s s:s s:i s:i}", "model", model, "asked", model, "state", "ready", "done", 0,
                     "total", 0);
}

int supply_pull(struct supply *s, const char *name, json_t **ret, struct err *err)
{
    struct pull *p;
    if (is_whole(s, name)) {
        *ret = ready_row(name);
        return 0;
    }
    const int r = pulls_begin(s->pulls, "pull", name, &p, err);
    if (!r)
        *ret = pull_row(p);
    return r;
}

int supply_verify(struct supply *s, const char *name, json_t **ret, struct err *err)
{
    struct pull *p;
    if (!is_whole(s, name))
        return err_set(err, -ENOENT, "%s is not on this node", name);
    const int r = pulls_begin(s->pulls, "verify", name, &p, err);
    if (!r)
        *ret = pull_row(p);
    return r;
}

int supply_stop(struct supply *s, const char *name)
{
    struct model_name read;
    char whole[MODEL_NAME];
    if (model_name_read(&read, name, NULL))
        return -ENOENT;
    model_name_write(whole, &read);
    struct pull *p = pulls_find(s->pulls, whole);
    if (!p || (pull_state(p) != PULL_RUNS && pull_state(p) != PULL_WAITS))
        return -ENOENT;
    pull_stop(p);
    return 0;
}

/* --- names ------------------------------------------------------------------------------------ */

static void resolve_over(struct supply_resolve *q, int r, const char *why)
{
    json_t *answer = r ? NULL : json_pack("{s:s}", "model", q->model);
    LIST_REMOVE(q, next);
    q->s->nresolves--;
    q->done(q->owner, answer, r, why);
    json_decref(answer);
    free(q);
}

static void on_resolved(void *owner, const char *model)
{
    struct supply_resolve *q = owner;
    snprintf(q->model, sizeof q->model, "%s", model);
}

static void on_resolve_over(void *owner, const char *why, bool passing)
{
    struct supply_resolve *q = owner;
    if (!why && !*q->model)
        why = "ringd-fetch does not say which commit it is";
    resolve_over(q, !why ? 0 : passing ? -EAGAIN : -ENOENT, why);
}

void supply_resolve(struct supply *s, const char *name, supply_answer *done, void *owner)
{
    static const struct hub_fetch_ops ops = {.resolved = on_resolved, .over = on_resolve_over};
    struct model_name read;
    struct err err;
    char whole[MODEL_NAME];
    int r = model_name_read(&read, name, &err);
    if (!r && s->nresolves == RESOLVES)
        r = err_set(&err, -EAGAIN, "%d names of models are being looked up: ask again in a moment", RESOLVES);
    if (r) {
        done(owner, NULL, r, err.text);
        return;
    }
    model_name_write(whole, &read);
    struct supply_resolve *q = xcalloc(1, sizeof *q);
    *q = (struct supply_resolve){.s = s, .done = done, .owner = owner};
    LIST_INSERT_HEAD(&s->resolves, q, next);
    s->nresolves++;
    if (model_commit_is(read.revision)) {
        snprintf(q->model, sizeof q->model, "%s", whole);
        resolve_over(q, 0, NULL);
    } else if ((r = hub_fetch_start(&q->fetch, pulls_fetchers(s->pulls), "resolve", whole, &ops, q, &err))) {
        resolve_over(q, r, err.text);
    }
}

/* --- the shelf -------------------------------------------------------------------------------- */

static struct supply_call *call_new(struct supply *s, const char *what, const char *model,
                                    supply_answer *done, void *owner)
{
    struct supply_call *c = xcalloc(1, sizeof *c);
    *c = (struct supply_call){.s = s, .done = done, .owner = owner};
    snprintf(c->what, sizeof c->what, "%s", what);
    snprintf(c->model, sizeof c->model, "%s", model ? model : "");
    LIST_INSERT_HEAD(&s->calls, c, next);
    return c;
}

static void answer(struct supply_call *c, const json_t *text, int r, const char *why)
{
    LIST_REMOVE(c, next);
    if (c->done)
        c->done(c->owner, text, r, why);
    free(c);
}

static void note_whole(struct supply *s, const json_t *list)
{
    size_t i;
    json_t *m;
    json_object_clear(s->whole);
    json_array_foreach (list, i, m)
        if (json_is_true(json_object_get(m, "whole")))
            json_object_set_new(s->whole, json_string_value(json_object_get(m, "model")), json_true());
}

static json_t *with_pulls(const struct supply *s, const json_t *list)
{
    json_t *all = json_deep_copy(list), *m;
    size_t i;
    json_array_foreach (all, i, m) {
        const struct pull *p = pulls_find(s->pulls, json_string_value(json_object_get(m, "model")));
        if (p)
            json_object_set_new(m, "pull", pull_row(p));
    }
    for (const struct pull *p = NULL; (p = pulls_next(s->pulls, p));) {
        bool is_listed = false;
        json_array_foreach (all, i, m)
            is_listed |= !strcmp(json_string_value(json_object_get(m, "model")), pull_model(p));
        if (!is_listed && pull_state(p) != PULL_STOPPED)
            json_array_append_new(all, json_pack("{s:s s:b s:i s:o}", "model", pull_model(p), "whole", 0,
                                                 "on_disk", 0, "pull", pull_row(p)));
    }
    return all;
}

static void on_list(void *owner, const struct shelf_answer *a)
{
    struct supply_call *c = owner;
    struct supply *s = c->s;
    if (a->r) {
        answer(c, NULL, a->r, a->why);
        return;
    }
    note_whole(s, a->list);
    json_t *all = json_pack("{s:o s:s s:I}", "models", with_pulls(s, a->list), "folder", dir_of(s), "quota",
                            (json_int_t)s->quota);
    answer(c, all, 0, NULL);
    json_decref(all);
}

static void on_done(void *owner, const struct shelf_answer *a)
{
    struct supply_call *c = owner;
    if (!a->r && !strcmp(c->what, "remove")) {
        json_object_del(c->s->whole, c->model);
        pulls_forget(c->s->pulls, c->model);
    }
    json_t *row = json_pack("{s:s s:s}", "model", c->model, "done", c->what);
    answer(c, row, a->r, a->why);
    json_decref(row);
}

static void ask_shelf(struct supply *s, enum shelf_do what, struct supply_call *c)
{
    const struct shelf_order order = {.what = what, .dir = dir_of(s), .model = c->model};
    if (shelf_ask(s->setup.aside, &order, what == SHELF_LIST ? on_list : on_done, c))
        answer(c, NULL, -EAGAIN, "this node's disks do not answer: ask again in a moment");
}

void supply_list(struct supply *s, supply_answer *done, void *owner)
{
    ask_shelf(s, SHELF_LIST, call_new(s, "list", NULL, done, owner));
}

void supply_do(struct supply *s, const char *what, const char *model, supply_answer *done, void *owner)
{
    struct supply_call *c = call_new(s, what, model, done, owner);
    json_t *used = s->setup.in_use(s->setup.owner);
    size_t i;
    json_t *name;
    bool is_used = false;
    json_array_foreach (used, i, name)
        is_used |= !strcmp(json_string_value(name), model);
    json_decref(used);
    if (!strcmp(what, "remove") && is_used) {
        answer(c, NULL, -EBUSY, "a job uses it: cancel that first");
        return;
    }
    if (!strcmp(what, "remove"))
        supply_stop(s, model);
    ask_shelf(s, !strcmp(what, "remove") ? SHELF_REMOVE : !strcmp(what, "pin") ? SHELF_PIN : SHELF_UNPIN, c);
}

void supply_used(struct supply *s, const char *model)
{
    if (is_whole(s, model))
        ask_shelf(s, SHELF_USED, call_new(s, "used", model, NULL, NULL));
}

/* --- other nodes ------------------------------------------------------------------------------ */

static struct supply_told *find_told(const struct supply *s, const uint8_t id[16], const char *model)
{
    struct supply_told *t;
    TAILQ_FOREACH(t, &s->told, next)
    if (!memcmp(t->id, id, 16) && !strcmp(t->model, model))
        return t;
    return NULL;
}

static struct supply_told *add_told(struct supply *s, const struct member *who, const char *model)
{
    struct supply_told *t = TAILQ_FIRST(&s->told);
    if (s->ntold == TOLD_MOST) {
        TAILQ_REMOVE(&s->told, t, next);
        free(t);
        s->ntold--;
    }
    t = xcalloc(1, sizeof *t);
    memcpy(t->id, who->id, 16);
    snprintf(t->model, sizeof t->model, "%s", model);
    TAILQ_INSERT_TAIL(&s->told, t, next);
    s->ntold++;
    return t;
}

/* "31 %, 4 s left" */
static void describe_progress(char *to, size_t size, uint64_t done, uint64_t total, double rate)
{
    const struct err_amounts a = err_amounts(total, done);
    if (!total)
        snprintf(to, size, "it is being looked up");
    else if (rate <= 0)
        snprintf(to, size, "%s of %s", a.have, a.need);
    else
        snprintf(to, size, "%s of %s, %.0f s left", a.have, a.need, (double)(total - done) / rate);
}

/* Is it on this node? Begins to pull it if not. */
static bool is_here(struct supply *s, const char *model, char *how, size_t size)
{
    struct pull *p = pulls_find(s->pulls, model);
    struct err err;
    uint64_t done, total;
    double rate;
    if (is_whole(s, model))
        return true;
    if (!p || pull_may_retry(p)) {
        if (pulls_begin(s->pulls, "pull", model, &p, &err)) {
            snprintf(how, size, "%s", err.text);
            return false;
        }
    }
    pull_amounts(p, &done, &total, &rate);
    if (pull_state(p) == PULL_FAILED)
        snprintf(how, size, "%s", pull_why(p));
    else
        describe_progress(how, size, done, total, rate);
    return false;
}

static bool is_on(struct supply *s, const struct member *who, const char *model, char *how, size_t size)
{
    struct supply_told *t = find_told(s, who->id, model);
    const struct instant now = clock_now();
    if (!t)
        t = add_told(s, who, model);
    if (t->boot != who->boot) {
        t->boot = who->boot;
        t->is_ready = t->has_said = false;
        t->asked.us = 0;
    }
    if (t->is_ready)
        return true;
    if (!t->asked.us || clock_since_us(now, t->asked) >= AGAIN_MS * UINT64_C(1000)) {
        t->asked = now;
        s->setup.send(s->setup.owner, who->id, json_pack("{s:s s:s}", "kind", "model-want", "model", model));
    }
    if (*t->why)
        snprintf(how, size, "%s", t->why);
    else if (t->has_said)
        describe_progress(how, size, t->done, t->total, t->rate);
    else
        snprintf(how, size, "it is being asked");
    return false;
}

bool supply_is_there(struct supply *s, const char *model, const struct members_ring *ring, char *why,
                     size_t size)
{
    const uint8_t *self = members_self(s->setup.members)->id;
    char how[500], first[500] = "";
    const char *name = "";
    size_t lack = 0;
    if (!model || !model_name_is_exact(model))
        return true;
    for (size_t i = 0; i < ring->n; i++) {
        const struct member *m = ring->at[i];
        const bool there = memcmp(m->id, self, 16) ? is_on(s, m, model, how, sizeof how)
                                                   : is_here(s, model, how, sizeof how);
        if (there || lack++)
            continue;
        snprintf(first, sizeof first, "%s", how);
        name = m->name;
    }
    if (!lack)
        return true;
    const int n = (int)(strchr(model, '@') - model);
    if (lack > 1)
        snprintf(why, size, "%.*s is pulled on %zu nodes; %s: %s", n, model, lack, name, first);
    else
        snprintf(why, size, "%.*s is pulled on node %s: %s", n, model, name, first);
    if (!timer_is_pending(s->again))
        timer_set_ms(s->again, AGAIN_MS);
    return false;
}

/* Progress that is said to another node, and wishes of it, are bounded: it may be anybody's. */
void supply_take_want(struct supply *s, const uint8_t from[16], const json_t *body)
{
    const char *model = json_string_value(json_object_get(body, "model"));
    struct supply_asker *a;
    char how[500];
    size_t own = 0;
    bool is_known = false;
    if (!model_name_is_exact(model))
        return;
    LIST_FOREACH (a, &s->askers, next) {
        own += !memcmp(a->id, from, 16);
        is_known |= !memcmp(a->id, from, 16) && !strcmp(a->model, model);
    }
    if (!is_here(s, model, how, sizeof how) && !is_known && own < ASKERS && s->naskers < WANTED_MOST) {
        a = xcalloc(1, sizeof *a);
        memcpy(a->id, from, 16);
        snprintf(a->model, sizeof a->model, "%s", model);
        LIST_INSERT_HEAD(&s->askers, a, next);
        s->naskers++;
    }
    s->setup.send(s->setup.owner, from, told_message(s, model));
}

void supply_take_told(struct supply *s, const uint8_t from[16], const json_t *body)
{
    const char *model = json_string_value(json_object_get(body, "model")),
               *why = json_string_value(json_object_get(body, "why"));
    struct supply_told *t = find_told(s, from, model);
    if (!t) /* not asked, or long ago */
        return;
    t->has_said = true;
    t->is_ready = json_is_true(json_object_get(body, "ready"));
    t->total = (uint64_t)json_integer_value(json_object_get(body, "total"));
    t->done = (uint64_t)json_integer_value(json_object_get(body, "done"));
    if (t->done > t->total)
        t->done = t->total;
    t->rate = (double)json_integer_value(json_object_get(body, "rate"));
    text_clean(t->why, sizeof t->why, why ? why : "", false);
    if (!timer_is_pending(s->soon))
        timer_set_ms(s->soon, SOON_MS);
}

static void on_again(void *owner)
{
    on_soon(owner);
}

/* --- start and end ---------------------------------------------------------------------------- */

static json_t *in_use(void *owner)
{
    const struct supply *s = owner;
    return s->setup.in_use(s->setup.owner);
}

static void ignore(void *owner, const json_t *list, int r, const char *why)
{
    const struct supply *s = owner;
    (void)list;
    (void)why;
    if (r != -ECANCELED)
        s->setup.changed(s->setup.owner);
}

struct supply *supply_new(const struct supply_setup *setup)
{
    struct supply *s = xcalloc(1, sizeof *s);
    s->setup = *setup;
    s->quota = conf_size(setup->opts, "models-quota", NULL);
    s->whole = json_object();
    TAILQ_INIT(&s->told);
    LIST_INIT(&s->askers);
    LIST_INIT(&s->resolves);
    LIST_INIT(&s->calls);
    s->again = timer_new(setup->base, on_again, s);
    s->soon = timer_new(setup->base, on_soon, s);
    s->pulls = pulls_new(&(struct pulls_setup){.base = setup->base,
                                               .aside = setup->aside,
                                               .dir = dir_of(s),
                                               .program = opts_str(setup->opts, "fetch-binary"),
                                               .quota = s->quota,
                                               .in_use = in_use,
                                               .changed = on_pull_changed,
                                               .owner = s});
    supply_list(s, ignore, s); /* what an earlier life has left */
    return s;
}

void supply_free(struct supply *s)
{
    if (!s)
        return;
    while (LIST_FIRST(&s->resolves)) {
        struct supply_resolve *q = LIST_FIRST(&s->resolves);
        hub_fetch_stop(q->fetch);
        resolve_over(q, -ECANCELED, "ringd is stopping");
    }
    pulls_free(s->pulls);
    for (struct supply_told *t; (t = TAILQ_FIRST(&s->told));) {
        TAILQ_REMOVE(&s->told, t, next);
        free(t);
    }
    while (LIST_FIRST(&s->askers))
        asker_free(s, LIST_FIRST(&s->askers));
    while (LIST_FIRST(&s->calls))
        answer(LIST_FIRST(&s->calls), NULL, -ECANCELED, "ringd is stopping");
    timer_free(s->again);
    timer_free(s->soon);
    json_decref(s->whole);
    free(s);
}
