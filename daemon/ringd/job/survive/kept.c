/* SPDX-License-Identifier: MIT */
#include "daemon/ringd/job/survive/kept.h"

bool kept_hear(struct kept_step *k, size_t rank, size_t ranks, uint64_t step, bool is_whole)
{
    const uint32_t bit = UINT32_C(1) << rank, all = ranks < 32 ? (UINT32_C(1) << ranks) - 1 : UINT32_MAX;
    if (step < k->step || (step == k->step && k->answered & bit))
        return false; /* too late, or heard twice */
    if (step > k->step)
        *k = (struct kept_step){.step = step, .is_said = k->is_said};
    k->answered |= bit;
    k->failed |= is_whole ? 0 : bit;
    return k->answered == all;
}
