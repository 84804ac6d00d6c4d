/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/pulls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/hub/carriers.h"
#include "daemon/ringd/hub/hub_fetch.h"
#include "daemon/ringd/hub/shelf.h"
#include "daemon/ringd/log.h"
#include "net/clock.h"

enum {
    AT_ONCE = 2,
    MOST = 64,
    TRIES = 3 /* to take it from nodes, before the hub */,
    RETRY_NODE_S = 5,
    RETRY_S = 60,
    RETRY_LASTING_S = 600,
    SHOWN_S = 3600 /* why something has failed */
};
#define RATE_US 1000000 /* between two looks at the rate */

struct pull {
    TAILQ_ENTRY(pull) next;
    struct pulls *all;       /* borrowed */
    struct hub_fetch *fetch; /* owned while it comes from the hub */
    struct carry_order take; /* while it is carried; its texts are ours */
    char content[MODEL_CONTENT + 1], list[MODEL_CONTENT + 1];
    json_t *blocks; /* owned: of those orders; NULL: its outline alone */
    char *folder;   /* owned: whose files get the name; NULL: it is no such */
    char *kept;     /* owned: where this node keeps them, perhaps; or NULL */
    bool is_verify, asks_room, is_lasting, is_cut_off;
    bool
        is_outline; /* of a model that is asked of the hub: first which files it is, then these are carried */
    unsigned tries; /* that ended with their process */
    uint64_t number;                           /* of all that were begun */
    char asked[MODEL_NAME], model[MODEL_NAME]; /* model: "" until it is known */
    enum pull_state state;
    uint64_t done, total;
    char file[256], why[1000];
    char untaken[500]; /* why no other node gives it, before the hub was asked; "": none was asked */
    char waits[400];   /* for the hub, because of this; "": it does not */
    struct instant looked, ended;
    uint64_t done_then;
    double rate; /* bytes a second; 0: not known */
};

struct pulls {
    struct pulls_setup setup;
    TAILQ_HEAD(pull_list, pull) list; /* oldest first */
    size_t n;
    uint64_t begun;
};

static void start_next(struct pulls *a);
static void start(struct pull *p);
static void take(struct pull *p);

/* It comes block by block, from other nodes or from the hub. */
static bool is_carried(const struct pull *p)
{
    return p->take.nfrom || p->take.hub;
}

/* --- what it says ----------------------------------------------------------------------------- */

static void tell(struct pull *p)
{
    p->all->setup.changed(p->all->setup.owner, p);
}

static void end(struct pull *p, enum pull_state state, const char *why)
{
    struct pulls *all = p->all;
    p->fetch = NULL;
    p->state = state;
    p->ended = clock_now();
    p->rate = 0;
    *p->waits = '\0';
    snprintf(p->why, sizeof p->why, "%s", why ? why : "");
    if (state == PULL_DONE)
        p->done = p->total;
    if (state == PULL_FAILED)
        log_warning("%s is not %s: %s", pull_model(p),
                    p->folder      ? "added"
                    : p->is_verify ? "as it was downloaded"
                                   : "pulled",
                    p->why);
    else if (state == PULL_DONE && !p->is_verify)
        log_info(!is_carried(p)  ? "%s is here, whole"
                 : p->take.whole ? "%s is here, whole"
                 : p->blocks     ? "%s is here, as far as a job needs it"
                                 : "the outline of %s is here",
                 pull_model(p));
    tell(p);
    start_next(all);
}

static void on_resolved(void *owner, const char *model)
{
    struct pull *p = owner;
    snprintf(p->model, sizeof p->model, "%s", model);
    tell(p);
}

