/* SPDX-License-Identifier: MIT
 *
 * One file of a model, from the hub to the disk: asked for again from where it broke off, until it
 * is whole and its hash is right. One thread. */
#ifndef DAEMON_PULL_FILE_H
#define DAEMON_PULL_FILE_H

#include <stdint.h>

#include "daemon/fetch/digest.h"
#include "daemon/fetch/pull_bytes.h"

/* Where the listing does not say size and hash: asks the hub. 0, or an error and a sentence. */
int pull_file_look(const struct pull_source *from, struct hub_file *file, struct err *err);
/* The file, into the open directory. come: so many bytes more are there; `back` of those before are
 * not, for the file had to begin again. blocks: as for part_file_open. 0; −ECANCELED; an error and
 * a sentence. */
int pull_file(const struct pull_source *from, int folder, const struct hub_file *file,
              uint8_t (*blocks)[DIGEST], void (*come)(void *owner, uint64_t bytes, uint64_t back),
              void *owner, struct err *err);

#endif
