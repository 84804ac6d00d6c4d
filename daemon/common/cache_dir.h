/* SPDX-License-Identifier: MIT
 *
 * The folder in which a stage process keeps results that take long to compute. Any thread. */
#ifndef DAEMON_CACHE_DIR_H
#define DAEMON_CACHE_DIR_H

#include <stddef.h>

#include "engine/err.h"

/* The folder for `what` ("weights", "costs"), which need not exist yet: below what systemd set
 * aside for the service, else below the user's cache. −ENOENT: there is neither. */
int cache_dir(char *ret, size_t size, const char *what, struct err *err);

#endif