static void on_progress(void *owner, uint64_t done, uint64_t total, const char *file)
{
    struct pull *p = owner;
    const struct instant now = clock_now();
    const uint64_t us = clock_since_us(now, p->looked);
    /* What was on the disk before is no speed of the network. */
    const bool is_first = !p->total;
    if (done != p->done)
        *p->waits = '\0';
    p->done = done;
    p->total = total;
    snprintf(p->file, sizeof p->file, "%s", file);
    if (is_first || us >= RATE_US) {
        const double rate =
            is_first || done < p->done_then ? 0 : (double)(done - p->done_then) * 1e6 / (double)us;
        p->rate = p->rate > 0 ? p->rate * 0.7 + rate * 0.3 : rate;
        p->looked = now;
        p->done_then = done;
        tell(p);
    }
}

static void on_over(void *owner, const char *why, enum fetch_end how)
{
    struct pull *p = owner;
    char both[sizeof p->why];
    p->is_lasting = how != FETCH_PASSES;
    if (!why && p->is_outline && *p->content) {
        p->fetch = NULL;
        p->take =
            (struct carry_order){.model = p->model, .content = p->content, .list = p->list, .hub = true};
        take(p);
        return;
    }
    if (why && *p->untaken) {
        snprintf(both, sizeof both, "%s; from the hub: %s", p->untaken, why);
        why = both;
    }
    end(p, why ? PULL_FAILED : PULL_DONE, why);
}

static void on_listed(void *owner, const char *content)
{
    struct pull *p = owner;
    snprintf(p->content, sizeof p->content, "%s", content);
}

static void on_waits(void *owner, const char *why)
{
    struct pull *p = owner;
    if (!*p->waits)
        log_warning("%s waits for the hub: %s", pull_model(p), why);
    snprintf(p->waits, sizeof p->waits, "%s", why);
    tell(p);
}

/* A node that is to give it may be gone: the hub is the last resort. It makes no room on a disk. */
static void on_take_over(void *owner, const char *why, enum fetch_end how)
{
    struct pull *p = owner;
    if (!why) {
        p->tries = 0;
        end(p, PULL_DONE, NULL);
        return;
    }
    if (how == FETCH_PASSES && p->tries < TRIES) {
        p->tries++;
        p->is_cut_off = true;
        end(p, PULL_FAILED, why);
        return;
    }
    if (p->take.hub || p->take.nodes || how == FETCH_IS_FULL) {
        on_over(p, why, how);
        return;
    }
    log_warning("%s comes from no other node, so the hub is asked: %s", pull_model(p), why);
    p->take.hub = true;
    snprintf(p->untaken, sizeof p->untaken, "%s", why);
    start(p);
}

/* --- room ------------------------------------------------------------------------------------- */

/* What leads back to a pull that may have gone meanwhile. */
struct room_ask {
    struct pulls *all;
    uint64_t number;
    char model[MODEL_NAME];
};

static void say_room(struct pull *p, const char *why)
{
    const bool asks = p->asks_room;
    p->asks_room = false;
    if (asks && p->fetch)
        hub_fetch_say_room(p->fetch, why);
    else if (asks && p->state == PULL_RUNS)
        carriers_say_room(p->all->setup.carriers, pull_model(p), why);
}

static void on_room_answer(void *owner, const struct shelf_answer *answer)
{
    struct room_ask *q = owner;
    struct pull *p = TAILQ_FIRST(&q->all->list);
    size_t i;
    json_t *gone;
    json_array_foreach (answer->list, i, gone)
        log_info("%s was removed, to make room for %s: it was used longest ago", json_string_value(gone),
                 q->model);
    while (p && p->number != q->number)
        p = TAILQ_NEXT(p, next);
    if (p)
        say_room(p, answer->r ? answer->why : NULL);
    free(q);
}

