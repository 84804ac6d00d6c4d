/* SPDX-License-Identifier: MIT
 *
 * Owns the answers that wait: for a count of packets, for neighbours to answer a call, for a model
 * to be read. Called by doctor_ask.c. Loop thread. */
#include "daemon/ringd/doctor/doctor_answer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "daemon/ringd/peer/cables.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/doctor/doctor_call.h"
#include "daemon/ringd/doctor/doctor_deep.h"
#include "daemon/common/doctor/doctor_host.h"
#include "daemon/ringd/doctor/doctor_model.h"
#include "daemon/ringd/doctor/doctor_setup.h"
#include "daemon/common/installed.h"
#include "daemon/common/optable.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/store/store.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "engine/num/kernels.h"

/* A beacon comes every 1.2 s at the latest. */
enum { ANSWER_MS = 1300, READING_MS = 25000 /* of silence; less than the asker bears */, MOST_ANSWERS = 8 };

struct doctor_reply {
    LIST_ENTRY(doctor_reply) next;
    struct doctor_answers *a; /* borrowed: owner */
    uint8_t to[16];
    json_int_t round;
    int64_t asked_us;
    struct timer *timer;        /* owned */
    json_t *received;           /* owned: packets by port when asked; NULL: not counted */
    struct doctor_calls *calls; /* owned: to the neighbours; NULL: there was nobody to call */
    bool answered;              /* all of them */
    char *dir;                  /* owned: the model's, NULL: not asked about */
    json_t *model;              /* owned: what it is, once known */
    bool is_deep;               /* all of it is read, for as long as that goes on */
};

struct doctor_answers {
    const struct doctor_setup *setup; /* borrowed */
    struct doctor_model *reader;      /* owned */
    struct doctor_deep *deep;         /* owned */
    LIST_HEAD(, doctor_reply) waiting;
    size_t n;
};

int64_t doctor_wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* --- facts ------------------------------------------------------------------------------------ */

static const char *port_name(const json_t *port)
{
    return json_string_value(json_object_get(port, "name"));
}

static json_t *ports(const struct doctor_setup *setup)
{
    json_t *list = cables_encode(setup->cables), *port;
    size_t i;
    json_array_foreach (list, i, port) {
        doctor_host_port("", port_name(port), port);
    }
    return list;
}

static json_t *cluster(const struct doctor_setup *setup)
{
    const struct roster *roster = cluster_roster(setup->cluster);
    return json_pack("{s:s s:s s:I}", "state", cluster_state_name(cluster_state(setup->cluster)), "name",
                     roster ? roster->name : "", "roster_version",
                     (json_int_t)(roster ? roster->version : 0));
}

static json_t *facts(const struct doctor_setup *setup)
{
    json_t *all = doctor_host_facts("", setup->state_dir), *cpu = json_object_get(all, "cpu");
    const char *trouble = store_trouble(setup->store);
    struct err stage;
    json_object_set_new(cpu, "isa", json_string(isa_pick()->isa));
    json_object_set_new(all, "name", json_string(members_self(setup->members)->name));
    json_object_set_new(all, "version", json_string(RINGD_VERSION));
    if (getenv("INVOCATION_ID")) /* the profile is for the service's program */
        json_object_set_new(all, "apparmor", doctor_host_apparmor(""));
    if (setup->keys_pid)
        json_object_set_new(all, "keys", doctor_host_keys("", setup->state_dir, setup->keys_pid));
    json_object_set_new(all, "ports", ports(setup));
    json_object_set_new(all, "cables", cables_health(setup->cables));
    json_object_set_new(all, "links", peers_encode(setup->peers));
    json_object_set_new(all, "cluster", cluster(setup));
    json_object_set_new(all, "history_trouble", json_string(trouble ? trouble : ""));
    bool is_there = !installed_check_stage(opts_str(setup->opts, "stage-binary"), &stage);
    json_object_set_new(all, "stage_trouble", json_string(is_there ? "" : stage.text));
    return all;
}

/* --- counting --------------------------------------------------------------------------------- */

static bool has_cable(const json_t *port)
{
    size_t i;
    json_t *heard;
    json_array_foreach (json_object_get(port, "heard"), i, heard) {
        const char *state = json_string_value(json_object_get(heard, "state"));
        if (state && !strcmp(state, "two-way"))
            return true;
    }
    return false;
}

/* Packets so far on ports that have something plugged in and no cable; NULL if there are none
 * such. */
static json_t *count(const struct doctor_setup *setup)
{
    json_t *list = cables_encode(setup->cables), *received = json_object(), *port;
    size_t i;
    json_array_foreach (list, i, port) {
        if (json_is_true(json_object_get(port, "usable")) && !has_cable(port))
            json_object_set_new(received, port_name(port),
                                json_real(doctor_host_received("", port_name(port))));
    }
    json_decref(list);
    if (json_object_size(received))
        return received;
    json_decref(received);
    return NULL;
}

static void add_arrived(const struct doctor_reply *w, json_t *all)
{
    json_t *port;
    size_t i;
    json_array_foreach (json_object_get(all, "ports"), i, port) {
        const json_t *before = json_object_get(w->received, port_name(port));
        double now = doctor_host_received("", port_name(port));
        if (before && now >= 0)
            json_object_set_new(port, "arrived", json_real(now - json_number_value(before)));
    }
}

/* --- answers ---------------------------------------------------------------------------------- */

static void answer_free(struct doctor_reply *w)
{
    LIST_REMOVE(w, next);
    w->a->n--;
    timer_free(w->timer);
    doctor_calls_free(w->calls);
    json_decref(w->received);
    json_decref(w->model);
    free(w->dir);
    free(w);
}

