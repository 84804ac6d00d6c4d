/* SPDX-License-Identifier: MIT
 *
 * The inside of all workers, shared by workers.c (who gets a place, and which one is meant) and
 * workers_show.c (what others see of them). */
#ifndef DAEMON_WORKERS_IMPL_H
#define DAEMON_WORKERS_IMPL_H

#include "daemon/ringd/job/worker_impl.h"
#include "daemon/ringd/job/workers.h"

struct workers {
    struct workers_setup setup;
    struct worker *at[WORKERS_MAX]; /* owned, each */
    size_t n;
    uint64_t used[WORKERS_MAX], uses; /* when each was given its job, by number */
};

/* Bytes of what that rank maps which stages here were promised already, but for those of `but`. */
uint64_t workers_shared(const struct workers *ws, const struct worker *but, const struct mapped *with);

#endif
