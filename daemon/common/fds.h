/* SPDX-License-Identifier: MIT
 *
 * How many file descriptors this process may have. A node that runs out of them refuses connections
 * and cannot start stages, so the limit is raised and judged once, at start. */
#ifndef DAEMON_FDS_H
#define DAEMON_FDS_H

#include <stddef.h>

#include "engine/err.h"

enum {
    FDS_LEAST = 64,    /* the daemon's own files and a few connections */
    FDS_ENOUGH = 1024, /* all dashboards, neighbours and data connections there can be */
};

/* Raises the soft limit to the hard one. −EINVAL: fewer than FDS_LEAST are allowed. ret_note is "",
 * or a warning: fewer than FDS_ENOUGH are allowed. */
int fds_raise(char ret_note[256], struct err *err);

/* The current limit, at most SIZE_MAX. */
size_t fds_allowed(void);

#endif
