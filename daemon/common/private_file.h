/* SPDX-License-Identifier: MIT
 *
 * How secrets are kept: as files only their owner can read, replaced whole or not at all. Any
 * thread; waits for the disk. */
#ifndef DAEMON_PRIVATE_FILE_H
#define DAEMON_PRIVATE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/err.h"

/* Up to cap bytes of a file; −ENOENT as is, everything else as a sentence. One that others can read
 * is refused. */
ssize_t private_read(const char *path, uint8_t *to, size_t cap, struct err *err);
/* 0600; the old contents or the new are there at any time, power cuts included. */
int private_write(const char *path, const uint8_t *data, size_t n, struct err *err);

#endif
