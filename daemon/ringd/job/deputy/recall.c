/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/deputy/recall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/cluster/members.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/timer.h"

enum { AGAIN_MS = 3000 };

struct recall {
    struct recall_setup setup;
    struct timer *again; /* owned: pending while somebody was asked and has not answered */
};

static void on_again(void *owner)
{
    struct recall *r = owner;
    r->setup.look(r->setup.owner);
}

void recall_from(struct recall *r, const uint8_t from[16], uint64_t job)
{
    r->setup.send(r->setup.owner, from,
                  json_pack("{s:s s:I}", "kind", "dossier-recall", "job", (json_int_t)job));
}

static bool is_in(const struct members_ring *ring, const uint8_t id[16])
{
    for (size_t i = 0; i < ring->n; i++)
        if (!memcmp(ring->at[i]->id, id, sizeof ring->at[i]->id))
            return true;
    return false;
}

/* Of the nodes of its last attempt; who was removed from the cluster takes nothing over. */
static bool has_half(const struct recall *r, const struct job *job, const struct members_ring *ring)
{
    const struct job_nodes *nodes = &job->ran;
    size_t here = 0;
    for (size_t i = 0; i < nodes->n; i++)
        here += is_in(ring, nodes->id[i]) || cluster_has_removed(r->setup.cluster, nodes->id[i]);
    return 2 * here >= nodes->n;
}

enum verdict { CLEAR, ASKED, UNKNOWN };

static enum verdict look_at(const struct recall *r, const struct job *job, const struct members_ring *ring,
                            const uint8_t id[16])
{
    if (cluster_has_removed(r->setup.cluster, id) || (!job->is_asked_for && is_in(ring, id)))
        return CLEAR;
    if (members_reachable(r->setup.members, id))
        return ASKED;
    return !job->is_asked_for && has_half(r, job, ring) ? CLEAR : UNKNOWN;
}

static void add_name(char *names, size_t size, const char *name)
{
    const size_t n = strlen(names);
    snprintf(names + n, size - n, "%s%s", n ? " and " : "", name);
}

bool recall_is_done(struct recall *r, struct job *job, const struct members_ring *ring, char *why,
                    size_t size)
{
    const struct job_nodes *deputies = &job->deputies;
    char asked[300] = "", unknown[300] = "";
    const bool is_again = !timer_is_pending(r->again);
    if (job->is_without_deputies)
        return true;
    for (size_t i = 0; i < deputies->n; i++) {
        const enum verdict v = look_at(r, job, ring, deputies->id[i]);
        if (v == ASKED && is_again)
            recall_from(r, deputies->id[i], job->id);
        if (v != CLEAR)
            add_name(v == ASKED ? asked : unknown, sizeof asked, deputies->name[i]);
    }
    if (*asked && is_again)
        timer_set_ms(r->again, AGAIN_MS);
    if (*unknown)
        snprintf(
            why, size,
            "node %s may have taken the job over meanwhile, and is out of reach; `ringctl continue %llu` "
            "goes on without asking",
            unknown, (unsigned long long)job->id);
    else if (*asked)
        snprintf(why, size, "node %s is asked whether it has taken the job over", asked);
    return !*unknown && !*asked;
}

bool recall_held(struct recall *r, struct job *job, const uint8_t from[16])
{
    const size_t i = job_nodes_find(&job->deputies, from);
    if (i == job->deputies.n)
        return false;
    job_nodes_drop(&job->deputies, i);
    job->is_asked_for = job->is_asked_for && job->deputies.n;
    timer_stop(r->again);
    return true;
}

void recall_all(struct recall *r, const struct job *job)
{
    for (size_t i = 0; i < job->deputies.n; i++)
        recall_from(r, job->deputies.id[i], job->id);
}

struct recall *recall_new(const struct recall_setup *setup)
{
    struct recall *r = xcalloc(1, sizeof *r);
    r->setup = *setup;
    r->again = timer_new(setup->base, on_again, r);
    return r;
}

void recall_free(struct recall *r)
{
    if (!r)
        return;
    timer_free(r->again);
    free(r);
}
