/* SPDX-License-Identifier: MIT
 *
 * What a stage does when the members of the cluster change: the head is out of reach, a node of its
 * ring is removed, a path is gone. Loop thread. */
#include "daemon/ringd/job/worker_impl.h"

#include <stdio.h>

#include "daemon/ringd/cluster/cluster.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/peer/peers.h"
#include "daemon/ringd/timer.h"

static void leave_head(struct worker *w)
{
    const struct member *head = members_find(w->setup.members, w->head);
    if (w->state == WORKER_IDLE)
        worker_drop_stage(w);
    if (w->state == WORKER_IDLE || w->state == WORKER_ENDING)
        return;
    log_stage(LOG_LEVEL_WARNING, w->job, w->rank,
              "the head %s is lost (%s): the stage on this node is stopped", head ? head->name : "?",
              peers_last_words(w->setup.peers, w->head));
    w->reported = true;
    worker_end_stage(w, false);
}

/* A head that is out of reach is waited for, as it waits for us. Also when the job is over here: it
 * may not have heard that. */
static void look_for_head(struct worker *w)
{
    const uint64_t patience_us = (uint64_t)opts_int(w->setup.opts, "dead-after") * 1000000;
    const struct instant now = clock_now();
    enum absence_news news;
    size_t i;
    while ((news = absence_next(&w->absent, w->setup.members, patience_us, now, &i))) {
        if (news == ABSENCE_BACK)
            worker_tell_again(w);
        if (news < ABSENCE_TOO_LONG)
            continue;
        leave_head(w);
        if (news == ABSENCE_TOO_LONG) /* should it come back, it hears how this ended */
            absence_watch(&w->absent, w->setup.members, (const uint8_t(*)[16])w->head, 1);
        else
            w->absent.n = 0;
    }
    const uint64_t due = absence_due(&w->absent, patience_us).us, us = due > now.us ? due - now.us : 0;
    timer_stop(w->missed);
    if (due != UINT64_MAX)
        timer_set_us(w->missed, us);
}

static void on_missed(void *owner)
{
    look_for_head(owner);
}

/* Who was removed may have reason to stay in the job: no lane with it outlives the roster. */
static void leave_removed(struct worker *w)
{
    char cause[160];
    size_t i = 0;
    if (w->state == WORKER_IDLE || w->state == WORKER_PLANNING || w->state == WORKER_ENDING)
        return;
    while (i < w->ranks && !cluster_has_removed(w->setup.cluster, w->nodes[i]))
        i++;
    if (w->ranks < 2 || i == w->ranks)
        return;
    snprintf(cause, sizeof cause, "%s, which is rank %zu, was removed from the cluster",
             roster_find(cluster_roster(w->setup.cluster), w->nodes[i])->name, i);
    worker_fail(w, cause);
}

void worker_changed(struct worker *w)
{
    leave_removed(w);
    if (w->state == WORKER_RUNNING && w->ranks > 1 && w->stage)
        worker_cut_lanes(w);
    worker_lanes_changed(w);
    look_for_head(w);
}

void worker_absence_init(struct worker *w)
{
    w->missed = timer_new(w->setup.base, on_missed, w);
}
