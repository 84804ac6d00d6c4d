/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/pulls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/hub/hub_fetch.h"
#include "daemon/ringd/hub/shelf.h"
#include "daemon/ringd/log.h"
#include "net/clock.h"

enum { AT_ONCE = 2, MOST = 64, RETRY_S = 60, RETRY_LASTING_S = 600 };
#define RATE_US 1000000 /* between two looks at the rate */

struct pull {
    TAILQ_ENTRY(pull) next;
    struct pulls *all;       /* borrowed */
    struct hub_fetch *fetch; /* owned while it runs */
    bool is_verify, asks_room, is_lasting;
    uint64_t number;                           /* of all that were begun */
    char asked[MODEL_NAME], model[MODEL_NAME]; /* model: "" until it is known */
    enum pull_state state;
    uint64_t done, total;
    char file[256], why[600];
    struct instant looked, ended;
    uint64_t done_then;
    double rate; /* bytes a second; 0: not known */
};

struct pulls {
    struct pulls_setup setup;
    struct fetchers *fetchers;        /* owned */
    TAILQ_HEAD(pull_list, pull) list; /* oldest first */
    size_t n;
    uint64_t begun;
};

static void start_next(struct pulls *a);

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
    snprintf(p->why, sizeof p->why, "%s", why ? why : "");
    if (state == PULL_DONE)
        p->done = p->total;
    if (state == PULL_FAILED)
        log_warning("%s is not %s: %s", pull_model(p), p->is_verify ? "as it was downloaded" : "pulled",
                    p->why);
    else if (state == PULL_DONE && !p->is_verify)
        log_info("%s is here, whole", pull_model(p));
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

static void on_over(void *owner, const char *why, bool passing)
{
    struct pull *p = owner;
    p->is_lasting = !passing;
    end(p, why ? PULL_FAILED : PULL_DONE, why);
}

/* --- room ------------------------------------------------------------------------------------- */

/* What leads back to a pull that may have gone meanwhile. */
struct room_ask {
    struct pulls *all;
    char model[MODEL_NAME];
};

static void on_room_answer(void *owner, const struct shelf_answer *answer)
{
    struct room_ask *q = owner;
    struct pull *p = pulls_find(q->all, q->model);
    size_t i;
    json_t *gone;
    json_array_foreach (answer->list, i, gone)
        log_info("%s was removed, to make room for %s: it was used longest ago", json_string_value(gone),
                 q->model);
    if (p && p->fetch && p->asks_room) {
        p->asks_room = false;
        hub_fetch_say_room(p->fetch, answer->r ? answer->why : NULL);
    }
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
        p->asks_room = false;
        hub_fetch_say_room(p->fetch, "this node's disks do not answer: pull it again in a moment");
    }
    json_decref(kept);
}

/* --- one after the other ---------------------------------------------------------------------- */

static void start(struct pull *p)
{
    static const struct hub_fetch_ops ops = {on_resolved, on_room, on_progress, on_over};
    struct err err;
    p->state = PULL_RUNS;
    if (hub_fetch_start(&p->fetch, p->all->fetchers, p->is_verify ? "verify" : "pull", pull_model(p), &ops, p,
                        &err)) {
        p->is_lasting = true;
        end(p, PULL_FAILED, err.text);
    } else {
        tell(p);
    }
}

static void start_next(struct pulls *a)
{
    size_t running = 0;
    struct pull *waits = NULL;
    for (struct pull *p = TAILQ_FIRST(&a->list); p; p = TAILQ_NEXT(p, next)) {
        running += p->state == PULL_RUNS;
        waits = !waits && p->state == PULL_WAITS ? p : waits;
    }
    if (waits && running < AT_ONCE)
        start(waits);
}

static void drop(struct pulls *a, struct pull *p)
{
    hub_fetch_stop(p->fetch);
    TAILQ_REMOVE(&a->list, p, next);
    a->n--;
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

int pulls_begin(struct pulls *a, const char *what, const char *name, struct pull **ret, struct err *err)
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
    if (p)
        drop(a, p);
    if (!make_place(a))
        return err_set(err, -EAGAIN, "%d models are being pulled already: pull it when some of them are here",
                       MOST);
    p = xcalloc(1, sizeof *p);
    p->all = a;
    p->number = ++a->begun;
    p->is_verify = !strcmp(what, "verify");
    snprintf(p->asked, sizeof p->asked, "%s", whole);
    if (model_commit_is(read.revision))
        snprintf(p->model, sizeof p->model, "%s", whole);
    TAILQ_INSERT_TAIL(&a->list, p, next);
    a->n++;
    *ret = p;
    start_next(a);
    return 0;
}

struct pull *pulls_find(const struct pulls *a, const char *name)
{
    struct pull *p;
    TAILQ_FOREACH(p, &a->list, next)
    if (!strcmp(p->asked, name) || !strcmp(p->model, name))
        return p;
    return NULL;
}

struct pull *pulls_next(const struct pulls *a, const struct pull *last)
{
    return last ? TAILQ_NEXT(last, next) : TAILQ_FIRST(&a->list);
}

void pull_stop(struct pull *p)
{
    if (!is_under_way(p))
        return;
    hub_fetch_stop(p->fetch);
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

const char *pull_why(const struct pull *p)
{
    return p->why;
}

bool pull_may_retry(const struct pull *p)
{
    const uint64_t gone_s = clock_since_us(clock_now(), p->ended) / 1000000;
    return p->state == PULL_STOPPED || p->state == PULL_DONE ||
           (p->state == PULL_FAILED && gone_s >= (p->is_lasting ? RETRY_LASTING_S : RETRY_S));
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
                             *const verifying[] = {"waiting", "verifying", "verified", "failed", "stopped"};
    json_t *row = json_pack("{s:I s:s s:s s:s s:I s:I s:f s:s}", "number", (json_int_t)p->number, "model",
                            pull_model(p), "asked", p->asked, "state",
                            (p->is_verify ? verifying : pulling)[p->state], "done", (json_int_t)p->done,
                            "total", (json_int_t)p->total, "rate", p->rate, "file", p->file);
    if (p->rate > 0)
        json_object_set_new(row, "seconds_left", json_real((double)(p->total - p->done) / p->rate));
    if (p->state == PULL_FAILED)
        json_object_set_new(row, "error", json_string(p->why));
    return row;
}

/* --- all -------------------------------------------------------------------------------------- */

struct fetchers *pulls_fetchers(const struct pulls *p)
{
    return p->fetchers;
}

struct pulls *pulls_new(const struct pulls_setup *setup)
{
    struct pulls *a = xcalloc(1, sizeof *a);
    a->setup = *setup;
    a->fetchers = fetchers_new(
        &(struct fetchers_setup){.base = setup->base, .program = setup->program, .dir = setup->dir});
    TAILQ_INIT(&a->list);
    return a;
}

void pulls_free(struct pulls *a)
{
    if (!a)
        return;
    while (TAILQ_FIRST(&a->list))
        drop(a, TAILQ_FIRST(&a->list));
    fetchers_free(a->fetchers);
    free(a);
}