static void on_room(void *owner, uint64_t bytes)
{
    struct pull *p = owner;
    const struct pulls_setup *s = &p->all->setup;
    struct room_ask *q = xcalloc(1, sizeof *q);
    json_t *kept = s->in_use(s->owner);
    struct pull *other;
    TAILQ_FOREACH(other, &p->all->list, next)
    if (other->state == PULL_RUNS)
        json_array_append_new(kept, json_string(pull_model(other)));
    q->all = p->all;
    q->number = p->number;
    snprintf(q->model, sizeof q->model, "%s", pull_model(p));
    p->asks_room = true;
    const struct shelf_order order = {.what = SHELF_ROOM,
                                      .dir = s->dir,
                                      .model = q->model,
                                      .bytes = bytes,
                                      .quota = s->quota,
                                      .kept = kept};
    if (shelf_ask(s->aside, &order, on_room_answer, q)) {
        free(q);
        say_room(p, "this node's disks do not answer: pull it again in a moment");
    }
    json_decref(kept);
}

/* --- one after the other ---------------------------------------------------------------------- */

static void take(struct pull *p)
{
    static const struct hub_fetch_ops ops = {
        .room = on_room, .waits = on_waits, .progress = on_progress, .over = on_take_over};
    carriers_take(p->all->setup.carriers, &p->take, &ops, p);
}

static void start(struct pull *p)
{
    static const struct hub_fetch_ops ops = {.resolved = on_resolved,
                                             .listed = on_listed,
                                             .room = on_room,
                                             .progress = on_progress,
                                             .over = on_over};
    const struct hub_order order = {.what = p->folder       ? "add"
                                            : p->is_verify  ? "verify"
                                            : p->is_outline ? "list"
                                                            : "pull",
                                    .model = p->folder ? p->asked : pull_model(p),
                                    .folder = p->folder,
                                    .kept = p->kept};
    struct err err;
    p->state = PULL_RUNS;
    p->total = 0;
    if (is_carried(p)) {
        p->take.blocks = p->blocks;
        take(p);
    } else if (hub_fetch_start(&p->fetch, p->all->setup.fetchers, &order, &ops, p, &err)) {
        p->is_lasting = true;
        end(p, PULL_FAILED, err.text);
        return;
    }
    tell(p);
}

/* What comes from other nodes does not wait for a hub: a job may. */
static void start_next(struct pulls *a)
{
    size_t running = 0;
    struct pull *waits = NULL;
    for (struct pull *p = TAILQ_FIRST(&a->list); p; p = TAILQ_NEXT(p, next)) {
        running += p->state == PULL_RUNS && !is_carried(p);
        waits = !waits && p->state == PULL_WAITS ? p : waits;
    }
    if (waits && running < AT_ONCE)
        start(waits);
}

static void halt(struct pull *p)
{
    hub_fetch_stop(p->fetch);
    p->fetch = NULL;
    if (p->state == PULL_RUNS && is_carried(p))
        carriers_leave(p->all->setup.carriers, pull_model(p));
}

static void drop(struct pulls *a, struct pull *p)
{
    halt(p);
    TAILQ_REMOVE(&a->list, p, next);
    a->n--;
    json_decref(p->blocks);
    free(p->folder);
    free(p->kept);
    free(p);
}

static bool is_under_way(const struct pull *p)
{
    return p->state == PULL_WAITS || p->state == PULL_RUNS;
}

/* Room for one more among those that are remembered. */
static bool make_place(struct pulls *a)
{
    struct pull *p = TAILQ_FIRST(&a->list);
    if (a->n < MOST)
        return true;
    while (p && is_under_way(p))
        p = TAILQ_NEXT(p, next);
    if (p)
        drop(a, p);
    return p;
}

