/* SPDX-License-Identifier: MIT
 *
 * Mapped files that outlive one opening: a process that opens the same model again gets the
 * mappings it had, with all pages that it has touched. Owned by whoever opens several times; one
 * thread. */
#ifndef FILE_MAPS_H
#define FILE_MAPS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct maps;

/* Changes once somebody writes to the file, or puts another in its place. */
struct maps_stamp {
    uint64_t device, inode;
    struct timespec written, changed;
};

struct maps *maps_new(void);    /* NULL: out of memory */
void maps_free(struct maps *m); /* when all were given back */

/* The whole file, to be read: a mapping of it that is there, if the file is the same, else a new
 * one. m NULL: always a new one. −errno of mmap. */
int maps_take(struct maps *m, void **ret, int fd, size_t bytes, const struct maps_stamp *stamp);
/* With `bytes` as it was taken. It stays mapped for the next one; m NULL: it does not. */
void maps_give_back(struct maps *m, void *at, size_t bytes);
/* Unmaps what nobody has taken. */
void maps_trim(struct maps *m);

#endif
