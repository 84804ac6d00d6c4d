/* SPDX-License-Identifier: MIT
 *
 * Files on this node's disk with copies of what jobs train: STATE/held/HEAD-JOB/N, which a stage
 * process writes (daemon/stage/hold/held_file.h) and a later one of the same job reads, after a
 * crash of all nodes, too. This process opens, names and removes them, and never looks into them.
 * A file gets its name when a step is whole in it. Those of a job are kept until the job is over.
 *
 * Files are opened when the daemon starts; later a thread waits for the disk. So that no stage
 * waits for it, two files without a name lie ready. At most MOST_TASKS wait for the thread; what is
 * more is left undone: a file that stays is removed as one that nobody asks for. Loop thread. */
#ifndef DAEMON_HELD_DISK_H
#define DAEMON_HELD_DISK_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/err.h"

struct held_disk;
struct mailbox;

enum { HELD_DISK_MAX = 2 /* files of earlier processes of a job */, HELD_DISK_DAYS = 30 };

struct held_disk_setup {
    const char *state_dir;   /* borrowed, as the next */
    struct mailbox *mailbox; /* NULL: no thread, and so no files to write */
    /* The file in which the step of this event is whole has its name; or "error" is in the event.
     * event: borrowed. */
    void (*kept)(void *owner, json_t *event);
    void *owner;
};
/* ret_removed: how many jobs had files here that nobody asked for in HELD_DISK_DAYS, and have none
 * any more. −errno: there can be no files here, and err says why. */
int held_disk_open(struct held_disk **ret, const struct held_disk_setup *setup, size_t *ret_removed,
                   struct err *err);
void held_disk_free(struct held_disk *d);

/* All that follows takes d NULL, which has nothing. A stage process of the job begins. before: the
 * files that earlier ones left, the oldest first; returns how many. ret_new: the one to be written,
 * or −1. All are borrowed until the next call. */
size_t held_disk_begin(struct held_disk *d, const uint8_t head[16], uint64_t job, int before[HELD_DISK_MAX],
                       int *ret_new);
/* The stage's event "kept": `kept` follows. Other than that it does nothing with the event. */
void held_disk_kept(struct held_disk *d, const json_t *event);
/* The file of this process has a step that all ranks have: earlier ones go. */
void held_disk_settled(struct held_disk *d);
/* The job is over. */
void held_disk_drop(struct held_disk *d, const uint8_t head[16], uint64_t job);

#endif
