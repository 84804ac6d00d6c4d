/* SPDX-License-Identifier: MIT
 *
 * What sched.c shares with those who fill its lists: sched_order.c (the built-in orders),
 * sched_make.c (which of them) and sched_text.c (those of the user). */
#ifndef PIPE_SCHED_IMPL_H
#define PIPE_SCHED_IMPL_H

#include "pipe/sched.h"

/* Room for that many tasks on each rank, none in it yet; the placement is still to be filled in.
 * NULL: no memory. */
struct sched *sched_new(size_t ranks, size_t stages, size_t microbatches, size_t tasks);

/* Fills one rank's list, which has room for three tasks per stage of the rank and microbatch. */
typedef void sched_order_fn(struct sched_list *list, const struct sched *sched, uint32_t rank);
sched_order_fn order_naive, order_gpipe, order_1f1b, order_eager, order_interleaved, order_looped,
    order_zb_h1, order_zb_h2, order_zbv, order_v_1f1b;

#endif
