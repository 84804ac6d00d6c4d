/* SPDX-License-Identifier: MIT
 *
 * See share.h. */
#include "num/share.h"

#include <stdatomic.h>
#include <stdbool.h>

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

void pile_set(struct pile *p, size_t n, size_t step, size_t threads)
{
    p->n = n;
    p->step = step;
    p->threads = threads;
    atomic_init(&p->left, (n + step - 1) / step);
}

/* Steps for a thread of that side, out of those from … end−1. */
static size_t take_of(const struct pile *p, size_t from, size_t end, bool odd)
{
    const size_t all = (p->n + p->step - 1) / p->step, half = all / 2;
    const size_t own = odd ? end - half : half - from, left = end - from;
    if (p->threads < 2)
        return left;
    const size_t each =
        (odd ? end > half : from < half) ? min_size(own, left) / p->threads : left / (2 * p->threads);
    return each ? each : 1;
}

struct share pile_take(struct pile *p, size_t thread)
{
    const bool odd = thread % 2;
    uint64_t left = atomic_load_explicit(&p->left, memory_order_relaxed);
    for (;;) {
        const size_t from = left >> 32, end = left & UINT32_MAX;
        if (from == end)
            return (struct share){p->n, 0};
        const size_t n = take_of(p, from, end, odd), at = odd ? end - n : from;
        const uint64_t rest = odd ? (uint64_t)from << 32 | at : (uint64_t)(from + n) << 32 | end;
        if (atomic_compare_exchange_weak_explicit(&p->left, &left, rest, memory_order_relaxed,
                                                  memory_order_relaxed))
            return (struct share){at * p->step, min_size(p->n - at * p->step, n * p->step)};
    }
}
