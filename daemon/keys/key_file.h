/* SPDX-License-Identifier: MIT
 *
 * DIR/identity: the seed of the node's key pairs, and beside it a public key that shows that
 * neither is damaged. Made at the first start, 0600. Called by main.c before anything is asked.
 * */
#ifndef DAEMON_KEY_FILE_H
#define DAEMON_KEY_FILE_H

#include "engine/err.h"
#include "net/auth.h"

/* ret is given by the caller in memory that may hold a secret. −errno and a sentence. */
int key_file_load(uint8_t ret[static AUTH_SEED], const char *dir, struct err *err);

#endif
