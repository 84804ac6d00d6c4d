/* SPDX-License-Identifier: MIT
 *
 * Makes, names and removes files of copies (held_disk.h) on a thread of its own, because a disk may
 * hang. At most MOST_TASKS wait; what is more is refused. Loop thread, to which the answers come
 * through the mailbox. */
#ifndef DAEMON_DISK_THREAD_H
#define DAEMON_DISK_THREAD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/err.h"

struct disk_thread;
struct mailbox;

struct disk_thread_setup {
    struct mailbox *mailbox; /* borrowed */
    /* fd: open for reading and writing, the receiver's; or −errno. */
    void (*made)(void *owner, uint64_t number, int fd);
    /* r: 0 once the name is on the disk, or −errno; event: as it was given, borrowed. */
    void (*named)(void *owner, uint64_t number, int r, json_t *event);
    void *owner;
};
int disk_thread_new(struct disk_thread **ret, const struct disk_thread_setup *setup, struct err *err);
/* Does what waits; a thread that hangs for 2 s is left behind. NULL: nothing. */
void disk_thread_free(struct disk_thread *t);

/* False: too much waits, and nothing follows. Paths are copied. */
bool disk_thread_make(struct disk_thread *t, const char *path, uint64_t number);
/* The folder of `to` is made. Takes the event's reference. */
bool disk_thread_name(struct disk_thread *t, const char *from, const char *to, uint64_t number,
                      json_t *event);
/* And its folder, if nothing else is in it. Takes fd over if it returns true. */
bool disk_thread_remove(struct disk_thread *t, const char *path, int fd);

#endif
