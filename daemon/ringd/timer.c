/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/timer.h"

#include <event2/event.h>
#include <stdlib.h>

#include "daemon/common/xalloc.h"

struct timer {
    struct event *event; /* owned */
    void (*fires)(void *owner);
    void *owner; /* borrowed */
};

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    const struct timer *t = arg;
    (void)fd;
    (void)what;
    t->fires(t->owner);
}

struct timer *timer_new(struct event_base *base, void (*fires)(void *owner), void *owner)
{
    struct timer *t = xcalloc(1, sizeof *t);
    *t = (struct timer){.event = evtimer_new(base, on_event, t), .fires = fires, .owner = owner};
    return t;
}

void timer_free(struct timer *t)
{
    if (!t)
        return;
    event_free(t->event);
    free(t);
}

void timer_set_us(struct timer *t, uint64_t us)
{
    const struct timeval in = {(time_t)(us / 1000000), (suseconds_t)(us % 1000000)};
    evtimer_add(t->event, &in);
}

void timer_set_ms(struct timer *t, uint64_t ms)
{
    timer_set_us(t, ms * 1000);
}

void timer_stop(struct timer *t)
{
    evtimer_del(t->event);
}

bool timer_is_pending(const struct timer *t)
{
    return evtimer_pending(t->event, NULL);
}
