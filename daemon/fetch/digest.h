/* SPDX-License-Identifier: MIT
 *
 * Hashes of files, as hubs announce them, and of blocks (SHA-256). One thread for each digest. */
#ifndef DAEMON_FETCH_DIGEST_H
#define DAEMON_FETCH_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/fetch/hub_listing.h"

enum { DIGEST = 32, DIGEST_HEX = 65 /* with its end */ };

struct digest;

struct digest *digest_new(void); /* SHA-256 */
/* Of that file, as its kind of hash wants it. Unknown kinds are SHA-256. */
struct digest *digest_new_of(const struct hub_file *file);
void digest_add(struct digest *d, const void *bytes, size_t n);
/* Of a SHA-256: what was added, and begins the next one. */
void digest_take(struct digest *d, uint8_t ret[static DIGEST]);
/* What was added, as hexadecimal digits. Frees d. */
void digest_end(struct digest *d, char ret[static DIGEST_HEX]);
void digest_free(struct digest *d); /* NULL is fine */

void digest_hex(char ret[static DIGEST_HEX], const uint8_t digest[static DIGEST]);

#endif
