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
/* Until the next beat of a process's clock that is at least half a period away. All timers that
 * follow it go off together, so a process with many of them wakes up once. Processes that `boot` at
 * nearly the same time beat at different times. */
static inline uint64_t clock_until_beat_us(struct instant now, uint64_t period_us, uint64_t boot)
{
    uint64_t phase = (boot * UINT64_C(0x9e3779b97f4a7c15) >> 32) % period_us, half = period_us / 2;

    return half + period_us - 1 - (now.us + half + period_us - 1 - phase) % period_us;
}

#endif
