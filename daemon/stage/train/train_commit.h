/* SPDX-License-Identifier: MIT
 *
 * Before a step is saved, what was said up to it is on the disk: of the file of --log, and of the
 * head. So of a step that is saved nothing has to be said again. The saver's thread waits for that,
 * and no step does; before the first save it may be the main thread. */
#ifndef DAEMON_STAGE_TRAIN_COMMIT_H
#define DAEMON_STAGE_TRAIN_COMMIT_H

#include "daemon/stage/plan/stage_head.h"
#include "daemon/stage/stage_log.h"

struct train_commit {
    struct head *head;     /* borrowed, as the next */
    struct stage_log *log; /* another thread may write lines meanwhile */
    uint64_t number;       /* asked of the head so often */
    bool is_unheard;       /* it has not answered the last of them */
};

/* log_bytes: of the file when `step` was the last that was said. A head that did not answer in time
 * is not waited for until it does. An error of the file is returned. */
int train_commit(struct train_commit *c, uint64_t step, uint64_t log_bytes, struct err *err);

#endif
