/* SPDX-License-Identifier: MIT
 *
 * The compute thread in place of a neighbor's receivers. Ranks that share a stage exchange a small
 * message each some times a layer, and all of them stand still until the last has come. A thread
 * that sleeps until then has to be woken, and has to wake the compute thread: that takes longer
 * than all the rest. So the compute thread reads by itself, and looks again and again for as long
 * as an exchange usually takes before it sleeps. Receivers wait meanwhile, without a look at the
 * socket; between two waits of the compute thread nobody reads. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/stage/exchange/exchange_impl.h"

/* Longer than ranks that are alike differ in a part of a layer, and no longer than it takes to fall
 * asleep and be woken a few times. */
enum { LOOK_NS = 100 * 1000 };

static bool is_here(const struct lane *l)
{
    return l->used && !l->broken && !l->readers;
}

/* Its receivers have been called, and are still reading or on their way. */
static bool is_expected(const struct lane *l)
{
    return l->used && !l->broken && l->readers;
}

static bool read_one(struct lane *l)
{
    struct exchange *x = l->neighbor->x;
    l->read_here = true;
    pthread_mutex_unlock(&x->lock);
    const int r = lane_receive_here(l, x->chunk);
    if (r < 0)
        lane_break(l, r);
    pthread_mutex_lock(&x->lock);
    l->read_here = false;
    if (l->broken)
        pthread_cond_broadcast(&l->sync->turn); /* somebody may wait to put another in its place */
    return r != 0;
}

/* exchange_abandon ends the record that is being read, and the next lane may have half of one as
 * well. */
bool attend_read(struct exchange *x)
{
    bool some = false;
    for (size_t i = 0; i < x->n; i++)
        for (size_t l = 0; l < MAX_LANES && x->neighbors[i].attended && !x->abandoned; l++)
            if (is_here(&x->neighbors[i].lanes[l]))
                some |= read_one(&x->neighbors[i].lanes[l]);
    return some;
}

static bool may_look(const struct exchange *x)
{
    bool any = false;
    for (size_t i = 0; i < x->n; i++)
        for (size_t l = 0; l < MAX_LANES && x->neighbors[i].attended; l++) {
            if (is_expected(&x->neighbors[i].lanes[l]))
                return false; /* they may need this core to make room */
            any |= is_here(&x->neighbors[i].lanes[l]);
        }
    return any;
}

/* Until something is there to be read, or another thread has changed something from now on. */
static void sleep_here(struct exchange *x)
{
    struct pollfd fds[1 + MAX_NEIGHBORS * MAX_LANES] = {{x->event, POLLIN, 0}};
    nfds_t n = 1;
    uint64_t calls;
    exchange_kick_locked(x, true);
    for (size_t i = 0; i < x->n; i++)
        for (size_t l = 0; l < MAX_LANES && x->neighbors[i].attended; l++)
            if (is_here(&x->neighbors[i].lanes[l]))
                fds[n++] = (struct pollfd){x->neighbors[i].lanes[l].fd, POLLIN, 0};
    x->polling = true;
    pthread_mutex_unlock(&x->lock);
    poll(fds, n, -1);
    pthread_mutex_lock(&x->lock);
    x->polling = false;
    while (read(x->event, &calls, sizeof calls) < 0 && errno == EINTR)
        ;
}

void attend_wait(struct exchange *x)
{
    const int64_t until = may_look(x) ? exchange_now_ns() + LOOK_NS : 0;
    while (x->changes == x->seen)
        if (!attend_read(x) && x->changes == x->seen && exchange_now_ns() >= until)
            sleep_here(x);
}

void attend_leave(struct exchange *x)
{
    uint64_t calls;
    for (size_t i = 0; i < x->n && x->attends; i++) {
        struct neighbor *p = &x->neighbors[i];
        if (!p->attended)
            continue;
        p->attended = false;
        while (read(p->event, &calls, sizeof calls) < 0 && errno == EINTR)
            ;
        for (size_t l = 0; l < MAX_LANES; l++)
            pthread_cond_broadcast(&p->sync[l].back);
    }
    x->attends = false;
}
