/* SPDX-License-Identifier: MIT
 *
 * The node's own key pair, and how secrets are kept: as files only their owner can read, replaced
 * whole or not at all. Loop thread. */
#ifndef DAEMON_IDENTITY_H
#define DAEMON_IDENTITY_H

#include <sys/types.h>

#include "engine/err.h"
#include "net/auth.h"

/* STATE/identity: made on first start, 0600. */
int identity_load(struct auth_identity *ret, const char *state_dir, struct err *err);
/* STATE/boot: a number for this life of the daemon, larger than that of every life before, also
 * when the clock was set back meanwhile: the wall clock in µs, or one more than the last. −errno
 * with a sentence: it is not on disk, and *ret good for as long as clocks go forward. */
int identity_boot(uint64_t *ret, const char *state_dir, uint64_t wall_us, struct err *err);
/* Up to cap bytes of a file; −ENOENT as is, everything else as a sentence. One that others can read
 * is refused. */
ssize_t private_read(const char *path, uint8_t *to, size_t cap, struct err *err);
/* 0600; the old contents or the new are there at any time, power cuts included. */
int private_write(const char *path, const uint8_t *data, size_t n, struct err *err);

/* 32 lower-case hex digits; buf of 33. */
void id_hex(char buf[33], const uint8_t id[static 16]);
int id_parse(uint8_t id[static 16], const char *hex); /* −EINVAL */

#endif
