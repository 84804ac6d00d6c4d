/* SPDX-License-Identifier: MIT
 *
 * What is left to ringd-fetch before it reads the first byte of a hub: the network, the folder of
 * models, and what names and certificates are looked up in. Called once, by main. */
#ifndef DAEMON_FETCH_CELL_H
#define DAEMON_FETCH_CELL_H

#include <stdbool.h>

#include "engine/err.h"

/* No core, no new privileges, no descriptor but the socket. */
void fetch_cell_begin(void);
/* models: an open directory; cache: a path, NULL: none. has_network: names and certificates can be
 * looked up; else the models alone are left. −errno and a sentence. */
int fetch_cell_enter(int models, const char *cache, bool has_network, struct err *err);
/* Beneath what computes: its turns of the CPU and of the disk come after theirs. */
void fetch_cell_step_back(void);

#endif