/* One that is under way; else a new one, which does not run yet. */
static int find_or_add(struct pulls *a, const char *name, struct pull **ret, struct err *err)
{
    struct model_name read;
    char whole[MODEL_NAME];
    const int r = model_name_read(&read, name, err);
    if (r)
        return r;
    model_name_write(whole, &read);
    struct pull *p = pulls_find(a, whole);
    if (p && is_under_way(p)) {
        *ret = p;
        return 0;
    }
    const unsigned tries = p ? p->tries : 0;
    if (p)
        drop(a, p);
    if (!make_place(a))
        return err_set(err, -EAGAIN, "%d models are being pulled already: pull it when some of them are here",
                       MOST);
    p = xcalloc(1, sizeof *p);
    p->all = a;
    p->number = ++a->begun;
    p->tries = tries;
    snprintf(p->asked, sizeof p->asked, "%s", whole);
    if (model_commit_is(read.revision))
        snprintf(p->model, sizeof p->model, "%s", whole);
    TAILQ_INSERT_TAIL(&a->list, p, next);
    a->n++;
    *ret = p;
    return 0;
}

int pulls_begin(struct pulls *a, const char *what, const char *name, struct pull **ret, struct err *err)
{
    const uint64_t before = a->begun;
    const int r = find_or_add(a, name, ret, err);
    const bool is_outline = !strcmp(what, "outline");
    if (!r && a->begun == before && !is_outline && (is_carried(*ret) || (*ret)->is_outline))
        return err_set(err, -EAGAIN, "parts of %s are on their way already: ask again when they are here",
                       pull_model(*ret));
    if (r || a->begun == before)
        return r;
    (*ret)->is_verify = !strcmp(what, "verify");
    (*ret)->is_outline = is_outline;
    start_next(a);
    return 0;
}

int pulls_add(struct pulls *a, const char *name, const char *folder, const char *kept, struct pull **ret,
              struct err *err)
{
    const uint64_t before = a->begun;
    const int r = find_or_add(a, name, ret, err);
    if (!r && a->begun == before)
        return err_set(err, -EBUSY, "%s is on its way already: ask again when it is here", pull_model(*ret));
    if (r)
        return r;
    (*ret)->folder = xstrdup(folder);
    (*ret)->kept = xstrdup(kept);
    start_next(a);
    return 0;
}

/* What the texts of an order point to is kept with it. */
static void set_order(struct pull *p, const struct carry_order *order)
{
    const bool hub = p->take.hub || order->hub, whole = p->take.whole || order->whole;
    snprintf(p->content, sizeof p->content, "%s", order->content);
    snprintf(p->list, sizeof p->list, "%s", order->list ? order->list : "");
    if (order->blocks && !p->blocks)
        p->blocks = json_array();
    json_array_extend(p->blocks, (json_t *)(uintptr_t)order->blocks);
    p->take = *order;
    p->take.model = p->model;
    p->take.content = p->content;
    p->take.list = p->list;
    p->take.hub = hub;
    p->take.whole = whole;
}

int pulls_take(struct pulls *a, const struct carry_order *order, struct pull **ret, struct err *err)
{
    const uint64_t before = a->begun;
    const int r = find_or_add(a, order->model, ret, err);
    if (r)
        return r;
    if (a->begun == before && !is_carried(*ret))
        return err_set(err, -EBUSY, "%s is pulled from the hub, or read again", order->model);
    set_order(*ret, order);
    if (a->begun != before)
        start(*ret);
    else
        take(*ret);
    return 0;
}

struct pull *pulls_find(const struct pulls *a, const char *name)
{
    struct pull *p, *found = NULL;
    TAILQ_FOREACH(p, &a->list, next)
    if (!strcmp(p->asked, name) || !strcmp(p->model, name))
        found = p;
    return found;
}

void pull_stop(struct pull *p)
{
    if (!is_under_way(p))
        return;
    halt(p);
    end(p, PULL_STOPPED, NULL);
}

void pulls_forget(struct pulls *a, const char *model)
{
    struct pull *p = pulls_find(a, model);
    if (p)
        drop(a, p);
}

/* --- one of them ------------------------------------------------------------------------------ */

const char *pull_model(const struct pull *p)
{
    return *p->model ? p->model : p->asked;
}

enum pull_state pull_state(const struct pull *p)
{
    return p->state;
}

