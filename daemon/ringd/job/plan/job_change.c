/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/plan/job_change.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/job_plan.h"
#include "daemon/common/json_weight.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/job/loan.h"

static int change_spec(json_t *spec, const char *name, const char *path, struct err *err)
{
    json_t *adapters = json_object_get(spec, "adapters");
    if (path && !adapters) {
        adapters = json_object();
        json_object_set_new(spec, "adapters", adapters);
    }
    if (path) {
        json_object_set_new(adapters, name, json_string(path));
        return 0;
    }
    if (json_object_del(adapters, name))
        return err_set(err, -ENOENT, "the job serves no adapter \"%s\"", name);
    if (!json_object_size(adapters))
        json_object_del(spec, "adapters");
    return 0;
}

/* Those that were replaced, and that no answer wants any more. */
static void drop_former(json_t *spec, const struct job_change_request *q)
{
    json_t *adapters = json_object_get(spec, "adapters"), *folder;
    const char *name;
    void *next;
    json_object_foreach_safe (adapters, next, name, folder)
        if (job_adapter_is_former(name) && !q->is_wanted(q->owner, name))
            json_object_del(adapters, name);
}

/* What the adapter was until now, if there is a place for one more. */
static void keep_former(json_t *spec, const struct job_change_request *q)
{
    json_t *adapters = json_object_get(spec, "adapters");
    if (q->former && json_object_size(adapters) < JOB_MAX_ADAPTERS)
        json_object_set(adapters, q->former, json_object_get(adapters, q->name));
}

static int read_change(struct job_change *to, const struct job_change_request *q, struct err *err)
{
    const bool had = json_object_get(json_object_get(q->spec, "adapters"), q->name);
    to->spec = json_deep_copy(q->spec);
    snprintf(to->why, sizeof to->why, "%s the adapter %s",
             !q->path ? "without"
             : had    ? "with another form of"
                      : "with",
             q->name);
    drop_former(to->spec, q);
    keep_former(to->spec, q);
    const int r = change_spec(to->spec, q->name, q->path, err);
    return r ? r : job_spec_read(&to->asked, JOB_SERVE, to->spec, err);
}

static int take_room(struct job_change *c, struct ledger_queue *room, struct err *err)
{
    const size_t bytes = json_weight(c->spec);
    if (!ledger_take(room, bytes))
        return err_set(err, -ENOBUFS,
                       "the jobs that wait take all the memory there is for them: try again when some have "
                       "ended");
    c->room = room;
    c->bytes = bytes;
    return 0;
}

void job_change_free(struct job_change *c)
{
    if (!c)
        return;
    if (c->room)
        ledger_give(c->room, c->bytes);
    json_decref(c->spec);
    loan_drop(c->loan);
    free(c);
}

/* All that the job reads. */
static json_t *paths_of(const json_t *spec)
{
    json_t *paths = json_array();
    const char *path;
    for (const struct field *f = job_spec_fields(); f->name; f++)
        for (size_t i = 0; field_is_for(f, JOB_SPEC_OF(JOB_SERVE)) && (path = field_path_at(f, spec, i)); i++)
            json_array_append_new(paths, json_string(path));
    return paths;
}

static int take_loan(struct job_change *c, const struct loan *had, const struct loan *more, struct err *err)
{
    json_t *paths = paths_of(c->spec);
    const int r = loan_join(&c->loan, had, more, paths, err);
    json_decref(paths);
    return r;
}

int job_change_new(struct job_change **ret, const struct job_change_request *q, struct err *err)
{
    struct job_change *c = xcalloc(1, sizeof *c);
    c->number = q->number;
    int r = read_change(c, q, err);
    if (!r)
        r = take_room(c, q->room, err);
    if (!r)
        r = take_loan(c, q->had, q->more, err);
    if (r)
        job_change_free(c);
    else
        *ret = c;
    return r;
}
