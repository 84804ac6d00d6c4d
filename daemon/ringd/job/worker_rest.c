/* SPDX-License-Identifier: MIT
 *
 * The stage process of a worker between two attempts at its job. It keeps what it has read and
 * mapped, so that the next attempt begins sooner; it holds no lease and no data connection. It ends
 * when another job comes, when its own is over, and when its time is. One that does not let go in
 * time, or ends, is forgotten: the next attempt gets a new one. Called by worker.c; loop thread. */
#include "daemon/ringd/job/plan/cost_query.h"
#include "daemon/ringd/job/lane_counts.h"
#include "daemon/ringd/job/spawn.h"
#include "daemon/ringd/job/worker_impl.h"
#include "daemon/ringd/log.h"
#include "daemon/ringd/timer.h"

enum {
    ASKED_US = 2000000,  /* it may be computing, and lets go after that task */
    KEPT_US = 120000000, /* a job waits a minute for a node, unless it is told otherwise */
};

void worker_drop_stage(struct worker *w)
{
    timer_stop(w->rest_over);
    w->rest = REST_NONE;
    if (!w->stage)
        return;
    worker_add_stage(w->stage, &w->past);
    lane_counts_keep(w->counts, spawn_progress(w->stage));
    cost_query_forget(w->setup.cost_query, w->stage);
    if (w->setup.forget_travel)
        w->setup.forget_travel(w->setup.owner, w->stage);
    spawn_free(w->stage);
    w->stage = NULL;
}

static void on_over(void *owner)
{
    struct worker *w = owner;
    if (w->rest == REST_KEPT) {
        log_stage(LOG_LEVEL_DEBUG, w->job, w->rank, "the stage that rests on this node ends");
        worker_drop_stage(w);
    } else if (w->rest == REST_ASKED) {
        w->rest = REST_NONE;
        spawn_end(w->stage);
    }
}

bool worker_rest_ask(struct worker *w)
{
    if (!w->stage || w->state < WORKER_OPENING || w->state > WORKER_RUNNING ||
        spawn_send(w->stage, json_pack("{s:s}", "do", "rest")))
        return false;
    w->rest = REST_ASKED;
    timer_set_us(w->rest_over, ASKED_US);
    return true;
}

void worker_rest_heard(struct worker *w)
{
    if (w->rest != REST_ASKED)
        return;
    w->rest = REST_KEPT;
    timer_stop(w->rest_over);
    timer_set_us(w->release, 0);
}

void worker_rest_begin(struct worker *w)
{
    timer_set_us(w->rest_over, KEPT_US);
}

bool worker_rest_wake(struct worker *w)
{
    if (w->rest != REST_KEPT)
        return false;
    w->rest = REST_NONE;
    timer_stop(w->rest_over);
    log_stage(LOG_LEVEL_INFO, w->job, w->rank, "the stage that waited on this node goes on");
    return true;
}

void worker_rest_init(struct worker *w)
{
    w->rest_over = timer_new(w->setup.base, on_over, w);
}
