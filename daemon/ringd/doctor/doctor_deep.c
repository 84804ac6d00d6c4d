/* SPDX-License-Identifier: MIT
 *
 * Owns the stage process that reads. Called by doctor_answer.c. Loop thread. */
#include "daemon/ringd/doctor/doctor_deep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/doctor/doctor_setup.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/workers.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

struct doctor_deep {
    const struct doctor_setup *setup;  /* borrowed */
    const struct doctor_deep_ops *ops; /* borrowed */
    void *owner;
    char *dir;            /* owned; NULL: idle */
    json_t *error;        /* owned: what is about to be reported, outside of all callbacks */
    struct spawn *stage;  /* owned */
    struct timer *report; /* owned */
};

static void end(struct doctor_deep *d)
{
    free(d->dir);
    d->dir = NULL;
    spawn_free(d->stage);
    d->stage = NULL;
}

static void give_up(struct doctor_deep *d, const char *why)
{
    d->error = json_pack("{s:s s:s}", "dir", d->dir, "error", why);
    end(d);
    timer_set_us(d->report, 0);
}

static void on_stage_event(void *owner, const char *kind, json_t *event)
{
    struct doctor_deep *d = owner;
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
    snprintf(why, sizeof why, "the process that read it %s", *text ? text : "ended before it was done");
    give_up(d, why);
}

static void on_report(void *owner)
{
    struct doctor_deep *d = owner;
    json_t *error = d->error;
    d->error = NULL;
    d->ops->done(d->owner, error);
    json_decref(error);
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
    if (!workers_are_idle(s->workers))
        return "a job works on this node: ask again when it is over";
    d->dir = xstrdup(dir);
    if (spawn_start(&d->stage, s->spawner, 0, &ops, d, &err))
        give_up(d, err.text);
    else if (spawn_send(d->stage, json_pack("{s:s s:s}", "do", "weights", "model", dir)))
        give_up(d, "its stage process does not take messages");
    return NULL;
}

void doctor_deep_yield(struct doctor_deep *d)
{
    if (!d->dir)
        return;
    give_up(d, "a job has begun on this node: ask again when it is over");
}

struct doctor_deep *doctor_deep_new(const struct doctor_setup *setup, const struct doctor_deep_ops *ops,
                                    void *owner)
{
    struct doctor_deep *d = xcalloc(1, sizeof *d);
    *d = (struct doctor_deep){.setup = setup, .ops = ops, .owner = owner};
    d->report = timer_new(setup->base, on_report, d);
    return d;
}

void doctor_deep_free(struct doctor_deep *d)
{
    if (!d)
        return;
    spawn_free(d->stage);
    timer_free(d->report);
    json_decref(d->error);
    free(d->dir);
    free(d);
}