/* Sends what is known, and forgets it. */
static void finish(struct doctor_reply *w)
{
    const struct doctor_setup *setup = w->a->setup;
    json_t *all = facts(setup);
    add_arrived(w, all);
    doctor_calls_tell(w->calls, json_object_get(all, "ports"), peers_port(setup->peers));
    if (w->dir && !w->model)
        w->model =
            json_pack("{s:s s:s+}", "dir", w->dir, "error", w->dir,
                      " could not be read in time: is it on a slow disk, or on a network share that hangs?");
    if (w->model)
        json_object_set(all, "model", w->model);
    json_t *message =
        json_pack("{s:s s:I s:I s:I s:o}", "kind", "doctor-facts", "round", w->round, "asked_us",
                  (json_int_t)w->asked_us, "answered_us", (json_int_t)doctor_wall_us(), "facts", all);
    if (message)
        peers_send(setup->peers, w->to, message);
    answer_free(w);
}

static void on_timer(void *owner)
{
    finish(owner);
}

static bool is_complete(const struct doctor_reply *w)
{
    return !w->received && (!w->calls || w->answered) && (!w->dir || w->model);
}

/* The timer finishes it: the calls are not to be freed inside one of them. */
static void on_answered(void *owner)
{
    struct doctor_reply *w = owner;
    w->answered = true;
    if (is_complete(w))
        timer_set_us(w->timer, 0);
}

static void call_neighbours(struct doctor_reply *w)
{
    json_t *list = cables_encode(w->a->setup->cables);
    w->calls = doctor_calls_start(w->a->setup->base, list, on_answered, w);
    json_decref(list);
}

/* Names of tensors are for this node's own eyes: there are tens of thousands. */
static json_t *model_for(const struct doctor_reply *w, const json_t *model)
{
    json_t *told = json_copy((json_t *)model);
    if (memcmp(w->to, members_self(w->a->setup->members)->id, sizeof w->to) != 0)
        json_object_del(told, "names");
    return told;
}

static void take_model(struct doctor_answers *a, const json_t *model, bool is_deep)
{
    const char *dir = json_string_value(json_object_get(model, "dir"));
    struct doctor_reply *w, *next;
    for (w = LIST_FIRST(&a->waiting); w; w = next) {
        next = LIST_NEXT(w, next);
        if (!dir || !w->dir || w->model || w->is_deep != is_deep || strcmp(w->dir, dir))
            continue;
        w->model = model_for(w, model);
        if (is_deep || is_complete(w)) /* all else had its time meanwhile */
            finish(w);
    }
}

static void on_model(void *owner, const json_t *model)
{
    take_model(owner, model, false);
}

static void on_deep_model(void *owner, const json_t *model)
{
    take_model(owner, model, true);
}

/* Who waits for it hears how far it is, and so that it goes on. */
static void on_reading(void *owner, const json_t *event)
{
    struct doctor_answers *a = owner;
    struct doctor_reply *w;
    LIST_FOREACH (w, &a->waiting, next) {
        if (!w->is_deep || w->model)
            continue;
        timer_set_ms(w->timer, READING_MS);
        peers_send(a->setup->peers, w->to,
                   json_pack("{s:s s:I s:O s:O}", "kind", "doctor-reading", "round", w->round, "done",
                             json_object_get(event, "done"), "total", json_object_get(event, "total")));
    }
}

static void read_model(struct doctor_reply *w, const char *dir)
{
    w->dir = xstrdup(dir);
    const char *why = w->is_deep ? doctor_deep_read(w->a->deep, dir) : NULL;
    if (why)
        w->model = json_pack("{s:s s:s}", "dir", dir, "error", why);
    if (!w->is_deep && doctor_model_read(w->a->reader, dir))
        w->model =
            json_pack("{s:s s:s}", "dir", dir, "error", "this node already reads another model: ask again");
}

void doctor_answer(struct doctor_answers *a, const uint8_t to[16], const json_t *ask)
{
    const char *dir = json_string_value(json_object_get(ask, "model"));
    if (a->n == MOST_ANSWERS)
        return;
    struct doctor_reply *w = xcalloc(1, sizeof *w);
    *w = (struct doctor_reply){.a = a,
                               .round = json_integer_value(json_object_get(ask, "round")),
                               .asked_us = doctor_wall_us(),
                               .received = count(a->setup),
                               .is_deep = dir && json_is_true(json_object_get(ask, "deep"))};
    memcpy(w->to, to, sizeof w->to);
    w->timer = timer_new(a->setup->base, on_timer, w);
    LIST_INSERT_HEAD(&a->waiting, w, next);
    a->n++;
    if (dir)
        read_model(w, dir);
    call_neighbours(w);
    if (is_complete(w))
        finish(w);
    else
        timer_set_ms(w->timer, w->is_deep && !w->model ? READING_MS : ANSWER_MS);
}

void doctor_answers_yield(struct doctor_answers *a)
{
    doctor_deep_yield(a->deep);
}

struct doctor_answers *doctor_answers_new(const struct doctor_setup *setup)
{
    static const struct doctor_deep_ops ops = {on_deep_model, on_reading};
    struct doctor_answers *a = xcalloc(1, sizeof *a);
    a->setup = setup;
    a->reader = doctor_model_new(setup->mailbox, on_model, a);
    a->deep = doctor_deep_new(setup, &ops, a);
    LIST_INIT(&a->waiting);
    return a;
}

void doctor_answers_free(struct doctor_answers *a)
{
    if (!a)
        return;
    while (LIST_FIRST(&a->waiting))
        answer_free(LIST_FIRST(&a->waiting));
    doctor_model_free(a->reader);
    doctor_deep_free(a->deep);
    free(a);
}
