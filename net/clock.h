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

#endif
