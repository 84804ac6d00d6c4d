/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/departure.h"

#include <stdio.h>

#include "daemon/ringd/job/survive/pace.h"
#include "daemon/ringd/job/survive/slow_nodes.h"

/* So much more must be won than the last start of the job took. */
#define WORTH 2.0
/* A job runs for so many times what its start took before its layers move, twice as long after each
 * move, up to so many doublings. */
#define SETTLED 10.0
enum { DOUBLINGS_MAX = 6, TRIED_AFTER_US = 600000000 };

bool departure_is_drained(const struct job *job, const struct members *m, char *why, size_t size)
{
    const struct job_nodes *nodes = job_nodes(job);
    for (size_t r = 0; r < nodes->n; r++) {
        const struct member *node = members_find(m, nodes->id[r]);
        if (!node || !*node->drained)
            continue;
        snprintf(why, size, "node %s is drained: %s", nodes->name[r], node->drained);
        return true;
    }
    return false;
}

/* Of what is left, one node more does its part. */
static double seconds_won(const struct job *job, size_t nodes, struct instant now)
{
    const uint64_t made = job->step > job->began_step ? job->step - job->began_step : 0,
                   left = job->steps > job->step ? job->steps - job->step : 0;
    const double took = (double)clock_since_us(now, job->began_running) / 1e6;
    return made ? took / (double)made * (double)left / (double)nodes : 0;
}

static double settles_after(const struct job *job, unsigned moves)
{
    return SETTLED * job->start.connected * (double)(1U << (moves < DOUBLINGS_MAX ? moves : DOUBLINGS_MAX));
}

static bool is_worth(const struct job *job, const struct members_ring *ring, struct instant now,
                     uint64_t *ret_wait_us)
{
    const uint64_t ran = clock_since_us(now, job->began_running),
                   settled = (uint64_t)(settles_after(job, job->interruption.count) * 1e6);
    if (job->type == JOB_TRAIN)
        return seconds_won(job, ring->n, now) >= WORTH * job->start.connected;
    *ret_wait_us = ran < settled ? settled - ran : 0;
    return !*ret_wait_us;
}

bool departure_is_worth(const struct job *job, const struct members_ring *ring, struct instant now, char *why,
                        size_t size, uint64_t *ret_wait_us)
{
    const struct job_nodes *offered = &job->offered;
    *ret_wait_us = 0;
    for (size_t i = 0; i < ring->n; i++) {
        if (job_nodes_find(offered, ring->at[i]->id) < offered->n ||
            (job->type == JOB_TRAIN && member_trains(ring->at[i])))
            continue;
        if (!is_worth(job, ring, now, ret_wait_us))
            return false;
        snprintf(why, size, "node %s can take part", ring->at[i]->name);
        return true;
    }
    return false;
}

/* --- a node at another speed ------------------------------------------------------------------ */

/* ret_step: seconds that a step takes now. */
static bool look_at_pace(const struct job *job, struct instant now, struct resplit *ret, double *ret_step)
{
    const struct placed_plan *p = job->plan;
    double slowness[JOB_MAX_RANKS], computes[JOB_MAX_RANKS], takes;
    if (!p || !p->pace || p->shared.ranks < 2 || !pace_read(p->pace, computes, &takes))
        return false;
    for (size_t r = 0; r < p->shared.ranks; r++)
        slowness[r] = slow_nodes_of(&job->slow, p->nodes.id[r]);
    const uint64_t left = job->steps > job->step ? job->steps - job->step : 0,
                   ran = clock_since_us(now, job->began_running);
    *ret_step = takes * (double)p->shared.microbatches;
    const struct resplit_request req = {.plan = &p->shared,
                                        .unit_cost = pace_unit_cost(p->pace),
                                        .speed = pace_speed(p->pace),
                                        .slowness = slowness,
                                        .available = p->nodes.available,
                                        .computes = computes,
                                        .step = *ret_step,
                                        .left = left * (p->shared.nmore + 1), /* of each adapter */
                                        .restart = job->start.connected,
                                        .is_tried = ran >= TRIED_AFTER_US};
    return resplit_pays(ret, &req);
}

static void say_cause(char *why, size_t size, const char *name, const struct resplit *r, double step)
{
    char cause[160];
    if (r->cause == RESPLIT_SLOWER)
        snprintf(cause, sizeof cause, "node %s takes %.1f times as long as planned", name, r->times);
    else if (r->cause == RESPLIT_FASTER)
        snprintf(cause, sizeof cause, "node %s is %.1f times as fast as planned", name, r->times);
    else
        snprintf(cause, sizeof cause, "node %s has had no layer for a while, and is tried again", name);
    snprintf(why, size, "%s; with other layers on each node, a step takes about %.3g s instead of %.3g s",
             cause, r->step, step);
}

bool departure_is_uneven(struct job *job, struct instant now, struct resplit *ret, char *why, size_t size)
{
    const double ran = (double)clock_since_us(now, job->began_running) / 1e6,
                 settled = settles_after(job, job->slow.moves);
    double step;
    if (!look_at_pace(job, now, ret, &step)) {
        job->uneven_since = (struct instant){0};
        return false;
    }
    if (!job->uneven_since.us)
        job->uneven_since = now;
    const double lost = (double)clock_since_us(now, job->uneven_since) / 1e6 * (1 - ret->step / step);
    if (lost < job->start.connected || ran < settled)
        return false;
    say_cause(why, size, job_nodes(job)->name[ret->rank], ret, step);
    return true;
}
