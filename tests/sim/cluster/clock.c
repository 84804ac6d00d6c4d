/* SPDX-License-Identifier: MIT
 *
 * Time: a queue of events, a heap by time and then by age. Timers of daemons are events of their
 * node. */
#include "tests/sim/cluster/sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/common/xalloc.h"
#include "daemon/ringd/timer.h"
#include "net/clock.h"

enum { CALENDAR_S = 1700000000 };

/* --- numbers ---------------------------------------------------------------------------------- */

uint64_t sim_random(uint64_t below)
{
    uint64_t x = sim->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (x >> 32) * below >> 32;
}

uint64_t sim_between(uint64_t least, uint64_t most)
{
    return least + sim_random(most - least + 1);
}

uint64_t sim_span(uint64_t least, uint64_t most)
{
    unsigned doublings = 0;
    while (least << (doublings + 1) <= most)
        doublings++;
    const uint64_t from = least << sim_random(doublings + 1), to = 2 * from < most ? 2 * from : most;
    return sim_between(from, to);
}

/* --- the queue -------------------------------------------------------------------------------- */

static bool is_before(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void put(size_t place, struct sim_event *e)
{
    sim->queue[place - 1] = e;
    e->place = place;
}

static void rise(size_t place, struct sim_event *e)
{
    for (; place > 1 && is_before(e, sim->queue[place / 2 - 1]); place /= 2)
        put(place, sim->queue[place / 2 - 1]);
    put(place, e);
}

static void sink(size_t place, struct sim_event *e)
{
    size_t child;
    while ((child = 2 * place) <= sim->queued) {
        if (child < sim->queued && is_before(sim->queue[child], sim->queue[child - 1]))
            child++;
        if (!is_before(sim->queue[child - 1], e))
            break;
        put(place, sim->queue[child - 1]);
        place = child;
    }
    put(place, e);
}

void sim_cancel(struct sim_event *e)
{
    const size_t place = e->place;
    if (!place)
        return;
    struct sim_event *last = sim->queue[--sim->queued];
    e->place = 0;
    if (last == e)
        return;
    if (place > 1 && is_before(last, sim->queue[place / 2 - 1]))
        rise(place, last);
    else
        sink(place, last);
}

void sim_at(struct sim_event *e, uint64_t in_us)
{
    sim_cancel(e);
    if (sim->queued == sim->cap) {
        sim->cap = sim->cap ? 2 * sim->cap : 256;
        sim->queue = xrealloc(sim->queue, sim->cap * sizeof *sim->queue);
    }
    e->at_us = sim->now_us + in_us;
    e->order = ++sim->order;
    rise(++sim->queued, e);
}

bool sim_step(uint64_t until_us)
{
    struct sim_event *e = sim->queued ? sim->queue[0] : NULL;
    if (!e || e->at_us > until_us)
        return false;
    sim_cancel(e);
    sim->now_us = e->at_us;
    if (e->node && sim_is_still(e->node)) { /* those that have waited keep their order */
        sim_at(e, e->node->still_until_us - sim->now_us);
        return true;
    }
    sim->events++;
    sim->here = e->node;
    e->run(e);
    sim->here = NULL;
    return true;
}

void sim_queue_free(void)
{
    free(sim->queue);
}

/* --- clocks ----------------------------------------------------------------------------------- */

struct instant clock_now(void)
{
    return (struct instant){sim->now_us + (sim->here ? sim->here->clock_us : 0)};
}

time_t __wrap_time(time_t *ret);
time_t __wrap_time(time_t *ret)
{
    const int64_t us = (int64_t)sim->now_us + (sim->here ? sim->here->wall_us : 0);
    const time_t now = CALENDAR_S + (time_t)(us / SIM_S);
    if (ret)
        *ret = now;
    return now;
}

/* --- timer.h ---------------------------------------------------------------------------------- */

struct timer {
    struct sim_event event;
    void (*fires)(void *owner);
    void *owner;
};

static void on_timer(struct sim_event *e)
{
    const struct timer *t = (const struct timer *)e;
    t->fires(t->owner);
}

/* What a daemon takes for its loop is its node. */
struct timer *timer_new(struct event_base *base, void (*fires)(void *owner), void *owner)
{
    struct timer *t = xcalloc(1, sizeof *t);
    *t = (struct timer){
        .event = {.node = (struct sim_node *)base, .run = on_timer}, .fires = fires, .owner = owner};
    return t;
}

void timer_free(struct timer *t)
{
    if (!t)
        return;
    sim_cancel(&t->event);
    free(t);
}

void timer_set_us(struct timer *t, uint64_t us)
{
    sim_at(&t->event, us);
}

void timer_set_ms(struct timer *t, uint64_t ms)
{
    timer_set_us(t, ms * SIM_MS);
}

void timer_stop(struct timer *t)
{
    sim_cancel(&t->event);
}

bool timer_is_pending(const struct timer *t)
{
    return t->event.place;
}
