/* SPDX-License-Identifier: MIT
 *
 * Whether a model still has the bytes that came. One thread. */
#ifndef DAEMON_FETCH_VERIFY_H
#define DAEMON_FETCH_VERIFY_H

#include <stdint.h>

#include "engine/err.h"

/* Reads all that is here of the files of a model, and compares their hashes, and those of their
 * blocks where the list of these is here. Of a file that is here in part, it compares the blocks
 * that are. −ENOENT: it is not there, −EBADMSG … with a sentence. */
int verify_model(int dir, const char *model,
                 void (*progress)(void *owner, uint64_t done, uint64_t total, const char *file), void *owner,
                 struct err *err);

#endif
