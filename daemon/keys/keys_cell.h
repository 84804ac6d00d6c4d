/* SPDX-License-Identifier: MIT
 *
 * What is left to ringd-keys once it has its keys: memory, and the one socket. It cannot be left
 * again. Called by main.c. */
#ifndef DAEMON_KEYS_CELL_H
#define DAEMON_KEYS_CELL_H

#include "engine/err.h"

/* First of all, before there is a secret: no core, and no other process looks inside. */
void keys_cell_begin(void);
/* No file can be opened, no system call made but those that a request takes, and no page of memory
 * goes into a core. What a kernel lacks is left out. −errno and a sentence: the process has to
 * end. */
int keys_cell_enter(struct err *err);

#endif
