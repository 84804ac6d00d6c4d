/* SPDX-License-Identifier: MIT
 *
 * Takes the files that a client of the daemon opened for its job: the process may not open them by
 * itself. Called by main.c before the cell, on the only thread there is then. */
#ifndef DAEMON_STAGE_LENT_H
#define DAEMON_STAGE_LENT_H

#include <jansson.h>

#include "engine/err.h"

/* message: {"do": "lend", "files": [path, …], "folders": [path, …]}; a descriptor of each file
 * follows on the socket, in the order of the list. From then on lent.h knows them. −errno. */
int stage_lent_take(int sock, const json_t *message, struct err *err);

#endif
