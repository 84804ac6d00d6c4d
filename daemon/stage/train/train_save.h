/* SPDX-License-Identifier: MIT
 *
 * Saving a training job: a round brings the values to rank 0, and the saver (saver.h) writes them
 * while the next steps go on. What cannot be written is said once, and tried again when the next
 * save is due. Main thread of rank 0; only the saver's words come from its thread. */
#ifndef DAEMON_STAGE_TRAIN_SAVE_H
#define DAEMON_STAGE_TRAIN_SAVE_H

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/stage_runner.h"
#include "daemon/stage/train/saver.h"
#include "daemon/stage/train/train_commit.h"
#include "net/clock.h"

/* What is saved of an adapter. */
struct train_save_of {
    bool is_wanted, is_best; /* is_best: in the folder "best" as well */
    uint64_t step;           /* its last one */
    json_t *so_far;          /* borrowed: what the run has decided so far, for one that resumes it */
};

struct train_save {
    struct head *head; /* borrowed, as the next */
    struct runner *runner;
    struct train_commit commit; /* the saver's thread, and before the first save the main thread */
    struct saver *saver;        /* owned */
    struct instant begun;       /* the last save, or the job */
    bool is_delayed;            /* the saver's thread alone: the last save failed, which was said */
    /* The last save: */
    uint64_t step;
    bool keeps;                                  /* the next round of this save tells all ranks */
    struct train_save_of last[JOB_MAX_ADAPTERS]; /* so_far is owned */
};

/* log: borrowed. */
int train_save_init(struct train_save *t, struct head *h, struct runner *r, struct stage_log *log,
                    struct err *err);
/* Gives up what is not written. */
void train_save_done(struct train_save *t);

/* A save of the adapters begins: of [head->nadapters]. keeps: all ranks put their newest copies
 * onto their own disks, too. It is on the disk when the event "saved"
 * says so. Only errors of the round are returned, and of a disk that takes nothing for minutes. */
int train_save_all(struct train_save *t, uint64_t step, const struct train_save_of *of, bool keeps,
                   struct err *err);
/* Where the job could go on as well: waits for the disk, and says whether the last save is on
 * it. */
bool train_save_is_kept(struct train_save *t);
/* The end of a job: waits for the disk. A last save that failed is kept under the daemon's state;
 * then the sentence says where. */
int train_save_finish(struct train_save *t, struct err *err);
/* The end of a job that failed: what was handed over has a moment to reach the disk. */
void train_save_leave(struct train_save *t);

#endif
