/* SPDX-License-Identifier: MIT
 *
 * See share.h. */
#include "num/share.h"

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

struct share share_of(size_t n, size_t step, size_t threads, size_t thread)
{
    const size_t steps = (n + step - 1) / step;
    const size_t from = min_size(n, steps * thread / threads * step),
                 end = min_size(n, steps * (thread + 1) / threads * step);
    return (struct share){from, end - from};
}

struct share share_cut(const struct cut *c, size_t i)
{
    const size_t steps = (c->n + c->step - 1) / c->step;
    size_t at = 0, each = 0;
    for (; at < steps; at += c->threads * each, i -= c->threads) {
        each = c->threads > 1 ? (steps - at) / (2 * c->threads) : steps;
        each = each ? each : 1;
        if (i < c->threads)
            break;
    }
    const size_t from = min_size(c->n, (at + i * each) * c->step);
    return (struct share){from, min_size(c->n - from, each * c->step)};
}

size_t share_count(const struct cut *c)
{
    size_t n = 0;
    while (share_cut(c, n).n)
        n++;
    return n;
}
