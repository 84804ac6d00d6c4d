/* SPDX-License-Identifier: MIT
 *
 * A file on the disk with copies of what a job trains: of two steps, written by turns, so that one
 * stays whole while the other is written. A turn has both parts of a memory file (held_memory.h),
 * of the same step, and a hash over all of it. A turn that a crash has torn is so recognised when
 * it is read. Any thread. */
#ifndef DAEMON_STAGE_HELD_FILE_H
#define DAEMON_STAGE_HELD_FILE_H

#include "daemon/stage/hold/held_memory.h"

/* What is written: the parts of one step; all is borrowed. */
struct held_turn {
    uint64_t job; /* when it was submitted: numbers of jobs may come again after a loss */
    uint64_t step;
    const struct held_part *part[HELD_OF]; /* their units and bytes */
    const uint8_t *values[HELD_OF];        /* [part->bytes] */
    /* Were the values written meanwhile? Asked before the turn counts as whole. */
    bool (*is_torn)(void *owner);
    void *owner;
};

/* Writes one of HELD_TURNS and waits for the disk. −errno, −ECANCELED if the values were torn: then
 * the turn is empty. All turns of a file have one size. */
int held_file_write(int fd, size_t turn, const struct held_turn *from);
/* Maps what is whole of that job in a file, as parts; the rest counts as empty. False: the file is
 * none of these. */
bool held_file_open(struct held_memory *ret, int fd, const struct held_shape *shape, uint64_t job);

#endif
