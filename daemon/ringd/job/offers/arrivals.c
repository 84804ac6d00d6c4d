/* SPDX-License-Identifier: MIT
 *
 * Owns what is fetched, and what waits to be put in place. */
#include "daemon/ringd/job/offers/arrivals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/aside.h"
#include "daemon/ringd/job/deputy/file_set.h"
#include "daemon/ringd/job/deputy/landing.h"
#include "daemon/ringd/job/results.h"
#include "daemon/ringd/timer.h"

enum { ARRIVALS_MOST = 8 };

struct adapter_arrival {
    LIST_ENTRY(adapter_arrival) next;
    struct arrivals *of; /* borrowed: owner */
    uint8_t from[16];
    uint64_t job, number;
    char *name, *folder;     /* owned; folder NULL: it is not here yet */
    struct landing *landing; /* owned; NULL: it waits to be put in place */
};

struct arrivals {
    struct arrivals_setup setup;
    LIST_HEAD(, adapter_arrival) list;
    struct timer *again; /* owned: at once, but not within what calls */
    size_t n;
};

/* What the names of their folders begin with. No result is called so (results.h). */
static char *root_of(const struct arrivals *a)
{
    return xasprintf("%s/results/.served-", a->setup.state_dir);
}

/* --- what goes -------------------------------------------------------------------------------- */

struct leaving {
    struct aside_work work;
    char *folder; /* owned */
};

static void leaving_free(struct aside_work *w)
{
    struct leaving *l = (struct leaving *)w;
    free(l->folder);
    free(l);
}

static void remove_folder(struct aside_work *w)
{
    const struct leaving *l = (const struct leaving *)w;
    for (const char *const *file = file_set_adapter_files; *file; file++) {
        char *path = xasprintf("%s/%s", l->folder, *file);
        unlink(path);
        free(path);
    }
    rmdir(l->folder);
}

/* What cannot go now stays, and takes a little of the disk. */
static void leave(struct arrivals *a, const char *folder)
{
    struct leaving *l = xcalloc(1, sizeof *l);
    l->work = (struct aside_work){.run = remove_folder, .done = leaving_free, .drop = leaving_free};
    l->folder = xstrdup(folder);
    if (aside_run(a->setup.aside, &l->work))
        leaving_free(&l->work);
}

static bool is_read(const json_t *adapters, const char *folder)
{
    const char *name;
    json_t *at;
    json_object_foreach ((json_t *)(uintptr_t)adapters, name, at)
        if (!strcmp(json_string_value(at), folder))
            return true;
    return false;
}

bool arrivals_own(const struct arrivals *a, const char *folder)
{
    char *root = root_of(a);
    const size_t n = strlen(root);
    const bool is_own = folder && !strncmp(folder, root, n) && !strchr(folder + n, '/');
    free(root);
    return is_own;
}

void arrivals_leave(struct arrivals *a, const json_t *had, const json_t *still, const json_t * or)
{
    const char *name;
    json_t *at;
    json_object_foreach ((json_t *)(uintptr_t)had, name, at) {
        const char *folder = json_string_value(at);
        if (arrivals_own(a, folder) && !is_read(still, folder) && !is_read(or, folder))
            leave(a, folder);
    }
}

/* --- one of them ------------------------------------------------------------------------------ */

static void drop(struct adapter_arrival *v)
{
    LIST_REMOVE(v, next);
    v->of->n--;
    landing_stop(v->landing);
    free(v->name);
    free(v->folder);
    free(v);
}

static void answer(const struct arrivals *a, const uint8_t to[16], uint64_t number, const char *why)
{
    a->setup.send(
        a->setup.owner, to,
        json_pack("{s:s s:I s:s*}", "kind", "adapter-answer", "number", (json_int_t)number, "why", why));
}

static void end(struct adapter_arrival *v, const char *why)
{
    answer(v->of, v->from, v->number, why);
    if (why && v->folder)
        leave(v->of, v->folder);
    drop(v);
}

