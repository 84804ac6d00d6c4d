/* SPDX-License-Identifier: MIT
 *
 * Files that were opened for this process by somebody who may read what it may not: each path with
 * its descriptor. They stand before the file system, as its own view of it does: one table for the
 * process. main fills it before there is a second thread; from then on nothing in it changes.
 *
 * A folder that was lent holds the files that were lent below it, and no others. Paths are compared
 * as texts, a run of slashes being one. */
#ifndef FILE_LENT_H
#define FILE_LENT_H

#include <stddef.h>

/* The path is copied; fd is taken if all went well. −ENOMEM. */
int lent_add(const char *path, int fd);
int lent_add_folder(const char *path);

/* The descriptor of this file, borrowed: read it with pread or mmap, for its offset is shared.
 * −EISDIR: a folder that was lent; −ENOENT: such a folder has no file of this name; −ENODATA:
 * nothing is known of this path, ask the file system. */
int lent_find(const char *path);

/* Calls for each file that was lent right in `dir`, with its name and its descriptor. Returns how
 * many there are. */
size_t lent_each(const char *dir, void (*each)(void *arg, const char *name, int fd), void *arg);

/* The smallest of the descriptors that is at least `fd`; −1: there is none. */
int lent_next(int fd);

/* Tests: closes all of them and forgets. */
void lent_clear(void);

#endif
