/* SPDX-License-Identifier: MIT
 *
 * See share.h. */
#include "num/share.h"

#include "num/sizes.h"

enum {
    SMALL_PRODUCT = 1 << 20, /* multiplications for a thread below which waking it costs more than it saves */
};

size_t share_threads(size_t threads, size_t multiplications)
{
    return multiplications > threads * SMALL_PRODUCT ? threads : 1;
}

struct share share_of(size_t n, size_t step, size_t threads, size_t thread)
{
    const size_t steps = (n + step - 1) / step;
    const size_t from = min_size(n, steps * thread / threads * step),
                 end = min_size(n, steps * (thread + 1) / threads * step);
    return (struct share){from, end - from};
}

/* Steps of each share of a round that begins where so many are left. */
static size_t round_each(const struct cut *c, size_t left)
{
    const size_t each = c->threads > 1 ? left / (2 * c->threads) : left;
    return each ? each : 1;
}

struct share share_cut(const struct cut *c, size_t i)
{
    const size_t steps = (c->n + c->step - 1) / c->step;
    size_t at = 0, each = 0;
    for (; at < steps; at += c->threads * each, i -= c->threads) {
        each = round_each(c, steps - at);
        if (i < c->threads)
            break;
    }
    const size_t from = min_size(c->n, (at + i * each) * c->step);
    return (struct share){from, min_size(c->n - from, each * c->step)};
}

size_t share_count(const struct cut *c)
{
    const size_t steps = (c->n + c->step - 1) / c->step;
    size_t n = 0;
    for (size_t at = 0, each; at < steps; at += c->threads * each) {
        each = round_each(c, steps - at);
        n += min_size(c->threads, steps - at); /* one for each thread, but for the last round */
    }
    return n;
}