static void place(struct adapter_arrival *v)
{
    struct err err = {""};
    const struct arrivals_setup *s = &v->of->setup;
    const int r = s->place(s->owner, v->job, v->name, v->folder, &err);
    if (r != -EAGAIN)
        end(v, r ? err.text : NULL);
}

static void on_landed(void *owner, const char *folder, const char *why)
{
    struct adapter_arrival *v = owner;
    v->landing = NULL;
    if (!folder) {
        end(v, why);
        return;
    }
    v->folder = xstrdup(folder);
    place(v);
}

static void on_again(void *owner)
{
    struct arrivals *a = owner;
    for (struct adapter_arrival *v = LIST_FIRST(&a->list), *next; v; v = next) {
        next = LIST_NEXT(v, next);
        if (v->folder)
            place(v);
    }
}

void arrivals_again(struct arrivals *a)
{
    if (!LIST_EMPTY(&a->list))
        timer_set_ms(a->again, 0);
}

/* --- offers ----------------------------------------------------------------------------------- */

/* A newer one takes its place. */
static void replace(struct arrivals *a, uint64_t job, const char *name)
{
    struct adapter_arrival *v = LIST_FIRST(&a->list);
    while (v && (v->job != job || strcmp(v->name, name)))
        v = LIST_NEXT(v, next);
    if (v)
        end(v, "a newer one has taken its place");
}

/* No other folder has its name, in whatever life of the daemon. */
static void start(struct adapter_arrival *v, struct parts *parts, const json_t *files)
{
    struct timespec now;
    struct arrivals *a = v->of;
    char *root = root_of(a), *way, *to;
    clock_gettime(CLOCK_REALTIME, &now);
    way = xasprintf("%scoming-%llu-%s", root, (unsigned long long)v->job, v->name);
    to = xasprintf("%s%llu-%s-%llx%08lx", root, (unsigned long long)v->job, v->name,
                   (unsigned long long)now.tv_sec, now.tv_nsec);
    results_make(a->setup.state_dir);
    v->landing = landing_start(&(struct landing_request){.parts = parts,
                                                         .aside = a->setup.aside,
                                                         .from = v->from,
                                                         .job = v->number,
                                                         .files = files,
                                                         .way = way,
                                                         .to = to,
                                                         .else_to = to,
                                                         .done = on_landed,
                                                         .owner = v});
    free(root);
    free(way);
    free(to);
}

void arrivals_take_offer(struct arrivals *a, struct parts *parts, const uint8_t from[16], const json_t *body)
{
    const json_t *files = json_object_get(body, "files");
    const char *name = json_string_value(json_object_get(body, "name"));
    const uint64_t job = (uint64_t)json_integer_value(json_object_get(body, "job")),
                   number = (uint64_t)json_integer_value(json_object_get(body, "number"));
    struct err err;
    if (file_set_check_adapter(files, &err)) {
        answer(a, from, number, err.text);
        return;
    }
    replace(a, job, name);
    if (a->n == ARRIVALS_MOST) {
        answer(a, from, number, "its node takes too many adapters at once");
        return;
    }
    struct adapter_arrival *v = xcalloc(1, sizeof *v);
    *v = (struct adapter_arrival){.of = a, .job = job, .number = number, .name = xstrdup(name)};
    memcpy(v->from, from, sizeof v->from);
    LIST_INSERT_HEAD(&a->list, v, next);
    a->n++;
    start(v, parts, files);
}

struct arrivals *arrivals_new(const struct arrivals_setup *setup)
{
    struct arrivals *a = xcalloc(1, sizeof *a);
    a->setup = *setup;
    LIST_INIT(&a->list);
    a->again = timer_new(setup->base, on_again, a);
    return a;
}

void arrivals_free(struct arrivals *a)
{
    while (!LIST_EMPTY(&a->list))
        drop(LIST_FIRST(&a->list));
    timer_free(a->again);
    free(a);
}
