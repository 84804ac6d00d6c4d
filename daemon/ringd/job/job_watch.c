/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/job_watch.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/common/optable.h"
#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/peer/absence.h"
#include "daemon/ringd/job/job.h"
#include "daemon/ringd/job/job_log.h"
#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"

struct job_watch {
    struct job_watch_setup setup;
    struct job *job; /* borrowed; NULL: none */
    struct absence absent;
    struct timer *missed; /* owned: somebody has been out of reach for too long */
};

static unsigned patience_s(const struct job_watch *w)
{
    return (unsigned)opts_int(w->setup.opts, "dead-after");
}

static void tell_gone(struct job_watch *w, size_t rank, enum absence_news news)
{
    const struct job_nodes *nodes = job_nodes(w->job);
    const struct member *first = members_cut_off(w->setup.members);
    const size_t cut_off = first ? job_nodes_find(nodes, first->id) : nodes->n;
    if (news == ABSENCE_TOO_LONG && cut_off < nodes->n)
        rank = cut_off; /* the others may only be behind it */
    const char *words = w->setup.last_words(w->setup.owner, nodes->id[rank]), *name = nodes->name[rank];
    char cause[700];
    if (news == ABSENCE_RESTARTED)
        snprintf(cause, sizeof cause, "node %s is gone: its ringd was started again", name);
    else if (news == ABSENCE_ENDED)
        snprintf(cause, sizeof cause, "node %s is gone: %s", name, *words ? words : "its ringd has ended");
    else
        snprintf(cause, sizeof cause, "node %s is gone: %s%sout of reach for %u s", name, words,
                 *words ? "; " : "", patience_s(w));
    job_watch_end(w);
    w->setup.gone(w->setup.owner, cause);
}

static void tell(struct job_watch *w, size_t rank, enum absence_news news)
{
    if (news == ABSENCE_OUT) {
        job_log_note(w->setup.log, w->job, "node %s is out of reach: it is waited for, %u s at most",
                     job_nodes(w->job)->name[rank], patience_s(w));
    } else if (news == ABSENCE_BACK) {
        job_log_note(w->setup.log, w->job, "node %s is back", job_nodes(w->job)->name[rank]);
        w->setup.back(w->setup.owner, rank);
    } else {
        tell_gone(w, rank, news);
    }
}

static void arm(struct job_watch *w, struct instant due, struct instant now)
{
    uint64_t us = clock_since_us(due, now);
    timer_stop(w->missed);
    if (due.us != UINT64_MAX)
        timer_set_us(w->missed, us);
}

static void look_for_removed(struct job_watch *w)
{
    const struct job_nodes *nodes = w->job ? job_nodes(w->job) : NULL;
    char cause[200];
    for (size_t r = 0; nodes && nodes->n > 1 && r < nodes->n; r++)
        if (cluster_has_removed(w->setup.cluster, nodes->id[r])) {
            snprintf(cause, sizeof cause, "node %s was removed from the cluster", nodes->name[r]);
            job_watch_end(w);
            w->setup.gone(w->setup.owner, cause);
            return;
        }
}

void job_watch_look(struct job_watch *w)
{
    look_for_removed(w);
    const uint64_t patience_us = patience_s(w) * UINT64_C(1000000);
    const struct instant now = clock_now();
    enum absence_news news;
    size_t i;
    while (w->job && (news = absence_next(&w->absent, w->setup.members, patience_us, now, &i)))
        tell(w, job_nodes_find(job_nodes(w->job), w->absent.at[i].id), news);
    if (w->job)
        arm(w, absence_due(&w->absent, patience_us), now);
}

static void on_missed(void *owner)
{
    job_watch_look(owner);
}

void job_watch_begin(struct job_watch *w, struct job *job)
{
    const struct job_nodes *nodes = job_nodes(job);
    w->job = job;
    absence_watch(&w->absent, w->setup.members, nodes->id + 1, nodes->n - 1);
}

void job_watch_end(struct job_watch *w)
{
    w->job = NULL;
    timer_stop(w->missed);
}

void job_watch_release(struct job_watch *w, size_t rank)
{
    if (w->job)
        absence_forget(&w->absent, job_nodes(w->job)->id[rank]);
}

struct job_watch *job_watch_new(const struct job_watch_setup *setup)
{
    struct job_watch *w = xcalloc(1, sizeof *w);
    w->setup = *setup;
    w->missed = timer_new(setup->base, on_missed, w);
    return w;
}

void job_watch_free(struct job_watch *w)
{
    if (!w)
        return;
    timer_free(w->missed);
    free(w);
}
