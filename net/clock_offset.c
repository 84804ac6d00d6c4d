/* SPDX-License-Identifier: MIT
 *
 * The middle of the two ways is the estimate, half of the round trip its bound: all the delay may
 * have been on one of them. To that comes what the clocks may have run apart meanwhile, on the way
 * and while the answer was held back. */
#include "clock_offset.h"

#include <errno.h>
#include <stdlib.h>

enum { GRAIN_US = 1 }; /* each time is the last whole microsecond */

static uint64_t drift_us(uint64_t in_us)
{
    return in_us / (1000000 / CLOCK_OFFSET_DRIFT_PPM) + 1;
}

/* Two bounds of one distance that have nothing in common: one of the clocks was set meanwhile. */
static bool disagree(const struct clock_offset_bound *a, const struct clock_offset_bound *b,
                     uint64_t between_us)
{
    return (uint64_t)llabs(a->us - b->us) > a->error_us + b->error_us + drift_us(between_us);
}

int clock_offset_learn(struct clock_offset *a, const struct clock_offset_times *t)
{
    const uint64_t most = INT64_MAX / 4;
    if (t->sent.us > t->back.us || t->came > t->left || t->back.us > most || t->left > most)
        return -EINVAL;
    const uint64_t away = t->back.us - t->sent.us, held = t->left - t->came;
    if (held > away + drift_us(away)) /* an answer that was held back for longer than we waited for it */
        return -EINVAL;
    const int64_t there = (int64_t)t->came - (int64_t)t->sent.us,
                  back = (int64_t)t->left - (int64_t)t->back.us;
    const struct clock_offset_bound is = {(there + back) / 2,
                                          (held < away ? away - held : 0) / 2 + drift_us(away) + GRAIN_US};
    for (size_t i = 0; i < a->n && i < CLOCK_OFFSET_SAMPLES; i++)
        if (disagree(&is, &a->samples[i].is, clock_since_us(t->back, a->samples[i].at)))
            a->n = 0;
    a->samples[a->n % CLOCK_OFFSET_SAMPLES].is = is;
    a->samples[a->n++ % CLOCK_OFFSET_SAMPLES].at = t->back;
    return 0;
}

bool clock_offset_at(const struct clock_offset *a, struct instant now, struct clock_offset_bound *ret)
{
    for (size_t i = 0; i < a->n && i < CLOCK_OFFSET_SAMPLES; i++) {
        struct clock_offset_bound is = a->samples[i].is;
        is.error_us += drift_us(clock_since_us(now, a->samples[i].at));
        if (!i || is.error_us < ret->error_us)
            *ret = is;
    }
    return a->n > 0;
}
