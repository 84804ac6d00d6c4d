/* SPDX-License-Identifier: MIT
 *
 * Owns the stage process that reads. Called by doctor_answer.c. Loop thread. */
#include "daemon/ringd/doctor/doctor_deep.h"

#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/doctor/doctor_setup.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/worker.h"
#include "daemon/common/cores.h"
#include "daemon/common/optable.h"
#include "daemon/common/xalloc.h"

struct doctor_deep {
    const struct doctor_setup *setup;  /* borrowed */
    const struct doctor_deep_ops *ops; /* borrowed */
    void *owner;
    char *dir;           /* owned; NULL: idle, or the process is about to be freed */
    json_t *error;       /* owned: what the reap reports; NULL: it was reported */
    struct spawn *stage; /* owned */
    struct event *reap;  /* owned: frees the stage outside its own callback */
};

static void end(struct doctor_deep *d)
{
    free(d->dir);
    d->dir = NULL;
    event_active(d->reap, EV_TIMEOUT, 0);
}

static void give_up(struct doctor_deep *d, const char *why)
{
    json_decref(d->error);
    d->error = json_pack("{s:s s:s}", "dir", d->dir, "error", why);
    end(d);
}

static void on_stage_event(void *owner, const char *kind, json_t *event)
{
    struct doctor_deep *d = owner;
    if (!d->dir)
        return;
    if (!strcmp(kind, "reading")) {
        d->ops->reading(d->owner, event);
    } else if (!strcmp(kind, "weights")) {
        const json_t *model = json_object_get(event, "model");
        d->ops->done(d->owner, model);
        end(d);
    }
}

static void on_stage_ended(void *owner, const char *text)
{
    struct doctor_deep *d = owner;
    char why[600];
    if (!d->dir)
        return;
    snprintf(why, sizeof why, "the process that read it %s", *text ? text : "ended before it was done");
    give_up(d, why);
}

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
    struct doctor_deep *d = arg;
    (void)fd;
    (void)what;
    spawn_free(d->stage);
    d->stage = NULL;
    if (d->error) {
        json_t *error = d->error;
        d->error = NULL;
        d->ops->done(d->owner, error);
        json_decref(error);
    }
}

const char *doctor_deep_read(struct doctor_deep *d, const char *dir)
{
    static const struct spawn_ops ops = {on_stage_event, on_stage_ended};
    const struct doctor_setup *s = d->setup;
    struct err err;
    if (d->dir && !strcmp(d->dir, dir))
        return NULL;
    if (d->stage || d->error)
        return "this node already reads another model: ask again when that is over";
    if (!worker_is_idle(s->worker))
        return "a job works on this node: ask again when it is over";
    const int threads = (int)cores_threads((unsigned)opts_int(s->opts, "threads"));
    d->dir = xstrdup(dir);
    if (spawn_start(&d->stage, s->base, s->opts, threads, &ops, d, &err))
        give_up(d, err.text);
    else if (spawn_send(d->stage, json_pack("{s:s s:s}", "do", "weights", "model", dir)))
        give_up(d, "its stage process does not take messages");
    return NULL;
}

void doctor_deep_yield(struct doctor_deep *d)
{
    if (!d->dir)
        return;
    spawn_kill(d->stage, SIGKILL);
    give_up(d, "a job has begun on this node: ask again when it is over");
}

struct doctor_deep *doctor_deep_new(const struct doctor_setup *setup, const struct doctor_deep_ops *ops,
                                    void *owner)
{
    struct doctor_deep *d = xcalloc(1, sizeof *d);
    *d = (struct doctor_deep){.setup = setup, .ops = ops, .owner = owner};
    d->reap = event_new(setup->base, -1, 0, on_reap, d);
    return d;
}

void doctor_deep_free(struct doctor_deep *d)
{
    if (!d)
        return;
    spawn_free(d->stage);
    event_free(d->reap);
    json_decref(d->error);
    free(d->dir);
    free(d);
}
