/* SPDX-License-Identifier: MIT
 *
 * What jobs that serve do beyond others. Adapters come to them and leave them while they are at
 * work: each is planned again at once. With --keep-alive they let their nodes go while nobody asks,
 * and begin again with the next request. Called by coord.c; loop thread. */
#include "daemon/ringd/job/coord_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"

#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/deputy/dossier_send.h"
#include "daemon/ringd/job/offers/arrivals.h"
#include "daemon/ringd/job/offers/offers.h"
#include "daemon/ringd/job/survive/loan_store.h"

struct wanting {
    const struct coord *coord;
    uint64_t job;
};

static bool is_wanted(void *owner, const char *name)
{
    const struct wanting *w = owner;
    return w->coord->setup.is_wanted && w->coord->setup.is_wanted(w->coord->setup.owner, w->job, name);
}

/* Answers that began with an adapter end with it, where nobody but this daemon has its files: it
 * goes on under another name. One that was never served has none. */
static const char *former_of(const struct coord *c, const struct job *job, const char *name,
                             char ret[JOB_FORMER_NAME + 1])
{
    const char *served = json_string_value(json_object_get(job->asked.adapters, name)),
               *next = job->change ? json_string_value(json_object_get(job->change->asked.adapters, name))
                                   : served;
    if (!arrivals_own(c->arrivals, served) || !next || strcmp(served, next))
        return NULL;
    snprintf(ret, JOB_FORMER_NAME + 1, "%s~%llu", name, (unsigned long long)job->changes + 1);
    return ret;
}

/* Of a change that another one takes the place of, before it came about: what neither reads. */
static void leave_unread(struct coord *c, const struct job *job, const struct job_change *had,
                         const struct job_change *made)
{
    arrivals_leave(c->arrivals, had->asked.adapters, job->asked.adapters, made->asked.adapters);
}

/* One that is not planned yet has both. */
static int change(struct coord *c, struct job *job, const char *name, const char *path,
                  const struct loan *more, struct err *err)
{
    const struct job_change *had = job->change;
    struct job_change *made;
    struct wanting wanting = {c, job->id};
    char former[JOB_FORMER_NAME + 1];
    if (had && had->is_planned)
        return err_set(err, -EBUSY, "job %llu is being planned again %s: try again in a moment",
                       (unsigned long long)job->id, had->why);
    const int r =
        job_change_new(&made,
                       &(struct job_change_request){.number = job->changes + 1,
                                                    .spec = had ? had->spec : job->spec,
                                                    .had = had ? had->loan : job->loan,
                                                    .more = more,
                                                    .name = name,
                                                    .path = path,
                                                    .former = path ? former_of(c, job, name, former) : NULL,
                                                    .is_wanted = is_wanted,
                                                    .owner = &wanting,
                                                    .room = &c->specs},
                       err);
    if (r)
        return r;
    if (had)
        leave_unread(c, job, had, made);
    job_drop_change(job);
    job->change = made;
    job->changes++;
    return 0;
}

int coord_change_adapter(struct coord *c, uint64_t id, const char *name, const char *path, struct loan *loan,
                         uint64_t *ret_number, struct err *err)
{
    struct job *job = coord_find_job(c, id);
    struct job_life *life = job ? coord_life_of(c, job) : NULL;
    char why[sizeof job->error];
    if (!job)
        return -ENOENT;
    if (job_state_ended(job->state) || job->type != JOB_SERVE)
        return err_set(err, -EALREADY, "job %llu serves no model%s", (unsigned long long)id,
                       job->type == JOB_SERVE ? " any more" : "");
    job_waits_for(job, why, sizeof why);
    if (!life)
        return err_set(err, -EBUSY, "job %llu does not serve yet: %s", (unsigned long long)id,
                       *why ? why : job_state_name(job->state));
    const int r = change(c, job, name, path, loan, err);
    if (r)
        return r == -ENOENT ? -EINVAL : r;
    *ret_number = job->change->number;
    job_life_changed(life);
    return 0;
}

/* What only the change had, whose files nobody reads. */
void coord_drops_change(void *owner, struct job *job)
{
    const struct coord *c = owner;
    arrivals_leave(c->arrivals, job->change->asked.adapters, job->asked.adapters, NULL);
}

void coord_takes_change(void *owner, struct job *job)
{
    struct coord *c = owner;
    const char *former;
    json_t *folder;
    json_object_foreach ((json_t *)(uintptr_t)job->change->asked.adapters, former, folder) {
        if (!job_adapter_is_former(former) || json_object_get(job->asked.adapters, former) ||
            !c->setup.replaced)
            continue;
        char *name = xstrndup(former, strcspn(former, "~"));
        c->setup.replaced(c->setup.owner, job->id, name, former);
        free(name);
    }
    loan_store_remove(c->setup.loan_store, job->id, job->loan);
    loan_store_add(c->setup.loan_store, job->id, job->change->loan);
    arrivals_leave(c->arrivals, job->asked.adapters, job->change->asked.adapters, NULL);
    job_take_change(job);
    dossier_send_end(c->dossiers, job->id); /* the next begins afresh, with other files */
}

/* --- adapters that are trained here or elsewhere ---------------------------------------------- */

static int send_to(void *owner, const uint8_t to[16], json_t *message)
{
    const struct coord *c = owner;
    return c->setup.send(c->setup.owner, to, message);
}

static bool fits(const struct job *job, const struct job_spec *asked, const char *deployment)
{
    if (job->type != JOB_SERVE || job_state_ended(job->state))
        return false;
    return *deployment ? !strcmp(deployment, job_served_name(&job->asked))
                       : !strcmp(asked->model, job->asked.model);
}

