/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/serve/desk_stats.h"

void histogram_add(struct histogram *h, const double ends[DESK_BUCKETS], double value)
{
    size_t i = 0;
    while (i < DESK_BUCKETS && value > ends[i])
        i++;
    h->counts[i]++;
    h->sum += value;
}
