/* SPDX-License-Identifier: MIT
 *
 * A run of training, and what is said of its steps: events, lines of --log, and the verdict on a
 * step whose numbers are not finite. Main thread of rank 0. */
#ifndef DAEMON_STAGE_TRAIN_REPORT_H
#define DAEMON_STAGE_TRAIN_REPORT_H

#include "daemon/stage/stage_log.h"
#include "daemon/stage/stage_runner.h"
#include "daemon/stage/train/train_batch.h"
#include "daemon/stage/train/train_guard.h"
#include "daemon/stage/train/train_keep.h"
#include "daemon/stage/train/train_pairs.h"
#include "daemon/stage/train/train_save.h"
#include "net/clock.h"

/* What an adapter has come to. */
struct progress_of {
    double last_loss, last_valid;
    struct instant reported; /* when its last step was */
};

/* A step under way. */
struct train_step {
    struct batch_sum sum;
    size_t first, *packs; /* its first microbatch; [batch] owned: which packs it learns */
};

struct train_run {
    struct head *h;
    struct runner *r;
    struct batch batch;
    struct progress_of of[JOB_MAX_ADAPTERS];
    struct train_step *steps; /* [plan.round_steps] owned, as the next two: of the round */
    struct go_step *go;
    struct head_step *round;
    size_t *packs;                           /* [plan.round_steps · batch] owned */
    struct pair_refs train_refs, valid_refs; /* owned, as the next */
    struct pair_refs more_refs[JOB_EVAL_SETS];
    double *refs;         /* [plan.round_steps · batch] owned: those of the round's pairs, with --loss dpo */
    struct stage_log log; /* owned */
    struct instant traced;   /* when a round was last recorded for people to look at, */
    struct instant reported; /* when a step was last reported, or the round began */
    struct instant held;     /* when copies of a step were last begun, */
    uint64_t held_step;      /* and which; 0: of none */
    struct instant stayed;   /* when it last was to leave, and could not save, */
    uint64_t stays_us;       /* and how long it stays then */
    bool is_one_step;        /* the round has one step alone, and is over before that is reported */
    struct train_save save;
    struct train_keep keep;
    struct train_guard guard;
    char why[1024]; /* of a step that was not applied, with --on-nan stop */
};

/* A run that was interrupted does some steps again: for their numbers, not to say them twice. */
bool train_was_said(const struct train_run *run, const char *kind, size_t adapter, uint64_t step);
/* Whether it is in the file of --log as well. */
bool train_was_told(const struct train_run *run, const char *kind, size_t adapter, uint64_t step);
/* Before anything is said: the node of rank 1, which gets each event as well, is to know what was
 * said in attempts before. */
void train_begin_lines(const struct train_run *run);
/* An event, and a line of --log, each unless it was said before. Takes the reference; NULL: out of
 * memory. Of several adapters each says which it speaks of. more: what only the other of the two
 * has, or NULL; takes the references. */
struct train_more {
    json_t *logged, *said;
};
int train_tell(struct train_run *run, const char *kind, size_t adapter, uint64_t step, json_t *line,
               struct train_more more, struct err *err);

/* head_round.stepped of a round that trains: losses and norm of a step are known, and whether it is
 * applied follows. Of several steps each is reported at once. */
int train_on_stepped(void *run, size_t at, struct err *err);
/* Of several adapters a step's seconds are those since the one before of the same adapter, for so
 * often it comes; the bubble is that since any step ended. */
int train_report_step(struct train_run *run, size_t at, struct err *err);
/* To the daemon: what the run has decided up to `step`, for one that goes on from copies in
 * memory. */
void train_tell_so_far(const struct train_run *run, size_t adapter, uint64_t step);

#endif