const char *pull_waits(const struct pull *p)
{
    return p->waits;
}

const char *pull_why(const struct pull *p)
{
    return p->why;
}

bool pull_was_cut_off(const struct pull *p)
{
    return p->state == PULL_FAILED && p->is_cut_off;
}

bool pull_is_of_nodes(const struct pull *p)
{
    return p->take.nfrom && !p->take.hub;
}

bool pull_may_retry(const struct pull *p, bool has_source)
{
    const uint64_t gone_s = clock_since_us(clock_now(), p->ended) / 1000000,
                   wait_s = has_source || p->is_cut_off ? RETRY_NODE_S
                            : p->is_lasting             ? RETRY_LASTING_S
                                                        : RETRY_S;
    return p->state == PULL_STOPPED || p->state == PULL_DONE || (p->state == PULL_FAILED && gone_s >= wait_s);
}

void pull_amounts(const struct pull *p, uint64_t *ret_done, uint64_t *ret_total, double *ret_rate)
{
    *ret_done = p->done;
    *ret_total = p->total;
    *ret_rate = p->rate;
}

json_t *pull_row(const struct pull *p)
{
    static const char *const pulling[] = {"waiting", "pulling", "ready", "failed", "stopped"},
                             *const verifying[] = {"waiting", "verifying", "verified", "failed", "stopped"},
                             *const adding[] = {"waiting", "adding", "ready", "failed", "stopped"};
    json_t *row = json_pack("{s:I s:s s:s s:s s:I s:I s:f s:s}", "number", (json_int_t)p->number, "model",
                            pull_model(p), "asked", p->asked, "state",
                            (p->folder      ? adding
                             : p->is_verify ? verifying
                                            : pulling)[p->state],
                            "done", (json_int_t)p->done, "total", (json_int_t)p->total, "rate", p->rate,
                            "file", p->file);
    if (p->rate > 0)
        json_object_set_new(row, "seconds_left", json_real((double)(p->total - p->done) / p->rate));
    if (*p->waits)
        json_object_set_new(row, "waits", json_string(p->waits));
    if (p->state == PULL_FAILED)
        json_object_set_new(row, "error", json_string(p->why));
    return row;
}

/* A failure that is old helps nobody. */
static bool is_shown(const struct pull *p)
{
    return p->state != PULL_FAILED || clock_since_us(clock_now(), p->ended) < SHOWN_S * UINT64_C(1000000);
}

json_t *pulls_show(const struct pulls *a, const json_t *models)
{
    json_t *all = json_deep_copy(models), *m;
    size_t i;
    json_array_foreach (all, i, m) {
        const struct pull *its = pulls_find(a, json_string_value(json_object_get(m, "model")));
        if (its && is_shown(its))
            json_object_set_new(m, "pull", pull_row(its));
    }
    for (const struct pull *p = TAILQ_FIRST(&a->list); p; p = TAILQ_NEXT(p, next)) {
        bool is_listed = false;
        json_array_foreach (all, i, m)
            is_listed |= !strcmp(json_string_value(json_object_get(m, "model")), pull_model(p));
        if (!is_listed && is_shown(p) && pull_state(p) != PULL_STOPPED && pull_state(p) != PULL_DONE)
            json_array_append_new(all, json_pack("{s:s s:b s:i s:o}", "model", pull_model(p), "whole", 0,
                                                 "on_disk", 0, "pull", pull_row(p)));
    }
    return all;
}

/* --- all -------------------------------------------------------------------------------------- */

struct pulls *pulls_new(const struct pulls_setup *setup)
{
    struct pulls *a = xcalloc(1, sizeof *a);
    a->setup = *setup;
    TAILQ_INIT(&a->list);
    return a;
}

void pulls_free(struct pulls *a)
{
    if (!a)
        return;
    while (TAILQ_FIRST(&a->list))
        drop(a, TAILQ_FIRST(&a->list));
    free(a);
}
