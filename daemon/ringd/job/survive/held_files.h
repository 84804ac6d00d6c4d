/* SPDX-License-Identifier: MIT
 *
 * The memory files in which the stage processes of a job leave copies of what they train
 * (daemon/stage/hold): this process owns them, so that they outlive a stage process, and never
 * looks into them. Loop thread. */
#ifndef DAEMON_HELD_FILES_H
#define DAEMON_HELD_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HELD_FILES_MAX = 4 }; /* as many as a stage process takes */

struct held_files {
    uint8_t head[16]; /* of the job: who heads it, its number there, and when it was submitted */
    uint64_t job, submitted;
    struct {
        int fd; /* owned */
        bool is_whole;
    } file[HELD_FILES_MAX]; /* the last is the one that is written */
    size_t n;
    bool has_run; /* the last one's process: else it has left nothing there */
};

bool held_files_are_of(const struct held_files *f, const uint8_t head[16], uint64_t job, uint64_t submitted);
/* A stage process of the job begins, and gets a new file beside those that earlier ones left; one
 * that never ran left nothing. What was left of another job goes. −errno: there is no file, and
 * nothing has changed for the job's own. */
int held_files_begin(struct held_files *f, const uint8_t head[16], uint64_t job, uint64_t submitted);
/* The process of the last file runs, and may write it. */
void held_files_run(struct held_files *f);
/* It has left there all copies of a step that this node is to have. */
void held_files_whole(struct held_files *f);
/* All but the last are not needed any more. */
void held_files_settled(struct held_files *f);
void held_files_drop(struct held_files *f);

#endif