int coord_find_deployment(const struct coord *c, const struct job_spec *asked, struct coord_deployment *ret,
                          char ret_name[JOB_ADAPTER_NAME + 1], struct err *err)
{
    const char *deployment;
    size_t n = 0;
    if (!job_read_serve_as(asked->serve_as, ret_name, &deployment))
        return err_set(err, -EINVAL, "--serve-as %s has no name of an adapter", asked->serve_as);
    if (c->setup.deployments)
        n = c->setup.deployments(c->setup.owner, *deployment ? deployment : NULL, asked->model, ret);
    for (const struct job *job = c->jobs; job; job = job->next)
        if (fits(job, asked, deployment)) {
            memcpy(ret->node, members_self(c->setup.members)->id, sizeof ret->node);
            ret->job = job->id;
            n++;
        }
    if (n > 1)
        return err_set(err, -EINVAL, "--serve-as %s: %zu deployments have %s: give --serve-as %s@NAME",
                       asked->serve_as, n, *deployment ? "that name" : "this model", ret_name);
    return n ? 0
             : err_set(err, -EINVAL,
                       "--serve-as %s: there is no deployment of %s; `ringctl serve list` shows those that "
                       "there are: serve the model first, or add the adapter afterwards",
                       asked->serve_as, *deployment ? deployment : asked->model);
}

/* Each step once. */
void coord_offer(struct coord *c, struct job *job, uint64_t step)
{
    const struct job_spec *asked = &job->asked;
    char name[JOB_ADAPTER_NAME + 1];
    struct coord_deployment to;
    struct err err = {""};
    if (job->offered_step == step)
        return;
    job->offered_step = step;
    if (coord_find_deployment(c, asked, &to, name, &err)) {
        job_log_note(&c->log, job, "its adapter is not served: %s", err.text);
        return;
    }
    offers_give(c->offers,
                &(struct offer_request){.to = to.node,
                                        .deployment = to.job,
                                        .name = name,
                                        .folder = asked->kept_in ? asked->kept_in : asked->adapter_out,
                                        .job = job->id,
                                        .step = step});
}

static void on_offered(void *owner, uint64_t id, uint64_t step, const char *why)
{
    struct coord *c = owner;
    struct job *job = coord_find_job(c, id);
    const unsigned long long n = step;
    if (job && why)
        job_log_note(&c->log, job, "its adapter of step %llu is not served: %s", n, why);
    else if (job)
        job_log_note(&c->log, job, "its adapter of step %llu goes to the deployment of --serve-as %s", n,
                     job->asked.serve_as);
}

static int place(void *owner, uint64_t id, const char *name, const char *folder, struct err *err)
{
    struct coord *c = owner;
    const struct job *job = coord_find_job(c, id);
    uint64_t number;
    if (job && job->change && job->change->is_planned)
        return -EAGAIN;
    const int r = coord_change_adapter(c, id, name, folder, NULL, &number, err);
    return r == -ENOENT ? err_set(err, r, "there is no job %llu there", (unsigned long long)id) : r;
}

void coord_hear_of_adapters(struct coord *c, uint64_t id, const char *type)
{
    struct job *job = coord_find_job(c, id);
    if (job && job->asked.serve_as && !strcmp(type, "saved"))
        coord_offer(c, job, job->saved_step);
    if (job && !strcmp(type, "adapters"))
        arrivals_again(c->arrivals);
}

void coord_served_ends(struct coord *c, const struct job *job)
{
    if (job->change)
        arrivals_leave(c->arrivals, job->change->asked.adapters, job->asked.adapters, NULL);
    arrivals_leave(c->arrivals, job->asked.adapters, NULL, NULL);
    arrivals_again(c->arrivals);
}

struct file_set *coord_offered_files(const struct coord *c, const uint8_t to[16], uint64_t number)
{
    return offers_files(c->offers, to, number);
}

void coord_take_offered(struct coord *c, struct parts *parts, const uint8_t from[16], const json_t *body)
{
    arrivals_take_offer(c->arrivals, parts, from, body);
}

void coord_take_offer_answer(struct coord *c, const uint8_t from[16], const json_t *body)
{
    offers_take_answer(c->offers, from, body);
}

void coord_open_offers(struct coord *c)
{
    const struct coord_setup *s = &c->setup;
    c->offers = offers_new(&(struct offers_setup){
        .base = s->base, .aside = s->aside, .send = send_to, .done = on_offered, .owner = c});
    c->arrivals = arrivals_new(&(struct arrivals_setup){.base = s->base,
                                                        .aside = s->aside,
                                                        .state_dir = s->state_dir,
                                                        .send = send_to,
                                                        .place = place,
                                                        .owner = c});
}

void coord_close_offers(struct coord *c)
{
    offers_free(c->offers);
    arrivals_free(c->arrivals);
}

/* --- --keep-alive ---------------------------------------------------------------------------- */

void coord_asked(struct coord *c, uint64_t id, bool has_asks)
{
    struct job *job = coord_find_job(c, id);
    if (!job || !job->asked.unload_after)
        return;
    job->has_asks = has_asks;
    struct job_life *life = coord_life_of(c, job);
    if (life)
        job_life_asked(life);
    else if (has_asks)
        coord_wake(c, id);
}

void coord_wake(struct coord *c, uint64_t id)
{
    const struct job *job = coord_find_job(c, id);
    if (job && job->asked.unload_after && job->state == JOB_PAUSED)
        coord_continue(c, id);
}
