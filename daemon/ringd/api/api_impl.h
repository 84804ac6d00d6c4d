/* SPDX-License-Identifier: MIT
 *
 * Inside the HTTP API: what its handlers work with (api.c, api_*.c). */
#ifndef DAEMON_API_IMPL_H
#define DAEMON_API_IMPL_H

#include <sys/queue.h>

#include "daemon/ringd/api/api_setup.h"

struct api_status;
struct store_wait;

struct api {
    struct api_setup setup;
    struct api_status *status;     /* owned: the answer that is asked for most */
    LIST_HEAD(, store_wait) waits; /* owned: plans whose model is on its way */
};

#endif
