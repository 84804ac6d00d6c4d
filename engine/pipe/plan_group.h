/* SPDX-License-Identifier: MIT
 *
 * The groups in which the gradients of a step's microbatches are added up (num/sum_tree.h).
 * Pure. */
#ifndef PIPE_PLAN_GROUP_H
#define PIPE_PLAN_GROUP_H

#include <stddef.h>

/* The groups of a step's m microbatches, as equal as can be: which one a microbatch is of, and the
 * first of a group; that of group `groups` is m. */
static inline size_t plan_group(size_t mb, size_t m, size_t groups)
{
    return mb * groups / m;
}
static inline size_t plan_group_first(size_t group, size_t m, size_t groups)
{
    return (group * m + groups - 1) / groups;
}

#endif
