/* SPDX-License-Identifier: MIT
 *
 * Inside the HTTP API: what its handlers work with (api.c, api_*.c). */
#ifndef DAEMON_API_IMPL_H
#define DAEMON_API_IMPL_H

#include "daemon/ringd/api/api_setup.h"

struct api_status;

struct api {
    struct api_setup setup;
    struct api_status *status; /* owned: the answer that is asked for most */
};

#endif
