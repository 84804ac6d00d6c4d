/* SPDX-License-Identifier: MIT
 *
 * Owns the offers that have no answer yet. */
#include "daemon/ringd/job/offers/offers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/timer.h"
#include "engine/err.h"

enum { PATIENCE_MS = 600000 };
/* Above all numbers of jobs: who fetches parts names either. */
#define FIRST_NUMBER (UINT64_C(1) << 52)

struct offer {
    LIST_ENTRY(offer) next;
    struct offers *of; /* borrowed: owner */
    uint64_t number, deployment, job, step;
    uint8_t to[16];
    char *name;                    /* owned, as all below */
    struct offer_opening *opening; /* NULL: none is under way */
    struct file_set *files;        /* NULL: not open yet */
    struct timer *patience;
};

struct offers {
    struct offers_setup setup;
    LIST_HEAD(, offer) list;
    uint64_t last;
};

static void drop(struct offer *f);

/* --- its end ---------------------------------------------------------------------------------- */

static void end(struct offer *f, const char *why)
{
    struct offers *o = f->of;
    const uint64_t job = f->job, step = f->step;
    drop(f);
    o->setup.done(o->setup.owner, job, step, why);
}

static void on_patience(void *owner)
{
    end(owner, "the deployment's head did not answer");
}

/* --- opening its files ------------------------------------------------------------------------ */

struct offer_opening {
    struct aside_work work;
    struct offer *offer; /* the loop's alone */
    char *folder;        /* owned */
    struct file_set *files;
    int r;
    struct err err;
};

static void opening_free(struct aside_work *w)
{
    struct offer_opening *g = (struct offer_opening *)w;
    file_set_drop(g->files);
    free(g->folder);
    free(g);
}

static void open_files(struct aside_work *w)
{
    struct offer_opening *g = (struct offer_opening *)w;
    g->r = file_set_of_adapter(&g->files, g->folder, &g->err);
}

static void on_open(struct aside_work *w)
{
    struct offer_opening *g = (struct offer_opening *)w;
    struct offer *f = g->offer;
    const struct offers *o = f->of;
    f->opening = NULL;
    if (g->r) {
        end(f, g->err.text);
    } else {
        f->files = file_set_hold(g->files);
        if (o->setup.send(o->setup.owner, f->to,
                          json_pack("{s:s s:I s:I s:s s:o}", "kind", "adapter-offered", "job",
                                    (json_int_t)f->deployment, "number", (json_int_t)f->number, "name",
                                    f->name, "files", file_set_list(f->files))))
            end(f, "the deployment's head cannot be reached");
    }
    opening_free(w);
}

static void drop(struct offer *f)
{
    if (f->opening)
        f->opening->work.is_left = true;
    LIST_REMOVE(f, next);
    timer_free(f->patience);
    file_set_drop(f->files);
    free(f->name);
    free(f);
}

/* --- offers ----------------------------------------------------------------------------------- */

static struct offer *find(const struct offers *o, uint64_t number)
{
    struct offer *f;
    LIST_FOREACH (f, &o->list, next)
        if (f->number == number)
            return f;
    return NULL;
}

/* At most one of each job is under way. */
static void replace(struct offers *o, uint64_t job)
{
    struct offer *f = LIST_FIRST(&o->list);
    while (f && f->job != job)
        f = LIST_NEXT(f, next);
    if (f)
        drop(f);
}

void offers_give(struct offers *o, const struct offer_request *q)
{
    replace(o, q->job);
    struct offer *f = xcalloc(1, sizeof *f);
    struct offer_opening *g = xcalloc(1, sizeof *g);
    *f = (struct offer){.of = o,
                        .number = FIRST_NUMBER + ++o->last,
                        .deployment = q->deployment,
                        .job = q->job,
                        .step = q->step,
                        .name = xstrdup(q->name),
                        .opening = g};
    memcpy(f->to, q->to, sizeof f->to);
    *g = (struct offer_opening){.work = {.run = open_files, .done = on_open, .drop = opening_free},
                                .offer = f,
                                .folder = xstrdup(q->folder)};
    f->patience = timer_new(o->setup.base, on_patience, f);
    timer_set_ms(f->patience, o->setup.patience_ms ? o->setup.patience_ms : PATIENCE_MS);
    LIST_INSERT_HEAD(&o->list, f, next);
    if (!aside_run(o->setup.aside, &g->work))
        return;
    f->opening = NULL;
    opening_free(&g->work);
    end(f, "too many files are read on this node now");
}

struct file_set *offers_files(const struct offers *o, const uint8_t to[16], uint64_t number)
{
    const struct offer *f = find(o, number);
    return f && !memcmp(f->to, to, sizeof f->to) ? f->files : NULL;
}

void offers_take_answer(struct offers *o, const uint8_t from[16], const json_t *body)
{
    struct offer *f = find(o, (uint64_t)json_integer_value(json_object_get(body, "number")));
    if (f && !memcmp(f->to, from, sizeof f->to))
        end(f, json_string_value(json_object_get(body, "why")));
}

struct offers *offers_new(const struct offers_setup *setup)
{
    struct offers *o = xcalloc(1, sizeof *o);
    o->setup = *setup;
    LIST_INIT(&o->list);
    return o;
}

void offers_free(struct offers *o)
{
    while (!LIST_EMPTY(&o->list))
        drop(LIST_FIRST(&o->list));
    free(o);
}
