/* SPDX-License-Identifier: MIT
 *
 * The token that allows changes over TCP: the first line of a file that only its owner reads. Loop
 * thread. */
#ifndef DAEMON_IDENTITY_TOKEN_H
#define DAEMON_IDENTITY_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/err.h"

enum { TOKEN_ROOM = 256 };

/* Reads it; where there is no such file it is made if `make`. */
int token_load(char ret[TOKEN_ROOM], const char *path, bool make, struct err *err);
/* A new one takes the place of whatever the file holds. */
int token_renew(char ret[TOKEN_ROOM], const char *path, struct err *err);
void token_wipe(char token[TOKEN_ROOM]);

#endif
