/* SPDX-License-Identifier: MIT
 *
 * The number of this life of the daemon, and node ids as text. Loop thread. */
#ifndef DAEMON_IDENTITY_H
#define DAEMON_IDENTITY_H

#include <jansson.h>
#include <stdint.h>

#include "engine/err.h"

/* STATE/boot: a number for this life of the daemon, larger than that of every life before, also
 * when the clock was set back meanwhile: the wall clock in µs, or one more than the last. −errno
 * with a sentence: it is not on disk, and *ret good for as long as clocks go forward. */
int identity_boot(uint64_t *ret, const char *state_dir, uint64_t wall_us, struct err *err);
/* 32 lower-case hex digits; buf of 33. */
void id_hex(char buf[33], const uint8_t id[static 16]);
json_t *id_json(const uint8_t id[static 16]);         /* the same, as a new JSON string; NULL: no memory */
int id_parse(uint8_t id[static 16], const char *hex); /* −EINVAL */

#endif
