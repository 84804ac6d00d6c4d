/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/hub/hops.h"

#include <stdint.h>

enum { WHOLE_ONES = 2, PARTS = 7 /* relays are few, and jobs need them as well */ };

void hops_from(const bool *joined, size_t n, size_t start, size_t *ret)
{
    bool more = true;
    for (size_t i = 0; i < n; i++)
        ret[i] = i == start ? 0 : SIZE_MAX;
    while (more) {
        more = false;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < n && ret[i] != SIZE_MAX; k++)
                if (ret[k] > ret[i] + 1 && joined[i * n + k]) {
                    ret[k] = ret[i] + 1;
                    more = true;
                }
    }
}

size_t hops_nearest(const size_t *far, const bool *marked, size_t n, size_t *ret, size_t most)
{
    size_t found = 0;
    while (found < most) {
        size_t best = n;
        for (size_t i = 0; i < n; i++) {
            bool is_taken = !marked[i];
            for (size_t k = 0; k < found; k++)
                is_taken |= ret[k] == i;
            if (!is_taken && (best == n || far[i] < far[best]))
                best = i;
        }
        if (best == n)
            break;
        ret[found++] = best;
    }
    return found;
}

size_t hops_sources(const size_t *far, const bool *marked, size_t n, bool are_whole, size_t *ret, size_t most)
{
    size_t found = hops_nearest(far, marked, n, ret, are_whole && most > WHOLE_ONES ? WHOLE_ONES : most);
    while (found > PARTS && far[ret[found - 1]] > 1)
        found--;
    return found;
}
