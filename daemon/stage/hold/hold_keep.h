/* SPDX-License-Identifier: MIT
 *
 * Puts copies of a step onto this node's disk (held_file.h), on a thread of its own, while the
 * steps go on. One step at a time: the head asks for the next when all ranks have answered. Small
 * copies are copied once more, so that the main thread may write the memory file; large ones are
 * read from there, and what is written meanwhile is not put onto the disk. */
#ifndef DAEMON_STAGE_HOLD_KEEP_H
#define DAEMON_STAGE_HOLD_KEEP_H

#include "daemon/stage/hold/held_file.h"

struct hold_keep;

struct hold_keep_setup {
    int fd;       /* of the file; borrowed, which nobody else writes */
    uint64_t job; /* when it was submitted */
    /* The step is on the disk; or it is not, and `why` says why not. Once for each. On the thread,
     * and on the caller's where it cannot be begun. */
    void (*done)(void *owner, uint64_t step, const char *why);
    void *owner;
};
/* Starts the thread, and empties the file. */
int hold_keep_new(struct hold_keep **ret, const struct hold_keep_setup *setup, struct err *err);
/* What is being written gets a few seconds; a thread that hangs in the disk is left behind. */
void hold_keep_free(struct hold_keep *k);

/* The parts of one turn of the memory file, which are whole. */
void hold_keep_begin(struct hold_keep *k, const struct held_memory *from, size_t turn);
/* Before the memory of a turn is written; k may be NULL. */
void hold_keep_touch(struct hold_keep *k, size_t turn);
#endif
