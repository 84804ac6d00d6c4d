/* SPDX-License-Identifier: MIT
 *
 * The two halves of a cell: files (cell_files.c) and system calls (cell_calls.c). */
#ifndef DAEMON_CELL_IMPL_H
#define DAEMON_CELL_IMPL_H

#include "daemon/stage/cell/cell.h"

/* A process has so many open files at most: the shards of a model, and the sockets of its lanes. */
enum { CELL_FILE_BITS = 12 };

/* Landlock. Descriptors it opens stay open where the rule would be lost with them. */
int cell_close_files(const struct cell_rules *rules, struct err *err);

/* seccomp. With `binds_threads` the threads of this process may be bound to processors. */
int cell_close_calls(bool binds_threads, struct err *err);

#endif
