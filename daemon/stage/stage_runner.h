/* SPDX-License-Identifier: MIT
 *
 * Runs rounds on one rank: compiles the round's plan, posts its receives, and gives exec the three
 * functions it asks for, filled with the stage's compute and the exchange's transport. On rank 0
 * the head drives it round by round; elsewhere runner_follow obeys the GO messages until the job
 * stops. Main thread of ringd-stage. */
#ifndef DAEMON_STAGE_RUNNER_H
#define DAEMON_STAGE_RUNNER_H

#include <jansson.h>

#include "daemon/stage/exchange/exchange.h"
#include "daemon/common/progress.h"
#include "daemon/stage/stage_go.h"
#include "daemon/stage/serve/rows_ring.h"
#include "daemon/stage/stage_round.h"
#include "daemon/common/job_plan.h"
#include "engine/model/stage.h"

struct runner;

struct runner_setup {
    const struct job_plan *plan; /* borrowed, as all below */
    const struct config *config; /* of the model, that the plan was held against; it is copied */
    uint32_t rank;
    struct stage *const *stages; /* [plan->stages] those that lie here; NULL elsewhere */
    struct exchange *exchange;
    struct progress *progress;
    struct hold *hold; /* NULL: no copies are kept */
    /* After a round with go.trace: what this rank did in it; takes the reference. NULL: nobody
     * wants it. */
    void (*traced)(void *owner, json_t *event);
    /* Rank 1: n bytes of lines that rank 0 has said (hold/line_feed.h), another node's text. It
     * comes before all copies of the steps in it are whole. NULL: nobody wants them. */
    void (*heard)(void *owner, const char *lines, size_t n);
    void (*rounded)(void *owner); /* after every round; may be NULL */
    void (*begun)(void *owner);   /* before the first task there is; may be NULL */
    void *owner;
};
int runner_new(struct runner **ret, const struct runner_setup *setup, struct err *err);
void runner_free(struct runner *r);

/* Rank 0: one round; go->round is filled in. */
int runner_round(struct runner *r, struct go *go, struct head_round *head, struct err *err);
/* Rank 0: the others follow microbatches of rows, which `ret` sends, until rows_ring_end. ret is
 * good as long as the runner. */
int runner_serve(struct runner *r, struct rows_ring *ret, struct err *err);
/* Rank 0: a line for rank 1 as well, with the next round. line: borrowed. Does nothing in a job
 * without copies. */
void runner_add_line(struct runner *r, const json_t *line);
/* Seconds that copies of the latest step took this rank; 0: none were made. */
double runner_hold_seconds(const struct runner *r);
/* Rank 0: between two rounds, nobody asks for one. */
void runner_idle(struct runner *r);
/* Rank 0: tells the others that the job is over and waits until that has left. goes_on: later, so
 * that what copies of the last step are on their way are taken first. */
int runner_stop(struct runner *r, bool goes_on, struct err *err);
/* Any rank, behind the stop: it goes on later. */
bool runner_has_left(const struct runner *r);
/* Other ranks: rounds as they come, until the stop. */
int runner_follow(struct runner *r, struct err *err);

#endif
