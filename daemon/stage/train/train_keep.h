/* SPDX-License-Identifier: MIT
 *
 * When copies go to the disks of all nodes: with a save, once all ranks have answered for the time
 * before. So a crash of all nodes at any moment finds the same step whole on all disks. Main thread
 * of rank 0. */
#ifndef DAEMON_STAGE_TRAIN_KEEP_H
#define DAEMON_STAGE_TRAIN_KEEP_H

#include "daemon/stage/plan/stage_head.h"
#include "net/clock.h"

struct train_keep {
    const struct head *head; /* borrowed */
    uint64_t step;           /* of the last time; 0: there was none */
    struct instant asked;
    unsigned given; /* copies that were made since */
    bool is_small;  /* they may be made while the disks write */
    bool is_said;   /* that they are on all disks */
};

int train_keep_init(struct train_keep *k, const struct head *h, struct err *err);
/* At a save; held: the step of the newest copies, 0: there are none. True: they are to go to the
 * disks now. */
bool train_keep_begins(struct train_keep *k, uint64_t held);
/* Would new copies be written over those that the disks are still taking? Else they count. */
bool train_keep_forbids(const struct train_keep *k);
void train_keep_given(struct train_keep *k);
/* True once after each time: all disks have them. */
bool train_keep_is_whole(struct train_keep *k);

#endif
