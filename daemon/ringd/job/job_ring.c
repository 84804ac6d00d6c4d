/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/job/job.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/roster.h"

enum {
    CHAIN_MS = 3000,
    START_MS = 6000, /* after the start of the daemon, for members that come up with it */
};

struct job_ring {
    struct job_ring_setup setup;
    struct timer *chain; /* owned: the chain has stood for long enough */
    bool chain_stands;
    struct timer *begun; /* owned: nodes that have not come by now are not waited for */
    bool is_starting;
};

static void on_chain(void *owner)
{
    struct job_ring *j = owner;
    j->chain_stands = true;
    j->setup.stands(j->setup.owner);
}

static void on_begun(void *owner)
{
    struct job_ring *j = owner;
    j->is_starting = false;
    j->setup.stands(j->setup.owner);
}

/* Who belongs to the cluster and cannot be reached: how many, and in `names` the first of them. */
static size_t missing_members(const struct job_ring_setup *n, char *names, size_t size)
{
    const struct roster *r = cluster_roster(n->cluster);
    size_t missing = 0;
    for (size_t i = 0; r && i < r->n; i++) {
        if (r->at[i].status != ROSTER_ACTIVE || members_reachable(n->members, r->at[i].id))
            continue;
        if (!missing++)
            snprintf(names, size, "%s", r->at[i].name);
    }
    return missing;
}

void job_ring_changed(struct job_ring *j)
{
    struct members_ring ring;
    members_ring(j->setup.members, NULL, &ring);
    if (ring.shape != RING_CHAIN) {
        timer_stop(j->chain);
        j->chain_stands = false;
    } else if (!j->chain_stands && !timer_is_pending(j->chain)) {
        timer_set_ms(j->chain, CHAIN_MS);
    }
}

/* The connection between its neighbours is relayed, by it or the other way round. */
static void leave_out(struct members_ring *ring, const struct job *job)
{
    size_t kept = 0;
    for (size_t i = 0; i < ring->n; i++)
        if (!*ring->at[i]->drained && !(job && barred_has(&job->barred, ring->at[i])))
            ring->at[kept++] = ring->at[i];
    ring->n = kept;
}

/* An earlier attempt is still ending there, perhaps under its number at an earlier head; or the
 * node trains another job. */
static const struct member_stage *stage_in_the_way(const struct member *m, const uint8_t self[16],
                                                   const struct job *job)
{
    const struct member_stage *own = member_stage_of(m, self, job->id);
    if (!own && job->taken.from.job)
        own = member_stage_of(m, job->taken.from.id, job->taken.from.job);
    return own || job_class_of(job->type) != JOB_CLASS_TRAIN ? own : member_trains(m);
}

static void describe_work(const struct member *m, const uint8_t self[16], const struct job *job, char *why,
                          size_t size)
{
    const struct member_stage *s = stage_in_the_way(m, self, job);
    if (s)
        snprintf(why, size, "node %s %s job %llu", m->name,
                 memcmp(s->head, self, 16) ? "is busy with" : "has not yet ended its stage of",
                 (unsigned long long)s->job);
    else if (m->nstages == MEMBER_STAGES)
        snprintf(why, size, "node %s holds %d stages, as many as it can", m->name, MEMBER_STAGES);
}

/* Those are for the head alone. A training that goes on begins with none. */
static void look_for_adapters(const struct job_ring *j, const struct job *job, char *why, size_t size)
{
    const struct job_spec *s = &job->asked;
    const char *name;
    json_t *path;
    bool is_here =
        j->setup.has_model(j->setup.owner, s->adapter, NULL, why, size) &&
        (job_is_again(job) || j->setup.has_model(j->setup.owner, s->init_adapter, NULL, why, size));
    json_object_foreach ((json_t *)(uintptr_t)s->adapters, name, path)
        is_here = is_here && j->setup.has_model(j->setup.owner, json_string_value(path), NULL, why, size);
}

/* A draft model is for the head alone. What has served before goes on without it until it is
 * there. */
static void look_for_models(const struct job_ring *j, const struct job *job, const struct members_ring *ring,
                            char *why, size_t size)
{
    struct members_ring head = *ring;
    char unsaid[1] = "";
    const bool must_wait = !job_is_again(job);
    head.n = 1;
    if (j->setup.has_model(j->setup.owner, job->asked.model, ring, why, size) && job->asked.draft_model)
        j->setup.has_model(j->setup.owner, job->asked.draft_model, &head, must_wait ? why : unsaid,
                           must_wait ? size : sizeof unsaid);
    if (!*why)
        look_for_adapters(j, job, why, size);
}

bool job_ring_now(struct job_ring *j, const struct job *job, struct members_ring *ret, char *why, size_t size)
{
    const uint8_t *self = members_self(j->setup.members)->id;
    struct members_ring ring;
    size_t at = 0;
    members_ring(j->setup.members, self, &ring);
    while (at < ring.n && memcmp(ring.at[at]->id, self, 16))
        at++;
    *ret = ring;
    for (size_t i = 0; i < ring.n;
         i++) /* what is relayed closes the ring, so a chain may begin in its middle too */
        ret->at[i] = ring.at[(at + i) % ring.n];
    *why = 0;
    if (*members_self(j->setup.members)->drained) {
        snprintf(why, size, "this node is drained: %s", members_self(j->setup.members)->drained);
        return false;
    }
    leave_out(ret, job);
    char name[CERT_NAME];
    size_t missing = j->is_starting ? missing_members(&j->setup, name, sizeof name) : 0;
    if (missing == 1)
        snprintf(why, size, "%s may still come: the daemon here has just started", name);
    else if (missing)
        snprintf(why, size, "%s and %zu more may still come: the daemon here has just started", name,
                 missing - 1);
    if (missing)
        return false;
    if (ring.shape == RING_BROKEN || (ring.shape == RING_CHAIN && !j->chain_stands)) {
        members_describe(j->setup.members, why, size);
        return false;
    }
    for (size_t r = 0; job && r < ret->n && !*why; r++)
        describe_work(ret->at[r], self, job, why, size);
    if (job && !*why && j->setup.has_model)
        look_for_models(j, job, ret, why, size);
    return true;
}

struct job_ring *job_ring_new(const struct job_ring_setup *setup)
{
    struct job_ring *j = xcalloc(1, sizeof *j);
    *j = (struct job_ring){.setup = *setup, .is_starting = true};
    j->chain = timer_new(setup->base, on_chain, j);
    j->begun = timer_new(setup->base, on_begun, j);
    timer_set_ms(j->begun, START_MS);
    return j;
}

void job_ring_free(struct job_ring *j)
{
    if (!j)
        return;
    timer_free(j->chain);
    timer_free(j->begun);
    free(j);
}
