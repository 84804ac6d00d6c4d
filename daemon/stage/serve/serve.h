/* SPDX-License-Identifier: MIT
 *
 * A job that serves: requests come in through the daemon, and microbatches with rows of all of
 * them go round the ring (continuous batching; Yu et al., "Orca", OSDI 2022, section 4). Main
 * thread of rank 0. */
#ifndef DAEMON_SERVE_H
#define DAEMON_SERVE_H

#include "daemon/stage/stage_drive.h"

/* Until the daemon wants no more. As head_generate; there is no result. */
int head_serve(struct head *h, struct runner *r, json_t **ret_result, struct err *err);

#endif
