/* SPDX-License-Identifier: MIT
 *
 * Time is a type, so that seconds and microseconds cannot be mixed: microseconds since boot,
 * suspended time included. */
#ifndef NET_CLOCK_H
#define NET_CLOCK_H

#include <stdint.h>

struct instant {
    uint64_t us;
};
struct instant clock_now(void);
static inline uint64_t clock_since_us(struct instant now, struct instant then)
{
    return now.us > then.us ? now.us - then.us : 0;
}
/* Until the next beat of a clock with that period that is at least half a period away; one of its
 * beats is at `beat`. All timers of one clock go off together: a process wakes up once for them. */
static inline uint64_t clock_until_beat_us(struct instant now, uint64_t period_us, struct instant beat)
{
    uint64_t half = period_us / 2, phase = beat.us % period_us;

    return half + period_us - 1 - (now.us + half + period_us - 1 - phase) % period_us;
}

#endif
