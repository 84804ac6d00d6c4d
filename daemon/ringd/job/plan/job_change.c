/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/plan/job_change.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/json_weight.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/ledger.h"
#include "daemon/ringd/job/job.h"
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

static int read_change(struct job_change *to, const struct job *job, const char *name, const char *path,
                       struct err *err)
{
    const json_t *from = job->change ? job->change->spec : job->spec;
    to->spec = json_deep_copy(from);
    const bool had = json_object_get(json_object_get(from, "adapters"), name);
    snprintf(to->why, sizeof to->why, "%s the adapter %s",
             !path ? "without"
             : had ? "with another form of"
                   : "with",
             name);
    const int r = change_spec(to->spec, name, path, err);
    return r ? r : job_spec_read(&to->asked, JOB_SERVE, to->spec, err);
}

static int take_room(struct job_change *c, struct ledger_queue *room, struct err *err)
{
    const size_t bytes = sizeof(struct job) + json_weight(c->spec);
    if (!ledger_take(room, bytes))
        return err_set(err, -ENOBUFS,
                       "the jobs that wait take all the memory there is for them: try again when some have "
                       "ended");
    c->room = room;
    c->bytes = bytes;
    return 0;
}

static void change_free(struct job_change *c)
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

int job_change_adapter(struct job *job, struct ledger_queue *room, const char *name, const char *path,
                       struct loan *loan, struct err *err)
{
    const struct loan *had = job->change ? job->change->loan : job->loan;
    struct job_change *c;
    if (job->change && job->change->is_planned)
        return err_set(err, -EBUSY, "the job is being planned again %s: try again in a moment",
                       job->change->why);
    c = xcalloc(1, sizeof *c);
    int r = read_change(c, job, name, path, err);
    if (!r)
        r = take_room(c, room, err);
    if (!r)
        r = take_loan(c, had, loan, err);
    if (r) {
        change_free(c);
        return r;
    }
    c->number = ++job->changes;
    change_free(job->change);
    job->change = c;
    return 0;
}

void job_change_take(struct job *job)
{
    struct job_change *c = job->change;
    ledger_give(c->room, job->spec_bytes);
    job->spec_bytes = c->bytes;
    c->bytes = 0;
    json_decref(job->spec);
    loan_drop(job->loan);
    job->spec = json_incref(c->spec);
    job->asked = c->asked;
    job->loan = loan_hold(c->loan);
    job_change_drop(job);
}

void job_change_drop(struct job *job)
{
    change_free(job->change);
    job->change = NULL;
}
