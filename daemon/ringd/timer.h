/* SPDX-License-Identifier: MIT
 *
 * A timer of the loop: set for once, it calls its owner. Loop thread. */
#ifndef DAEMON_TIMER_H
#define DAEMON_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct timer;

/* `fires` may set the timer again, and may free it. Both pointers are borrowed. */
struct timer *timer_new(struct event_base *base, void (*fires)(void *owner), void *owner);
/* NULL is accepted. It does not fire any more. */
void timer_free(struct timer *t);

/* It fires once, in so long from now; with 0 from the loop, once the present callback is over. A
 * time that was set before is forgotten. */
void timer_set_us(struct timer *t, uint64_t us);
void timer_set_ms(struct timer *t, uint64_t ms);
void timer_stop(struct timer *t);
bool timer_is_pending(const struct timer *t);

#endif
